//! Decides which transaction must release its locks.
//!
//! In the service, nobody waits for a lock: two transactions may change the same row, and the first to commit
//! wins. In PostgreSQL, one transaction holds a row. So a transaction keeps its locks only until another one
//! needs them. Then it is rolled back to its beginning, which keeps its snapshot, and its work is repeated
//! when it runs its next statement. One transaction at a time has priority: it revokes the locks of all
//! others and keeps its own. So there are no deadlocks.

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

/// How long a statement may run before the scheduler looks for the transactions that block it.
const BLOCK_CHECK: Duration = Duration::from_millis(2);

/// A transaction that may hold locks.
#[derive(Debug)]
pub(super) struct OpenTransaction {
    pub(super) mark: CommitMark,
    pub(super) cancel_gate: CancelGate,
    /// None once it has ended. Locked while a statement runs.
    pub(super) transaction: Arc<AsyncMutex<Option<OccTransaction>>>,
}

/// The open transactions, by the process id of their server process.
#[derive(Debug, Default)]
pub(super) struct LockScheduler {
    priority: AsyncMutex<()>,
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

    /// The mark of the oldest open transaction.
    pub(super) fn oldest(&self) -> Option<CommitMark> {
        self.holders.lock().values().map(|holder| holder.mark).min()
    }

    /// Waits until no other transaction has priority.
    pub(super) async fn priority(&self) -> MutexGuard<'_, ()> {
        self.priority.lock().await
    }

    /// Runs `work` on a connection and revokes the locks that it waits for. The caller must have priority.
    pub(super) async fn run_with_priority<T>(
        &self,
        inner: &Arc<Inner>,
        pid: i32,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = pin!(work);
        loop {
            match race::first(&mut work, pause(BLOCK_CHECK)).await {
                First::Left(done) => return done,
                First::Right(()) => {}
            }
            // If this fails, the work itself reports the lost connection.
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
        let mut guard = loop {
            match race::first(&mut lock, pause(BLOCK_CHECK)).await {
                First::Left(guard) => break guard,
                First::Right(()) if stop(inner.clone(), holder.clone(), pid).await => {}
                // It may have released its locks and wait for priority. The caller looks again for what
                // blocks it.
                First::Right(()) => return,
            }
        };
        // Once begun, it runs to its end, even if the caller is cancelled.
        let released = async move {
            if let Some(transaction) = guard.as_mut() {
                // If this fails, the connection is lost; the next use reports it.
                drop(transaction.release_locks().await);
            }
        };
        Spawner::here().finish(released).await;
    }

    /// The process ids that block a connection.
    async fn blockers(&self, inner: &Inner, pid: i32) -> Result<Vec<i32>, SqlError> {
        let pids = self.watch(inner, &format!("SELECT unnest(pg_blocking_pids({pid}))")).await?;
        Ok(pids.iter().filter_map(|pid| pid.parse().ok()).collect())
    }

    /// Runs a query of one column on a separate connection.
    async fn watch(&self, inner: &Inner, sql: &str) -> Result<Vec<String>, SqlError> {
        let mut watcher = self.watcher.lock().await;
        if watcher.as_ref().is_none_or(Backend::is_lost) {
            *watcher = Some(Backend::connect(inner.server.directory(), Role::superuser()).await?);
        }
        let Some(backend) = watcher.as_mut() else { return Ok(Vec::new()) };
        backend.values(sql).await
    }
}

/// Cancels the running statement of a transaction, which runs again later. Returns whether there was one.
async fn stop(inner: Arc<Inner>, holder: Arc<OpenTransaction>, pid: i32) -> bool {
    let stopped = async move {
        let word = format!("SELECT pg_cancel_backend({pid})");
        // If this fails, the statement ends by itself.
        holder.cancel_gate.stop(async { drop(inner.locks.watch(&inner, &word).await) }).await
    };
    Spawner::here().finish(stopped).await.unwrap_or_default()
}
