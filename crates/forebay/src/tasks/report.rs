//! Tells observers once a second how things stand.

use std::sync::Arc;
use std::time::Duration;

use crate::connect::Connect;
use crate::core::Core;
use crate::race;

const EVERY: Duration = Duration::from_secs(1);

/// Runs until the reservoir is closed and everything it owned is gone, and reports once more then.
pub(crate) async fn run<C: Connect>(core: Arc<Core<C>>) {
    while !core.with_state(|state| state.is_drained()) {
        core.report();
        let drained = core.reached(|state| state.is_drained());
        race::first(drained, core.runtime.sleep_until(core.runtime.now() + EVERY)).await;
    }
    core.report();
}
