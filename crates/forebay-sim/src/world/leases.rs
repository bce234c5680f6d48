//! The fleet's leases: those that ship, behind the shared store.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay::rt::Runtime;
use forebay::{BoxError, LeaseError, LeaseId, Leases, LocalLeases, StoreFuture};
use parking_lot::Mutex;

use super::World;

/// Every lease of the fleet, with its holder.
pub(crate) struct Ledger {
    limit: usize,
    leases: LocalLeases,
    holders: Mutex<BTreeMap<LeaseId, usize>>,
}

/// One instance's access to the leases.
#[derive(Clone)]
pub(crate) struct FleetLeases {
    world: Arc<World>,
    place: usize,
    ledger: Arc<Ledger>,
}

impl FleetLeases {
    /// The access of the instance at `place` to leases that it shares with the others.
    pub(crate) fn at(world: &Arc<World>, place: usize, ledger: &Arc<Ledger>) -> Self {
        Self { world: Arc::clone(world), place, ledger: Arc::clone(ledger) }
    }
}

impl Ledger {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        let count = usize::try_from(limit).unwrap_or(usize::MAX);
        Arc::new(Self { limit: count, leases: LocalLeases::new(limit), holders: Mutex::default() })
    }

    pub(crate) fn free(&self) -> usize {
        self.limit.saturating_sub(self.leases.held())
    }

    pub(crate) fn held(&self) -> usize {
        self.leases.held()
    }

    /// The holder is dead: its leases are free again once they have run out.
    pub(crate) fn bereave(self: &Arc<Self>, world: &Arc<World>, place: usize) {
        let Some(rules) = world.scenario.leases else { return };
        let orphans: Vec<LeaseId> = {
            let mut holders = self.holders.lock();
            let orphans =
                holders.iter().filter(|(_, holder)| **holder == place).map(|(id, _)| id.clone()).collect();
            holders.retain(|_, holder| *holder != place);
            orphans
        };
        let (ledger, world) = (Arc::clone(self), Arc::clone(world));
        let time = world.time.clone();
        time.spawn(Box::pin(async move {
            world.pass(rules.length).await;
            for orphan in orphans {
                // In memory, and by its own number: it cannot fail.
                drop(ledger.leases.release(&orphan).await);
            }
        }));
    }
}

impl Leases for FleetLeases {
    fn acquire(&self) -> StoreFuture<'_, Result<LeaseId, LeaseError>> {
        Box::pin(async {
            self.world.call_table(self.place).await.map_err(LeaseError::Unavailable)?;
            let id = self.ledger.leases.acquire().await?;
            self.ledger.holders.lock().insert(id.clone(), self.place);
            Ok(id)
        })
    }

    fn release<'a>(&'a self, id: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>> {
        Box::pin(async {
            self.world.call_table(self.place).await?;
            self.ledger.holders.lock().remove(id);
            self.ledger.leases.release(id).await
        })
    }
}
