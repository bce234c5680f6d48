//! Transactions that overlap.

use std::cell::Cell;

use forebay_temporal::{Persistence, Result, Tx};

use crate::cluster::{quiet, store_of};

/// How often a transaction runs that locks and writes nothing, if another process makes a change between its lock and its COMMIT. A
/// lock that is none does not notice: 1. One that is, is run again once: 2.
pub(crate) async fn attempts(
    lock: impl AsyncFn(&Tx) -> Result<()>,
    change: impl AsyncFn(&Persistence) -> Result<()>,
) -> u32 {
    let cluster = quiet().await;
    let (store, neighbour) = (store_of(&cluster, 1).await, store_of(&cluster, 1).await);
    let attempts = Cell::new(0);
    let (neighbour, count, lock, change) = (&neighbour, &attempts, &lock, &change);
    let locked = store.run("lock", async |tx| {
        count.set(count.get() + 1);
        lock(&tx).await?;
        if count.get() == 1 {
            change(neighbour).await?;
        }
        Ok(())
    });
    locked.await.unwrap();
    attempts.get()
}
