//! mobc.

use std::convert::Infallible;

use mobc::{Connection, Error, Manager, Pool as MobcPool, async_trait};

use crate::pool::{Lend, Payload, Pool};

/// Makes connections that are always fit.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

#[async_trait]
impl Manager for Plain {
    type Connection = Payload;
    type Error = Infallible;

    async fn connect(&self) -> Result<Payload, Infallible> {
        Ok(0)
    }

    async fn check(&self, connection: Payload) -> Result<Payload, Infallible> {
        Ok(connection)
    }
}

/// A pool that neither checks what it lends, nor limits lives, nor sets a timer. It gives back in a task of its own.
#[derive(Clone)]
pub struct Mobc(MobcPool<Plain>);

impl Pool for Mobc {
    const NAME: &'static str = "mobc";
    type Refusal = Error<Infallible>;

    async fn filled(connections: usize) -> anyhow::Result<Self> {
        let most = u64::try_from(connections)?;
        let pool = MobcPool::builder()
            .max_open(most)
            .max_idle(most)
            .test_on_check_out(false)
            .max_lifetime(None)
            .max_idle_lifetime(None)
            .get_timeout(None)
            .build(Plain);
        // It opens connections on demand only: ask for all of them at once.
        let mut all: Vec<Connection<Plain>> = Vec::with_capacity(connections);
        for _ in 0..connections {
            all.push(pool.get().await.map_err(|error| anyhow::anyhow!("mobc: {error:?}"))?);
        }
        drop(all);
        while pool.state().await.idle < most {
            tokio::task::yield_now().await;
        }
        Ok(Self(pool))
    }
}

impl Lend for Mobc {
    type Lent<'a> = Connection<Plain>;

    #[inline]
    async fn lend(&self) -> Result<Connection<Plain>, Error<Infallible>> {
        self.0.get().await
    }
}

impl std::fmt::Debug for Mobc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mobc")
    }
}
