//! How long to pause after a failure.

use std::time::Duration;

use crate::seed::Rng;

const FIRST: Duration = Duration::from_millis(250);

/// The pause after the `attempt`th failure in a row: 250 ms, doubled with each, `longest` at most; of that, between
/// half and all, so that a fleet which failed together does not return together.
pub(crate) fn pause(attempt: u32, longest: Duration, rng: &mut Rng) -> Duration {
    let doublings = attempt.saturating_sub(1).min(10);
    let full = FIRST.saturating_mul(1 << doublings).min(longest);
    full / 2 + rng.up_to(full / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    #[test]
    fn doubles_to_a_ceiling_with_jitter() {
        let mut rng = Seed::new(1).rng();
        for (attempt, full) in
            [(0, 250), (1, 250), (2, 500), (3, 1000), (6, 8000), (7, 10_000), (u32::MAX, 10_000)]
        {
            let (full, longest) = (Duration::from_millis(full), Duration::from_secs(10));
            let pauses: Vec<_> = (0..100).map(|_| pause(attempt, longest, &mut rng)).collect();
            assert!(pauses.iter().all(|pause| *pause >= full / 2 && *pause <= full), "attempt {attempt}");
            assert!(pauses.iter().any(|pause| *pause != pauses[0]), "no jitter at attempt {attempt}");
        }
    }
}
