//! Ends waits after their timeout, with one timer for the whole queue.

use std::sync::Arc;

use crate::connect::Connect;
use crate::core::Core;
use crate::race;
use crate::state::WaitScan;

/// Runs until the reservoir is closed. It sleeps while nobody waits.
pub(crate) async fn run<C: Connect>(core: Arc<Core<C>>) {
    while !core.with_state(|state| state.is_closed()) {
        let mut scan = WaitScan::default();
        core.in_batches(|state, now, due| state.end_waits(&mut scan, now, due));
        let next = core.with_state(|state| state.waits_end_at());
        race::first(core.waits.notified(), core.runtime.sleep_until(next)).await;
    }
}
