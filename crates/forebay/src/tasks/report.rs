//! Sends a status report to observers every second.

use std::sync::Arc;
use std::time::Duration;

use crate::connect::Connect;
use crate::core::Core;
use crate::race;

const EVERY: Duration = Duration::from_secs(1);

/// Runs until the reservoir is closed and owns nothing, and then reports once more.
pub(crate) async fn run<C: Connect>(core: Arc<Core<C>>) {
    while !core.with_state(|state| state.is_drained()) {
        core.report();
        let drained = core.reached(|state| state.is_drained());
        race::first(drained, core.runtime.sleep_until(core.runtime.now() + EVERY)).await;
    }
    core.report();
}
