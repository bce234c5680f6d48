//! Handles alarms: retirement, expiry, idle timeouts, health checks.

use std::sync::Arc;

use crate::connect::Connect;
use crate::core::Core;
use crate::race;

/// Runs until the reservoir is closed. It sleeps until the next alarm, so it handles only what is due.
pub(crate) async fn run<C: Connect>(core: Arc<Core<C>>) {
    while !core.with_state(|state| state.is_closed()) {
        core.in_batches(|state, now, due| state.fire_alarms(now, due));
        let next = core.with_state(|state| state.next_alarm());
        race::first(core.expiry.notified(), core.runtime.sleep_until(next)).await;
    }
}
