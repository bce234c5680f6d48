//! How the callers of one side fared, in the whole run and in each period.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::incident::PERIODS;
use super::scenario::SLOW;

/// Callers counted, and how long each waited for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waits {
    /// Callers who got a connection or gave up.
    pub(super) acquires: u64,
    /// Callers who gave up or were refused.
    pub(super) failed: u64,
    /// Callers who got a connection, after more than [`SLOW`].
    pub(super) slow: u64,
    /// Callers who got a connection on which a query failed.
    pub(super) failed_queries: u64,
    /// Callers who ended with the instance that they were at.
    pub(super) lost: u64,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) max: Duration,
}

/// All callers of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    /// Callers without a connection.
    pub(super) waiting: usize,
    /// Callers with a connection.
    pub(super) lent: usize,
    /// Callers whose tasks have run, and those that this machine started late, by more than [`SLOW`].
    pub(super) started: u64,
    pub(super) late_starts: u64,
    /// How late this machine started a caller's task, at most: the part of a wait that is not the pool's.
    pub(super) latest_start: Duration,
    pub(super) total: Waits,
    /// By the period in which a caller came.
    pub(super) periods: [Waits; PERIODS],
}

impl Figures {
    /// Whether more than one caller in a hundred was slow before a pool was asked. Then the 99th percentile is that of the
    /// machine.
    pub(super) fn is_too_busy(&self) -> bool {
        self.late_starts * 100 > self.started
    }
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    waiting: usize,
    lent: usize,
    started: u64,
    late_starts: u64,
    latest_start: Duration,
    total: Sample,
    periods: [Sample; PERIODS],
}

#[derive(Debug)]
struct Sample {
    /// In microseconds. Callers who got no connection count too, with the time they waited.
    waits: Histogram<u32>,
    counts: Waits,
}

impl Default for Sample {
    fn default() -> Self {
        // A minute at three digits: more than anyone waits here, in some 20 KB.
        let waits = Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds make sense");
        Self { waits, counts: Waits::default() }
    }
}

impl Sample {
    fn waited(&mut self, waited: Duration) {
        self.counts.acquires += 1;
        self.waits.saturating_record(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
    }

    fn read(&self) -> Waits {
        let quantile = |q| Duration::from_micros(self.waits.value_at_quantile(q));
        let max = Duration::from_micros(self.waits.max());
        Waits { p50: quantile(0.50), p99: quantile(0.99), max, ..self.counts }
    }
}

impl Tally {
    fn count(&mut self, period: usize, mut count: impl FnMut(&mut Sample)) {
        count(&mut self.total);
        count(&mut self.periods[period.min(PERIODS - 1)]);
    }

    pub(super) fn figures(&self) -> Figures {
        Figures {
            waiting: self.waiting,
            lent: self.lent,
            started: self.started,
            late_starts: self.late_starts,
            latest_start: self.latest_start,
            total: self.total.read(),
            periods: std::array::from_fn(|period| self.periods[period].read()),
        }
    }
}

/// A caller, from its arrival until it leaves. It is counted once, whatever becomes of it.
#[derive(Debug)]
pub(super) struct Visit {
    tally: Arc<Mutex<Tally>>,
    period: usize,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Holding,
    Left,
}

impl Visit {
    /// A caller comes, in this period.
    pub(super) fn begin(tally: &Arc<Mutex<Tally>>, period: usize) -> Self {
        tally.lock().waiting += 1;
        Self { tally: Arc::clone(tally), period, stage: Stage::Waiting }
    }

    /// Its task runs, this much after it came.
    pub(super) fn started(&self, late: Duration) {
        let mut tally = self.tally.lock();
        tally.started += 1;
        tally.late_starts += u64::from(late > SLOW);
        tally.latest_start = tally.latest_start.max(late);
    }

    /// It has a connection.
    pub(super) fn acquired(&mut self, waited: Duration) {
        self.stage = Stage::Holding;
        let mut tally = self.tally.lock();
        (tally.waiting, tally.lent) = (tally.waiting - 1, tally.lent + 1);
        tally.count(self.period, |sample| {
            sample.counts.slow += u64::from(waited > SLOW);
            sample.waited(waited);
        });
    }

    /// It goes without a connection.
    pub(super) fn failed(mut self, waited: Duration) {
        self.stage = Stage::Left;
        let mut tally = self.tally.lock();
        tally.waiting -= 1;
        tally.count(self.period, |sample| {
            sample.counts.failed += 1;
            sample.waited(waited);
        });
    }

    /// It gives its connection back.
    pub(super) fn left(mut self, query_failed: bool) {
        self.stage = Stage::Left;
        let mut tally = self.tally.lock();
        tally.lent -= 1;
        tally.count(self.period, |sample| sample.counts.failed_queries += u64::from(query_failed));
    }
}

/// Its instance was killed.
impl Drop for Visit {
    fn drop(&mut self) {
        if self.stage == Stage::Left {
            return;
        }
        let mut tally = self.tally.lock();
        match self.stage {
            Stage::Waiting => tally.waiting -= 1,
            Stage::Holding | Stage::Left => tally.lent -= 1,
        }
        tally.count(self.period, |sample| sample.counts.lost += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn visits(tally: &Arc<Mutex<Tally>>, period: usize, count: usize) -> Vec<Visit> {
        (0..count).map(|_| Visit::begin(tally, period)).collect()
    }

    #[test]
    fn every_caller_is_counted_once_and_in_its_period() {
        let tally = Arc::default();
        let mut callers = visits(&tally, 2, 7).into_iter();
        let mut next = || callers.next().unwrap();
        let acquired = |mut visit: Visit, waited| {
            visit.acquired(waited);
            visit
        };
        acquired(next(), millis(5)).left(false);
        acquired(next(), millis(6)).left(true);
        let holding = acquired(next(), millis(1));
        drop(acquired(next(), millis(1)));
        next().failed(millis(1_000));
        drop(next());
        let waiting = next();
        let figures = tally.lock().figures();
        assert_eq!((figures.waiting, figures.lent), (1, 1));
        let Waits { acquires, failed, slow, failed_queries, lost, .. } = figures.total;
        assert_eq!((acquires, failed, slow, failed_queries, lost), (5, 1, 1, 1, 2));
        assert_eq!((figures.periods[2], figures.periods[1]), (figures.total, Waits::default()));
        drop((holding, waiting));
        let figures = tally.lock().figures();
        assert_eq!((figures.waiting, figures.lent, figures.total.lost), (0, 0, 4));
    }

    #[test]
    fn callers_who_got_no_connection_count_in_the_percentiles() {
        let tally = Arc::default();
        for mut visit in visits(&tally, 0, 98) {
            visit.acquired(millis(1));
            visit.left(false);
        }
        visits(&tally, 4, 2).into_iter().for_each(|visit| visit.failed(millis(1_000)));
        let figures = tally.lock().figures();
        let near = |waited: Duration, expected: u64| waited.as_millis().abs_diff(expected.into()) <= 1;
        let Waits { p50, p99, max, .. } = figures.total;
        assert!(near(p50, 1) && near(p99, 1_000) && near(max, 1_000), "{p50:?} {p99:?} {max:?}");
        assert!(near(figures.periods[0].max, 1) && near(figures.periods[4].p50, 1_000));
    }

    #[test]
    fn the_latest_start_is_kept() {
        let tally = Arc::default();
        let visit = Visit::begin(&tally, 0);
        [3, 7, 2, 5].into_iter().for_each(|late| visit.started(millis(late)));
        let figures = tally.lock().figures();
        assert_eq!((figures.latest_start, figures.late_starts, figures.started), (millis(7), 1, 4));
    }

    #[test]
    fn a_machine_is_too_busy_if_more_than_one_caller_in_a_hundred_starts_late() {
        let figures = |started, late_starts| Figures { started, late_starts, ..Figures::default() };
        assert!(!Figures::default().is_too_busy() && !figures(700, 7).is_too_busy());
        assert!(figures(700, 8).is_too_busy());
    }

    #[test]
    fn before_the_first_caller_every_figure_is_zero() {
        assert_eq!(Tally::default().figures(), Figures::default());
    }
}
