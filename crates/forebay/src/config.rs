//! The settings of a reservoir.

use std::time::Duration;

use crate::seed::Seed;

mod lifetime;
mod validation;

pub use lifetime::Lifetime;
pub use validation::{ConfigError, Problem};

/// The settings of a reservoir. Each has a default. [`Builder::start`](crate::Builder::start) validates all
/// of them and reports all problems at once.
///
/// Each setting is a field to read, and a method of the same name that sets it. The methods document the
/// details.
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
    /// When connections are opened. Set by `target_ready`, `low_watermark` and `on_demand`.
    pub fill: Fill,
    /// How long connections live. `None`: until they fail.
    pub lifetime: Option<Lifetime>,
    /// How long a session can last before the server ends it, if that is known.
    pub server_limit: Option<Duration>,
    /// Whether connections are retired one by one before they expire.
    pub replace_ahead: bool,
    /// How many connections may exist beyond `max_open`. `None`: 5 % of `max_open`.
    pub overlap: Option<usize>,
    /// After which idle time a connection is closed. `None`: never.
    pub idle_timeout: Option<Duration>,
    /// How long a connection may go without a check. `None`: for ever.
    pub check_after: Option<Duration>,
    /// How long callers wait while connections are missing. `None`: for `acquire_timeout`.
    pub empty_wait: Option<Duration>,
    /// How long callers wait for a connection, for any reason.
    pub acquire_timeout: Duration,
    /// How long one open may take.
    pub open_timeout: Duration,
    /// How long a reset or a health check may take.
    pub maintenance_timeout: Duration,
    /// How long a close may take.
    pub close_timeout: Duration,
    /// How many opens may be in flight.
    pub inflight_limit: usize,
    /// The longest pause between failed attempts to open. `None`: it depends on the failure.
    pub max_backoff: Option<Duration>,
    /// Opens per second, in this process.
    pub rate: f64,
    /// Opens at once after a quiet time, in this process. Set by `rate`.
    pub burst: u32,
    /// The longest random delay before the first open.
    pub startup_jitter: Duration,
    /// How long `start` waits for the low watermark.
    pub fill_timeout: Duration,
    /// The seed of all random decisions. `None`: a random seed.
    pub seed: Option<Seed>,
    /// The number of this process in its fleet. `None`: the lease store provides it.
    pub instance_index: Option<u64>,
}

/// When connections are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// A number of connections is always kept ready, ahead of demand.
    ToTarget {
        /// See [`Config::target_ready`].
        target_ready: Option<usize>,
        /// See [`Config::low_watermark`].
        low_watermark: Option<usize>,
    },
    /// Connections are opened when callers wait for them.
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

/// Methods that set one field each.
macro_rules! setters {
    ($($(#[$doc:meta])* $field:ident($argument:ident: $type:ty) => $value:expr;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub const fn $field(mut self, $argument: $type) -> Self {
            self.$field = $value;
            self
        }
    )*};
}

impl Config {
    /// The largest allowed [`max_open`](Self::max_open). Slots have 32-bit numbers, and a typo must not
    /// allocate memory for billions of them.
    pub const MAX_OPEN_LIMIT: usize = 1_000_000;

    setters! {
        /// How many connections callers can have: ready, lent and opening together. Default: 100.
        ///
        /// A replacement is opened before the old connection is closed, so that this number is always
        /// available. For that moment up to [`overlap`](Self::overlap) more connections exist, 5 % by
        /// default. [`max_with_overlap`](Self::max_with_overlap) is the sum. Connections that are being closed
        /// come on top, each for the duration of [`Connect::close`](crate::Connect::close), which is limited
        /// by [`close_timeout`](Self::close_timeout). The leases of a fleet count every connection until it
        /// is closed.
        max_open(connections: usize) => connections;
        /// How long connections live. Default: 11 min, with a jitter of 2 min and a guard window of 45 s. See
        /// [`Lifetime`].
        lifetime(lifetime: Lifetime) => Some(lifetime);
        /// How long a session can last before the server ends it. Validation rejects longer lifetimes.
        /// Default: not known. Aurora DSQL ends sessions after 60 min.
        server_limit(limit: Duration) => Some(limit);
        /// Retires connections one by one before they expire, on a schedule that spreads the retirements over
        /// a whole lifetime. Default: `true`. With `false`, each connection lives until it expires, as with
        /// the maximum lifetime of other pools: connections that were opened together expire together, and
        /// replacements are opened only afterwards.
        replace_ahead(ahead: bool) => ahead;
        /// How many connections may exist beyond `max_open`, while a replacement is ready and the old
        /// connection is not yet retired. Default: 5 % of `max_open`, rounded up. With 0, the old connection
        /// is closed first, and callers have one connection less until the replacement is open.
        overlap(connections: usize) => Some(connections);
        /// Closes connections that were idle for this long, but keeps the target number ready. Default:
        /// never. At least 1 ms.
        idle_timeout(ttl: Duration) => Some(ttl);
        /// For connectors that do not notice when an idle connection dies: checks each connection with
        /// [`Connect::check`](crate::Connect::check), in the background, once it was not opened, reset or
        /// checked for this long and nobody uses it. When one is found dead, all others are checked before
        /// they are lent. Default: never. At least 1 ms.
        check_after(idle: Duration) => Some(idle);
        /// Lets callers give up sooner while connections are missing: once fewer than `max_open` have been
        /// usable for this long. It does not apply while all connections are in use. Default: not set, so
        /// callers wait for `acquire_timeout`. [`Acquire::empty_wait`](crate::Acquire::empty_wait) sets it
        /// for one call.
        empty_wait(wait: Duration) => Some(wait);
        /// How long callers wait for a connection, for any reason. Default: 30 s.
        /// [`Acquire::within`](crate::Acquire::within) sets it for one call.
        acquire_timeout(timeout: Duration) => timeout;
        /// How long one open may take. Getting a token and a lease have the same limit, each. Default: 10 s.
        open_timeout(timeout: Duration) => timeout;
        /// How long a reset or a health check may take. Default: 5 s.
        maintenance_timeout(timeout: Duration) => timeout;
        /// How long a close may take. Afterwards the connection is dropped and its lease is released.
        /// Default: 5 s.
        close_timeout(timeout: Duration) => timeout;
        /// How many opens may be in flight. The reservoir starts only as many as it needs to use the
        /// permitted rate, given how long opens take. Default: 64.
        inflight_limit(opens: usize) => opens;
        /// The longest pause between failed attempts to open. Default: 10 s, or 1 s if getting a token
        /// failed. The default suits fleets and servers that ration connections. A single pool recovers
        /// sooner with a shorter pause.
        max_backoff(pause: Duration) => Some(pause);
        /// The first open waits for a random time of up to this, so that a fleet that starts at once does not
        /// connect at once. Default: 5 s. Zero turns it off.
        startup_jitter(longest: Duration) => longest;
        /// How long [`start`](crate::Builder::start) waits for the low watermark. Afterwards it returns, and
        /// the reservoir serves with the connections it has. Default: 30 s.
        fill_timeout(timeout: Duration) => timeout;
        /// The seed of lifetimes, jitter and backoff. Default: a random seed.
        seed(seed: Seed) => Some(seed);
        /// The number of this process in its fleet: 0, 1, 2 and so on, each used by one process only.
        /// Processes with different numbers retire their connections at different times of day. Default: the
        /// number from the [lease store](crate::Leases::instance_index); without one, the times are random.
        instance_index(number: u64) => Some(number);
    }

    /// How many connections are kept ready. Default: `max_open`, which is also the upper limit: a larger
    /// target is lowered to it.
    #[must_use]
    pub const fn target_ready(mut self, connections: usize) -> Self {
        let low_watermark = match self.fill {
            Fill::ToTarget { low_watermark, .. } => low_watermark,
            Fill::OnDemand { .. } => None,
        };
        self.fill = Fill::ToTarget { target_ready: Some(connections), low_watermark };
        self
    }

    /// How many usable connections [`start`](crate::Builder::start) waits for. Later, [`Logs`](crate::Logs)
    /// warns while fewer are usable. A target below the watermark is raised to it. Default: the target, at
    /// most `max_open`.
    #[must_use]
    pub const fn low_watermark(mut self, connections: usize) -> Self {
        let target_ready = match self.fill {
            Fill::ToTarget { target_ready, .. } => target_ready,
            Fill::OnDemand { .. } => None,
        };
        self.fill = Fill::ToTarget { target_ready, low_watermark: Some(connections) };
        self
    }

    /// Keeps `min_idle` connections ready and opens more only when callers wait, instead of filling to a
    /// target.
    #[must_use]
    pub const fn on_demand(mut self, min_idle: usize) -> Self {
        self.fill = Fill::OnDemand { min_idle };
        self
    }

    /// Keeps connections until they fail.
    #[must_use]
    pub const fn unlimited_lifetime(mut self) -> Self {
        self.lifetime = None;
        self
    }

    /// The local rate limit: opens per second, and opens at once after a quiet time. Default: 10 and 100. It
    /// is not used if the builder has its own [`limit`](crate::Builder::limit). If the server has a rate
    /// limit too, stay a little below it: opens that take different times arrive there in bunches.
    #[must_use]
    pub const fn rate(mut self, per_second: f64, burst: u32) -> Self {
        self.rate = per_second;
        self.burst = burst;
        self
    }

    /// The largest number of connections that can be usable or opening: the sum of `max_open` and the
    /// [overlap](Self::overlap). Connections that are being closed are not counted.
    #[must_use]
    pub fn max_with_overlap(&self) -> usize {
        self.max_open.saturating_add(self.overlap_or_default())
    }

    pub(crate) fn keep_ready(&self) -> usize {
        match self.fill {
            Fill::ToTarget { target_ready, low_watermark } => {
                target_ready.unwrap_or(self.max_open).max(low_watermark.unwrap_or(0)).min(self.max_open)
            }
            Fill::OnDemand { min_idle } => min_idle,
        }
    }

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
            (Config::default().max_with_overlap(), Config::default().overlap(0).max_with_overlap()),
            (105, 100)
        );
    }
}
