//! Exponential backoff with jitter.

use std::time::Duration;

use crate::seed::Rng;

/// The pause after the first failure.
pub(crate) const FIRST: Duration = Duration::from_millis(250);

/// The pause after `failures` failures in a row. It is `first`, doubled with each failure after the first, up
/// to `longest`. The result is random between half of that and all of it, so that the processes of a fleet
/// that failed together do not retry together.
pub fn pause(failures: u32, first: Duration, longest: Duration, rng: &mut Rng) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let full = first.saturating_mul(1 << doublings).min(longest);
    full / 2 + rng.up_to(full / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    #[test]
    fn doubles_to_a_ceiling_with_jitter() {
        let mut rng = Seed::new(1).rng();
        for (failures, full) in
            [(0, 250), (1, 250), (2, 500), (3, 1000), (6, 8000), (7, 10_000), (u32::MAX, 10_000)]
        {
            let [full, longest] = [full, 10_000].map(Duration::from_millis);
            let pauses: Vec<_> = (0..100).map(|_| pause(failures, FIRST, longest, &mut rng)).collect();
            assert!(pauses.iter().all(|pause| *pause >= full / 2 && *pause <= full), "{failures} failures");
            assert!(pauses.iter().any(|pause| *pause != pauses[0]), "no jitter after {failures} failures");
        }
    }
}
