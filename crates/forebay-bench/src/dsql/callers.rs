//! Callers that acquire a connection, run a statement and return it, and what they observe.

use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::runtime::Handle;

use super::contestants::Pool;
use crate::clock::{self, Stopwatch};
use crate::race::histogram;

pub(super) const CALLERS: usize = 16;
/// How long a caller waits after a failed acquire before it tries again.
const PAUSE: Duration = Duration::from_millis(10);

/// What a caller does between its statements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habit {
    /// How long it keeps a connection after the statement, as in a transaction.
    pub(super) holds: Duration,
    /// How long it waits before the next acquire.
    pub(super) pauses: Duration,
}

/// What all callers observed.
#[derive(Debug)]
pub(super) struct Observations {
    /// From the first attempt until a connection was acquired, refusals and pauses included, in nanoseconds.
    pub(super) waits: Histogram<u64>,
    /// Acquires that failed.
    pub(super) refused: u64,
    /// Statements that failed on a connection which was lent before the cut, and after it.
    pub(super) failed_before: u64,
    pub(super) failed_after: u64,
    /// When the first statement succeeded on a connection that was lent after the cut.
    pub(super) first_after: Option<u64>,
    /// The first error of an acquire.
    pub(super) error: Option<String>,
}

impl Observations {
    fn new() -> anyhow::Result<Self> {
        let waits = histogram()?;
        Ok(Self { waits, refused: 0, failed_before: 0, failed_after: 0, first_after: None, error: None })
    }

    fn add(&mut self, other: Self) -> anyhow::Result<()> {
        self.waits.add(other.waits)?;
        self.refused += other.refused;
        self.failed_before += other.failed_before;
        self.failed_after += other.failed_after;
        self.first_after = [self.first_after, other.first_after].into_iter().flatten().min();
        self.error = self.error.take().or(other.error);
        Ok(())
    }

    /// This quantile of the waits, in milliseconds.
    pub(super) fn wait(&self, quantile: f64) -> f64 {
        Duration::from_nanos(self.waits.value_at_quantile(quantile)).as_secs_f64() * 1e3
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed_before + self.failed_after
    }
}

/// Runs all callers for `time`. `cut_at` returns when the connections were cut, or `u64::MAX` before that.
pub(super) async fn serve<P: Pool>(
    pool: &P,
    habit: Habit,
    time: Duration,
    cut_at: fn() -> u64,
) -> anyhow::Result<Observations> {
    let until = clock::nanos() + clock::whole_nanos(time);
    let callers: Vec<_> =
        (0..CALLERS).map(|_| Handle::current().spawn(call(pool.clone(), habit, until, cut_at))).collect();
    let mut all = Observations::new()?;
    for caller in callers {
        all.add(caller.await??)?;
    }
    Ok(all)
}

async fn call<P: Pool>(
    pool: P,
    habit: Habit,
    until: u64,
    cut_at: fn() -> u64,
) -> anyhow::Result<Observations> {
    let mut found = Observations::new()?;
    while clock::nanos() < until {
        let watch = Stopwatch::start();
        let lent = loop {
            match pool.acquire().await {
                Ok(lent) => break Some(lent),
                Err(error) => {
                    found.refused += 1;
                    found.error.get_or_insert_with(|| format!("{error:#}"));
                }
            }
            if clock::nanos() >= until {
                break None;
            }
            clock::pause(PAUSE).await;
        };
        found.waits.saturating_record(clock::whole_nanos(watch.elapsed()));
        let Some(mut lent) = lent else { break };
        let lent_at = clock::nanos();
        let after = lent_at > cut_at();
        match P::select(&mut lent).await {
            Ok(()) if after => found.first_after = found.first_after.or_else(|| Some(clock::nanos())),
            Ok(()) => {}
            Err(_) if after => found.failed_after += 1,
            Err(_) => found.failed_before += 1,
        }
        clock::pause(habit.holds).await;
        drop(lent);
        clock::pause(habit.pauses).await;
    }
    Ok(found)
}
