//! Runs contestants in turn, several times, so that whatever else the machine does falls on all of them alike.

use anyhow::Context;

/// One contestant and what it is measured at.
pub struct Lane<'a> {
    name: String,
    run: Box<dyn FnMut() -> anyhow::Result<f64> + 'a>,
}

impl<'a> Lane<'a> {
    /// Each call of `run` measures once.
    pub fn new(name: &str, run: impl FnMut() -> anyhow::Result<f64> + 'a) -> Self {
        Self { name: name.to_owned(), run: Box::new(run) }
    }
}

impl std::fmt::Debug for Lane<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lane").field(&self.name).finish()
    }
}

/// What a contestant achieved over all rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Whose they are.
    pub name: String,
    /// The middle of all rounds.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many rounds there were.
    pub rounds: usize,
}

impl Figures {
    /// Sums up what was measured. There must be something.
    ///
    /// # Errors
    /// If there is nothing.
    pub fn of(name: &str, mut values: Vec<f64>) -> anyhow::Result<Self> {
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
            anyhow::bail!("nothing was measured of {name}");
        };
        let rounds = values.len();
        let median = f64::midpoint(values[(rounds - 1) / 2], values[rounds / 2]);
        Ok(Self { name: name.to_owned(), median, min, max, rounds })
    }
}

/// Runs each lane once to warm up, then `rounds` times more.
///
/// Each round begins with another lane, and every other round goes backwards, so that nobody always runs first or
/// always after the same neighbour.
///
/// # Errors
/// The first that a lane reports.
pub fn race(rounds: usize, mut lanes: Vec<Lane<'_>>) -> anyhow::Result<Vec<Figures>> {
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
    lanes.iter().zip(measured).map(|(lane, values)| Figures::of(&lane.name, values)).collect()
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
    fn a_median_is_in_the_middle() {
        let figures = Figures::of("x", vec![9.0, 1.0, 4.0]).unwrap();
        assert_eq!((figures.median, figures.min, figures.max, figures.rounds), (4.0, 1.0, 9.0, 3));
        assert_eq!(Figures::of("x", vec![1.0, 2.0]).unwrap().median, 1.5);
        assert!(Figures::of("x", vec![]).is_err());
    }

    #[test]
    fn every_round_has_everyone_once_and_starts_with_another() {
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
