//! The part of the fleet's rate that comes with slots: an instance uses it without a call to the table.

use forebay::Instant;

use crate::token_bucket::{BILLION, Budget, TokenBucket};

/// How many hundredths of the rate and of the burst are shared out by slots. The rest is in the shared item.
pub(crate) const HUNDREDTHS: u64 = 20;

/// The permits of one instance. It starts empty, so that a process gains nothing by a restart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    per_second: u64,
    burst: u64,
    permits: TokenBucket,
}

impl Share {
    pub(crate) fn new(per_second: u64, burst: u64) -> Self {
        Self { per_second, burst, permits: TokenBucket::default() }
    }

    /// Takes a permit. Call it only if one is [ready](Self::ready).
    pub(crate) fn take(&mut self) {
        self.permits.take();
    }

    /// Gives back a permit that was taken at `taken`, less what was gained since.
    pub(crate) fn give_back(&mut self, taken: Instant, now: Instant, slots: u64, limit: u64) {
        self.permits.give_back(taken, now, self.budget(slots, limit));
    }

    /// Permits available at `now`, with `slots` of `limit`.
    pub(crate) fn ready(&mut self, now: Instant, slots: u64, limit: u64) -> u64 {
        // Fewer slots hold fewer permits: their new owner starts to save from zero.
        self.permits.ready(now, self.budget(slots, limit))
    }

    /// Permits that become available by `then` if each is taken at once and the slots stay as they are.
    pub(crate) fn ready_by(&self, now: Instant, then: Instant, slots: u64, limit: u64) -> u64 {
        self.permits.ready_by(now, then, self.budget(slots, limit))
    }

    /// When there will be a permit, if the slots stay as they are.
    pub(crate) fn next(&self, now: Instant, slots: u64, limit: u64) -> Instant {
        self.permits.next(now, self.budget(slots, limit))
    }

    fn budget(&self, slots: u64, limit: u64) -> Budget {
        Budget { per_second: portion(self.per_second, slots, limit), burst: most(self.burst, slots, limit) }
    }
}

/// The most a share may save, in billionths of a permit: what its slots bring, and at least one permit, or the share would
/// never have one.
fn most(burst: u64, slots: u64, limit: u64) -> u128 {
    if slots == 0 { 0 } else { portion(burst, slots, limit).max(BILLION) }
}

/// Permits that all shares together may save beyond what their slots bring. The shared item has so many fewer.
pub(crate) fn overdraft(burst: u64, holdings: impl Iterator<Item = u64>, limit: u64) -> u64 {
    let beyond = |slots| most(burst, slots, limit).saturating_sub(portion(burst, slots, limit));
    u64::try_from(holdings.map(beyond).sum::<u128>().div_ceil(BILLION)).unwrap_or(u64::MAX)
}

/// The part of `whole` that `slots` of `limit` bring, in billionths.
fn portion(whole: u64, slots: u64, limit: u64) -> u128 {
    u128::from(whole) * u128::from(slots) * u128::from(HUNDREDTHS) * BILLION
        / (100 * u128::from(limit.max(1)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use proptest::prelude::*;

    /// Takes a permit, if there is one.
    fn take(share: &mut Share, now: Instant, slots: u64, limit: u64) -> bool {
        let is_ready = share.ready(now, slots, limit) > 0;
        if is_ready {
            share.take();
        }
        is_ready
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn it_starts_empty_and_saves_no_more_than_its_burst() {
        let mut share = Share::new(100, 1000);
        assert!(!take(&mut share, at(0), 100, 1000), "a new share is empty");
        assert_eq!(share.next(at(0), 100, 1000), at(500), "a tenth of a fifth of 100 a second");
        assert!(!take(&mut share, at(499), 100, 1000));
        assert!(take(&mut share, at(500), 100, 1000));
        let by = |then| share.ready_by(at(750), at(then), 100, 1000);
        assert_eq!(
            [750, 999, 1000, 1500, 60_000].map(by),
            [0, 0, 1, 2, 119],
            "without a ceiling, taken as they come"
        );
        assert_eq!(share.ready(at(3_600_000), 100, 1000), 20);
        assert_eq!(share.ready(at(3_600_000), 50, 1000), 10, "half the slots, half of it");
        assert_eq!(share.ready(at(3_600_000), 0, 1000), 0, "no slots, no share");
        assert_eq!(share.next(at(3_600_000), 0, 1000), Instant::NEVER);
    }

    #[test]
    fn few_slots_save_one_permit_and_the_shared_item_has_less() {
        let mut share = Share::new(100, 1000);
        assert!(!take(&mut share, at(0), 4, 1000));
        assert_eq!(share.next(at(0), 4, 1000), at(12_500), "four thousandths of a fifth of 100 a second");
        assert_eq!(share.ready(at(3_600_000), 4, 1000), 1, "slots alone would bring 0.8");
        assert_eq!(overdraft(1000, [5, 100].into_iter(), 1000), 0);
        assert_eq!(overdraft(1000, [4, 4, 4, 0, 100].into_iter(), 1000), 1, "three times 0.2");
        assert_eq!(overdraft(1000, [1; 100].into_iter(), 1000), 80);
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
                    while take(holder, at(now), slots, 100) {
                        taken += 1;
                    }
                }
                // A holder's gain is by its present slots; what it gained under fewer or more is off by at most one pause.
                let most = 200 + 2 + now * 20 / 1000 + 2 * (2 * 20 + 1);
                prop_assert!(taken <= most, "{taken} permits in {now} ms, at most {most}");
            }
        }
    }
}
