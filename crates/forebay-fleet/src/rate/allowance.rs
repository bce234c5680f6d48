//! What this process may grant at a moment.

use forebay::Instant;

use crate::share::Share;
use crate::token_bucket::{Budget, TokenBucket};

use super::reserved::ReservedPermit;

/// Where a permit comes from, and where it goes if it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The share of the slots.
    Share,
    /// The table.
    Reserved(ReservedPermit),
    /// The local rate, while the table is unavailable.
    Local,
}

/// Permits by the time at which callers get them.
///
/// The total is the fleet's whole rate and burst. Each permit counts against it, wherever it comes from: also late ones,
/// and those on both sides of an outage. So one process alone never exceeds them.
#[derive(Debug)]
pub(crate) struct Allowance {
    total: (TokenBucket, Budget),
    pub(super) share: Share,
    local: (TokenBucket, Budget),
}

impl Allowance {
    pub(crate) fn new(total: Budget, share: Share, local: Budget) -> Self {
        Self { total: (TokenBucket::full(total), total), share, local: (TokenBucket::full(local), local) }
    }

    /// Takes a permit of the share, if there is one.
    pub(super) fn take_share(&mut self, now: Instant, slots: u64, limit: u64) -> bool {
        self.share.ready(now, slots, limit) > 0 && self.take(now) && {
            self.share.take();
            true
        }
    }

    /// Takes a permit of the local rate, if there is one.
    pub(super) fn take_local(&mut self, now: Instant) -> bool {
        let (local, budget) = &mut self.local;
        local.ready(now, *budget) > 0 && self.take(now) && {
            self.local.0.take();
            true
        }
    }

    /// Counts a permit, if the total allows one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let (total, budget) = &mut self.total;
        let is_ready = total.ready(now, *budget) > 0;
        if is_ready {
            total.take();
        }
        is_ready
    }

    /// Gives back what was taken at `taken` for a permit of this origin.
    pub(super) fn give_back(
        &mut self,
        origin: Origin,
        taken: Instant,
        now: Instant,
        (slots, limit): (u64, u64),
    ) {
        self.total.0.give_back(taken, now, self.total.1);
        match origin {
            Origin::Share => self.share.give_back(taken, now, slots, limit),
            Origin::Local => self.local.0.give_back(taken, now, self.local.1),
            Origin::Reserved(_) => {}
        }
    }

    /// When the total allows the next permit.
    pub(super) fn next(&self, now: Instant) -> Instant {
        self.total.0.next(now, self.total.1)
    }

    pub(super) fn next_of_share(&self, now: Instant, slots: u64, limit: u64) -> Instant {
        self.share.next(now, slots, limit).max(self.next(now))
    }

    pub(super) fn next_local(&self, now: Instant) -> Instant {
        self.local.0.next(now, self.local.1).max(self.next(now))
    }

    /// Permits that the total allows at once.
    pub(super) fn ready(&mut self, now: Instant) -> u64 {
        self.total.0.ready(now, self.total.1)
    }

    /// Permits of the local rate that are available at once.
    pub(super) fn ready_local(&mut self, now: Instant) -> u64 {
        self.local.0.ready(now, self.local.1).min(self.ready(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn all_origins_together_stay_within_the_total() {
        let (total, local) = (Budget::new(10.0, 5), Budget::new(100.0, 100));
        let mut allowance = Allowance::new(total, Share::new(1000, 1000), local);
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        assert!(!allowance.take_share(at(0), 1, 1), "a new share is empty");
        assert!(allowance.take_share(at(1000), 1, 1));
        assert!(allowance.take(at(1000)));
        assert_eq!((allowance.ready(at(1000)), allowance.ready_local(at(1000))), (3, 3));
        assert!((0..3).all(|_| allowance.take_local(at(1000))));
        assert!(!allowance.take(at(1000)) && !allowance.take_local(at(1000)));
        assert!(!allowance.take_share(at(1000), 1, 1));
        assert_eq!(allowance.next_local(at(1000)), at(1100), "the local rate alone would have more");
        allowance.give_back(Origin::Local, at(1000), at(1000), (1, 1));
        assert!(allowance.take_share(at(1000), 1, 1));
    }
}
