//! The policy `strict`: connections are closed before the slots under them can be taken away.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use forebay::rt::Runtime;
use forebay::{BoxError, ConnectionMonitor, LeaseError, LeaseId, Leases, StoreFuture};
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::warn;

/// Leases of which no more are out than a ceiling allows: what is too many is recalled from whoever has it.
pub(super) struct RecalledLeases {
    leases: Arc<dyn Leases>,
    ceiling: watch::Receiver<u64>,
    /// Connections that may stay, by their leases.
    bound: Mutex<BTreeMap<LeaseId, ConnectionMonitor>>,
}

impl RecalledLeases {
    /// `leases` under `ceiling`, and the task that sees to it as the ceiling falls. The task ends with the leases.
    pub(super) fn start(
        leases: Arc<dyn Leases>,
        ceiling: watch::Receiver<u64>,
        runtime: &dyn Runtime,
    ) -> Arc<Self> {
        let recalled = Arc::new(Self { leases, ceiling: ceiling.clone(), bound: Mutex::default() });
        runtime.spawn(Box::pin(obey(Arc::downgrade(&recalled), ceiling)));
        recalled
    }

    /// Recalls what is too many, those with the first names first.
    fn keep_within_ceiling(&self) {
        let ceiling = usize::try_from(*self.ceiling.borrow()).unwrap_or(usize::MAX);
        let too_many: Vec<ConnectionMonitor> = {
            let mut bound = self.bound.lock();
            let excess = bound.len().saturating_sub(ceiling);
            std::iter::from_fn(|| bound.pop_first()).take(excess).map(|(_, monitor)| monitor).collect()
        };
        if !too_many.is_empty() {
            let recalled = too_many.len();
            warn!(target: "forebay", recalled, ceiling, "Distributed connection lease: closing connections ahead of the end of their lease");
        }
        // Outside of the lock: a reservoir that hears of it may release the lease at once.
        too_many.iter().for_each(ConnectionMonitor::recall);
    }
}

/// Looks each time that the ceiling has changed.
async fn obey(leases: Weak<RecalledLeases>, mut ceiling: watch::Receiver<u64>) {
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
        // It may have fallen since the lease was taken.
        self.keep_within_ceiling();
    }

    fn instance_index(&self) -> Option<u64> {
        self.leases.instance_index()
    }
}
