//! Runs contestants in turn, several times, so that other load on the machine affects all of them alike.

use anyhow::Context;
use hdrhistogram::Histogram;

/// One contestant, and how it is measured.
pub(crate) struct Lane<'a> {
    name: &'static str,
    run: Box<dyn FnMut() -> anyhow::Result<f64> + 'a>,
}

impl<'a> Lane<'a> {
    /// Each call of `run` measures once.
    pub(crate) fn new(name: &'static str, run: impl FnMut() -> anyhow::Result<f64> + 'a) -> Self {
        Self { name, run: Box::new(run) }
    }
}

/// The result of one contestant over all rounds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figures {
    /// The contestant.
    pub(crate) name: String,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) rounds: usize,
}

impl Figures {
    /// Summarises the values of all rounds. Fails if there is none.
    pub(crate) fn of(name: &str, mut values: Vec<f64>) -> anyhow::Result<Self> {
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
            anyhow::bail!("no values were measured for {name}");
        };
        let rounds = values.len();
        let median = f64::midpoint(values[(rounds - 1) / 2], values[rounds / 2]);
        Ok(Self { name: name.to_owned(), median, min, max, rounds })
    }
}

/// Times of up to a minute in nanoseconds, with three digits.
pub(crate) fn histogram() -> anyhow::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).context("making a histogram")
}

/// Runs each lane once to warm up, then `rounds` times more.
///
/// Each round begins with another lane, and every other round goes backwards, so that no lane always runs
/// first or always after the same neighbour.
pub(crate) fn race(rounds: usize, mut lanes: Vec<Lane<'_>>) -> anyhow::Result<Vec<Figures>> {
    let mut measured = vec![Vec::with_capacity(rounds); lanes.len()];
    for round in 0..=rounds {
        for at in order(round, lanes.len()) {
            let lane = &mut lanes[at];
            let value = (lane.run)().with_context(|| format!("measuring {}", lane.name))?;
            if round > 0 {
                measured[at].push(value);
            }
        }
    }
    lanes.iter().zip(measured).map(|(lane, values)| Figures::of(lane.name, values)).collect()
}

fn order(round: usize, lanes: usize) -> impl Iterator<Item = usize> {
    (0..lanes).map(move |step| {
        let at = (round + step) % lanes;
        if round.is_multiple_of(2) { at } else { lanes - 1 - at }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_value() {
        let figures = Figures::of("x", vec![9.0, 1.0, 4.0]).unwrap();
        assert_eq!((figures.median, figures.min, figures.max, figures.rounds), (4.0, 1.0, 9.0, 3));
        assert_eq!(Figures::of("x", vec![1.0, 2.0]).unwrap().median, 1.5);
        assert!(Figures::of("x", vec![]).is_err());
    }

    #[test]
    fn every_round_has_each_lane_once_and_starts_with_another() {
        let mut first = Vec::new();
        for round in 0..6 {
            let order: Vec<usize> = order(round, 3).collect();
            first.push(order[0]);
            let mut sorted = order;
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
        }
        assert!(first.windows(2).any(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn the_warm_up_does_not_count() {
        let mut calls = 0.0;
        let lane = Lane::new("x", || {
            calls += 1.0;
            Ok(calls)
        });
        let figures = race(3, vec![lane]).unwrap();
        assert_eq!((figures[0].min, figures[0].max, figures[0].rounds), (2.0, 4.0, 3));
    }
}
