//! bb8.

use std::convert::Infallible;

use bb8::{ManageConnection, Pool as Bb8Pool, PooledConnection, QueueStrategy, RunError};

use super::as_u32;
use crate::pool::{Lend, Payload, Pool};

/// Makes connections that are always fit.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl ManageConnection for Plain {
    type Connection = Payload;
    type Error = Infallible;

    async fn connect(&self) -> Result<Payload, Infallible> {
        Ok(0)
    }

    async fn is_valid(&self, _connection: &mut Payload) -> Result<(), Infallible> {
        Ok(())
    }

    #[inline]
    fn has_broken(&self, _connection: &mut Payload) -> bool {
        false
    }
}

/// A pool that neither checks what it lends nor limits lives, so that it needs no reaper. Its timeout cannot be left
/// out. The guard borrows the pool, which is its cheaper one.
#[derive(Clone, Debug)]
pub struct Bb8(Bb8Pool<Plain>);

impl Pool for Bb8 {
    const NAME: &'static str = "bb8";
    type Refusal = RunError<Infallible>;

    async fn filled(connections: usize) -> anyhow::Result<Self> {
        let connections = as_u32(connections)?;
        let pool = Bb8Pool::builder()
            .max_size(connections)
            .min_idle(connections)
            .test_on_check_out(false)
            .max_lifetime(None)
            .idle_timeout(None)
            .queue_strategy(QueueStrategy::Lifo)
            .build(Plain)
            .await?;
        Ok(Self(pool))
    }
}

impl Lend for Bb8 {
    type Lent<'a> = PooledConnection<'a, Plain>;

    #[inline]
    async fn lend(&self) -> Result<PooledConnection<'_, Plain>, RunError<Infallible>> {
        self.0.get().await
    }
}
