//! A place among the connections that may be held: by a whole fleet, or by whoever else counts them together.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::backoff;
use crate::connect::ConnectionMonitor;
use crate::error::BoxError;
use crate::event::{Event, Observer};
use crate::rt::{self, Runtime};
use crate::sabotage::{self, Sabotage};
use crate::seed::{Rng, Seed};
use crate::sync::Mutex;

/// A future of a shared store, boxed so that stores can be trait objects.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Counts connections across processes. One is held for each connection, from before it is opened until after it
/// is closed.
pub trait Leases: Send + Sync + 'static {
    /// Takes a lease.
    ///
    /// # Cancel safety
    /// If the future is dropped, an implementation must give back what it may have taken.
    fn acquire(&self) -> StoreFuture<'_, Result<LeaseId, LeaseError>>;

    /// Gives a lease back. Called until it succeeds, so it must be idempotent.
    fn release<'a>(&'a self, id: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>>;

    /// The lease is for the connection at the end of this monitor. A store that has to take a lease back ahead of its release
    /// [recalls](ConnectionMonitor::recall) the connection, and forgets the line with the release. Called once for each lease that was
    /// taken. Default: no lease is taken back.
    fn bind(&self, id: &LeaseId, monitor: ConnectionMonitor) {
        let _ = (id, monitor);
    }

    /// The number of this process among those who share the leases: small, unique while it is in use, and dense, which is to say that those
    /// in use are about 0, 1, 2 and so on. Asked each time that a connection has been opened, so that a store may know it only once it has
    /// given a lease.
    ///
    /// Processes with numbers retire their connections in turns: the one with number `n` at the fraction `n / φ` of each period of the
    /// schedule, by the time of day, where `1 / φ` is `0x9e37_79b9_7f4a_7c15 / 2^64`. Default: none; turns are drawn by lot.
    fn instance_index(&self) -> Option<u64> {
        None
    }
}

/// What a store calls a lease.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(Arc<str>);

impl LeaseId {
    /// A lease by its name in the store.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Its name in the store.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({})", self.0)
    }
}

/// Why there is no lease.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// Those who share the leases hold as many as they may, together. Somebody must close a connection first.
    #[error("all {limit} leases are held; a connection must be closed first, or the limit raised")]
    Limit {
        /// How many may be held.
        limit: u64,
    },
    /// This process holds its fair part of what the fleet may hold, and others lack some. It may have more when they do not.
    #[error("this process has its share, {share}, of the fleet's {limit} connections, and others lack some")]
    Share {
        /// How many it may hold.
        share: u64,
        /// How many the fleet may hold.
        limit: u64,
    },
    /// The store did not answer, or not sensibly. Try again later.
    #[error("the lease store is unavailable: {0}")]
    Unavailable(#[source] BoxError),
}

/// Leases counted in this process alone: for one process with several pools, for tests, and as the model of what
/// a shared store does.
#[derive(Debug)]
pub struct LocalLeases {
    limit: u64,
    held: Mutex<LeaseSet>,
}

#[derive(Debug, Default)]
struct LeaseSet {
    ids: std::collections::BTreeSet<u64>,
    next: u64,
}

impl LocalLeases {
    /// At most `limit` leases at a time.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { limit, held: Mutex::default() }
    }

    /// How many are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.lock().ids.len()
    }

    fn take(&self) -> Result<LeaseId, LeaseError> {
        let mut held = self.held.lock();
        if held.ids.len() as u64 >= self.limit {
            return Err(LeaseError::Limit { limit: self.limit });
        }
        let id = held.next;
        held.next += 1;
        held.ids.insert(id);
        Ok(LeaseId::new(id.to_string()))
    }
}

impl Leases for LocalLeases {
    fn acquire(&self) -> StoreFuture<'_, Result<LeaseId, LeaseError>> {
        // Taken when first polled, and done in that poll: a future that is dropped unpolled has taken nothing.
        Box::pin(async { self.take() })
    }

    fn release<'a>(&'a self, id: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>> {
        Box::pin(async {
            let number: u64 = id.as_str().parse()?;
            self.held.lock().ids.remove(&number);
            Ok(())
        })
    }
}

/// Takes and gives back leases for one reservoir.
pub(crate) struct LeaseClient {
    leases: Arc<dyn Leases>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
    rng: Mutex<Rng>,
}

/// How long one release may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait between two tries at most.
const RELEASE_PAUSE: Duration = Duration::from_secs(10);

impl LeaseClient {
    pub(crate) fn new(
        leases: Arc<dyn Leases>,
        runtime: Arc<dyn Runtime>,
        observer: Arc<dyn Observer>,
        seed: Seed,
    ) -> Self {
        Self { leases, runtime, observer, rng: Mutex::new(seed.fork("release").rng()) }
    }

    /// For the connection at the end of `monitor`. Cancel safe if the store is.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        monitor: &ConnectionMonitor,
    ) -> Result<HeldLease, LeaseError> {
        let id = self.leases.acquire().await?;
        let held = HeldLease { id: Some(id), client: Arc::clone(self) };
        self.leases.bind(held.id(), monitor.clone());
        Ok(held)
    }

    /// The number of this process among those who share the leases.
    pub(crate) fn instance_index(&self) -> Option<u64> {
        self.leases.instance_index()
    }

    /// Releases a lease, trying until the store agrees. Cancel safe: a release is idempotent.
    async fn release(&self, id: &LeaseId) {
        if sabotage::is_on(Sabotage::LeaseRelease) {
            return;
        }
        let mut attempt = 0_u32;
        loop {
            let error = match rt::within(&*self.runtime, RELEASE_TIMEOUT, self.leases.release(id)).await {
                Some(Ok(())) => return,
                Some(Err(error)) => error,
                None => format!("no answer within {RELEASE_TIMEOUT:?}").into(),
            };
            attempt = attempt.saturating_add(1);
            self.observer.on(&Event::LeaseReleaseFailed { error: &error, attempt });
            let pause = backoff::pause(attempt, backoff::FIRST, RELEASE_PAUSE, &mut self.rng.lock());
            self.runtime.sleep_until(self.runtime.now() + pause).await;
        }
    }
}

/// A lease that is held. It is released exactly once: by [`release`](Self::release), or in the background when it is
/// dropped.
pub struct HeldLease {
    /// There until it is released.
    id: Option<LeaseId>,
    client: Arc<LeaseClient>,
}

impl HeldLease {
    /// What the store calls it.
    #[must_use]
    pub fn id(&self) -> &LeaseId {
        self.id.as_ref().expect("a lease has its id until it is released, which consumes it")
    }

    /// Gives it back, trying until the store agrees.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release goes on in the background.
    pub async fn release(mut self) {
        self.released().await;
    }

    /// Gives it back, and is done when the store has agreed. Cancel safe: it is still held then.
    pub(crate) async fn released(&mut self) {
        if let Some(id) = &self.id {
            self.client.release(id).await;
            self.id = None;
        }
    }

    pub(crate) fn is_released(&self) -> bool {
        self.id.is_none()
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let client = Arc::clone(&self.client);
            self.client.runtime.spawn(Box::pin(async move { client.release(&id).await }));
        }
    }
}

impl fmt::Debug for HeldLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeldLease").field(&self.id).finish()
    }
}
