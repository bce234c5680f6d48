//! The token bucket that limits new connections.

use crate::clock::Moment;

/// Levels are in billionths of a token: what a rate of one per second adds in a nanosecond. Refills are
/// exact.
const TOKEN: u128 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    per_second: u32,
    burst: u32,
    /// In billionths of a token.
    level: u128,
    at: Moment,
}

impl Bucket {
    pub(crate) fn new(per_second: u32, burst: u32, now: Moment) -> Self {
        Self { per_second, burst, level: u128::from(burst) * TOKEN, at: now }
    }

    pub(crate) fn take(&mut self, now: Moment) -> bool {
        self.refill(now);
        let left = self.level.checked_sub(TOKEN);
        self.level = left.unwrap_or(self.level);
        left.is_some()
    }

    /// The number of whole tokens.
    pub(crate) fn level(&self, now: Moment) -> u32 {
        let mut copy = *self;
        copy.refill(now);
        u32::try_from(copy.level / TOKEN).unwrap_or(u32::MAX)
    }

    /// Changes the limits. Tokens in the bucket stay, up to the new burst.
    pub(crate) fn set_limits(&mut self, per_second: u32, burst: u32, now: Moment) {
        self.refill(now);
        (self.per_second, self.burst) = (per_second, burst);
        self.level = self.level.min(u128::from(burst) * TOKEN);
    }

    pub(crate) fn fill(&mut self, now: Moment) {
        *self = Self::new(self.per_second, self.burst, now);
    }

    fn refill(&mut self, now: Moment) {
        // Two tasks may read the clock in one order and arrive here in the other.
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        let gained = passed.as_nanos() * u128::from(self.per_second);
        self.level = (self.level + gained).min(u128::from(self.burst) * TOKEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn the_burst_then_one_every_ten_milliseconds() {
        let mut bucket = Bucket::new(100, 1_000, Duration::ZERO);
        let admitted = (0..1_001).filter(|_| bucket.take(Duration::ZERO)).count();
        assert_eq!(admitted, 1_000);
        assert!(!bucket.take(Duration::from_nanos(9_999_999)));
        assert!(bucket.take(Duration::from_millis(10)));
        assert!(!bucket.take(Duration::from_millis(10)));
        assert_eq!(bucket.level(Duration::from_secs(60)), 1_000);
    }

    #[test]
    fn an_older_time_adds_no_tokens() {
        let mut bucket = Bucket::new(1, 1, Duration::from_secs(9));
        assert!(bucket.take(Duration::from_secs(10)));
        assert!(!bucket.take(Duration::from_secs(9)));
        assert!(!bucket.take(Duration::from_millis(10_999)));
        assert!(bucket.take(Duration::from_secs(11)));
    }

    proptest! {
        /// For any requests, the bucket admits exactly what burst and rate allow, and refuses only when no
        /// token is left.
        #[test]
        fn admits_exactly_what_burst_and_rate_allow(
            rate in 1_u32..500, burst in 1_u32..50,
            gaps in proptest::collection::vec(0_u64..40_000_000, 1..300),
        ) {
            let mut bucket = Bucket::new(rate, burst, Duration::ZERO);
            // The reference uses another algorithm (GCRA): the earliest time at which each token may be
            // taken.
            let step = 1_000_000_000_i128; // in units of 1/rate ns
            let mut empty_until: i128 = -(i128::from(burst) * step);
            let mut now = 0_u64;
            for gap in gaps {
                now += gap;
                let scaled = i128::from(now) * i128::from(rate);
                let floor = scaled - i128::from(burst) * step;
                let next = empty_until.max(floor) + step;
                let allowed = next <= scaled;
                if allowed { empty_until = next; }
                prop_assert_eq!(bucket.take(Duration::from_nanos(now)), allowed);
            }
        }
    }
}
