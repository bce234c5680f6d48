//! How many of something happened within one second.

use std::collections::VecDeque;
use std::time::Duration;

use forebay::Instant;

/// Counts what happened in the second that ends now, and remembers the fullest second so far. The second slides: it
/// is not the clock's, at whose turn a rush would be split in two.
#[derive(Debug, Default)]
pub(super) struct SlidingSecond {
    recent: VecDeque<Instant>,
    peak: usize,
}

impl SlidingSecond {
    /// It happened once.
    pub(super) fn note(&mut self, now: Instant) {
        self.recent.push_back(now);
        self.peak = self.peak.max(self.count(now));
    }

    /// How often it happened in the second up to now.
    pub(super) fn count(&mut self, now: Instant) -> usize {
        while self.recent.front().is_some_and(|at| now.since(*at) >= Duration::from_secs(1)) {
            self.recent.pop_front();
        }
        self.recent.len()
    }

    /// How often it happened in the fullest second.
    pub(super) fn peak(&self) -> usize {
        self.peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rush_across_a_turn_of_the_clock_is_one_rush() {
        let mut second = SlidingSecond::default();
        for millis in [1_900, 1_950, 2_050, 2_100, 2_899] {
            second.note(Instant::from_nanos(millis * 1_000_000));
        }
        assert_eq!((second.count(Instant::from_nanos(2_899_000_000)), second.peak()), (5, 5));
        assert_eq!(second.count(Instant::from_nanos(2_900_000_000)), 4);
        second.note(Instant::from_nanos(10_000_000_000));
        assert_eq!((second.count(Instant::from_nanos(10_000_000_000)), second.peak()), (1, 5));
    }
}
