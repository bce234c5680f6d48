//! Counts in any one second.

use std::collections::VecDeque;
use std::time::Duration;

use forebay::Instant;

/// Counts the events of the last second.
#[derive(Clone, Debug, Default)]
pub(super) struct SlidingSecond(VecDeque<Instant>);

const SECOND: Duration = Duration::from_secs(1);

impl SlidingSecond {
    /// Adds an event. Returns the count of the last second, this event included.
    pub(super) fn add(&mut self, now: Instant) -> u64 {
        while self.0.front().is_some_and(|first| now.since(*first) >= SECOND) {
            self.0.pop_front();
        }
        self.0.push_back(now);
        self.0.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_second_counts() {
        let mut rate = SlidingSecond::default();
        let counts = [0, 400, 900, 1000, 1399, 1400, 5000]
            .map(|millis| rate.add(Instant::from_nanos(millis * 1_000_000)));
        assert_eq!(counts, [1, 2, 3, 3, 4, 4, 1]);
    }
}
