//! Whether the shared store answers, and how long to wait while it does not.

use std::time::Duration;

use forebay::{Instant, Rng, backoff};

/// What is known about the store's availability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreOutage {
    since: Option<Instant>,
    failures: u32,
}

/// The pause after the first failure.
const FIRST: Duration = Duration::from_millis(500);
/// The longest pause: short against a lease, long enough that a fleet of hundreds returns over seconds.
const LONGEST: Duration = Duration::from_secs(10);

impl StoreOutage {
    /// A call had no answer. One lost call is normal on a network; two in a row are an outage.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= 2 {
            self.since.get_or_insert(now);
        }
    }

    /// The store has answered. Returns how long the outage was, if there was one.
    pub(crate) fn answered(&mut self, now: Instant) -> Option<Duration> {
        self.failures = 0;
        self.since.take().map(|since| now.since(since))
    }

    pub(crate) fn is_active(&self) -> bool {
        self.since.is_some()
    }

    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// The pause before the next call.
    pub(crate) fn pause(&self, rng: &mut Rng) -> Duration {
        backoff::pause(self.failures, FIRST, LONGEST, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_failures_are_an_outage_and_one_answer_ends_it() {
        let (mut outage, at) = (StoreOutage::default(), Instant::ZERO + Duration::from_secs(9));
        outage.failed(Instant::ZERO);
        assert!(!outage.is_active());
        outage.failed(at);
        outage.failed(at + Duration::from_secs(1));
        assert_eq!(outage.since(), Some(at));
        assert_eq!(outage.answered(at + Duration::from_secs(60)), Some(Duration::from_secs(60)));
        assert_eq!((outage.is_active(), outage.answered(at)), (false, None));
    }
}
