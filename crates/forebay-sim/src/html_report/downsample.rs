//! Shortens long series without losing their peaks.

use std::time::Duration;

/// The most points of a line: about the width of a page.
const POINTS: usize = 800;
/// The most columns of a chart: each must be visible.
const COLUMNS: u32 = 180;

/// A point of a line: seconds and a value.
pub(super) type Point = (f64, f64);

/// Keeps at most [`POINTS`] points: the first, the last, and the extremes of each stretch. Drops points
/// between equal neighbours.
pub(super) fn downsample(points: &[Point]) -> Vec<Point> {
    let mut kept = Vec::new();
    if points.len() <= POINTS {
        kept.extend_from_slice(points);
    } else {
        let inner = &points[1..points.len() - 1];
        let stretch = inner.len().div_ceil(POINTS / 2 - 1);
        kept.push(points[0]);
        for stretch in inner.chunks(stretch) {
            let by_value = |a: &&Point, b: &&Point| a.1.total_cmp(&b.1);
            let (Some(low), Some(high)) = (stretch.iter().min_by(by_value), stretch.iter().max_by(by_value))
            else {
                continue;
            };
            let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
            kept.push(*first);
            if first != second {
                kept.push(*second);
            }
        }
        kept.push(points[points.len() - 1]);
    }
    without_repeats(&kept)
}

fn without_repeats(points: &[Point]) -> Vec<Point> {
    let needed = |index: &usize| {
        let value = |index: usize| points.get(index).map(|point| point.1);
        let (before, after) = (index.checked_sub(1).and_then(value), value(index + 1));
        before != value(*index) || after != value(*index)
    };
    (0..points.len()).filter(needed).map(|index| points[index]).collect()
}

/// Divides time into equal slots, one per column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) length: Duration,
    span: Duration,
}

impl Slots {
    /// For samples at intervals of `every`. A slot holds whole samples, and has a round length if possible.
    pub(super) fn new(every: Duration, span: Duration) -> Self {
        const ROUND: [u64; 18] =
            [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 21_600, 86_400];
        let every = every.max(Duration::from_millis(1));
        let least = (span / COLUMNS).max(every);
        let fits = |length: &Duration| *length >= least && length.as_nanos().is_multiple_of(every.as_nanos());
        let round = ROUND.into_iter().map(Duration::from_secs).find(fits);
        let times = u32::try_from(least.as_nanos().div_ceil(every.as_nanos())).unwrap_or(u32::MAX);
        Self {
            length: if least == every { every } else { round.unwrap_or_else(|| every.saturating_mul(times)) },
            span,
        }
    }

    /// The slot of a sample. A sample describes the time before it.
    pub(super) fn of(self, at: Duration) -> usize {
        let slot = at.as_nanos().div_ceil(self.length.as_nanos()).saturating_sub(1);
        usize::try_from(slot).unwrap_or(usize::MAX)
    }

    /// Begin and end of a slot, in seconds.
    pub(super) fn bounds(self, slot: usize) -> (f64, f64) {
        let edge = |slot: usize| (slot as f64 * self.length.as_secs_f64()).min(self.span.as_secs_f64());
        (edge(slot), edge(slot.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_survive() {
        let mut day: Vec<Point> =
            (0..86_400_u32).map(|at| (f64::from(at), f64::from(100 + at % 7))).collect();
        day[0].1 = 55.0;
        day[40_001].1 = 9_000.0;
        day[40_002].1 = 0.0;
        day[86_399].1 = 66.0;
        let kept = downsample(&day);
        assert!((700..=POINTS).contains(&kept.len()), "{}", kept.len());
        for index in [0, 40_001, 40_002, 86_399] {
            assert!(kept.contains(&day[index]), "{:?}", day[index]);
        }
        assert!(kept.is_sorted_by(|a, b| a.0 < b.0), "in order");
    }

    #[test]
    fn each_stretch_keeps_its_extremes() {
        let wave = |at: u32| f64::from(at * 7919 % 1000);
        let all: Vec<Point> = (0..5000).map(|at| (f64::from(at), wave(at))).collect();
        let kept = downsample(&all);
        let by_value = |a: &&Point, b: &&Point| a.1.total_cmp(&b.1);
        for stretch in all[1..4999].chunks(13) {
            for extreme in [stretch.iter().min_by(by_value), stretch.iter().max_by(by_value)] {
                assert!(extreme.is_some_and(|point| kept.contains(point)), "{extreme:?}");
            }
        }
    }

    #[test]
    fn short_lines_lose_only_repeats() {
        assert_eq!(downsample(&[]), []);
        assert_eq!(downsample(&[(0.0, 5.0)]), [(0.0, 5.0)]);
        let flat = [(0.0, 5.0), (1.0, 5.0), (2.0, 5.0), (3.0, 6.0), (4.0, 6.0)];
        assert_eq!(downsample(&flat), [(0.0, 5.0), (2.0, 5.0), (3.0, 6.0), (4.0, 6.0)]);
    }

    #[test]
    fn slots_are_few_and_round() {
        let length = |every: u64, span: u64| {
            Slots::new(Duration::from_secs(every), Duration::from_secs(span)).length.as_secs()
        };
        assert_eq!(length(1, 120), 1);
        assert_eq!(length(1, 1200), 10);
        assert_eq!(length(10, 7200), 60);
        assert_eq!(length(60, 86_400), 600);
        assert_eq!(length(1, 86_400), 600);
        assert_eq!(length(7, 7000), 42, "not round, but a multiple of the interval");
    }

    #[test]
    fn samples_describe_the_time_before_them() {
        let slots = Slots::new(Duration::from_secs(10), Duration::from_secs(3595));
        let of = |secs| slots.of(Duration::from_secs(secs));
        assert_eq!((slots.length.as_secs(), of(0), of(10), of(20), of(30), of(3595)), (20, 0, 0, 0, 1, 179));
        assert_eq!(slots.bounds(179), (3580.0, 3595.0), "the last slot ends with the run");
    }
}
