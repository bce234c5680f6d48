//! Who must let go of its locks, and when.
//!
//! The service has no locks that anybody waits for: two transactions may change one row, and the first to commit wins.
//! PostgreSQL's rows can be held by one transaction at a time. So a transaction holds what it has changed only until
//! another wants it: then it is undone up to its beginning, which keeps its snapshot, and done again when it next has
//! something to do. One at a time may insist on getting what others hold; whoever insists is not made to let go.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

use super::Inner;
use super::backend::Backend;
use super::cancel_gate::CancelGate;
use super::commits::CommitMark;
use super::occ_transaction::OccTransaction;
use super::roles::Role;
use crate::clock::pause;
use crate::error::SqlError;
use crate::race::{self, First};
use crate::runtime::Spawner;

/// How long a statement may take before it is asked what it waits for.
const PATIENCE: Duration = Duration::from_millis(2);

/// A transaction that may hold something.
#[derive(Debug)]
pub(super) struct OpenTransaction {
    /// When it began.
    pub(super) mark: CommitMark,
    pub(super) cancel_gate: CancelGate,
    /// None once it is over. Locked while a statement of it runs.
    pub(super) transaction: Arc<AsyncMutex<Option<OccTransaction>>>,
}

/// All that may hold something, by the number that the server knows them by.
#[derive(Debug, Default)]
pub(super) struct LockScheduler {
    turn: AsyncMutex<()>,
    holders: Mutex<BTreeMap<i32, Arc<OpenTransaction>>>,
    watcher: AsyncMutex<Option<Backend>>,
}

impl LockScheduler {
    pub(super) fn register(&self, pid: i32, holder: Arc<OpenTransaction>) {
        self.holders.lock().insert(pid, holder);
    }

    pub(super) fn unregister(&self, pid: i32) {
        self.holders.lock().remove(&pid);
    }

    /// When the oldest of them began.
    pub(super) fn oldest(&self) -> Option<CommitMark> {
        self.holders.lock().values().map(|holder| holder.mark).min()
    }

    /// Waits until nobody else insists.
    pub(super) async fn priority(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Does `work` on a connection, and makes everybody let go that it has to wait for. Only with the turn.
    pub(super) async fn run_with_priority<T>(
        &self,
        inner: &Arc<Inner>,
        pid: i32,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = pin!(work);
        loop {
            match race::first(&mut work, pause(PATIENCE)).await {
                First::Left(done) => return done,
                First::Right(()) => {}
            }
            // If they cannot be asked for, the work will hear of it itself.
            for holder in self.blockers(inner, pid).await.unwrap_or_default() {
                match race::first(&mut work, self.revoke_locks(inner, holder)).await {
                    First::Left(done) => return done,
                    First::Right(()) => {}
                }
            }
        }
    }

    async fn revoke_locks(&self, inner: &Arc<Inner>, pid: i32) {
        let Some(holder) = self.holders.lock().get(&pid).cloned() else { return };
        let mut lock = pin!(holder.transaction.clone().lock_owned());
        let mut held = loop {
            match race::first(&mut lock, pause(PATIENCE)).await {
                First::Left(held) => break held,
                First::Right(()) if stop(inner.clone(), holder.clone(), pid).await => {}
                // It may have let go by itself and wait for its turn: whoever insists asks again who is in the way.
                First::Right(()) => return,
            }
        };
        // Begun, it is also ended: whoever insists may be gone before that.
        let detached = async move {
            if let Some(transaction) = held.as_mut() {
                // If it fails, the connection is lost, and that is noticed when it is next used.
                drop(transaction.release_locks().await);
            }
        };
        Spawner::here().finish(detached).await;
    }

    /// Whom a connection waits for.
    async fn blockers(&self, inner: &Inner, pid: i32) -> Result<Vec<i32>, SqlError> {
        let pids = self.watch(inner, &format!("SELECT unnest(pg_blocking_pids({pid}))")).await?;
        Ok(pids.iter().filter_map(|pid| pid.parse().ok()).collect())
    }

    /// Asks on a connection of its own for rows of one value.
    async fn watch(&self, inner: &Inner, sql: &str) -> Result<Vec<String>, SqlError> {
        let mut watcher = self.watcher.lock().await;
        if watcher.as_ref().is_none_or(Backend::is_lost) {
            *watcher = Some(Backend::connect(inner.server.directory(), Role::superuser()).await?);
        }
        let Some(backend) = watcher.as_mut() else { return Ok(Vec::new()) };
        backend.values(sql).await
    }
}

/// Stops a holder's statement, which is begun anew later; whether there was one to stop.
async fn stop(inner: Arc<Inner>, holder: Arc<OpenTransaction>, pid: i32) -> bool {
    let stopped = async move {
        let word = format!("SELECT pg_cancel_backend({pid})");
        // If it cannot be told, it ends when it ends.
        holder.cancel_gate.stop(async { drop(inner.locks.watch(&inner, &word).await) }).await
    };
    Spawner::here().finish(stopped).await.unwrap_or_default()
}
