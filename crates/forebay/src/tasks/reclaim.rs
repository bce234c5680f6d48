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

/// The slot of a discarded connection, with its lease. It is vacated in the end whatever happens, and not before the
/// lease is released, as far as there is a runtime to do it.
struct Occupied<C: Connect> {
    core: Arc<Core<C>>,
    key: Key,
    lease: Option<HeldLease>,
    /// This is the second attempt. There is no third: a runtime that is gone drops each at once.
    retried: bool,
}

impl<C: Connect> Drop for Occupied<C> {
    fn drop(&mut self) {
        let lease = self.lease.take().filter(|lease| !lease.is_released());
        if lease.is_some() && std::thread::panicking() && !self.retried {
            // The connector's close panicked, and the connection is gone with it: only the lease is left to do.
            let again = Self { core: Arc::clone(&self.core), key: self.key, lease, retried: true };
            return close(again, None);
        }
        drop(lease);
        self.core.with_state(|state| state.reclaimed(self.key));
    }
}
