//! Fills a pool in standard mode before anybody gets to use it.

use std::time::Duration;

use forebay::{CheckoutError, Connect, Rng};

use crate::standard::{Borrowed, Standard};

/// Attempts for one connection after the first.
const RETRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// After so many in a row that could not be had, the rest would not be had either, and nobody should wait for that.
const HOPELESS: usize = 2;
/// Nor after one of which no attempt was even answered.
const SILENCE: Duration = Duration::from_secs(60);
/// For one attempt, its wait for the rate limit included.
const ATTEMPT: Duration = Duration::from_secs(10);

/// Opens connections until the pool is full, one after the other; spread evenly over `stagger` if there is one. Each is
/// asked whether it lives, and one that cannot be had after some attempts is left out: the keeper will see to it. So it is
/// with all that are left, once two in a row were not to be had, or one in a minute.
///
/// Cancel safe: what is open stays in the pool.
pub(crate) async fn warm_up<C: Connect>(standard: &Standard<C>, stagger: Option<Duration>, rng: &mut Rng) {
    let shared = standard.shared();
    let (open, target) = (standard.open(), shared.figures.max_open);
    let wanted = target.saturating_sub(open);
    tracing::info!(
        current_connections = open,
        target_connections = target,
        connections_to_create = wanted,
        "Starting DSQL pool warmup"
    );
    let runtime = &*shared.runtime;
    let began = runtime.now();
    let step = stagger.unwrap_or_default() / u32::try_from(wanted.max(1)).unwrap_or(u32::MAX);
    // Held until the end, or the pool would hand out the same one again.
    let mut held = Vec::with_capacity(wanted);
    let mut in_vain = 0;
    for number in 0..wanted {
        let turn = began + step.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX));
        if turn > runtime.now() {
            runtime.sleep_until(turn).await;
        }
        let asked = runtime.now();
        match one(standard, rng).await {
            Some(connection) => {
                held.push(connection);
                in_vain = 0;
            }
            None => in_vain += 1,
        }
        if in_vain == HOPELESS || (in_vain > 0 && runtime.now().since(asked) >= SILENCE) {
            break;
        }
    }
    let created = held.len();
    let failed = wanted - created;
    drop(held);
    standard.warmed();
    tracing::info!(
        connections_created = created,
        connections_failed = failed,
        final_open_connections = standard.open(),
        "DSQL pool warmup complete"
    );
}

async fn one<C: Connect>(standard: &Standard<C>, rng: &mut Rng) -> Option<Borrowed<C>> {
    let runtime = &*standard.shared().runtime;
    for attempt in 0..=RETRIES {
        match standard.take(ATTEMPT).await {
            Ok(mut connection) => {
                // Clean as well, or it would count as in use for a moment after everybody believes the pool warm.
                if connection.ping().await && connection.cleaned().await {
                    return Some(connection);
                }
                connection.mark_bad();
                tracing::warn!(attempt, "Pool warmup connection failed: no answer to a ping");
            }
            Err(CheckoutError::Closed) => return None,
            Err(error) => tracing::warn!(attempt, %error, "Pool warmup connection failed"),
        }
        if attempt < RETRIES {
            runtime.sleep_until(runtime.now() + pause(attempt, rng)).await;
        }
    }
    None
}

/// 200 ms, doubled with each attempt, 5 s at most; of that, from half to one and a half.
pub(crate) fn pause(attempt: u32, rng: &mut Rng) -> Duration {
    let full = FIRST_PAUSE.saturating_mul(1 << attempt.min(10)).min(LONGEST_PAUSE);
    full / 2 + rng.up_to(full)
}

#[cfg(test)]
mod tests {
    use forebay::Seed;

    use super::*;

    #[test]
    fn pauses_double_to_a_ceiling_with_jitter() {
        let mut rng = Seed::new(1).rng();
        for (attempt, full) in [(0, 200), (1, 400), (4, 3_200), (5, 5_000), (u32::MAX, 5_000)] {
            let full = Duration::from_millis(full);
            let pauses: Vec<_> = (0..100).map(|_| pause(attempt, &mut rng)).collect();
            assert!(pauses.iter().all(|pause| *pause >= full / 2 && *pause <= full * 3 / 2), "{attempt}");
            assert!(pauses.iter().any(|pause| *pause != pauses[0]), "no jitter at attempt {attempt}");
        }
    }
}
