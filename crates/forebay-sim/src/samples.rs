//! The state of the fleet over time.

use std::time::Duration;

use forebay::{Discard, Instant};

/// The fleet at one moment, and the counts since the previous sample.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// Virtual time since the start.
    pub at: Duration,
    /// Connections that are ready.
    pub ready: usize,
    /// Connections that callers hold.
    pub in_use: usize,
    /// Connections being opened.
    pub opening: usize,
    /// Callers waiting for a connection.
    pub waiting: usize,
    /// The most connects the cluster saw in one second since the previous sample.
    pub peak_connects: u64,
    /// Connections discarded since the previous sample, by reason.
    pub discards: [u64; Discard::ALL.len()],
    /// Successful checkouts since the previous sample.
    pub checkouts: u64,
    /// Failed checkouts since the previous sample.
    pub failed: u64,
    /// The median wait of callers since the previous sample, served or not.
    pub wait_p50: Duration,
    /// Their 99th percentile.
    pub wait_p99: Duration,
    /// Their longest wait.
    pub wait_max: Duration,
    /// The cost of the shared table so far.
    pub table: TableBill,
}

/// The cost of the shared table since the start, as DynamoDB counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableBill {
    /// Write units of all items.
    pub write_units: u64,
    /// Read units of all items.
    pub read_units: u64,
    /// Writes to the item that holds the shared rate, refused ones included.
    pub rate_writes: u64,
}

/// Counts between two samples.
pub(crate) struct Sampler {
    start: Instant,
    samples: Vec<Sample>,
    /// Counts since the last sample; its other fields are unused.
    current: Sample,
    /// Waits above zero.
    waits: Vec<Duration>,
    /// A second since the start, and the connects in it.
    second: (u64, u64),
}

impl Sampler {
    pub(crate) fn new(start: Instant) -> Self {
        Self { start, samples: Vec::new(), current: Sample::default(), waits: Vec::new(), second: (0, 0) }
    }

    pub(crate) fn connected(&mut self, now: Instant) {
        let number = now.since(self.start).as_secs();
        if number != self.second.0 {
            self.second = (number, 0);
        }
        self.second.1 += 1;
        self.current.peak_connects = self.current.peak_connects.max(self.second.1);
    }

    pub(crate) fn discarded(&mut self, reason: Discard) {
        self.current.discards[reason.index()] += 1;
    }

    /// A checkout succeeded or failed.
    pub(crate) fn checkout(&mut self, succeeded: bool, waited: Duration) {
        self.current.checkouts += u64::from(succeeded);
        self.current.failed += u64::from(!succeeded);
        if !waited.is_zero() {
            self.waits.push(waited);
        }
    }

    /// Takes a sample. `gauges` has the current state; the counts come from here.
    pub(crate) fn sample(&mut self, now: Instant, gauges: Sample) {
        self.waits.sort_unstable();
        let counted = std::mem::take(&mut self.current);
        let percentile = |percent| self.percentile(counted.checkouts + counted.failed, percent);
        self.samples.push(Sample {
            at: now.since(self.start),
            ready: gauges.ready,
            in_use: gauges.in_use,
            opening: gauges.opening,
            waiting: gauges.waiting,
            table: gauges.table,
            wait_p50: percentile(50),
            wait_p99: percentile(99),
            wait_max: self.waits.last().copied().unwrap_or_default(),
            ..counted
        });
        self.waits.clear();
    }

    /// The wait that `percent` of `count` callers did not exceed. `waits` is sorted, and lacks those of zero.
    fn percentile(&self, count: u64, percent: u64) -> Duration {
        let above = usize::try_from(count - (count * percent).div_ceil(100)).unwrap_or(usize::MAX);
        let index = self.waits.len().checked_sub(above + 1);
        index.map_or(Duration::ZERO, |index| self.waits[index])
    }

    pub(crate) fn into_samples(self) -> Vec<Sample> {
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_count_callers_without_a_wait() {
        let start = Instant::from_nanos(5);
        let mut sampler = Sampler::new(start);
        for _ in 0..98 {
            sampler.checkout(true, Duration::ZERO);
        }
        sampler.checkout(true, Duration::from_millis(7));
        sampler.checkout(false, Duration::from_millis(3));
        sampler.sample(start + Duration::from_secs(1), Sample::default());
        let sample = &sampler.into_samples()[0];
        assert_eq!((sample.checkouts, sample.failed), (99, 1));
        assert_eq!((sample.wait_p50, sample.wait_p99), (Duration::ZERO, Duration::from_millis(3)));
        assert_eq!(sample.wait_max, Duration::from_millis(7));
    }

    #[test]
    fn the_peak_is_of_one_second() {
        let start = Instant::from_nanos(0);
        let mut sampler = Sampler::new(start);
        for millis in [0, 10, 990, 1000, 1010] {
            sampler.connected(start + Duration::from_millis(millis));
        }
        sampler.sample(start + Duration::from_secs(10), Sample::default());
        sampler.sample(start + Duration::from_secs(20), Sample::default());
        let samples = sampler.into_samples();
        assert_eq!((samples[0].peak_connects, samples[1].peak_connects), (3, 0));
    }
}
