//! Ends waits after their timeout, with one timer for the whole queue.

use crate::connect::Connect;
use crate::core::{Core, wake};
use crate::race;
use std::sync::Arc;

/// Runs until the reservoir is closed. It sleeps while nobody waits.
pub(crate) async fn run<C: Connect>(core: Arc<Core<C>>) {
    while !core.with_state(|state| state.is_closed()) {
        let now = core.runtime.now();
        let (wakers, next) = core.with_state(|state| state.end_waits(now));
        wakers.into_iter().for_each(wake);
        race::first(core.waits.notified(), core.runtime.sleep_until(next)).await;
    }
}
