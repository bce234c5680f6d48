//! What a plain pool lacks: to ask again after the cluster has refused an open.

use std::future::Future;
use std::time::Duration;

use forebay::rt::{Runtime, TokioRuntime};
use forebay::{Rng, Seed};
use parking_lot::Mutex;

use super::scenario::draw;

/// The pause after the first refusal. Each further pause is twice as long, up to the maximum. 100 to 1,000 ms were tried:
/// callers wait longer.
const FIRST: Duration = Duration::from_millis(40);
const MAX: Duration = Duration::from_millis(320);

/// In words.
pub(super) fn setting() -> (&'static str, String) {
    ("refused open", format!("again in {} to {} ms", FIRST.as_millis(), MAX.as_millis()))
}

/// Pauses between the attempts of one instance.
#[derive(Debug)]
pub(super) struct Backoff {
    runtime: TokioRuntime,
    rng: Mutex<Rng>,
}

impl Backoff {
    pub(super) fn new(runtime: TokioRuntime, seed: Seed) -> Self {
        Self { runtime, rng: Mutex::new(seed.fork("backoff").rng()) }
    }

    /// Asks the pool until the cluster does not refuse. The caller goes back to the pool each time: it may get a connection that
    /// another one has given back.
    pub(super) async fn get<T, E, F>(
        &self,
        mut attempt: impl FnMut() -> F,
        is_refused: impl Fn(&E) -> bool,
    ) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        let mut pause = FIRST;
        loop {
            match attempt().await {
                Err(error) if is_refused(&error) => {}
                outcome => return outcome,
            }
            // Half of the pause is random: callers refused together must not come back together.
            let length = draw(&mut self.rng.lock(), &(pause / 2..pause));
            self.runtime.sleep_until(self.runtime.now() + length).await;
            pause = (2 * pause).min(MAX);
        }
    }
}
