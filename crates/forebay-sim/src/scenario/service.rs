//! The services of a scenario, and their workloads.

use std::time::Duration;

use forebay::{Config, Lifetime, duration};

use super::reader::Section;
use super::{Cluster, MINUTE, MOST, MOST_INSTANCES, SECOND};

/// One instance of a service: a process with one reservoir.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Its unique name.
    pub name: String,
    /// How many connections it should own, ready or in use.
    pub target_ready: usize,
    /// How many it may own.
    pub max_open: usize,
    /// How many more while replacements overlap with the connections they replace.
    pub overlap: usize,
    /// A connection with less time left is not lent.
    pub guard_window: Duration,
    /// The mean life of a connection.
    pub base_lifetime: Duration,
    /// Lives vary by half of this, either way.
    pub jitter: Duration,
    /// When it starts.
    pub start_delay: Duration,
    /// The most opens in flight.
    pub inflight_limit: usize,
    /// How long a caller waits while the reservoir lacks connections, if limited.
    pub empty_wait: Option<Duration>,
    /// Its workload.
    pub workload: Workload,
}

/// The callers of an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Whether there are callers.
    pub enabled: bool,
    /// No new caller comes while this many are active; zero: no limit.
    pub max_in_use: usize,
    /// How long a caller holds its connection.
    pub hold_time: Duration,
    /// A random time of up to this is added.
    pub hold_jitter: Duration,
    /// When callers come.
    pub arrivals: Arrivals,
    /// How long a caller waits; zero: the reservoir's own limits.
    pub max_wait: Duration,
    /// The load at the quietest time of day as a share of the peak; one: constant.
    pub daily_low: f64,
    /// The time of day of the peak.
    pub daily_peak: Duration,
    /// The factor of a surge.
    pub surge_times: f64,
    /// The time between two surges.
    pub surge_every: Duration,
    /// The length of a surge.
    pub surge_length: Duration,
}

/// When callers come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Several at once, at regular times.
    Batches {
        /// The time between two batches.
        every: Duration,
        /// Callers per batch.
        size: u32,
    },
    /// A Poisson process.
    Poisson {
        /// The mean rate at the daily peak.
        per_second: f64,
    },
}

impl Service {
    /// Reads one service. Returns one instance per replica.
    pub(super) fn read(section: &mut Section<'_>, cluster: &Cluster) -> Vec<Self> {
        let name = section.text("name", "");
        section.demand(!name.is_empty(), "name", || "a service needs a name".to_owned());
        let replicas = section.whole("replicas", 1, 1, MOST_INSTANCES);
        let target_ready = section.count("targetReady", 50, 1, MOST);
        let max_open = section.count("maxOpen", target_ready, 1, MOST);
        let overlap = section.count("overlap", max_open.div_ceil(20), 0, MOST);
        let guard_window = section.duration("guardWindow", Duration::from_secs(45));
        let base_lifetime = section.span("baseLifetime", 11 * MINUTE);
        let jitter = section.duration("jitter", 2 * MINUTE);
        let start_delay = section.duration("startDelay", Duration::ZERO);
        let start_step = section.duration("startStep", Duration::ZERO);
        let inflight_limit = section.count("inflightLimit", 64, 1, MOST);
        let empty_wait =
            section.has("emptyWait").then(|| section.duration("emptyWait", Duration::from_millis(100)));
        let workload = section.section("workload", Workload::read);

        section.demand(max_open >= target_ready, "maxOpen", || {
            format!("{max_open} is below targetReady, which is {target_ready}")
        });
        section.demand(overlap <= max_open, "overlap", || {
            format!("{overlap} is above maxOpen, which is {max_open}")
        });
        let (shortest, longest) = (base_lifetime.saturating_sub(jitter / 2), base_lifetime + jitter / 2);
        section.demand(guard_window < shortest, "guardWindow", || {
            format!(
                "{} is not below the shortest life (baseLifetime - jitter/2), which is {}",
                duration::show(guard_window),
                duration::show(shortest)
            )
        });
        section.demand(longest < cluster.session_length, "baseLifetime", || {
            format!(
                "the longest life (baseLifetime + jitter/2), {}, is not below cluster.sessionLength, which is {}",
                duration::show(longest),
                duration::show(cluster.session_length)
            )
        });
        (0..replicas)
            .map(|replica| Self {
                name: if replicas == 1 { name.clone() } else { format!("{name}-{replica}") },
                target_ready,
                max_open,
                overlap,
                guard_window,
                base_lifetime,
                jitter,
                start_delay: start_delay
                    + start_step.saturating_mul(u32::try_from(replica).unwrap_or(u32::MAX)),
                inflight_limit,
                empty_wait,
                workload: workload.clone(),
            })
            .collect()
    }

    /// The maximum age of a connection at checkout.
    #[must_use]
    pub fn oldest_lent(&self) -> Duration {
        (self.base_lifetime + self.jitter / 2).saturating_sub(self.guard_window)
    }

    /// The configuration of its reservoir.
    #[must_use]
    pub fn config(&self) -> Config {
        let lifetime = Lifetime::new(self.base_lifetime).jitter(self.jitter).guard_window(self.guard_window);
        let config = Config::default()
            .max_open(self.max_open)
            .target_ready(self.target_ready)
            .overlap(self.overlap)
            .lifetime(lifetime)
            .inflight_limit(self.inflight_limit)
            // The scenario sets the start of each instance.
            .startup_jitter(Duration::ZERO)
            // The simulator has its own wait for the first fill.
            .fill_timeout(Duration::from_secs(24 * 3600));
        match self.empty_wait {
            Some(wait) => config.empty_wait(wait),
            None => config,
        }
    }
}

/// No callers.
impl Default for Workload {
    fn default() -> Self {
        Section::nothing(Self::read)
    }
}

impl Workload {
    /// The longest time that a caller holds a connection; zero without callers.
    #[must_use]
    pub fn longest_hold(&self) -> Duration {
        if self.enabled { self.hold_time + self.hold_jitter } else { Duration::ZERO }
    }

    fn read(section: &mut Section<'_>) -> Self {
        let batches = Arrivals::Batches {
            every: section.value(
                "spawnEvery",
                Duration::from_millis(200),
                "a duration of at least 10us",
                |text| duration::parse(text).filter(|every| *every >= Duration::from_micros(10)),
            ),
            size: super::bounded(section.whole("arrivalBurst", 5, 1, 1_000_000)),
        };
        let arrivals = if section.has("perSecond") {
            for key in ["spawnEvery", "arrivalBurst"] {
                let both = section.has(key);
                section.demand(!both, key, || {
                    "give either perSecond, or spawnEvery and arrivalBurst".to_owned()
                });
            }
            Arrivals::Poisson { per_second: section.number("perSecond", 1.0, 1e-6, 1e6) }
        } else {
            batches
        };
        let (daily_low, daily_peak) = section.section("daily", |section| {
            let peak_at = section.duration("peakAt", Duration::from_secs(14 * 3600));
            let within_a_day = peak_at < Duration::from_secs(24 * 3600);
            section.demand(within_a_day, "peakAt", || "a time of day must be below 24h".to_owned());
            (section.number("low", 1.0, 0.0, 1.0), peak_at)
        });
        let (surge_times, surge_every, surge_length) = section.section("surge", |section| {
            let surge = (
                section.number("times", 1.0, 0.0, 1000.0),
                section.span("every", 10 * MINUTE),
                section.span("length", 5 * SECOND),
            );
            section.demand(surge.2 < surge.1, "length", || {
                format!(
                    "{} is not shorter than every, which is {}",
                    duration::show(surge.2),
                    duration::show(surge.1)
                )
            });
            surge
        });
        Self {
            enabled: section.flag("enabled", false),
            max_in_use: section.count("maxInUse", 0, 0, MOST),
            hold_time: section.duration("holdTime", Duration::from_millis(10)),
            hold_jitter: section.duration("holdJitter", Duration::ZERO),
            arrivals,
            max_wait: section.duration("maxWait", Duration::from_secs(10)),
            daily_low,
            daily_peak,
            surge_times,
            surge_every,
            surge_length,
        }
    }
}
