//! A lease on one connection of a pool in standard mode.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{self, Runtime};
use forebay::{Failure, LeaseError, LeaseId, Leases, Lifeline, OpenError};

/// How long one call of the store may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait between two attempts to release.
const PAUSE: Duration = Duration::from_secs(1);

/// Held until it is released, which a drop does in the background.
pub(crate) struct StandardLease {
    /// There until it is released.
    id: Option<LeaseId>,
    leases: Arc<dyn Leases>,
    runtime: Arc<dyn Runtime>,
}

impl StandardLease {
    /// For the connection at the end of `lifeline`. Cancel safe if the store is.
    pub(crate) async fn take(
        leases: Arc<dyn Leases>,
        runtime: Arc<dyn Runtime>,
        lifeline: &Lifeline,
    ) -> Result<Self, OpenError> {
        let id = leases.acquire().await.map_err(|error| {
            let failure = match error {
                LeaseError::Limit { .. } | LeaseError::Share { .. } => Failure::LeaseLimit,
                _ => Failure::Lease,
            };
            OpenError::new(failure, error)
        })?;
        let lease = Self { id: Some(id.clone()), leases, runtime };
        lease.leases.bind(&id, lifeline.clone());
        Ok(lease)
    }

    /// Gives it back, trying until the store agrees. If the future is dropped, that goes on in the background.
    pub(crate) async fn release(mut self) {
        if let Some(id) = &self.id {
            release(&*self.leases, &*self.runtime, id).await;
            self.id = None;
        }
    }
}

impl Drop for StandardLease {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let (leases, runtime) = (Arc::clone(&self.leases), Arc::clone(&self.runtime));
            self.runtime.spawn(Box::pin(async move { release(&*leases, &*runtime, &id).await }));
        }
    }
}

async fn release(leases: &dyn Leases, runtime: &dyn Runtime, id: &LeaseId) {
    loop {
        match rt::within(runtime, TIMEOUT, leases.release(id)).await {
            Some(Ok(())) => return,
            Some(Err(error)) => tracing::warn!(%error, "DSQL pool: failed to release a connection lease"),
            None => tracing::warn!("DSQL pool: releasing a connection lease timed out"),
        }
        runtime.sleep_until(runtime.now() + PAUSE).await;
    }
}
