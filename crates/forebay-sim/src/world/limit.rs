//! The fleet's limiter: the one that ships, behind the shared store.

use std::sync::Arc;

use forebay::{Limit, LimitError, LocalLimit, Pace, Permit, StoreFuture};

use super::World;

/// One instance's access to a limiter.
pub(crate) struct FleetLimit {
    world: Arc<World>,
    place: usize,
    limit: LocalLimit,
    /// It is shared, and lives in the store.
    shared: bool,
}

impl FleetLimit {
    pub(crate) fn new(world: Arc<World>, place: usize, limit: LocalLimit, shared: bool) -> Self {
        Self { world, place, limit, shared }
    }
}

impl Limit for FleetLimit {
    fn acquire(&self) -> StoreFuture<'_, Result<Permit, LimitError>> {
        Box::pin(async {
            if self.shared {
                self.world.call_table(self.place).await.map_err(LimitError::Unavailable)?;
            }
            if self.limit.pace().at_once == 0 {
                self.world.books.lock().denied(self.place);
            }
            self.limit.acquire().await
        })
    }

    fn pace(&self) -> Pace {
        self.limit.pace()
    }
}
