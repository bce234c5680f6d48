//! The result of a run.

use std::time::Duration;

use forebay::{Discard, Failure};

use crate::judge::{Recovery, Verdict};
use crate::replay;
use crate::samples::{Sample, Sampler};
use crate::world::World;

mod format;
mod json;
mod summary;

pub use format::grouped;
pub(crate) use format::{about, plural};

/// The result of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The scenario's name.
    pub scenario: String,
    /// The seed of the run.
    pub seed: u64,
    /// The cluster's name in the scenario.
    pub endpoint: String,
    /// Remarks about doubtful settings.
    pub notes: Vec<String>,
    /// The keys that were overridden on the command line, as `path=value`.
    pub settings: Vec<String>,
    /// A hash over all events: the same for the same scenario and seed, on every machine.
    pub trace_hash: String,
    /// How many events the hash covers.
    pub events: u64,
    /// The duration of the run in virtual time, without the shutdown.
    pub virtual_time: Duration,
    /// How many instances the fleet has.
    pub instances: usize,
    /// The sum of all targets.
    pub target: usize,
    /// How many connections the limiter lets the fleet open per second.
    pub limiter_per_sec: f64,
    /// The most connects the cluster saw in one second.
    pub max_connects_per_sec: u64,
    /// The most connects the cluster saw in one second without a disturbance.
    pub max_renewals_per_sec: u64,
    /// The most connections that reservoirs closed by their own decision in one second.
    pub max_closures_per_sec: u64,
    /// The most connections that were open at a time, by the cluster's count.
    pub peak_connections: usize,
    /// The time until all instances owned their target.
    pub time_to_converge: Option<Duration>,
    /// The recovery from each disturbance.
    pub recoveries: Vec<Recovery>,
    /// The totals of the run.
    pub counts: Totals,
    /// How long callers waited.
    pub waits: Waits,
    /// The result of each assertion.
    pub verdicts: Vec<Verdict>,
    /// The state of the fleet over time.
    pub samples: Vec<Sample>,
}

/// The totals of a run, without the shutdown.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Totals {
    /// Connects the cluster saw.
    pub connects: u64,
    /// Connects it refused because of its limits.
    pub refused: u64,
    /// Connects it refused because of an injected fault.
    pub refused_on_purpose: u64,
    /// Connections that became usable.
    pub opened: u64,
    /// Failed opens by reason, in the order of [`Failure::ALL`].
    pub open_failures: [u64; Failure::ALL.len()],
    /// Callers that got a connection.
    pub checkouts: u64,
    /// Callers that got a connection after a wait.
    pub waits: u64,
    /// Callers that found nothing ready in a reservoir that lacked connections, served later or not.
    pub empties: u64,
    /// Callers that got an error while the reservoir lacked connections.
    pub failed_short: u64,
    /// Callers that got an error because all connections were in use.
    pub exhausted: u64,
    /// Callers whose connection died while they held it.
    pub broken_work: u64,
    /// Connections that were lost in crashes of their instance.
    pub lost_in_crashes: u64,
    /// Discarded connections by reason, in the order of [`Discard::ALL`].
    pub discards: [u64; Discard::ALL.len()],
}

/// Percentiles of the waits of all callers, served or not.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Waits {
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The 99.9th percentile.
    pub p999: Duration,
    /// The longest wait.
    pub max: Duration,
}

impl Outcome {
    pub(crate) fn of(world: &World, seed: u64) -> Self {
        let scenario = &world.scenario;
        let mut events = world.events.lock();
        let (peaks, waits) = (events.judge.peaks(), events.waits());
        let wait = |quantile| Duration::from_micros(waits.value_at_quantile(quantile));
        let sampler = std::mem::replace(&mut events.sampler, Sampler::new(world.start));
        Self {
            scenario: scenario.name.clone(),
            seed,
            endpoint: scenario.endpoint.clone(),
            notes: scenario.notes.clone(),
            settings: scenario.settings.clone(),
            trace_hash: events.trace.hash(),
            events: events.trace.events(),
            virtual_time: scenario.duration,
            instances: scenario.services.len(),
            target: scenario.target(),
            limiter_per_sec: scenario.fleet_rate(),
            max_connects_per_sec: peaks.connects,
            max_renewals_per_sec: peaks.renewals,
            max_closures_per_sec: peaks.closures,
            peak_connections: world.cluster.lock().peak(),
            time_to_converge: events.judge.converged(),
            recoveries: events.judge.recoveries(),
            counts: events.final_totals,
            waits: Waits { p50: wait(0.5), p99: wait(0.99), p999: wait(0.999), max: wait(1.0) },
            verdicts: events.judge.verdicts(),
            samples: sampler.into_samples(),
        }
    }

    /// Whether every assertion holds.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.verdicts.iter().all(Verdict::holds)
    }

    /// The command that repeats the run.
    #[must_use]
    pub fn replay(&self) -> String {
        replay::command(&self.scenario, self.seed, &self.settings)
    }

    /// The longest recovery; `None` if there was no disturbance that ended.
    #[must_use]
    pub fn time_to_recover(&self) -> Option<Duration> {
        self.recoveries.iter().filter_map(|recovery| recovery.took).max()
    }
}

impl Totals {
    /// Failed opens, for any reason.
    #[must_use]
    pub fn all_open_failures(&self) -> u64 {
        self.open_failures.iter().sum()
    }

    /// All callers.
    #[must_use]
    pub fn callers(&self) -> u64 {
        self.checkouts + self.failed()
    }

    /// Callers that got an error.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed_short + self.exhausted
    }
}
