//! How things stood over time.

use std::time::Duration;

use forebay::{Discard, Instant};

/// The fleet at one moment, and what happened since the moment before.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// When, counted from the start.
    pub at: Duration,
    /// Connections to be had at once.
    pub ready: usize,
    /// Connections with callers.
    pub in_use: usize,
    /// Connections on their way.
    pub opening: usize,
    /// Callers in line.
    pub waiting: usize,
    /// The most connects the cluster saw in one second since the sample before.
    pub peak_connects: u64,
    /// Connections discarded since the sample before, by reason.
    pub discards: [u64; Discard::ALL.len()],
    /// Checkouts since the sample before.
    pub checkouts: u64,
    /// Checkouts that failed since the sample before.
    pub failed: u64,
    /// Of the callers since the sample before, served or not, half waited at most this,
    pub wait_p50: Duration,
    /// all but one in a hundred at most this,
    pub wait_p99: Duration,
    /// and all at most this.
    pub wait_max: Duration,
    /// What the table has cost so far.
    pub table: TableBill,
}

/// What the table has cost since the start, as DynamoDB would count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableBill {
    /// Write units of all items.
    pub write_units: u64,
    /// Read units of all items.
    pub read_units: u64,
    /// Writes of the item that the rate is shared in, refused ones included.
    pub rate_writes: u64,
}

/// What is counted between two samples.
pub(crate) struct Record {
    start: Instant,
    samples: Vec<Sample>,
    checkouts: u64,
    failed: u64,
    discards: [u64; Discard::ALL.len()],
    /// Waits that were not zero.
    waits: Vec<Duration>,
    second: (u64, u64),
    peak_connects: u64,
}

/// What the reservoirs say of themselves, added up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) ready: usize,
    pub(crate) in_use: usize,
    pub(crate) opening: usize,
    pub(crate) waiting: usize,
    /// And what the table that they share has cost.
    pub(crate) table: TableBill,
}

impl Record {
    pub(crate) fn new(start: Instant) -> Self {
        Self {
            start,
            samples: Vec::new(),
            checkouts: 0,
            failed: 0,
            discards: [0; Discard::ALL.len()],
            waits: Vec::new(),
            second: (0, 0),
            peak_connects: 0,
        }
    }

    pub(crate) fn connected(&mut self, now: Instant) {
        let number = now.since(self.start).as_secs();
        if number != self.second.0 {
            self.second = (number, 0);
        }
        self.second.1 += 1;
        self.peak_connects = self.peak_connects.max(self.second.1);
    }

    pub(crate) fn discarded(&mut self, reason: Discard) {
        self.discards[reason.index()] += 1;
    }

    pub(crate) fn lent(&mut self, waited: Duration) {
        self.checkouts += 1;
        if !waited.is_zero() {
            self.waits.push(waited);
        }
    }

    pub(crate) fn failed(&mut self, waited: Duration) {
        self.failed += 1;
        if !waited.is_zero() {
            self.waits.push(waited);
        }
    }

    pub(crate) fn sample(&mut self, now: Instant, gauges: Gauges) {
        self.waits.sort_unstable();
        let sample = Sample {
            at: now.since(self.start),
            ready: gauges.ready,
            in_use: gauges.in_use,
            opening: gauges.opening,
            waiting: gauges.waiting,
            peak_connects: std::mem::take(&mut self.peak_connects),
            discards: std::mem::take(&mut self.discards),
            checkouts: std::mem::take(&mut self.checkouts),
            failed: std::mem::take(&mut self.failed),
            wait_p50: Duration::ZERO,
            wait_p99: Duration::ZERO,
            wait_max: self.waits.last().copied().unwrap_or_default(),
            table: gauges.table,
        };
        let percentile = |percent| self.percentile(sample.checkouts + sample.failed, percent);
        let (wait_p50, wait_p99) = (percentile(50), percentile(99));
        self.samples.push(Sample { wait_p50, wait_p99, ..sample });
        self.waits.clear();
    }

    /// The wait that so many percent of `count` callers did not exceed. `waits` is sorted, and lacks those of zero.
    fn percentile(&self, count: u64, percent: u64) -> Duration {
        let above = usize::try_from(count - (count * percent).div_ceil(100)).unwrap_or(usize::MAX);
        let place = self.waits.len().checked_sub(above + 1);
        place.map_or(Duration::ZERO, |place| self.waits[place])
    }

    pub(crate) fn into_samples(self) -> Vec<Sample> {
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_count_those_that_did_not_wait() {
        let start = Instant::from_nanos(5);
        let mut record = Record::new(start);
        for _ in 0..98 {
            record.lent(Duration::ZERO);
        }
        record.lent(Duration::from_millis(7));
        record.lent(Duration::from_millis(3));
        record.sample(start + Duration::from_secs(1), Gauges::default());
        let sample = &record.into_samples()[0];
        assert_eq!(sample.checkouts, 100);
        assert_eq!((sample.wait_p50, sample.wait_p99), (Duration::ZERO, Duration::from_millis(3)));
        assert_eq!(sample.wait_max, Duration::from_millis(7));
    }

    #[test]
    fn the_peak_is_of_one_second() {
        let start = Instant::from_nanos(0);
        let mut record = Record::new(start);
        for millis in [0, 10, 990, 1000, 1010] {
            record.connected(start + Duration::from_millis(millis));
        }
        record.sample(start + Duration::from_secs(10), Gauges::default());
        record.sample(start + Duration::from_secs(20), Gauges::default());
        let samples = record.into_samples();
        assert_eq!((samples[0].peak_connects, samples[1].peak_connects), (3, 0));
    }
}
