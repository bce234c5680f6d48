//! Many seeds of one scenario, on all cores.

use std::any::Any;
use std::num::NonZero;
use std::ops::{ControlFlow, RangeInclusive};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::outcome::Outcome;
use crate::run::{Watch, run};
use crate::scenario::Scenario;

/// What came of many seeds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Seeds {
    /// How many were run to their end.
    pub run: u64,
    /// The lowest seed that failed, and how.
    pub first_failure: Option<Failed>,
    /// How many failed of those that were run.
    pub failed: u64,
    /// The worst of all that passed or failed.
    pub worst: Worst,
    /// It was broken off before all were run.
    pub broken_off: bool,
}

/// A seed that failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failed {
    /// Which.
    pub seed: u64,
    /// What came of it; none if it panicked.
    pub outcome: Option<Box<Outcome>>,
    /// What the panic said, if there was one.
    pub panic: Option<String>,
    /// The command that runs it again.
    pub replay: String,
}

/// The worst figure of any seed.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Worst {
    /// Most connects in one second.
    pub max_connects_per_sec: u64,
    /// Most connects in one second in which nothing was wrong.
    pub max_renewals_per_sec: u64,
    /// Most callers who found it empty.
    pub empties: u64,
    /// Most callers who got nothing.
    pub failed: u64,
    /// The longest that a caller waited.
    pub longest_wait: Duration,
    /// Longest time until the fleet was whole.
    pub time_to_converge: Duration,
    /// Longest time until it was whole again.
    pub time_to_recover: Duration,
    /// Events of all seeds together.
    pub events: u64,
    /// Checkouts of all seeds together.
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

/// Runs every seed of the range, each in a world of its own, on as many threads as there are cores. After a failure,
/// only lower seeds are still run, to find the first one; all are if `keep_going`.
///
/// `progress` is told how many are done, on any thread; `Break` ends the whole.
pub fn run_seeds(
    scenario: &Scenario,
    seeds: RangeInclusive<u64>,
    keep_going: bool,
    progress: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> Seeds {
    let (first, last) = (*seeds.start(), *seeds.end());
    let broken_off = AtomicBool::new(false);
    let (next, stop_after) = (AtomicU64::new(0), AtomicU64::new(last));
    let found = Mutex::new(Seeds {
        run: 0,
        first_failure: None,
        failed: 0,
        worst: Worst::default(),
        broken_off: false,
    });
    let work = || {
        loop {
            // Counted from the first: a range may end at the largest number there is.
            let Some(seed) = first.checked_add(next.fetch_add(1, Ordering::Relaxed)) else { return };
            if seed > stop_after.load(Ordering::Relaxed) || broken_off.load(Ordering::Relaxed) {
                return;
            }
            // A panic is the most valuable find of all: it must not take the others with it.
            let attempt = AssertUnwindSafe(|| run(scenario, seed, &mut Interruptible(&broken_off)));
            let ran = catch_unwind(attempt);
            let mut found = found.lock();
            let failed = match ran {
                Ok(None) => return,
                Ok(Some(outcome)) => {
                    found.worst.add(&outcome);
                    (!outcome.passed()).then(|| (Some(Box::new(outcome)), None))
                }
                Err(panic) => Some((None, Some(words(&*panic)))),
            };
            found.run += 1;
            let run = found.run;
            if let Some((outcome, panic)) = failed {
                found.failed += 1;
                if found.first_failure.as_ref().is_none_or(|failure| failure.seed > seed) {
                    let replay = scenario.replay(seed);
                    found.first_failure = Some(Failed { seed, outcome, panic, replay });
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
    Seeds { broken_off, ..found.into_inner() }
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without words").to_owned()
}

struct Interruptible<'a>(&'a AtomicBool);

impl Watch for Interruptible<'_> {
    fn progress(&mut self, _passed: Duration) -> ControlFlow<()> {
        if self.0.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
