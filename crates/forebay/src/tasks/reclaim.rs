//! Closes discarded connections, and then, not before, releases their leases.

use std::sync::Arc;

use crate::connect::Connect;
use crate::core::Core;
use crate::event::Event;
use crate::lease::HeldLease;
use crate::state::Key;

/// Closes `connection` and then releases `lease`, in the background. The slot `key` stays occupied until both are done.
pub(crate) fn start<C: Connect>(
    core: &Arc<Core<C>>,
    key: Key,
    connection: Option<C::Connection>,
    lease: Option<HeldLease>,
) {
    let slot = Occupied { core: Arc::clone(core), key };
    core.runtime.spawn(Box::pin(async move {
        let core = &slot.core;
        if let Some(connection) = connection {
            let limit = core.config.lock().close_timeout;
            if core.within(limit, core.connector.close(connection)).await.is_none() {
                core.observe(&Event::CloseTimedOut);
            }
        }
        if let Some(lease) = lease {
            lease.release().await;
        }
        drop(slot);
    }));
}

/// The slot of a discarded connection. It is vacated even if the connector panics or the runtime goes away; the lease
/// is dropped before it, and so sees to itself.
struct Occupied<C: Connect> {
    core: Arc<Core<C>>,
    key: Key,
}

impl<C: Connect> Drop for Occupied<C> {
    fn drop(&mut self) {
        self.core.ask(|state| state.reclaimed(self.key));
    }
}
