//! The samples of the last five minutes, and the rates in them.

use std::collections::VecDeque;
use std::time::Duration;

use forebay::Instant;

use crate::sample::{Levels, Sample};

/// The time between two samples.
pub(crate) const INTERVAL: Duration = Duration::from_millis(500);

/// How far back the charts of the page go.
pub(crate) const SPAN: Duration = Duration::from_secs(5 * 60);

/// "Now" in a rate. Two intervals would show a steady 3/s as a flicker of 2 and 4.
const NOW: Duration = Duration::from_secs(2);

/// The window of each rate of which the peak is the largest.
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// What the charts need of one sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) at: Instant,
    pub(crate) wall: Duration,
    pub(crate) levels: Levels,
    /// Counters since the pool started.
    pub(crate) opened: u64,
    pub(crate) failed: u64,
    pub(crate) discarded: u64,
    pub(crate) waits: u64,
    pub(crate) checkouts: u64,
    /// Opens per second that the limiter permits.
    pub(crate) permitted: f64,
}

impl Point {
    fn of(sample: &Sample) -> Self {
        Self {
            at: sample.at,
            wall: sample.wall,
            levels: sample.levels,
            opened: sample.totals.opened,
            failed: sample.totals.all_open_failures(),
            discarded: sample.totals.all_discards(),
            waits: sample.totals.waits,
            checkouts: sample.totals.checkouts,
            permitted: sample.refill.per_second * sample.refill.rate_share,
        }
    }
}

/// Events per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) opens: f64,
    /// The most opens in one second of the last minute.
    pub(crate) opens_peak: f64,
    pub(crate) open_failures: f64,
    pub(crate) checkouts: f64,
    pub(crate) waits: f64,
    pub(crate) discards: f64,
}

/// The samples of one pool.
#[derive(Debug, Default)]
pub(crate) struct History(VecDeque<Point>);

impl History {
    pub(crate) fn add(&mut self, sample: &Sample) {
        self.0.push_back(Point::of(sample));
        while self.0.front().is_some_and(|point| sample.at.since(point.at) > SPAN) {
            self.0.pop_front();
        }
    }

    pub(crate) fn points(&self) -> impl DoubleEndedIterator<Item = &Point> {
        self.0.iter()
    }

    pub(crate) fn rates(&self) -> Rates {
        let Some(last) = self.0.back() else { return Rates::default() };
        let now = |read: fn(&Point) -> u64| self.rate(self.0.len() - 1, NOW, read);
        let recent = (1..self.0.len()).rev().take_while(|&index| last.at.since(self.0[index].at) < MINUTE);
        Rates {
            opens: now(|point| point.opened),
            opens_peak: recent
                .map(|index| self.rate(index, SECOND, |point| point.opened))
                .fold(0.0, f64::max),
            open_failures: now(|point| point.failed),
            checkouts: now(|point| point.checkouts),
            waits: now(|point| point.waits),
            discards: now(|point| point.discarded),
        }
    }

    /// The growth per second of a counter in the `window` that ends with the point `index`.
    fn rate(&self, index: usize, window: Duration, read: impl Fn(&Point) -> u64) -> f64 {
        let end = &self.0[index];
        let earlier = self.0.range(..index).rev();
        let Some(start) = earlier.take_while(|point| end.at.since(point.at) <= window).last() else {
            return 0.0;
        };
        // A restarted pool counts from zero again.
        let growth = read(end).saturating_sub(read(start));
        let seconds = end.at.since(start.at).as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "a rate to look at")]
        if seconds > 0.0 { growth as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(opened: impl IntoIterator<Item = u64>) -> History {
        let mut history = History::default();
        let mut sample = Sample::default();
        for opened in opened {
            sample.at = sample.at + INTERVAL;
            sample.totals.opened = opened;
            history.add(&sample);
        }
        history
    }

    #[test]
    fn five_minutes_are_kept() {
        let history = history(0..10_000);
        assert_eq!(history.points().count(), 601);
        assert_eq!(history.points().last().map(|point| point.opened), Some(9_999));
    }

    #[test]
    fn a_rate_is_the_mean_of_two_seconds() {
        assert_eq!(history([0, 4, 8, 12, 16, 20]).rates().opens, 8.0);
        assert_eq!(history([0, 0, 0, 0, 0, 20]).rates().opens, 10.0);
        assert_eq!(history([20, 20, 20, 20, 20, 20]).rates().opens, 0.0);
    }

    #[test]
    fn the_peak_is_the_best_second_of_the_last_minute() {
        let burst = |before: usize, after: usize| {
            history(std::iter::repeat_n(0, before).chain(std::iter::repeat_n(30, after))).rates().opens_peak
        };
        assert_eq!(burst(10, 100), 30.0);
        assert_eq!(burst(10, 200), 0.0, "more than a minute ago");
    }

    #[test]
    fn a_first_sample_and_a_restarted_pool_have_no_rate() {
        assert_eq!(history([]).rates(), Rates::default());
        assert_eq!(history([7]).rates(), Rates::default());
        assert_eq!(history([100, 3]).rates().opens, 0.0);
    }
}
