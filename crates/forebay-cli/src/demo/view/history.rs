//! What one side has done over time.

use std::time::Duration;

use crate::demo::side::Figures;

/// Samples in the order of time.
#[derive(Debug, Default)]
pub(super) struct History {
    samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    opens: usize,
    failed: u64,
}

/// What happened in one part of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The most opens a second.
    pub(super) opens: usize,
    /// Callers that failed.
    pub(super) failed: u64,
}

impl History {
    pub(super) fn note(&mut self, at: Duration, figures: &Figures) {
        let sample = Sample { at, opens: figures.traffic.attempts, failed: figures.callers.failed };
        self.samples.push(sample);
    }

    /// Cuts a run of `length` into `parts` and tells what happened in each, up to the last sample.
    pub(super) fn stretches(&self, length: Duration, parts: u16) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut failed_before = 0;
        for Sample { at, opens, failed } in &self.samples {
            let part = at.as_nanos() * u128::from(parts) / length.as_nanos().max(1);
            let part = usize::try_from(part).unwrap_or(usize::MAX).min(usize::from(parts).saturating_sub(1));
            // Between two samples it was as it is at the second.
            while stretches.len() <= part {
                stretches.push(Stretch { opens: *opens, failed: 0 });
            }
            stretches[part].opens = stretches[part].opens.max(*opens);
            stretches[part].failed += failed - failed_before;
            failed_before = *failed;
        }
        stretches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(samples: &[(u64, usize, u64)]) -> History {
        let samples = samples.iter().map(|(at, opens, failed)| Sample {
            at: Duration::from_secs(*at),
            opens: *opens,
            failed: *failed,
        });
        History { samples: samples.collect() }
    }

    #[test]
    fn a_stretch_has_the_most_opens_and_all_failures() {
        let history = history(&[(0, 1, 0), (1, 5, 2), (2, 3, 2), (5, 4, 7)]);
        let stretches = history.stretches(Duration::from_secs(12), 12);
        let read: Vec<_> = stretches.iter().map(|stretch| (stretch.opens, stretch.failed)).collect();
        assert_eq!(read, [(1, 0), (5, 2), (3, 0), (4, 0), (4, 0), (4, 5)]);
        let stretches = history.stretches(Duration::from_secs(12), 4);
        assert_eq!(stretches, [Stretch { opens: 5, failed: 2 }, Stretch { opens: 4, failed: 5 }]);
    }

    #[test]
    fn odd_lengths_are_no_trouble() {
        assert!(History::default().stretches(Duration::ZERO, 0).is_empty());
        let history = history(&[(0, 1, 0), (100, 2, 1)]);
        assert_eq!(history.stretches(Duration::from_secs(1), 1), [Stretch { opens: 2, failed: 1 }]);
        assert_eq!(history.stretches(Duration::ZERO, 3).len(), 3);
    }
}
