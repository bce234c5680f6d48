//! A part of the fleet's rate that comes with slots: to be used without asking anyone.

use std::time::Duration;

use forebay::Instant;

/// Of the rate and of the burst, so many hundredths are shared out by slots; the rest is in the shared item.
pub(crate) const HUNDREDTHS: u64 = 20;

/// Billionths in a whole.
const BILLION: u128 = 1_000_000_000;
/// One permit, in the unit they are counted in: what a billionth of a permit a second brings in a nanosecond. So nothing is
/// rounded off, however often one looks.
const PERMIT: u128 = BILLION * BILLION;
/// Nobody need look more often than this.
const TICK: Duration = Duration::from_millis(1);

/// What an instance may open on its own account. It starts empty: a process that restarts must not have more for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    per_second: u64,
    burst: u64,
    /// What is saved up, in parts of a `PERMIT`.
    saved: u128,
    at: Option<Instant>,
}

impl Share {
    pub(crate) fn new(per_second: u64, burst: u64) -> Self {
        Self { per_second, burst, saved: 0, at: None }
    }

    /// Takes a permit at `now`, holding `slots` of `limit`.
    pub(crate) fn take(&mut self, now: Instant, slots: u64, limit: u64) -> bool {
        self.save(now, slots, limit);
        let enough = self.saved >= PERMIT;
        if enough {
            self.saved -= PERMIT;
        }
        enough
    }

    /// Gives a permit back; it is lost if there is no room for it by now.
    pub(crate) fn give_back(&mut self) {
        self.saved += PERMIT;
    }

    /// Permits to be had at `now`.
    pub(crate) fn ready(&mut self, now: Instant, slots: u64, limit: u64) -> u64 {
        self.save(now, slots, limit);
        u64::try_from(self.saved / PERMIT).unwrap_or(u64::MAX)
    }

    /// When there will be a permit, if the slots stay as they are.
    pub(crate) fn next(&self, now: Instant, slots: u64, limit: u64) -> Instant {
        let (rate, most) = (portion(self.per_second, slots, limit), portion(self.burst, slots, limit));
        if rate == 0 || most < BILLION {
            return Instant::NEVER;
        }
        let wait = PERMIT.saturating_sub(self.saved).div_ceil(rate);
        now + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)).max(TICK)
    }

    fn save(&mut self, now: Instant, slots: u64, limit: u64) {
        let passed = now.since(*self.at.get_or_insert(now)).as_nanos();
        self.at = Some(now);
        let gained = passed.saturating_mul(portion(self.per_second, slots, limit));
        // Less slots, less saved: whoever has them now begins to save anew.
        self.saved = self.saved.saturating_add(gained).min(portion(self.burst, slots, limit) * BILLION);
    }
}

/// The part of `whole` that `slots` of `limit` bring, in billionths.
fn portion(whole: u64, slots: u64, limit: u64) -> u128 {
    u128::from(whole) * u128::from(slots) * u128::from(HUNDREDTHS) * BILLION
        / (100 * u128::from(limit.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn it_starts_empty_and_saves_no_more_than_its_burst() {
        let mut share = Share::new(100, 1000);
        assert!(!share.take(at(0), 100, 1000), "a new share is empty");
        assert_eq!(share.next(at(0), 100, 1000), at(500), "a tenth of a fifth of 100 a second");
        assert!(!share.take(at(499), 100, 1000));
        assert!(share.take(at(500), 100, 1000));
        assert_eq!(share.ready(at(3_600_000), 100, 1000), 20);
        assert_eq!(share.ready(at(3_600_000), 50, 1000), 10, "half the slots, half of it");
        assert_eq!(share.next(at(0), 4, 1000), Instant::NEVER, "too few slots for a whole permit");
    }

    proptest! {
        /// However slots move between two holders, both together get no more than the share of all slots.
        #[test]
        fn shares_never_add_up_to_more(steps in prop::collection::vec((1u64..2000, 0u64..=100), 1..60)) {
            let mut holders = [Share::new(100, 1000), Share::new(100, 1000)];
            let (mut now, mut taken) = (0, 0);
            for (pause, slots) in steps {
                now += pause;
                for (holder, slots) in holders.iter_mut().zip([slots, 100 - slots]) {
                    while holder.take(at(now), slots, 100) {
                        taken += 1;
                    }
                }
                // A holder's gain is by its present slots; what it gained under fewer or more is off by at most one pause.
                let most = 200 + now * 20 / 1000 + 2 * (2 * 20 + 1);
                prop_assert!(taken <= most, "{taken} permits in {now} ms, at most {most}");
            }
        }
    }
}
