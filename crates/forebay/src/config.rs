//! The settings of a reservoir.

use std::time::Duration;

use crate::seed::Seed;

mod lifetime;
mod validation;

pub use lifetime::Lifetime;
pub use validation::{ConfigError, Problem};

/// The settings of a reservoir. Every one has a default; [`Reservoir::builder`](crate::Reservoir::builder) checks them
/// together when it starts, and reports all problems at once.
///
/// Each setting is a field to read, and a method of the same name to set it. The method's documentation has the details.
///
/// ```
/// use std::time::Duration;
/// use forebay::{Config, Lifetime};
///
/// let config = Config::default()
///     .max_open(50)
///     .lifetime(Lifetime::new(Duration::from_secs(55 * 60)).jitter(Duration::from_secs(120)))
///     .rate(100.0, 100);
/// assert_eq!((config.max_open, config.rate, config.burst), (50, 100.0, 100));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// How many connections callers can have.
    pub max_open: usize,
    /// When connections are opened: set by `target_ready`, `low_watermark` and `on_demand`.
    pub fill: Fill,
    /// How long connections live; none: until they fail.
    pub lifetime: Option<Lifetime>,
    /// When the server ends a session by itself, if that is known.
    pub server_limit: Option<Duration>,
    /// Whether connections are retired one by one ahead of their end.
    pub replace_ahead: bool,
    /// How many connections beyond `max_open` may exist; none: 5 % of it.
    pub overlap: Option<usize>,
    /// After how long an unused connection is closed, if it is.
    pub idle_timeout: Option<Duration>,
    /// After how long an unused connection is checked, if it is.
    pub check_after: Option<Duration>,
    /// How long callers wait while connections are missing; none: for the acquire timeout.
    pub empty_wait: Option<Duration>,
    /// How long a caller waits for a connection, whatever the reason.
    pub acquire_timeout: Duration,
    /// How long one open may take.
    pub open_timeout: Duration,
    /// How long a reset or a health check may take.
    pub maintenance_timeout: Duration,
    /// How long a close may take.
    pub close_timeout: Duration,
    /// How many opens may be in flight.
    pub inflight_limit: usize,
    /// The longest pause between two attempts to open that fail; none: depends on the failure.
    pub max_backoff: Option<Duration>,
    /// Opens a second, in this process.
    pub rate: f64,
    /// Opens at once after a quiet time, in this process: set by `rate`.
    pub burst: u32,
    /// The longest wait before the first open.
    pub startup_jitter: Duration,
    /// How long starting waits for the low watermark.
    pub fill_timeout: Duration,
    /// Where chance is drawn from, if it is set.
    pub seed: Option<Seed>,
    /// The number of this process in its fleet, if it is set.
    pub instance_index: Option<u64>,
}

/// When connections are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// A number of connections is always kept ready.
    ToTarget {
        /// See [`Config::target_ready`].
        target_ready: Option<usize>,
        /// See [`Config::low_watermark`].
        low_watermark: Option<usize>,
    },
    /// Connections are opened for callers who wait.
    OnDemand {
        /// See [`Config::on_demand`].
        min_idle: usize,
    },
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_open: 100,
            fill: Fill::ToTarget { target_ready: None, low_watermark: None },
            lifetime: Some(Lifetime::default()),
            server_limit: None,
            replace_ahead: true,
            overlap: None,
            idle_timeout: None,
            check_after: None,
            empty_wait: None,
            acquire_timeout: Duration::from_secs(30),
            open_timeout: Duration::from_secs(10),
            maintenance_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(5),
            inflight_limit: 64,
            max_backoff: None,
            rate: 10.0,
            burst: 100,
            startup_jitter: Duration::from_secs(5),
            fill_timeout: Duration::from_secs(30),
            seed: None,
            instance_index: None,
        }
    }
}

impl Config {
    /// The most that [`max_open`](Self::max_open) can be: slots are numbered in 32 bits, and a typo should not allocate
    /// memory for billions.
    pub const MAX_OPEN_LIMIT: usize = 1_000_000;

    /// How many connections callers can have: ready, lent and opening together. Default 100.
    ///
    /// A replacement is opened before the old connection is closed, so that callers have all of these at any time. For that
    /// moment up to [`overlap`](Self::overlap) more exist, 5 % by default. [`max_connections`](Self::max_connections) is the
    /// sum. Connections that are being closed come on top: that takes as long as [`Connect::close`](crate::Connect::close), and
    /// at most [`close_timeout`](Self::close_timeout). A fleet's leases count every connection until it is closed.
    #[must_use]
    pub const fn max_open(mut self, connections: usize) -> Self {
        self.max_open = connections;
        self
    }

    /// How many connections are kept ready at all times. Default: `max_open`, and never more than that.
    #[must_use]
    pub const fn target_ready(mut self, connections: usize) -> Self {
        let low_watermark = match self.fill {
            Fill::ToTarget { low_watermark, .. } => low_watermark,
            Fill::OnDemand { .. } => None,
        };
        self.fill = Fill::ToTarget { target_ready: Some(connections), low_watermark };
        self
    }

    /// How many usable connections the first fill waits for. Fewer than that later on are logged as a warning.
    /// Default: the smaller of target and `max_open`. A target below it is raised to it.
    #[must_use]
    pub const fn low_watermark(mut self, connections: usize) -> Self {
        let target_ready = match self.fill {
            Fill::ToTarget { target_ready, .. } => target_ready,
            Fill::OnDemand { .. } => None,
        };
        self.fill = Fill::ToTarget { target_ready, low_watermark: Some(connections) };
        self
    }

    /// Keeps `min_idle` connections ready, and opens others only for callers who wait, instead of filling to a target.
    #[must_use]
    pub const fn on_demand(mut self, min_idle: usize) -> Self {
        self.fill = Fill::OnDemand { min_idle };
        self
    }

    /// How long connections live. Default: 11 min, jitter 2 min, guard window 45 s.
    #[must_use]
    pub const fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.lifetime = Some(lifetime);
        self
    }

    /// Lets connections live until they fail.
    #[must_use]
    pub const fn unlimited_lifetime(mut self) -> Self {
        self.lifetime = None;
        self
    }

    /// When the server ends a session by itself; no life may be longer. Default: not known. Aurora DSQL: 60 min.
    #[must_use]
    pub const fn server_limit(mut self, limit: Duration) -> Self {
        self.server_limit = Some(limit);
        self
    }

    /// Retires connections one by one ahead of their end, on a schedule that spreads them over a life. Default: true. With
    /// `false` each lives to its end, as with the maximum lifetime of other pools: those opened together expire together, and
    /// nothing is opened in their place before.
    #[must_use]
    pub const fn replace_ahead(mut self, ahead: bool) -> Self {
        self.replace_ahead = ahead;
        self
    }

    /// How many connections beyond `max_open` may exist while a replacement is ready and the old one is not yet
    /// retired. Default: 5 % of `max_open`, at least 1. With 0 the old one is closed first, and callers have one connection
    /// less while it is replaced.
    #[must_use]
    pub const fn overlap(mut self, connections: usize) -> Self {
        self.overlap = Some(connections);
        self
    }

    /// Closes connections that were idle for this long, down to the number kept ready. Default: never.
    #[must_use]
    pub const fn idle_timeout(mut self, ttl: Duration) -> Self {
        self.idle_timeout = Some(ttl);
        self
    }

    /// Checks connections that were idle for this long, in the background, and again each time as much passes.
    /// Default: never.
    #[must_use]
    pub const fn check_after(mut self, idle: Duration) -> Self {
        self.check_after = Some(idle);
        self
    }

    /// Callers give up sooner while the reservoir is short of connections: once it has been short for this long. While all
    /// connections are in use, this does not apply. Default: not set, so callers wait for the acquire timeout, whatever the
    /// reason. [`Acquire::empty_wait`](crate::Acquire::empty_wait) sets it for one call.
    #[must_use]
    pub const fn empty_wait(mut self, wait: Duration) -> Self {
        self.empty_wait = Some(wait);
        self
    }

    /// How long a caller waits for a connection, whatever the reason. Default 30 s.
    /// [`Acquire::within`](crate::Acquire::within) sets it for one call.
    #[must_use]
    pub const fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.acquire_timeout = timeout;
        self
    }

    /// How long one open may take. Default 10 s.
    #[must_use]
    pub const fn open_timeout(mut self, timeout: Duration) -> Self {
        self.open_timeout = timeout;
        self
    }

    /// How long a reset or a health check may take. Default 5 s.
    #[must_use]
    pub const fn maintenance_timeout(mut self, timeout: Duration) -> Self {
        self.maintenance_timeout = timeout;
        self
    }

    /// How long a close may take before the connection is dropped and its lease released. Default 5 s.
    #[must_use]
    pub const fn close_timeout(mut self, timeout: Duration) -> Self {
        self.close_timeout = timeout;
        self
    }

    /// How many opens may be in flight. There are as many as the rate and the time of an open need. Default 64.
    #[must_use]
    pub const fn inflight_limit(mut self, opens: usize) -> Self {
        self.inflight_limit = opens;
        self
    }

    /// The longest pause between two attempts to open that fail. Default: 10 s, or 1 s if there was no token, which suits a
    /// fleet and a server that rations connections. A single pool can recover sooner with a shorter one.
    #[must_use]
    pub const fn max_backoff(mut self, pause: Duration) -> Self {
        self.max_backoff = Some(pause);
        self
    }

    /// The local limit: opens a second, and opens at once after a quiet time. Default 10 and 100. Not used if the builder
    /// has a limiter of its own. If the server has a limit too, stay a little below it: opens that take longer than others
    /// arrive in bunches there.
    #[must_use]
    pub const fn rate(mut self, per_second: f64, burst: u32) -> Self {
        self.rate = per_second;
        self.burst = burst;
        self
    }

    /// Waits a random time up to this before the first open, so that a fleet that is started at once does not connect all at
    /// once. Default 5 s; zero turns it off.
    #[must_use]
    pub const fn startup_jitter(mut self, longest: Duration) -> Self {
        self.startup_jitter = longest;
        self
    }

    /// How long starting waits for the low watermark. Then the reservoir serves with what it has. Default 30 s.
    #[must_use]
    pub const fn fill_timeout(mut self, timeout: Duration) -> Self {
        self.fill_timeout = timeout;
        self
    }

    /// Where lifetimes, jitter and backoff are drawn from. Default: a random seed.
    #[must_use]
    pub const fn seed(mut self, seed: Seed) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The number of this process in its fleet: 0, 1, 2 and so on, each used by one process only. The processes of a fleet
    /// then retire their connections in turns, by the time of day, and not at the same time. Default: that of the
    /// [leases](crate::Leases::instance_index); if they have none, turns are random.
    #[must_use]
    pub const fn instance_index(mut self, number: u64) -> Self {
        self.instance_index = Some(number);
        self
    }

    /// The most connections that are usable or opening at once, replacements included: the sum of `max_open` and the
    /// [overlap](Self::overlap). Connections that are being closed are not counted.
    #[must_use]
    pub fn max_connections(&self) -> usize {
        self.max_open.saturating_add(self.overlap_or_default())
    }

    /// How many connections are kept ready.
    pub(crate) fn keep_ready(&self) -> usize {
        match self.fill {
            Fill::ToTarget { target_ready, low_watermark } => {
                target_ready.unwrap_or(self.max_open).max(low_watermark.unwrap_or(0)).min(self.max_open)
            }
            Fill::OnDemand { min_idle } => min_idle,
        }
    }

    /// How many usable connections the first fill waits for.
    pub(crate) fn watermark(&self) -> usize {
        match self.fill {
            Fill::ToTarget { low_watermark: Some(low_watermark), .. } => low_watermark,
            Fill::ToTarget { .. } | Fill::OnDemand { .. } => self.keep_ready().min(self.max_open),
        }
    }

    pub(crate) fn overlap_or_default(&self) -> usize {
        self.overlap.unwrap_or_else(|| self.max_open.div_ceil(20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_documented_numbers() {
        let second = Duration::from_secs(1);
        let config = Config::default();
        config.validate().unwrap();
        assert_eq!((config.max_open, config.rate, config.burst, config.inflight_limit), (100, 10.0, 100, 64));
        let Lifetime { base, jitter, guard } = config.lifetime.unwrap();
        assert_eq!((base, jitter, guard), (660 * second, 120 * second, 45 * second));
        assert_eq!((config.open_timeout, config.acquire_timeout), (10 * second, 30 * second));
        assert_eq!((config.fill_timeout, config.startup_jitter), (30 * second, 5 * second));
        assert_eq!((config.maintenance_timeout, config.close_timeout), (5 * second, 5 * second));
        let unset = [
            config.server_limit,
            config.idle_timeout,
            config.check_after,
            config.empty_wait,
            config.max_backoff,
        ];
        assert_eq!(unset, [None; 5]);
        assert_eq!((config.overlap, config.seed, config.instance_index), (None, None, None));
        assert_eq!((config.keep_ready(), config.watermark(), config.overlap_or_default()), (100, 100, 5));
        let life = Lifetime::default();
        assert_eq!((life.shortest(), life.longest()), (Duration::from_secs(600), Duration::from_secs(720)));
    }

    #[test]
    fn the_watermark_follows_the_target_and_raises_it() {
        let config = Config::default().max_open(50);
        assert_eq!(config.clone().target_ready(20).watermark(), 20);
        assert_eq!(config.clone().target_ready(80).watermark(), 50);
        assert_eq!(config.clone().target_ready(usize::MAX).keep_ready(), 50, "no more than there may be");
        assert_eq!(config.clone().target_ready(20).low_watermark(30).keep_ready(), 30);
        assert_eq!(config.clone().on_demand(2).keep_ready(), 2);
        assert_eq!(Config::default().max_open(3).overlap_or_default(), 1);
        assert_eq!(Config::default().overlap(0).overlap_or_default(), 0);
        assert_eq!(
            (Config::default().max_connections(), Config::default().overlap(0).max_connections()),
            (105, 100)
        );
    }
}
