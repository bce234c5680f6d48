//! Fills a pool in standard mode before anybody uses it.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{self, Runtime};
use forebay::{Checkout, Connect, Failure, OpenError, Reservoir, Rng};

use crate::pool::registry::Registering;

/// Attempts for one connection after the first.
const RETRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// For one attempt, its wait for the rate limit included.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// After this many connections in a row that could not be opened, the keeper opens the rest.
const MAX_FAILED_IN_A_ROW: usize = 2;
/// The same after one connection that took this long and could not be opened.
const MAX_FAILED_TIME: Duration = Duration::from_secs(60);

/// Opens connections until the pool is full.
pub(crate) struct WarmUp<'a, C: Connect> {
    pub(crate) reservoir: &'a Reservoir<Registering<C>>,
    pub(crate) connector: &'a Registering<C>,
    pub(crate) runtime: &'a dyn Runtime,
    /// How long a ping may take.
    pub(crate) ping_timeout: Duration,
    /// The time over which the opens are spread.
    pub(crate) stagger: Duration,
    pub(crate) rng: Rng,
}

/// The time over which the opens are spread, unless a variable sets it. A large pool that is opened in one rush expires in one
/// rush, and takes the connect rate from everybody else. Up to 100 connections: none. Up to 500: two minutes. Above: 50 a
/// second, which is half of the cluster's rate, in whole minutes, at least three.
pub(crate) fn default_stagger(max_open: usize) -> Duration {
    let minutes = match max_open {
        0..=100 => 0,
        101..=500 => 2,
        _ => (max_open as u64 / 50 / 60 + 1).max(3),
    };
    Duration::from_secs(60 * minutes)
}

impl<'a, C: Connect> WarmUp<'a, C> {
    /// Opens one connection after the other and pings each. The keeper opens a connection that could not be opened after some
    /// attempts. It opens all others, too, after two such connections in a row, after one whose attempts took a minute, or once
    /// the server denies access.
    ///
    /// Cancel safe: what is open stays in the pool.
    pub(crate) async fn run(mut self) {
        let status = self.reservoir.status();
        let (open, target) = (status.size(), status.max_open);
        let wanted = target.saturating_sub(open);
        tracing::info!(
            current_connections = open,
            target_connections = target,
            connections_to_create = wanted,
            "Starting DSQL pool warmup"
        );
        let began = self.runtime.now();
        let step = self.stagger / u32::try_from(wanted.max(1)).unwrap_or(u32::MAX);
        // Held until the end, so that each checkout below gets the connection that was just opened.
        let mut held = Vec::with_capacity(wanted);
        let mut failed_in_a_row = 0;
        for number in 0..wanted {
            let turn = began + step.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX));
            if turn > self.runtime.now() {
                self.runtime.sleep_until(turn).await;
            }
            let asked = self.runtime.now();
            match self.one().await {
                Ok(connection) => {
                    held.push(connection);
                    failed_in_a_row = 0;
                }
                Err(error) if error.is_permanent() => break,
                Err(_) => failed_in_a_row += 1,
            }
            let took_too_long = failed_in_a_row > 0 && self.runtime.now().since(asked) >= MAX_FAILED_TIME;
            if failed_in_a_row == MAX_FAILED_IN_A_ROW || took_too_long {
                break;
            }
        }
        let created = held.len();
        drop(held);
        tracing::info!(
            connections_created = created,
            connections_failed = wanted - created,
            final_open_connections = self.reservoir.status().size(),
            "DSQL pool warmup complete"
        );
    }

    async fn one(&mut self) -> Result<Checkout<'a, Registering<C>>, Arc<OpenError>> {
        let mut attempt = 0;
        loop {
            let error = match self.attempt().await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            tracing::warn!(attempt, %error, "Pool warmup connection failed");
            if attempt == RETRIES || error.is_permanent() {
                return Err(error);
            }
            let pause = pause(attempt, &mut self.rng);
            self.runtime.sleep_until(self.runtime.now() + pause).await;
            attempt += 1;
        }
    }

    async fn attempt(&self) -> Result<Checkout<'a, Registering<C>>, Arc<OpenError>> {
        let failed = |failure, message: &str| Arc::new(OpenError::new(failure, message));
        // An open that outlasts its attempt goes on. Its connection is ready for a later attempt.
        if self.reservoir.status().ready == 0 {
            let opening =
                self.reservoir.open_one().ok_or_else(|| failed(Failure::Open, "the pool has no room"))?;
            let opened = rt::within(self.runtime, ATTEMPT_TIMEOUT, opening).await;
            opened.unwrap_or_else(|| Err(failed(Failure::Timeout, "no connection within 10 s")))?;
        }
        self.pinged().await.ok_or_else(|| failed(Failure::Open, "no answer to a ping"))
    }

    /// A connection that was just opened, if it answers.
    async fn pinged(&self) -> Option<Checkout<'a, Registering<C>>> {
        let (runtime, connector) = (self.runtime, self.connector);
        let mut connection = self.reservoir.try_checkout().ok()?;
        let check = rt::within(runtime, self.ping_timeout, connector.check(&mut connection)).await;
        let mut answers = matches!(check, Some(Ok(())));
        // Clean as well, or it would count as in use for a moment after the pool is warm.
        if answers && !connector.is_clean(&connection) {
            let reset = rt::within(runtime, self.ping_timeout, connector.reset(&mut connection)).await;
            answers = matches!(reset, Some(Ok(())));
        }
        if !answers {
            connection.mark_bad();
        }
        answers.then_some(connection)
    }
}

/// 200 ms, doubled with each attempt, 5 s at most; of that, from half to one and a half.
fn pause(attempt: u32, rng: &mut Rng) -> Duration {
    let full = FIRST_PAUSE.saturating_mul(1 << attempt.min(10)).min(MAX_PAUSE);
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

    #[test]
    fn a_large_pool_is_opened_over_some_minutes() {
        for (max_open, minutes) in
            [(1, 0), (100, 0), (101, 2), (500, 2), (501, 3), (8_000, 3), (9_000, 4), (10_000, 4)]
        {
            assert_eq!(default_stagger(max_open), Duration::from_secs(60 * minutes), "of {max_open}");
        }
    }
}
