//! A limiter, watched.

use std::sync::Arc;

use forebay::{Limit, LimitError, Pace, Permit, StoreFuture};

use super::World;

/// One instance's limiter. Whoever has to wait there is counted.
pub(crate) struct WatchedLimit {
    world: Arc<World>,
    place: usize,
    limit: Arc<dyn Limit>,
}

impl WatchedLimit {
    pub(crate) fn new(world: &Arc<World>, place: usize, limit: Arc<dyn Limit>) -> Self {
        Self { world: Arc::clone(world), place, limit }
    }
}

impl Limit for WatchedLimit {
    fn acquire(&self) -> StoreFuture<'_, Result<Permit, LimitError>> {
        Box::pin(async {
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
