//! Tells observers once a second how things stand.

use std::sync::Arc;
use std::time::Duration;

use crate::connect::Connect;
use crate::core::Core;
use crate::race;

const EVERY: Duration = Duration::from_secs(1);

/// Runs until the reservoir is closed, and reports once more then.
pub(crate) async fn run<C: Connect>(core: Arc<Core<C>>) {
    while !core.ask(|state| state.is_closed()) {
        core.report();
        race::first(core.closed(), core.runtime.sleep_until(core.runtime.now() + EVERY)).await;
    }
    core.report();
}
