//! deadpool's unmanaged pool: it knows nothing of lifetimes, and keeps what it is given.

use deadpool::unmanaged::{Object, Pool as Unmanaged, PoolError};

use crate::pool::{Lend, Payload, Pool, TryLend};

/// An unmanaged pool without timeouts.
#[derive(Clone, Debug)]
pub struct DeadpoolUnmanaged(Unmanaged<Payload>);

impl Pool for DeadpoolUnmanaged {
    const NAME: &'static str = "deadpool unmanaged";
    type Refusal = PoolError;

    async fn filled(connections: usize) -> anyhow::Result<Self> {
        Ok(Self(Unmanaged::from(vec![0; connections])))
    }
}

impl TryLend for DeadpoolUnmanaged {
    type Lent<'a> = Object<Payload>;

    #[inline]
    fn try_lend(&self) -> Result<Object<Payload>, PoolError> {
        self.0.try_get()
    }
}

impl Lend for DeadpoolUnmanaged {
    type Lent<'a> = Object<Payload>;

    #[inline]
    async fn lend(&self) -> Result<Object<Payload>, PoolError> {
        self.0.get().await
    }
}
