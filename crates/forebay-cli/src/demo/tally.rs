//! What one side's callers went through.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Counts callers, and how long each waited for a connection.
#[derive(Debug)]
pub(super) struct Tally {
    /// In microseconds. Those who got nothing are in it too, with the time they waited in vain.
    waits: Histogram<u32>,
    slow: Duration,
    counts: Counts,
    latest: Duration,
}

/// Plain counts of callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Waiting for a connection now.
    pub(super) waiting: usize,
    /// Using a connection now.
    pub(super) served: usize,
    /// Got a connection or gave up.
    pub(super) acquires: u64,
    /// Gave up, or were refused.
    pub(super) failed: u64,
    /// Got a connection, but not soon.
    pub(super) slow: u64,
    /// Got a connection, on which the query failed.
    pub(super) failed_queries: u64,
}

/// How long callers waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waits {
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) max: Duration,
    /// How late the machine was to let a caller ask: the part of a wait that no lender is to blame for.
    pub(super) latest: Duration,
}

impl Tally {
    /// Nothing has happened yet. Whoever waits longer than `slow` is served slowly.
    pub(super) fn new(slow: Duration) -> Self {
        // A minute at three digits: more than anyone waits here, in some 20 KB.
        let waits = Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds make sense");
        Self { waits, slow, counts: Counts::default(), latest: Duration::ZERO }
    }

    /// A caller comes.
    pub(super) fn came(&mut self) {
        self.counts.waiting += 1;
    }

    /// A caller's task runs for the first time, so long after it was due.
    pub(super) fn asked(&mut self, late: Duration) {
        self.latest = self.latest.max(late);
    }

    /// A caller got a connection, so long after it wanted one.
    pub(super) fn got(&mut self, waited: Duration) {
        self.counts.served += 1;
        if waited > self.slow {
            self.counts.slow += 1;
        }
        self.settle(waited);
    }

    /// A caller got none, so long after it wanted one.
    pub(super) fn got_none(&mut self, waited: Duration) {
        self.counts.failed += 1;
        self.settle(waited);
    }

    /// A caller is done with its connection.
    pub(super) fn left(&mut self, query_failed: bool) {
        self.counts.served -= 1;
        self.counts.failed_queries += u64::from(query_failed);
    }

    fn settle(&mut self, waited: Duration) {
        self.counts.waiting -= 1;
        self.counts.acquires += 1;
        self.waits.saturating_record(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn waits(&self) -> Waits {
        let quantile = |q| Duration::from_micros(self.waits.value_at_quantile(q));
        Waits {
            p50: quantile(0.50),
            p99: quantile(0.99),
            max: Duration::from_micros(self.waits.max()),
            latest: self.latest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn every_caller_is_counted_once() {
        let mut tally = Tally::new(millis(5));
        (0..4).for_each(|_| tally.came());
        tally.got(millis(5));
        tally.got(millis(6));
        tally.got_none(millis(1000));
        tally.left(false);
        tally.left(true);
        let expected = Counts { waiting: 1, served: 0, acquires: 3, failed: 1, slow: 1, failed_queries: 1 };
        assert_eq!(tally.counts(), expected);
    }

    #[test]
    fn those_who_waited_in_vain_count_in_the_percentiles() {
        let mut tally = Tally::new(millis(5));
        for n in 1..=100 {
            tally.came();
            if n <= 98 { tally.got(millis(1)) } else { tally.got_none(millis(1000)) }
        }
        let waits = tally.waits();
        let near = |waited: Duration, expected: u64| waited.as_millis().abs_diff(expected.into()) <= 1;
        assert!(near(waits.p50, 1) && near(waits.p99, 1000) && near(waits.max, 1000), "{waits:?}");
    }

    #[test]
    fn the_latest_start_is_kept() {
        let mut tally = Tally::new(millis(5));
        [3, 7, 2].into_iter().for_each(|late| tally.asked(millis(late)));
        assert_eq!(tally.waits().latest, millis(7));
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(Tally::new(millis(5)).waits(), Waits::default());
    }
}
