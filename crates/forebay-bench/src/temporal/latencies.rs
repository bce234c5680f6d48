//! How long operations take, with their retries.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::clock::{self, Stopwatch};
use crate::race::histogram;

/// The times of operations by their names, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Latencies(pub(super) BTreeMap<&'static str, Histogram<u64>>);

impl Latencies {
    /// Runs an operation, and records how long it takes if it succeeds.
    pub(super) async fn time<T, E>(
        &mut self,
        operation: &'static str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let watch = Stopwatch::start();
        let done = work.await?;
        self.record(operation, watch.elapsed());
        Ok(done)
    }

    pub(super) fn record(&mut self, operation: &'static str, took: Duration) {
        if !self.0.contains_key(operation)
            && let Ok(empty) = histogram()
        {
            self.0.insert(operation, empty);
        }
        if let Some(times) = self.0.get_mut(operation) {
            times.saturating_record(clock::whole_nanos(took));
        }
    }

    pub(super) fn add(&mut self, other: Self) -> anyhow::Result<()> {
        for (operation, times) in other.0 {
            match self.0.get_mut(operation) {
                Some(all) => all.add(times)?,
                None => drop(self.0.insert(operation, times)),
            }
        }
        Ok(())
    }
}

/// This quantile, in milliseconds.
pub(super) fn millis(times: &Histogram<u64>, quantile: f64) -> f64 {
    Duration::from_nanos(times.value_at_quantile(quantile)).as_secs_f64() * 1e3
}
