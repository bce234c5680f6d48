//! Whether the shared store answers, and how long to leave it alone while it does not.

use std::time::Duration;

use forebay::{Instant, Rng};

/// What is known of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Away {
    since: Option<Instant>,
    failures: u32,
}

/// The pause after the first failure.
const FIRST: Duration = Duration::from_millis(500);
/// The longest pause: short against a lease, long enough that a fleet of hundreds comes back over seconds.
const LONGEST: Duration = Duration::from_secs(10);

impl Away {
    /// The store did not answer a call, or could not say how things are.
    ///
    /// One call may be lost on any network; two in a row are taken for an outage.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= 2 {
            self.since.get_or_insert(now);
        }
    }

    /// The store has answered. Returns for how long it had been away, if it had.
    pub(crate) fn answered(&mut self, now: Instant) -> Option<Duration> {
        self.failures = 0;
        self.since.take().map(|since| now.since(since))
    }

    /// Whether it is away.
    pub(crate) fn is_away(&self) -> bool {
        self.since.is_some()
    }

    /// Since when.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// How long to pause before the next call: doubled with each failure; of that, between half and all, so that a fleet
    /// which lost its store together does not come back together.
    pub(crate) fn pause(&self, rng: &mut Rng) -> Duration {
        pause(self.failures, FIRST, LONGEST, rng)
    }
}

/// `first`, doubled with each failure after the first, `longest` at most; of that, between half and all.
pub(crate) fn pause(failures: u32, first: Duration, longest: Duration, rng: &mut Rng) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let full = first.saturating_mul(1 << doublings).min(longest);
    full / 2 + rng.up_to(full / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay::Seed;

    #[test]
    fn one_lost_call_is_no_outage_and_one_answer_ends_it() {
        let (mut away, at) = (Away::default(), Instant::ZERO + Duration::from_secs(9));
        away.failed(Instant::ZERO);
        assert!(!away.is_away());
        away.failed(at);
        away.failed(at + Duration::from_secs(1));
        assert_eq!(away.since(), Some(at));
        assert_eq!(away.answered(at + Duration::from_secs(60)), Some(Duration::from_secs(60)));
        assert_eq!((away.is_away(), away.answered(at)), (false, None));
    }

    #[test]
    fn pauses_grow_to_a_ceiling_with_jitter() {
        let mut rng = Seed::new(1).rng();
        let longest = Duration::from_secs(10);
        for (failures, full) in [(0, 500), (1, 500), (2, 1000), (5, 8000), (6, 10_000), (u32::MAX, 10_000)] {
            let full = Duration::from_millis(full);
            let pauses: Vec<_> = (0..50).map(|_| pause(failures, FIRST, longest, &mut rng)).collect();
            assert!(pauses.iter().all(|pause| *pause >= full / 2 && *pause <= full), "{failures}");
            assert!(pauses.iter().any(|pause| *pause != pauses[0]));
        }
    }
}
