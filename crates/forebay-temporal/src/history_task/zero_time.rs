//! The time that stands for none in rows of the plugin.
//!
//! In Go, a time that was never set is the beginning of the year 1. The plugin keeps it as the beginning of the year 1000, and so do the
//! stores: a task that one of them has written can be found and deleted by the other.

use forebay_dsql::Timestamp;

/// 0001-01-01 00:00 UTC.
const ZERO: i128 = -62_135_596_800_000_000_000;
/// 1000-01-01 00:00 UTC.
const STORED_ZERO: i128 = -30_610_224_000_000_000_000;

/// The time as it stands in a row.
pub(super) fn stored(time: Timestamp) -> Timestamp {
    replaced(time, ZERO, STORED_ZERO)
}

/// The time that a row has.
pub(super) fn loaded(time: Timestamp) -> Timestamp {
    replaced(time, STORED_ZERO, ZERO)
}

fn replaced(time: Timestamp, from: i128, to: i128) -> Timestamp {
    if time.nanos() == from { Timestamp::from_nanos(to).unwrap_or(time) } else { time }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_zero_time_is_replaced() {
        let [zero, stored_zero] = [ZERO, STORED_ZERO].map(|nanos| Timestamp::from_nanos(nanos).unwrap());
        assert_eq!((stored(zero), loaded(stored_zero)), (stored_zero, zero));
        for time in [Timestamp::MIN, Timestamp::MAX, Timestamp::from_nanos(0).unwrap()] {
            assert_eq!((stored(time), loaded(time)), (time, time));
        }
    }
}
