//! A limiter that counts denials.

use std::sync::Arc;

use forebay::{Limit, LimitError, Pace, Permit, StoreFuture};

use super::World;

/// The limiter of one instance. Counts the opens that have to wait for a permit.
pub(crate) struct CountingLimit {
    world: Arc<World>,
    instance: usize,
    limit: Arc<dyn Limit>,
}

impl CountingLimit {
    pub(crate) fn new(world: &Arc<World>, instance: usize, limit: Arc<dyn Limit>) -> Self {
        Self { world: Arc::clone(world), instance, limit }
    }
}

impl Limit for CountingLimit {
    fn acquire(&self) -> StoreFuture<'_, Result<Permit, LimitError>> {
        Box::pin(async {
            if self.limit.pace().at_once == 0 {
                self.world.events.lock().work[self.instance].limiter_denies += 1;
            }
            self.limit.acquire().await
        })
    }

    fn pace(&self) -> Pace {
        self.limit.pace()
    }

    fn name(&self) -> &'static str {
        self.limit.name()
    }
}
