//! Closes discarded connections, and releases their leases afterwards.

use std::sync::Arc;

use crate::connect::Connect;
use crate::core::Core;
use crate::event::Event;
use crate::lease::HeldLease;
use crate::state::Key;

/// Closes `connection` and then releases `lease`, in the background. The slot `key` stays occupied until both
/// are done.
pub(crate) fn start<C: Connect>(
    core: &Arc<Core<C>>,
    key: Key,
    connection: Option<C::Connection>,
    lease: Option<HeldLease>,
) {
    close(Occupied { core: Arc::clone(core), key, lease, retried: false }, connection);
}

fn close<C: Connect>(mut slot: Occupied<C>, connection: Option<C::Connection>) {
    let core = Arc::clone(&slot.core);
    core.runtime.clone().spawn(Box::pin(async move {
        if let Some(connection) = connection {
            let limit = core.config.lock().close_timeout;
            if core.within(limit, core.connector.close(connection)).await.is_none() {
                core.observe(&Event::CloseTimedOut);
            }
        }
        if let Some(lease) = &mut slot.lease {
            lease.released().await;
        }
        drop(slot);
    }));
}

/// The slot of a discarded connection, with its lease. It is always vacated, and only after the lease is
/// released, as long as there is a runtime.
struct Occupied<C: Connect> {
    core: Arc<Core<C>>,
    key: Key,
    lease: Option<HeldLease>,
    /// This is the second attempt. There is no third: if the runtime is gone, it drops every attempt at once.
    retried: bool,
}

impl<C: Connect> Drop for Occupied<C> {
    fn drop(&mut self) {
        let lease = self.lease.take().filter(|lease| !lease.is_released());
        if lease.is_some() && std::thread::panicking() && !self.retried {
            // The connector's `close` panicked and dropped the connection. Only the lease is left.
            let again = Self { core: Arc::clone(&self.core), key: self.key, lease, retried: true };
            return close(again, None);
        }
        drop(lease);
        self.core.with_state(|state| state.reclaimed(self.key));
    }
}
