//! The policy `strict`: connections close before their slots can be taken away.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use forebay::rt::Runtime;
use forebay::{BoxError, ConnectionMonitor, LeaseError, LeaseId, Leases, StoreFuture};
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::warn;

/// Leases under a ceiling. Connections above it are recalled.
pub(super) struct RecalledLeases {
    leases: Arc<dyn Leases>,
    ceiling: watch::Receiver<u64>,
    /// Open connections by their leases.
    bound: Mutex<BTreeMap<LeaseId, ConnectionMonitor>>,
}

impl RecalledLeases {
    /// Puts `leases` under `ceiling`, and starts the task that recalls connections when it falls. The task ends with the
    /// leases.
    pub(super) fn start(
        leases: Arc<dyn Leases>,
        ceiling: watch::Receiver<u64>,
        runtime: &dyn Runtime,
    ) -> Arc<Self> {
        let recalled = Arc::new(Self { leases, ceiling: ceiling.clone(), bound: Mutex::default() });
        runtime.spawn(Box::pin(recall_on_change(Arc::downgrade(&recalled), ceiling)));
        recalled
    }

    /// Recalls the connections above the ceiling, in the order of their lease ids.
    fn keep_within_ceiling(&self) {
        let ceiling = usize::try_from(*self.ceiling.borrow()).unwrap_or(usize::MAX);
        let too_many: Vec<ConnectionMonitor> = {
            let mut bound = self.bound.lock();
            let excess = bound.len().saturating_sub(ceiling);
            std::iter::from_fn(|| bound.pop_first()).take(excess).map(|(_, monitor)| monitor).collect()
        };
        if !too_many.is_empty() {
            let recalled = too_many.len();
            warn!(target: "forebay", recalled, ceiling, "Distributed connection lease: closing connections before their lease ends");
        }
        // Without the lock: the reservoir may release the lease at once.
        too_many.iter().for_each(ConnectionMonitor::recall);
    }
}

/// Recalls connections whenever the ceiling changes.
async fn recall_on_change(leases: Weak<RecalledLeases>, mut ceiling: watch::Receiver<u64>) {
    while ceiling.changed().await.is_ok() {
        let Some(leases) = leases.upgrade() else { return };
        leases.keep_within_ceiling();
    }
}

impl Leases for RecalledLeases {
    fn acquire(&self) -> StoreFuture<'_, Result<LeaseId, LeaseError>> {
        self.leases.acquire()
    }

    fn release<'a>(&'a self, id: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>> {
        self.bound.lock().remove(id);
        self.leases.release(id)
    }

    fn bind(&self, id: &LeaseId, monitor: ConnectionMonitor) {
        self.bound.lock().insert(id.clone(), monitor);
        // The ceiling may have fallen since the lease was granted.
        self.keep_within_ceiling();
    }

    fn instance_index(&self) -> Option<u64> {
        self.leases.instance_index()
    }
}
