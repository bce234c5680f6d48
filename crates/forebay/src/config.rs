//! What can be set, and what makes sense.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::duration::show;
use crate::seed::Seed;

mod env;
mod figures;
mod variables;

pub use env::{
    AwayPolicy, EnvReader, Environment, LeaseMode, LeaseSettings, Note, RateMode, RateSettings,
    StandardSettings, closest,
};
pub use figures::Figures;
pub use variables::{Variable, manual, variables};

/// The settings of a reservoir. Every one has a default; [`Reservoir::builder`](crate::Reservoir::builder) checks them
/// together when it starts, and reports all problems at once.
///
/// ```
/// use std::time::Duration;
/// use forebay::{Config, Lifetime};
///
/// let config = Config::default()
///     .max_open(50)
///     .lifetime(Lifetime::new(Duration::from_secs(55 * 60)).jitter(Duration::from_secs(120)))
///     .rate(100.0, 100);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub(crate) max_open: usize,
    pub(crate) fill: Fill,
    pub(crate) lifetime: Option<Lifetime>,
    pub(crate) server_limit: Option<Duration>,
    pub(crate) overlap: Option<usize>,
    pub(crate) idle_ttl: Option<Duration>,
    pub(crate) check_after: Option<Duration>,
    pub(crate) empty_wait: Option<Duration>,
    pub(crate) acquire_timeout: Duration,
    pub(crate) open_timeout: Duration,
    pub(crate) care_timeout: Duration,
    pub(crate) close_timeout: Duration,
    pub(crate) inflight_limit: usize,
    pub(crate) longest_pause: Option<Duration>,
    pub(crate) rate: f64,
    pub(crate) burst: u32,
    pub(crate) stagger: Duration,
    pub(crate) fill_timeout: Duration,
    pub(crate) seed: Option<Seed>,
    pub(crate) place_in_fleet: Option<u64>,
}

/// When connections are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Always keep so many ready.
    ToTarget { target_ready: Option<usize>, low_watermark: Option<usize> },
    /// Open for callers who wait, beyond a few kept ready.
    OnDemand { min_idle: usize },
}

/// How long a connection lives, and when it is too old to be handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub(crate) base: Duration,
    pub(crate) jitter: Duration,
    pub(crate) guard: Duration,
}

impl Lifetime {
    /// Lives of length `base`, all alike, handed out to the end.
    #[must_use]
    pub const fn new(base: Duration) -> Self {
        Self { base, jitter: Duration::ZERO, guard: Duration::ZERO }
    }

    /// Draws each life from `base - jitter/2` to `base + jitter/2`.
    #[must_use]
    pub const fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Does not hand out a connection with less than this left: longer than the longest transaction.
    #[must_use]
    pub const fn guard_window(mut self, guard: Duration) -> Self {
        self.guard = guard;
        self
    }

    pub(crate) fn shortest(&self) -> Duration {
        self.base.saturating_sub(self.jitter / 2)
    }

    pub(crate) fn longest(&self) -> Duration {
        self.base.saturating_add(self.jitter / 2)
    }
}

/// 11 minutes, give or take one, and 45 seconds of guard window.
impl Default for Lifetime {
    fn default() -> Self {
        Self::new(Duration::from_secs(11 * 60))
            .jitter(Duration::from_secs(2 * 60))
            .guard_window(Duration::from_secs(45))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_open: 100,
            fill: Fill::ToTarget { target_ready: None, low_watermark: None },
            lifetime: Some(Lifetime::default()),
            server_limit: None,
            overlap: None,
            idle_ttl: None,
            check_after: None,
            empty_wait: None,
            acquire_timeout: Duration::from_secs(30),
            open_timeout: Duration::from_secs(10),
            care_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(5),
            inflight_limit: 64,
            longest_pause: None,
            rate: 10.0,
            burst: 100,
            stagger: Duration::from_secs(5),
            fill_timeout: Duration::from_secs(30),
            seed: None,
            place_in_fleet: None,
        }
    }
}

impl Config {
    /// How many connections the reservoir may own: ready, lent and opening together. Default 100.
    #[must_use]
    pub const fn max_open(mut self, connections: usize) -> Self {
        self.max_open = connections;
        self
    }

    /// Keeps so many connections ready at all times, as far as `max_open` leaves room. Default: `max_open`.
    #[must_use]
    pub const fn target_ready(mut self, connections: usize) -> Self {
        let low_watermark = match self.fill {
            Fill::ToTarget { low_watermark, .. } => low_watermark,
            Fill::OnDemand { .. } => None,
        };
        self.fill = Fill::ToTarget { target_ready: Some(connections), low_watermark };
        self
    }

    /// How many usable connections the first fill waits for; fewer later on are worth a warning.
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

    /// Opens connections only for callers who wait, beyond `min_idle` that are kept ready. Instead of filling to a
    /// target.
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

    /// How many connections beyond `max_open` may exist while a replacement is ready and the old one is not yet
    /// retired. Default: 5 % of `max_open`, at least 1. With 0 the old one is closed first.
    #[must_use]
    pub const fn overlap(mut self, connections: usize) -> Self {
        self.overlap = Some(connections);
        self
    }

    /// Closes connections that nobody has used for so long, down to the number kept ready. Default: never.
    #[must_use]
    pub const fn idle_ttl(mut self, ttl: Duration) -> Self {
        self.idle_ttl = Some(ttl);
        self
    }

    /// Checks connections that nobody has used for so long, in the background, and each such time again.
    /// Default: never.
    #[must_use]
    pub const fn check_after(mut self, idle: Duration) -> Self {
        self.check_after = Some(idle);
        self
    }

    /// How long a caller waits while the reservoir is short of connections. Default 100 ms; on demand, where
    /// callers wait for an open as a matter of course, the acquire timeout.
    #[must_use]
    pub const fn empty_wait(mut self, wait: Duration) -> Self {
        self.empty_wait = Some(wait);
        self
    }

    /// How long a caller waits while all connections are in use. Default 30 s.
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
    pub const fn care_timeout(mut self, timeout: Duration) -> Self {
        self.care_timeout = timeout;
        self
    }

    /// How long a close may take before the connection is dropped and its lease released. Default 5 s.
    #[must_use]
    pub const fn close_timeout(mut self, timeout: Duration) -> Self {
        self.close_timeout = timeout;
        self
    }

    /// How many opens may be in flight at most; as many are as rate and open time ask for. Default 64.
    #[must_use]
    pub const fn inflight_limit(mut self, opens: usize) -> Self {
        self.inflight_limit = opens;
        self
    }

    /// The longest pause between two attempts to open that fail. Default: 10 s, or 1 s where no token could be had, which suits a
    /// fleet before a server that rations connections. A single pool before a server that does not can be back sooner.
    #[must_use]
    pub const fn longest_pause(mut self, pause: Duration) -> Self {
        self.longest_pause = Some(pause);
        self
    }

    /// The local limit: opens a second, and opens at once after a quiet time. Default 10 and 100. Not used if
    /// the builder is given a limiter of its own. Against a server that counts too, stay a little below its figures:
    /// an open that is under way for longer than the one after it arrives late, and may be one too many there.
    #[must_use]
    pub const fn rate(mut self, per_second: f64, burst: u32) -> Self {
        self.rate = per_second;
        self.burst = burst;
        self
    }

    /// Waits a random time up to this before the first open, so that a fleet that starts at once does not open at
    /// once. Default 5 s; zero turns it off.
    #[must_use]
    pub const fn stagger(mut self, longest: Duration) -> Self {
        self.stagger = longest;
        self
    }

    /// How long starting waits for the low watermark before it serves with what there is. Default 30 s.
    #[must_use]
    pub const fn fill_timeout(mut self, timeout: Duration) -> Self {
        self.fill_timeout = timeout;
        self
    }

    /// Where lifetimes, jitter and backoff are drawn from. Default: a seed nobody can guess.
    #[must_use]
    pub const fn seed(mut self, seed: Seed) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The number of this process in its fleet: 0, 1, 2 and so on, each taken by one process only. The processes of a
    /// fleet then retire their connections in turns, by the time of day, and not some of them at once. Default: none;
    /// turns are drawn by lot.
    #[must_use]
    pub const fn place_in_fleet(mut self, number: u64) -> Self {
        self.place_in_fleet = Some(number);
        self
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

    pub(crate) fn empty_wait_or_default(&self) -> Duration {
        self.empty_wait.unwrap_or(match self.fill {
            Fill::ToTarget { .. } => Duration::from_millis(100),
            Fill::OnDemand { .. } => self.acquire_timeout,
        })
    }

    pub(crate) fn overlap_or_default(&self) -> usize {
        self.overlap.unwrap_or_else(|| self.max_open.div_ceil(20))
    }

    /// Looks for settings that make no sense together.
    ///
    /// # Errors
    /// All of them, not just the first.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut problems = Vec::new();
        let mut demand = |holds: bool, setting: &'static str, value: &dyn fmt::Display, allowed: String| {
            if !holds {
                problems.push(Problem { setting: setting.into(), value: value.to_string(), allowed });
            }
        };
        let max_open = self.max_open;
        demand(max_open >= 1, "max_open", &max_open, "at least 1".into());
        demand(max_open <= MOST, "max_open", &max_open, format!("at most {MOST}"));
        let overlap = self.overlap_or_default();
        demand(
            overlap <= max_open.max(1),
            "overlap",
            &overlap,
            format!("at most max_open, which is {max_open}"),
        );
        match self.fill {
            Fill::ToTarget { low_watermark: Some(mark), .. } => {
                demand(
                    mark <= max_open,
                    "low_watermark",
                    &mark,
                    format!("at most max_open, which is {max_open}"),
                );
            }
            Fill::OnDemand { min_idle } => {
                demand(
                    min_idle <= max_open,
                    "min_idle",
                    &min_idle,
                    format!("at most max_open, which is {max_open}"),
                );
            }
            Fill::ToTarget { .. } => {}
        }
        if let Some(life) = &self.lifetime {
            let shortest = life.shortest();
            demand(!life.base.is_zero(), "base_lifetime", &show(life.base), "above zero".into());
            demand(
                life.guard < shortest,
                "guard_window",
                &show(life.guard),
                format!("below the shortest life (base - jitter/2), which is {}", show(shortest)),
            );
            if let Some(limit) = self.server_limit {
                demand(
                    life.longest() < limit,
                    "base_lifetime",
                    &show(life.base),
                    format!(
                        "so short that base + jitter/2, now {}, is below the server's limit of {}",
                        show(life.longest()),
                        show(limit)
                    ),
                );
            }
        }
        demand(self.rate.is_finite() && self.rate > 0.0, "rate", &self.rate, "a number above zero".into());
        demand(self.burst >= 1, "burst", &self.burst, "at least 1".into());
        demand(self.inflight_limit >= 1, "inflight_limit", &self.inflight_limit, "at least 1".into());
        for (name, timeout) in [
            ("open_timeout", self.open_timeout),
            ("care_timeout", self.care_timeout),
            ("close_timeout", self.close_timeout),
            ("longest_pause", self.longest_pause.unwrap_or(Duration::MAX)),
        ] {
            demand(!timeout.is_zero(), name, &show(timeout), "above zero".into());
        }
        for (name, idle) in [("idle_ttl", self.idle_ttl), ("check_after", self.check_after)] {
            demand(
                idle.is_none_or(|idle| idle >= Duration::from_millis(1)),
                name,
                &show(idle.unwrap_or_default()),
                "at least 1ms, or not set".into(),
            );
        }
        if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
    }
}

/// The most connections one reservoir can own: slots are numbered in 32 bits, and a typo should not ask for memory
/// for billions.
const MOST: usize = 1_000_000;

/// One setting that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its name; in an environment, the variable's.
    pub setting: Cow<'static, str>,
    /// What it was set to.
    pub value: String,
    /// What it may be.
    pub allowed: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, but must be {}", self.setting, self.value, self.allowed)
    }
}

/// Settings that make no sense, all of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} in the configuration:{}", count(.problems.len()), list(.problems))]
pub struct ConfigError {
    /// What is wrong, in the order of the settings.
    pub problems: Vec<Problem>,
}

fn count(problems: usize) -> String {
    if problems == 1 { "1 problem".into() } else { format!("{problems} problems") }
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("\n  - {problem}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_make_sense() {
        let config = Config::default();
        config.validate().unwrap();
        assert_eq!((config.keep_ready(), config.watermark(), config.overlap_or_default()), (100, 100, 5));
        assert_eq!(config.empty_wait_or_default(), Duration::from_millis(100));
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
        assert_eq!(config.clone().on_demand(2).empty_wait_or_default(), Duration::from_secs(30));
        assert_eq!(config.on_demand(2).empty_wait(Duration::ZERO).empty_wait_or_default(), Duration::ZERO);
        assert_eq!(Config::default().max_open(3).overlap_or_default(), 1);
        assert_eq!(Config::default().overlap(0).overlap_or_default(), 0);
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let minute = Duration::from_secs(60);
        let error = Config::default()
            .max_open(0)
            .low_watermark(1)
            .lifetime(Lifetime::new(60 * minute).jitter(2 * minute).guard_window(60 * minute))
            .server_limit(60 * minute)
            .rate(f64::NAN, 0)
            .inflight_limit(0)
            .open_timeout(Duration::ZERO)
            .idle_ttl(Duration::ZERO)
            .validate()
            .unwrap_err();
        let settings: Vec<_> = error.problems.iter().map(|problem| &*problem.setting).collect();
        assert_eq!(
            settings,
            [
                "max_open",
                "low_watermark",
                "guard_window",
                "base_lifetime",
                "rate",
                "burst",
                "inflight_limit",
                "open_timeout",
                "idle_ttl"
            ]
        );
        let text = error.to_string();
        assert!(
            text.starts_with("9 problems in the configuration:\n  - max_open is 0, but must be at least 1")
        );
        assert!(text.contains("guard_window is 1h0m0s, but must be below the shortest life"));
    }

    #[test]
    fn limits_are_exclusive_where_they_say_so() {
        let config = |life: Lifetime| Config::default().lifetime(life).server_limit(Duration::from_secs(61));
        let life = Lifetime::new(Duration::from_secs(60));
        assert!(config(life).validate().is_ok());
        assert!(config(life.jitter(Duration::from_secs(2))).validate().is_err());
        assert!(config(life.guard_window(Duration::from_secs(60))).validate().is_err());
        assert!(Config::default().max_open(MOST).validate().is_ok());
        assert!(Config::default().max_open(MOST + 1).validate().is_err());
        assert!(Config::default().max_open(5).on_demand(5).validate().is_ok());
        assert!(Config::default().max_open(5).on_demand(6).validate().is_err());
    }
}
