//! The lock that one run at a time holds: a row with a number, the *fence*, that every new holder raises.
//!
//! A holder may stop for minutes and wake up again, so every write must fail once somebody else has the lock:
//!
//! - A transaction that changes rows also changes the row of the lock, on the condition that the fence is its own. Whoever takes over
//!   changes the same row, so only one of the two can commit.
//! - A transaction that changes the schema may not change rows. So the fence is also in the comment of the table, and a new holder
//!   changes that before it reads what its predecessor has done. Aurora DSQL commits a change of the schema only if no other
//!   one was committed since its transaction began. So a statement that its predecessor has sent has either been committed by
//!   then, and is seen, or fails. One that begins later reads the comment and gives up.
//!
//! A holder that is alive changes a heartbeat. It has died when that has not changed for one lease on the watcher's own clock: clocks
//! of different machines are never compared.

use std::time::Duration;

use forebay::Instant;
use forebay::rt::Runtime;
use forebay_dsql::Dsql;
use tokio_postgres::Client;

use crate::bookkeeping::{Bookkeeping, Tx, run};
use crate::error::Error;
use crate::event::{Event, Observer};

/// How long a holder may be silent, unless the caller says otherwise.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// How many heartbeats there are in a lease.
const BEATS: u32 = 6;

/// A lock that is held.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    dsql: Dsql,
    tables: Bookkeeping,
    fence: i64,
}

/// What a watcher sees.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    fence: i64,
    holder: Option<String>,
    beat: i64,
}

/// How to get the lock.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) runtime: &'a dyn Runtime,
    /// The name of this run, for others.
    pub(crate) me: &'a str,
    /// How long to wait while another run works.
    pub(crate) wait: Duration,
    pub(crate) lease: Duration,
    pub(crate) stopped: &'a (dyn Fn() -> bool + Send + Sync),
}

impl Lock {
    /// Takes the lock, and makes sure that nothing of an earlier holder can be committed from now on.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock may be held until its lease is over.
    pub(crate) async fn acquire(
        dsql: &Dsql,
        tables: &Bookkeeping,
        terms: Terms<'_>,
        observer: &Observer,
    ) -> Result<Self, Error> {
        let Terms { runtime, me, wait, lease, stopped } = terms;
        let began = runtime.now();
        let mut watched: Option<(Seen, Instant)> = None;
        let fence = loop {
            let seen = see(dsql, tables).await?;
            let now = runtime.now();
            let since = match &watched {
                Some((before, since)) if *before == seen => *since,
                _ => now,
            };
            let is_dead = now.since(since) >= lease;
            if seen.holder.is_none() || is_dead {
                if let Some(fence) = take(dsql, tables, &seen, me).await? {
                    if let Some(holder) = seen.holder {
                        observer.tell(&Event::TookOver { holder });
                    }
                    break fence;
                }
                continue;
            }
            let holder = seen.holder.clone().unwrap_or_default();
            if now.since(began) >= wait {
                let waited = Duration::from_secs(now.since(began).as_secs());
                return Err(Error::Locked { holder, waited });
            }
            if stopped() {
                return Err(Error::Stopped { at: format!("while another run holds the lock ({holder})") });
            }
            if watched.is_none() {
                observer.tell(&Event::Waiting { holder });
            }
            watched = Some((seen, since));
            runtime.sleep_until(now + (lease / BEATS / 5)).await;
        };
        let lock = Self { dsql: dsql.clone(), tables: tables.clone(), fence };
        lock.fence_schema_changes().await?;
        Ok(lock)
    }

    /// Makes every change of the schema fail that began before this one.
    pub(crate) async fn fence_schema_changes(&self) -> Result<(), Error> {
        let look = format!("SELECT fence FROM {} WHERE id = 1", self.tables.table("lock"));
        let sql = format!("COMMENT ON TABLE {} IS '{}'", self.tables.table("lock"), self.comment());
        let is_held = run(&self.dsql, "schema_fence", async |tx| {
            // A run that was replaced must not write its fence over that of its successor. Of two that write at the same time, one
            // fails, and looks again.
            if tx.query_one(&look, &[]).await?.try_get::<_, i64>(0)? != self.fence {
                return Ok(false);
            }
            tx.batch_execute(&sql).await?;
            Ok(true)
        });
        if is_held.await? { Ok(()) } else { Err(Error::Deposed) }
    }

    fn comment(&self) -> String {
        format!("The lock of forebay-schema, format 1, fence {}", self.fence)
    }

    /// Whether the comment has this fence: to be asked in the transaction of a change of the schema.
    pub(crate) async fn may_change_schema(&self, client: &Client) -> Result<bool, forebay_dsql::Error> {
        let sql = "SELECT obj_description(to_regclass($1), 'pg_class')";
        let row = client.query_one(sql, &[&self.tables.table("lock")]).await?;
        Ok(row.try_get::<_, Option<String>>(0)?.is_some_and(|comment| comment == self.comment()))
    }

    /// Whether the row has this fence.
    pub(crate) async fn is_held(&self) -> Result<bool, Error> {
        Ok(see(&self.dsql, &self.tables).await?.fence == self.fence)
    }

    /// A transaction that changes rows, and commits only as long as the lock is held. If its outcome is unknown, it is run
    /// again: `body` must find out whether it was committed.
    pub(crate) async fn run<T, F>(&self, operation: &'static str, body: impl Fn(Tx) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, forebay_dsql::Error>>,
    {
        let sql = format!(
            "UPDATE {} SET writes = writes + 1 WHERE id = 1 AND fence = $1",
            self.tables.table("lock")
        );
        let done = run(&self.dsql, operation, async |tx| match tx.execute(&sql, &[&self.fence]).await? {
            0 => Ok(None),
            _ => body(tx).await.map(Some),
        });
        done.await?.ok_or(Error::Deposed)
    }

    /// Changes the heartbeat until the lock is lost.
    ///
    /// # Cancel safety
    /// Dropping it ends the heartbeat.
    pub(crate) async fn beat(&self, runtime: &dyn Runtime, lease: Duration) -> Error {
        let sql = format!(
            "UPDATE {} SET beat = beat + 1 WHERE id = 1 AND fence = $1",
            self.tables.table("heartbeat")
        );
        loop {
            runtime.sleep_until(runtime.now() + lease / BEATS).await;
            let beat =
                run(&self.dsql, "schema_heartbeat", async |tx| Ok(tx.execute(&sql, &[&self.fence]).await?));
            match beat.await {
                Ok(0) => return Error::Deposed,
                Ok(_) => {}
                // What matters is whether the next write finds the lock, not whether others see this run alive.
                Err(error) => tracing::warn!(%error, "the heartbeat of the migration failed"),
            }
        }
    }

    /// Gives the lock back.
    pub(crate) async fn release(&self) -> Result<(), Error> {
        let sql =
            format!("UPDATE {} SET holder = NULL WHERE id = 1 AND fence = $1", self.tables.table("lock"));
        Ok(run(&self.dsql, "schema_unlock", async |tx| {
            tx.execute(&sql, &[&self.fence]).await?;
            Ok(())
        })
        .await?)
    }
}

/// Who holds the lock, if anybody does.
pub(crate) async fn holder(dsql: &Dsql, tables: &Bookkeeping) -> Result<Option<String>, Error> {
    let sql = format!("SELECT holder FROM {} WHERE id = 1", tables.table("lock"));
    // There is no row for a moment while a database is set up.
    let row = run(dsql, "schema_lock", async |tx| Ok(tx.query_opt(&sql, &[]).await?)).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
}

async fn see(dsql: &Dsql, tables: &Bookkeeping) -> Result<Seen, Error> {
    let sql = format!(
        "SELECT l.fence, l.holder, h.beat FROM {} l JOIN {} h ON h.id = l.id WHERE l.id = 1",
        tables.table("lock"),
        tables.table("heartbeat")
    );
    Ok(run(dsql, "schema_lock", async |tx| read(&tx.query_one(&sql, &[]).await?)).await?)
}

/// Takes a lock that is free, or whose holder has died; none if it has changed since it was looked at.
async fn take(dsql: &Dsql, tables: &Bookkeeping, seen: &Seen, me: &str) -> Result<Option<i64>, Error> {
    let fence = seen.fence + 1;
    let look = format!(
        "SELECT l.fence, l.holder, h.beat FROM {} l JOIN {} h ON h.id = l.id WHERE l.id = 1",
        tables.table("lock"),
        tables.table("heartbeat")
    );
    let lock = format!(
        "UPDATE {} SET fence = $1, holder = $2, writes = writes + 1 WHERE id = 1",
        tables.table("lock")
    );
    let heartbeat =
        format!("UPDATE {} SET fence = $1, beat = beat + 1 WHERE id = 1", tables.table("heartbeat"));
    Ok(run(dsql, "schema_lock", async |tx| {
        let now = read(&tx.query_one(&look, &[]).await?)?;
        // The commit of an earlier attempt was not answered.
        if now.fence == fence && now.holder.as_deref() == Some(me) {
            return Ok(Some(fence));
        }
        // Somebody else was first, or the holder lives. Both would have changed one of the two rows, so a change that is
        // committed after this look makes this transaction fail.
        if now != *seen {
            return Ok(None);
        }
        tx.execute(&lock, &[&fence, &me]).await?;
        tx.execute(&heartbeat, &[&fence]).await?;
        Ok(Some(fence))
    })
    .await?)
}

fn read(row: &tokio_postgres::Row) -> Result<Seen, forebay_dsql::Error> {
    Ok(Seen { fence: row.try_get(0)?, holder: row.try_get(1)?, beat: row.try_get(2)? })
}
