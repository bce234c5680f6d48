//! Leases: slots of a connection limit that several processes share.

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

/// A boxed future, so that stores can be trait objects.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store that limits the number of connections across processes. The reservoir holds one lease for each
/// connection, from before it is opened until after it is closed.
pub trait Leases: Send + Sync + 'static {
    /// Acquires a lease.
    ///
    /// # Cancel safety
    /// If the future is dropped, the implementation must release a lease that it may have acquired.
    fn acquire(&self) -> StoreFuture<'_, Result<LeaseId, LeaseError>>;

    /// Releases a lease. It is called until it succeeds, so it must be idempotent.
    fn release<'a>(&'a self, id: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>>;

    /// Tells the store which connection uses the lease. A store that must end a lease before its release
    /// [recalls](ConnectionMonitor::recall) the connection. It drops the monitor at the release. It is called
    /// once for each acquired lease. Default: does nothing; leases are never recalled.
    fn bind(&self, id: &LeaseId, monitor: ConnectionMonitor) {
        let _ = (id, monitor);
    }

    /// The number of this process among those that share the leases. Numbers are small, unique while they are
    /// in use, and dense: those in use are about 0, 1, 2 and so on. It is called after each open, since a
    /// store may not know the number before it has granted a lease.
    ///
    /// Processes with numbers retire their connections at different times. In each period of the retirement
    /// schedule, the process with number `n` has the offset `n / φ`, modulo one period, by the time of day.
    /// `1 / φ` is `0x9e37_79b9_7f4a_7c15 / 2^64`. Default: `None`; offsets are random.
    fn instance_index(&self) -> Option<u64> {
        None
    }
}

/// The name of a lease in its store.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(Arc<str>);

impl LeaseId {
    /// A lease with this name in the store.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name in the store.
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

/// Why no lease was granted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// All leases are held. Some process must close a connection first.
    #[error("all {limit} leases are held; a connection must be closed first, or the limit raised")]
    Limit {
        /// How many leases there are.
        limit: u64,
    },
    /// This process has its fair share of the limit, and other processes have less than theirs. It can get
    /// more when they have enough.
    #[error(
        "this process has its share, {share} of the fleet's {limit} connections, and other processes need more"
    )]
    Share {
        /// The share of this process.
        share: u64,
        /// The limit of the whole fleet.
        limit: u64,
    },
    /// The store did not answer, or its answer was invalid. Retry later.
    #[error("the lease store is unavailable: {0}")]
    Unavailable(#[source] BoxError),
}

/// Leases that are counted in this process only: for several pools in one process, for tests, and as a model
/// for shared stores.
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
    /// A store of `limit` leases.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { limit, held: Mutex::default() }
    }

    /// How many leases are held.
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
        // The lease is taken in the first poll, which also completes. So a future that is dropped before has
        // taken nothing.
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

/// Acquires and releases leases for one reservoir.
pub(crate) struct LeaseClient {
    leases: Arc<dyn Leases>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
    rng: Mutex<Rng>,
}

/// How long one release may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause between attempts to release a lease.
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

    /// Acquires a lease for the connection of `monitor`. Cancel safe if the store is.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        monitor: &ConnectionMonitor,
    ) -> Result<HeldLease, LeaseError> {
        let id = self.leases.acquire().await?;
        let held = HeldLease { id: Some(id), client: Arc::clone(self) };
        self.leases.bind(held.id(), monitor.clone());
        Ok(held)
    }

    pub(crate) fn instance_index(&self) -> Option<u64> {
        self.leases.instance_index()
    }

    /// Releases a lease, and retries until the store confirms it. Cancel safe: a release is idempotent.
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

/// An acquired lease. It is released exactly once: by [`release`](Self::release), or in the background when
/// it is dropped.
pub struct HeldLease {
    /// `None` once it is released.
    id: Option<LeaseId>,
    client: Arc<LeaseClient>,
}

impl HeldLease {
    /// The name of the lease in its store.
    #[must_use]
    pub fn id(&self) -> &LeaseId {
        self.id.as_ref().expect("a lease has its id until it is released, which consumes it")
    }

    /// Releases the lease, and retries until the store confirms it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background.
    pub async fn release(mut self) {
        self.released().await;
    }

    /// Completes once the store has confirmed the release. Cancel safe: the lease is then still held.
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
