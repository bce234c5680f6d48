//! Many seeds of one scenario, on all cores.

use std::any::Any;
use std::num::NonZero;
use std::ops::{ControlFlow, RangeInclusive};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::outcome::Outcome;
use crate::run::{RunObserver, run};
use crate::scenario::Scenario;

/// The results of many seeds.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SeedReport {
    /// How many seeds ran to their end.
    pub run: u64,
    /// The lowest seed that failed.
    pub first_failure: Option<FailedSeed>,
    /// How many seeds failed.
    pub failed: u64,
    /// The worst figures of all seeds.
    pub worst: Worst,
    /// The sweep was interrupted before all seeds had run.
    pub broken_off: bool,
}

/// A seed that failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailedSeed {
    /// The seed.
    pub seed: u64,
    /// The outcome of its run; `None` if it panicked.
    pub outcome: Option<Box<Outcome>>,
    /// The message of the panic, if it panicked.
    pub panic: Option<String>,
    /// The command that repeats the run.
    pub replay: String,
}

/// The worst figure of any seed.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Worst {
    /// The most connects in one second.
    pub max_connects_per_sec: u64,
    /// The most connects in one second without a disturbance.
    pub max_renewals_per_sec: u64,
    /// The most callers that found their reservoir empty.
    pub empties: u64,
    /// The most callers that got an error.
    pub failed: u64,
    /// The longest wait of a caller.
    pub longest_wait: Duration,
    /// The longest time until the fleet converged.
    pub time_to_converge: Duration,
    /// The longest recovery from a disturbance.
    pub time_to_recover: Duration,
    /// The sum of all events.
    pub events: u64,
    /// The sum of all checkouts.
    pub checkouts: u64,
}

impl Worst {
    fn add(&mut self, outcome: &Outcome) {
        self.max_connects_per_sec = self.max_connects_per_sec.max(outcome.max_connects_per_sec);
        self.max_renewals_per_sec = self.max_renewals_per_sec.max(outcome.max_renewals_per_sec);
        self.empties = self.empties.max(outcome.counts.empties);
        self.failed = self.failed.max(outcome.counts.failed());
        self.longest_wait = self.longest_wait.max(outcome.waits.max);
        self.time_to_converge = self.time_to_converge.max(outcome.time_to_converge.unwrap_or(Duration::MAX));
        self.time_to_recover = self.time_to_recover.max(outcome.time_to_recover().unwrap_or_default());
        self.events += outcome.events;
        self.checkouts += outcome.counts.checkouts;
    }
}

/// Runs every seed of the range on one thread per core. After a failure it runs only lower seeds, to find the
/// first that fails; with `keep_going` it runs all.
///
/// `progress` is called on any thread with the number of finished seeds. `Break` stops the sweep.
pub fn run_seeds(
    scenario: &Scenario,
    seeds: RangeInclusive<u64>,
    keep_going: bool,
    progress: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> SeedReport {
    let (first, last) = (*seeds.start(), *seeds.end());
    let broken_off = AtomicBool::new(false);
    let (next, stop_after) = (AtomicU64::new(0), AtomicU64::new(last));
    let found = Mutex::new(SeedReport::default());
    let work = || {
        loop {
            // Counted from the first seed: the range may end at `u64::MAX`.
            let Some(seed) = first.checked_add(next.fetch_add(1, Ordering::Relaxed)) else { return };
            if seed > stop_after.load(Ordering::Relaxed) || broken_off.load(Ordering::Relaxed) {
                return;
            }
            // A panic is a finding, and must not stop the other seeds.
            let attempt = AssertUnwindSafe(|| run(scenario, seed, &mut Interruptible(&broken_off)));
            let ran = catch_unwind(attempt);
            let mut found = found.lock();
            let failed = match ran {
                Ok(None) => return,
                Ok(Some(outcome)) => {
                    found.worst.add(&outcome);
                    (!outcome.passed()).then(|| (Some(Box::new(outcome)), None))
                }
                Err(panic) => Some((None, Some(message(&*panic)))),
            };
            found.run += 1;
            let run = found.run;
            if let Some((outcome, panic)) = failed {
                found.failed += 1;
                if found.first_failure.as_ref().is_none_or(|failure| failure.seed > seed) {
                    let replay = scenario.replay(seed);
                    found.first_failure = Some(FailedSeed { seed, outcome, panic, replay });
                    if !keep_going {
                        stop_after.fetch_min(seed, Ordering::Relaxed);
                    }
                }
            }
            drop(found);
            if progress(run).is_break() {
                broken_off.store(true, Ordering::Relaxed);
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let broken_off = broken_off.load(Ordering::Relaxed);
    SeedReport { broken_off, ..found.into_inner() }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

struct Interruptible<'a>(&'a AtomicBool);

impl RunObserver for Interruptible<'_> {
    fn progress(&mut self, _passed: Duration) -> ControlFlow<()> {
        if self.0.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
