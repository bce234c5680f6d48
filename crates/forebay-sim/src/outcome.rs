//! What came of a run.

use std::time::Duration;

use forebay::{Discard, Failure};

use crate::judge::{Recovery, Verdict};
use crate::record::Sample;
use crate::replay;
use crate::world::World;

mod json;
mod summary;
mod words;

pub(crate) use words::{about, grouped};

/// What came of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The scenario's name.
    pub scenario: String,
    /// The seed it ran with.
    pub seed: u64,
    /// The cluster's name, as the scenario gives it.
    pub endpoint: String,
    /// What the scenario makes one wonder about.
    pub notes: Vec<String>,
    /// The keys that were overridden on the command line, as `path=value`.
    pub settings: Vec<String>,
    /// The whole course of the run as one number: the same for the same scenario and seed, on every machine.
    pub trace_hash: String,
    /// How many events it was made from.
    pub events: u64,
    /// How long the run took, in its own time, before it was shut down.
    pub virtual_time: Duration,
    /// How many instances there were.
    pub instances: usize,
    /// How many connections they were to own.
    pub target: usize,
    /// How many connections they let themselves open in a second, together.
    pub limiter_per_sec: f64,
    /// The most connects the cluster saw in one second.
    pub max_connects_per_sec: u64,
    /// The same, in seconds in which nothing was wrong.
    pub max_renewals_per_sec: u64,
    /// The most connections that reservoirs closed by their own decision in one second.
    pub max_closures_per_sec: u64,
    /// The most connections that were open at a time, as the cluster counted.
    pub peak_connections: usize,
    /// How long it took until all instances owned what they should.
    pub time_to_converge: Option<Duration>,
    /// How each disturbance went.
    pub recoveries: Vec<Recovery>,
    /// Counts of what happened.
    pub counts: Counts,
    /// How long callers waited.
    pub waits: Waits,
    /// What was asserted.
    pub verdicts: Vec<Verdict>,
    /// How things stood over time.
    pub samples: Vec<Sample>,
}

/// Counts of what happened until the run was over; shutting everything down is not counted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Counts {
    /// Connects the cluster saw.
    pub connects: u64,
    /// Those it refused because of its limits.
    pub refused: u64,
    /// Those it refused because it was told to.
    pub refused_on_purpose: u64,
    /// Connections that became usable.
    pub opened: u64,
    /// Attempts that failed, by reason, in the order of [`Failure::ALL`].
    pub open_failures: [u64; Failure::ALL.len()],
    /// Connections handed to callers.
    pub checkouts: u64,
    /// Of those, after a wait.
    pub waits: u64,
    /// Callers who found nothing ready in a reservoir that was short of connections, whether they were served later or not.
    pub empties: u64,
    /// Callers who got nothing while the reservoir was short.
    pub failed_short: u64,
    /// Callers who got nothing because all were in use.
    pub exhausted: u64,
    /// Uses that were cut short because the connection died.
    pub broken_work: u64,
    /// Connections that went down with their instance.
    pub lost_in_crashes: u64,
    /// Connections discarded, by reason, in the order of [`Discard::ALL`].
    pub discards: [u64; Discard::ALL.len()],
}

/// How long callers waited: percentiles over all of them, served or not.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Waits {
    /// Half of them.
    pub p50: Duration,
    /// All but one in a hundred.
    pub p99: Duration,
    /// All but one in a thousand.
    pub p999: Duration,
    /// All.
    pub max: Duration,
}

impl Outcome {
    pub(crate) fn of(world: &World, seed: u64) -> Self {
        let scenario = &world.scenario;
        let mut books = world.books.lock();
        let (totals, peaks, waits) = (books.counted(), books.judge.peaks(), books.waits());
        let wait = |quantile| Duration::from_micros(waits.value_at_quantile(quantile));
        let record = std::mem::replace(&mut books.record, crate::record::Record::new(world.start));
        Self {
            scenario: scenario.name.clone(),
            seed,
            endpoint: scenario.endpoint.clone(),
            notes: scenario.notes.clone(),
            settings: scenario.settings.clone(),
            trace_hash: books.trace.hash(),
            events: books.trace.events(),
            virtual_time: scenario.duration,
            instances: scenario.services.len(),
            target: scenario.target(),
            limiter_per_sec: scenario.fleet_rate(),
            max_connects_per_sec: peaks.connects,
            max_renewals_per_sec: peaks.renewals,
            max_closures_per_sec: peaks.closures,
            peak_connections: world.cluster.lock().peak(),
            time_to_converge: books.judge.converged(),
            recoveries: books.judge.recoveries(),
            counts: Counts {
                connects: totals.connects,
                refused: totals.refused_by_limits,
                refused_on_purpose: totals.refused_on_purpose,
                opened: totals.opened,
                open_failures: totals.open_failures,
                checkouts: totals.checkouts,
                waits: totals.waits,
                empties: totals.empty,
                failed_short: totals.failed_short,
                exhausted: totals.exhausted,
                broken_work: totals.broken_work,
                lost_in_crashes: totals.crashed,
                discards: totals.discards,
            },
            waits: Waits { p50: wait(0.5), p99: wait(0.99), p999: wait(0.999), max: wait(1.0) },
            verdicts: books.judge.verdicts(),
            samples: record.into_samples(),
        }
    }

    /// Whether everything that was asserted holds.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.verdicts.iter().all(Verdict::holds)
    }

    /// The command that runs it again.
    #[must_use]
    pub fn replay(&self) -> String {
        replay::command(&self.scenario, self.seed, &self.settings)
    }

    /// The longest recovery, and how it compares to what the limiter allows; none if nothing had to recover.
    #[must_use]
    pub fn time_to_recover(&self) -> Option<Duration> {
        self.recoveries.iter().filter_map(|recovery| recovery.took).max()
    }
}

impl Counts {
    /// Attempts to open that failed, for whatever reason.
    #[must_use]
    pub fn all_open_failures(&self) -> u64 {
        self.open_failures.iter().sum()
    }

    /// Callers who asked for a connection, and got one or not.
    #[must_use]
    pub fn callers(&self) -> u64 {
        self.checkouts + self.failed()
    }

    /// Callers who got nothing.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed_short + self.exhausted
    }
}
