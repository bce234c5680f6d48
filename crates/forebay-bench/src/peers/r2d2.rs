//! r2d2. It blocks, so it takes part only where nobody waits.

use std::convert::Infallible;

use r2d2::{ManageConnection, Pool as R2d2Pool, PooledConnection};

use super::as_u32;
use crate::pool::{Payload, Pool, TryLend};

/// Makes connections that are always fit.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl ManageConnection for Plain {
    type Connection = Payload;
    type Error = Infallible;

    fn connect(&self) -> Result<Payload, Infallible> {
        Ok(0)
    }

    fn is_valid(&self, _connection: &mut Payload) -> Result<(), Infallible> {
        Ok(())
    }

    #[inline]
    fn has_broken(&self, _connection: &mut Payload) -> bool {
        false
    }
}

/// Nothing was idle.
#[derive(Clone, Copy, Debug)]
pub struct NoneIdle;

/// A pool that neither checks what it lends nor limits lives.
#[derive(Clone, Debug)]
pub struct R2d2(R2d2Pool<Plain>);

impl Pool for R2d2 {
    const NAME: &'static str = "r2d2";
    type Refusal = NoneIdle;

    async fn filled(connections: usize) -> anyhow::Result<Self> {
        // It fills itself to its size before `build` returns.
        let pool = R2d2Pool::builder()
            .max_size(as_u32(connections)?)
            .test_on_check_out(false)
            .max_lifetime(None)
            .idle_timeout(None)
            .build(Plain)?;
        Ok(Self(pool))
    }
}

impl TryLend for R2d2 {
    type Lent<'a> = PooledConnection<Plain>;

    #[inline]
    fn try_lend(&self) -> Result<PooledConnection<Plain>, NoneIdle> {
        self.0.try_get().ok_or(NoneIdle)
    }
}
