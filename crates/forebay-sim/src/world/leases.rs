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
    holders: Mutex<Holders>,
}

/// Who holds what.
struct Holders {
    by_lease: BTreeMap<LeaseId, usize>,
    counts: Vec<usize>,
    /// Leases of the dead.
    orphans: usize,
}

impl Holders {
    fn note(&mut self, id: LeaseId, place: usize) {
        self.by_lease.insert(id, place);
        self.counts[place] += 1;
    }

    fn forget(&mut self, id: &LeaseId) {
        if let Some(place) = self.by_lease.remove(id) {
            self.counts[place] -= 1;
        }
    }
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
    pub(crate) fn new(limit: u64, instances: usize) -> Arc<Self> {
        let count = usize::try_from(limit).unwrap_or(usize::MAX);
        let holders = Holders { by_lease: BTreeMap::new(), counts: vec![0; instances], orphans: 0 };
        Arc::new(Self { limit: count, leases: LocalLeases::new(limit), holders: Mutex::new(holders) })
    }

    /// How many are left for the living.
    pub(crate) fn for_the_living(&self) -> usize {
        self.limit.saturating_sub(self.holders.lock().orphans)
    }

    /// How many an instance holds.
    pub(crate) fn held_by(&self, place: usize) -> usize {
        self.holders.lock().counts[place]
    }

    pub(crate) fn held(&self) -> usize {
        self.leases.held()
    }

    /// The holder is dead: its leases are free again once they have run out.
    pub(crate) fn bereave(self: &Arc<Self>, world: &Arc<World>, place: usize) {
        let Some(rules) = world.scenario.leases else { return };
        let orphans: Vec<LeaseId> = {
            let mut holders = self.holders.lock();
            let theirs = holders.by_lease.iter().filter(|(_, holder)| **holder == place);
            let orphans: Vec<LeaseId> = theirs.map(|(id, _)| id.clone()).collect();
            holders.by_lease.retain(|_, holder| *holder != place);
            holders.counts[place] = 0;
            holders.orphans += orphans.len();
            orphans
        };
        let (ledger, world) = (Arc::clone(self), Arc::clone(world));
        let time = world.time.clone();
        time.spawn(Box::pin(async move {
            world.pass(rules.length).await;
            for orphan in orphans {
                // In memory, and by its own number: it cannot fail.
                drop(ledger.leases.release(&orphan).await);
                ledger.holders.lock().orphans -= 1;
            }
        }));
    }
}

impl Leases for FleetLeases {
    fn acquire(&self) -> StoreFuture<'_, Result<LeaseId, LeaseError>> {
        Box::pin(async {
            self.world.call_table(self.place).await.map_err(LeaseError::Unavailable)?;
            let id = self.ledger.leases.acquire().await?;
            self.ledger.holders.lock().note(id.clone(), self.place);
            Ok(id)
        })
    }

    fn release<'a>(&'a self, id: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>> {
        Box::pin(async {
            self.world.call_table(self.place).await?;
            self.ledger.holders.lock().forget(id);
            self.ledger.leases.release(id).await
        })
    }
}
