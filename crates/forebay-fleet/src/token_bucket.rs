//! A token bucket that is read at the moment a permit is granted.
//!
//! Nothing is reserved for later. A caller that comes late, because its process was stopped, finds what was saved in the
//! meantime, and that is never more than the burst.

use std::time::Duration;

use forebay::Instant;

/// Billionths in a whole.
pub(crate) const BILLION: u128 = 1_000_000_000;
/// One permit, in the unit of `saved`: what a rate of a billionth of a permit a second yields in a nanosecond. Nothing is
/// rounded off, however often the bucket is updated.
const PERMIT: u128 = BILLION * BILLION;
/// The shortest wait for a permit.
const TICK: Duration = Duration::from_millis(1);

/// How fast permits come, and how many can be saved. Both in billionths of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) per_second: u128,
    pub(crate) burst: u128,
}

impl Budget {
    /// This many permits a second (at least one an hour), and this many at once (at least one).
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    pub(crate) fn new(per_second: f64, burst: u64) -> Self {
        // A rate of zero or NaN would never grant a permit. One an hour is practically the same.
        let per_second = if per_second > 0.0 { per_second.max(1.0 / 3600.0) } else { 1.0 / 3600.0 };
        Self { per_second: (per_second * 1e9) as u128, burst: u128::from(burst.max(1)) * BILLION }
    }

    /// What is saved in `passed`.
    fn gained(self, passed: Duration) -> u128 {
        passed.as_nanos().saturating_mul(self.per_second)
    }
}

/// Permits that are saved up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TokenBucket {
    /// In parts of a `PERMIT`.
    saved: u128,
    at: Option<Instant>,
}

impl TokenBucket {
    /// A bucket that has all of its burst.
    pub(crate) fn full(budget: Budget) -> Self {
        Self { saved: budget.burst.saturating_mul(BILLION), ..Self::default() }
    }

    /// Permits available at `now`.
    pub(crate) fn ready(&mut self, now: Instant, budget: Budget) -> u64 {
        let at = *self.at.get_or_insert(now);
        let passed = now.since(at);
        // Clocks are read before the lock is taken, so times can arrive out of order.
        self.at = Some(at.max(now));
        // A smaller burst applies at once: its permits may belong to another process by now.
        let most = budget.burst.saturating_mul(BILLION);
        self.saved = self.saved.saturating_add(budget.gained(passed)).min(most);
        whole(self.saved)
    }

    /// Takes a permit. Call it only if one is [ready](Self::ready).
    pub(crate) fn take(&mut self) {
        self.saved = self.saved.saturating_sub(PERMIT);
    }

    /// Gives back a permit that was taken at `taken`, less what was gained since. A bucket that had kept it might have been
    /// full, and gained nothing: both together could exceed the burst.
    pub(crate) fn give_back(&mut self, taken: Instant, now: Instant, budget: Budget) {
        let rest = PERMIT.saturating_sub(budget.gained(now.since(taken)));
        self.saved = self.saved.saturating_add(rest);
    }

    /// Permits that become available by `then` if each is taken at once.
    pub(crate) fn ready_by(mut self, now: Instant, then: Instant, budget: Budget) -> u64 {
        self.ready(now, budget);
        whole(self.saved.saturating_add(budget.gained(then.since(now))))
    }

    /// When there will be a permit: `now`, if there is one.
    pub(crate) fn next(mut self, now: Instant, budget: Budget) -> Instant {
        if self.ready(now, budget) > 0 {
            return now;
        }
        if budget.per_second == 0 {
            return Instant::NEVER;
        }
        let wait = PERMIT.saturating_sub(self.saved).div_ceil(budget.per_second);
        now + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)).max(TICK)
    }
}

/// Permits in what is saved.
fn whole(saved: u128) -> u64 {
    u64::try_from(saved / PERMIT).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_burst_then_the_rate_however_late_it_is_asked() {
        let budget = Budget::new(10.0, 3);
        let mut bucket = TokenBucket::full(budget);
        assert_eq!((bucket.ready(at(0), budget), bucket.next(at(0), budget)), (3, at(0)));
        (0..3).for_each(|_| bucket.take());
        assert_eq!((bucket.ready(at(0), budget), bucket.next(at(0), budget)), (0, at(100)));
        assert_eq!(bucket.ready_by(at(0), at(1000), budget), 10);
        assert_eq!(bucket.ready(at(250), budget), 2);
        assert_eq!(bucket.ready(at(3_600_000), budget), 3, "no more for the quiet");
    }

    #[test]
    fn a_permit_given_back_late_adds_nothing_to_a_burst() {
        let budget = Budget::new(10.0, 2);
        let mut bucket = TokenBucket::full(budget);
        bucket.ready(at(0), budget);
        bucket.take();
        bucket.give_back(at(0), at(0), budget);
        assert_eq!(bucket.ready(at(0), budget), 2);
        bucket.take();
        bucket.ready(at(90), budget);
        bucket.take();
        bucket.give_back(at(0), at(90), budget);
        assert_eq!(bucket.ready(at(90), budget), 1, "0.9 gained, and 0.1 given back");
        bucket.give_back(at(90), at(300), budget);
        assert_eq!(bucket.ready(at(300), budget), 2, "no more than the burst");
    }

    /// A thread reads the clock, and another one locks the bucket first with a later time.
    #[test]
    fn a_clock_that_was_read_too_early_adds_nothing() {
        let budget = Budget::new(10.0, 3);
        let mut bucket = TokenBucket::full(budget);
        let mut taken = 0;
        for now in [at(1000), at(700), at(1000), at(700), at(1000)] {
            while bucket.ready(now, budget) > 0 {
                bucket.take();
                taken += 1;
            }
        }
        assert_eq!(taken, 3, "permits between 700 and 1000 ms");
    }

    #[test]
    fn invalid_rates_still_give_one_permit_per_hour() {
        for rate in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            let budget = Budget::new(rate, 0);
            let mut bucket = TokenBucket::full(budget);
            assert_eq!(bucket.ready(at(0), budget), 1);
            bucket.take();
            assert_eq!(bucket.ready(at(3_599_000), budget), 0);
            assert_eq!(bucket.ready(at(3_601_000), budget), 1);
        }
        let budget = Budget::new(f64::INFINITY, u64::MAX);
        assert_eq!(TokenBucket::full(budget).ready(at(3_600_000), budget), u64::MAX);
        assert_eq!(TokenBucket::default().next(at(0), Budget { per_second: 0, burst: 0 }), Instant::NEVER);
    }
}
