//! Wakes callers whose patience has ended: one timer for the whole line.

use std::sync::Arc;
use std::task::Waker;

use crate::connect::Connect;
use crate::core::Core;
use crate::race;

/// Runs until the reservoir is closed. It sleeps while nobody waits.
pub(crate) async fn run<C: Connect>(core: Arc<Core<C>>) {
    while !core.ask(|state| state.is_closed()) {
        let now = core.runtime.now();
        let (wakers, next) = core.ask(|state| state.watch_line(now));
        wakers.into_iter().for_each(Waker::wake);
        race::first(core.line.notified(), core.runtime.sleep_until(next)).await;
    }
}
