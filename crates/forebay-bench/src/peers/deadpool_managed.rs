//! deadpool's managed pool.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use deadpool::managed::{Manager, Metrics, Object, Pool as Managed, PoolError, QueueMode, RecycleResult};

use crate::pool::{Lend, Payload, Pool};

/// Makes connections that are numbered from 0 and always fit to be lent again.
#[derive(Debug, Default)]
pub struct Numbered(AtomicU64);

impl Manager for Numbered {
    type Type = Payload;
    type Error = Infallible;

    async fn create(&self) -> Result<Payload, Infallible> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed))
    }

    #[inline]
    async fn recycle(&self, _connection: &mut Payload, _metrics: &Metrics) -> RecycleResult<Infallible> {
        Ok(())
    }
}

/// A managed pool without timeouts. Last in, first out, as this project does it: the same connection is lent again
/// while it is in the cache.
#[derive(Clone, Debug)]
pub struct Deadpool(Managed<Numbered>);

impl Deadpool {
    /// The pool itself, for what only it can do.
    #[must_use]
    pub fn inner(&self) -> &Managed<Numbered> {
        &self.0
    }
}

impl Pool for Deadpool {
    const NAME: &'static str = "deadpool managed";
    type Refusal = PoolError<Infallible>;

    async fn filled(connections: usize) -> anyhow::Result<Self> {
        let pool = Managed::builder(Numbered::default())
            .max_size(connections)
            .queue_mode(QueueMode::Lifo)
            .build()?;
        // It opens connections on demand only: ask for all of them at once.
        let mut all: Vec<Object<Numbered>> = Vec::with_capacity(connections);
        for _ in 0..connections {
            all.push(pool.get().await.map_err(|error| anyhow::anyhow!("deadpool: {error:?}"))?);
        }
        drop(all);
        Ok(Self(pool))
    }
}

impl Lend for Deadpool {
    type Lent<'a> = Object<Numbered>;

    #[inline]
    async fn lend(&self) -> Result<Object<Numbered>, PoolError<Infallible>> {
        self.0.get().await
    }
}
