//! Standard mode: a deadpool pool over the same connector, for those who have not asked for a reservoir.
//!
//! Connections are opened within the rate limit and replaced after 55 minutes; a warm-up fills the pool before it is
//! handed out, and a keeper fills it up again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool::managed::{Manager, Metrics as Used, Pool, RecycleError, RecycleResult};
use forebay::rt::{self, Runtime};
use forebay::{
    CheckoutError, Connect, Failure, Figures, Instant, Leases, Lifeline, Limit, OpenError, StandardSettings,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::pool_metrics::PoolMetrics;
use crate::registry::{Registry, Tracking};

mod lease;
mod pooled;

use lease::StandardLease;
pub(crate) use pooled::{Borrowed, Pooled};

/// Safely below Aurora DSQL's hour.
pub(crate) const LIFE: Duration = Duration::from_secs(55 * 60);

/// A pool in standard mode.
pub(crate) struct Standard<C: Connect> {
    pool: Pool<Opener<C>>,
}

/// What the pool, its guards and its tasks share.
pub(crate) struct Shared<C: Connect> {
    pub(crate) connector: Tracking<C>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) figures: Figures,
    pub(crate) settings: StandardSettings,
    pub(crate) metrics: PoolMetrics,
    limit: Arc<dyn Limit>,
    leases: Option<Arc<dyn Leases>>,
    /// Opened by the keeper, and taken by the next caller for whom the pool would open one.
    spares: Mutex<Vec<Pooled<C>>>,
    opening: AtomicUsize,
    /// Closed connections whose socket or lease is not gone yet.
    closing: AtomicUsize,
    closed_one: Notify,
    waiting: AtomicUsize,
    failed: Mutex<Option<Arc<OpenError>>>,
}

/// Makes connections for deadpool.
pub(crate) struct Opener<C: Connect>(Arc<Shared<C>>);

impl<C: Connect> Standard<C> {
    pub(crate) fn new(
        connector: Tracking<C>,
        runtime: Arc<dyn Runtime>,
        figures: Figures,
        settings: StandardSettings,
        limit: Arc<dyn Limit>,
        leases: Option<Arc<dyn Leases>>,
        metrics: PoolMetrics,
    ) -> Self {
        let shared = Arc::new(Shared {
            connector,
            runtime,
            figures,
            settings,
            metrics,
            limit,
            leases,
            spares: Mutex::default(),
            opening: AtomicUsize::new(0),
            closing: AtomicUsize::new(0),
            closed_one: Notify::new(),
            waiting: AtomicUsize::new(0),
            failed: Mutex::default(),
        });
        let built = Pool::builder(Opener(shared)).max_size(figures.max_open).build();
        // Without a deadpool timeout there is nothing in a pool that needs a runtime, and nothing else to fail.
        Self { pool: built.expect("a pool without timeouts needs no runtime") }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<C>> {
        &self.pool.manager().0
    }

    /// Takes a connection, waiting for at most `wait`. Cancel safe: what it was about to get stays in the pool.
    pub(crate) async fn acquire(&self, wait: Duration) -> Result<Borrowed<C>, CheckoutError> {
        let shared = self.shared();
        let mut got = std::pin::pin!(self.pool.get());
        let at_once = std::future::poll_fn(|context| {
            std::task::Poll::Ready(match got.as_mut().poll(context) {
                std::task::Poll::Ready(got) => Some(got),
                std::task::Poll::Pending => None,
            })
        });
        let (outcome, waited) = match at_once.await {
            Some(got) => (Some(got), Duration::ZERO),
            None => {
                let line = InLine::join(shared);
                let got = rt::within(&*shared.runtime, wait, got).await;
                shared.metrics.waited(line.waited());
                (got, line.waited())
            }
        };
        match outcome {
            Some(Ok(object)) => Ok(Borrowed::new(object)),
            refused => Err(self.refusal(refused.and_then(Result::err), waited)),
        }
    }

    fn refusal(
        &self,
        error: Option<deadpool::managed::PoolError<Arc<OpenError>>>,
        waited: Duration,
    ) -> CheckoutError {
        use deadpool::managed::PoolError;
        match error {
            Some(PoolError::Closed) => CheckoutError::Closed,
            Some(PoolError::Backend(error)) => CheckoutError::Empty { waited, last_open_error: Some(error) },
            _ => {
                let max_open = self.shared().figures.max_open;
                if self.pool.status().size >= max_open {
                    CheckoutError::Exhausted { waited, max_open }
                } else {
                    CheckoutError::Empty { waited, last_open_error: self.shared().failed.lock().clone() }
                }
            }
        }
    }

    /// How many connections there are: in use, idle, and kept aside by the keeper.
    pub(crate) fn open(&self) -> usize {
        self.pool.status().size + self.shared().spares.lock().len()
    }

    pub(crate) fn in_use(&self) -> usize {
        let status = self.pool.status();
        status.size.saturating_sub(status.available)
    }

    pub(crate) fn opening(&self) -> usize {
        self.shared().opening.load(Ordering::Acquire)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.shared().waiting.load(Ordering::Acquire)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    /// Lets go of idle connections that are too old, dead or retired.
    pub(crate) fn sweep(&self) {
        let now = self.shared().runtime.now();
        let swept = self.pool.retain(|pooled, _| pooled.is_fit(now)).removed;
        let unfit: Vec<_> = {
            let mut spares = self.shared().spares.lock();
            let (fit, unfit) = spares.drain(..).partition(|spare| spare.is_fit(now));
            *spares = fit;
            unfit
        };
        // Outside of both locks: each is closed in a task of its own.
        drop((swept, unfit));
    }

    /// Opens one more and keeps it aside, unless the pool has meanwhile filled up by itself.
    /// Cancel safe: what is half open is dropped.
    pub(crate) async fn add_spare(&self) -> Result<(), Arc<OpenError>> {
        let spare = self.shared().open_one().await?;
        let size = self.pool.status().size;
        let mut spares = self.shared().spares.lock();
        let room = !self.pool.is_closed() && size + spares.len() < self.shared().figures.max_open;
        let surplus = if room {
            spares.push(spare);
            None
        } else {
            Some(spare)
        };
        drop(spares);
        drop(surplus);
        Ok(())
    }

    /// No more callers are served. What is idle is closed now, what is in use when it comes back.
    pub(crate) fn close(&self) {
        self.pool.close();
        let spares = std::mem::take(&mut *self.shared().spares.lock());
        drop(spares);
    }

    /// Waits until every connection is closed. Cancel safe.
    pub(crate) async fn drained(&self, registry: &Registry) {
        loop {
            let mut closed = std::pin::pin!(self.shared().closed_one.notified());
            closed.as_mut().enable();
            if self.closing() + self.opening() + self.open() + registry.count() == 0 {
                return;
            }
            closed.await;
        }
    }

    pub(crate) fn closing(&self) -> usize {
        self.shared().closing.load(Ordering::Acquire)
    }
}

impl<C: Connect> Clone for Standard<C> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone() }
    }
}

impl<C: Connect> fmt::Debug for Standard<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Standard").field(&self.pool.status()).finish()
    }
}

impl<C: Connect> Shared<C> {
    /// Token, lease, permit, open: each is had before the next is asked for, and given back if a later one fails.
    async fn open_one(self: &Arc<Self>) -> Result<Pooled<C>, Arc<OpenError>> {
        let _opening = Counted::new(&self.opening);
        match self.try_open().await {
            Ok(pooled) => {
                *self.failed.lock() = None;
                Ok(pooled)
            }
            Err(error) => {
                let error = Arc::new(error);
                *self.failed.lock() = Some(Arc::clone(&error));
                Err(error)
            }
        }
    }

    async fn try_open(self: &Arc<Self>) -> Result<Pooled<C>, OpenError> {
        self.connector.prepare().await?;
        let lifeline = Lifeline::unattached();
        let lease = match &self.leases {
            Some(leases) => {
                Some(StandardLease::take(Arc::clone(leases), Arc::clone(&self.runtime), &lifeline).await?)
            }
            None => None,
        };
        let permit = self.limit.acquire().await;
        permit.map_err(|error| OpenError::new(Failure::RateLimit, error))?.spend();
        let open = self.connector.open(lifeline.clone());
        let limit = self.figures.open_timeout;
        let opened = rt::within(&*self.runtime, limit, open).await;
        let connection = opened.unwrap_or_else(|| {
            let message = format!("no connection within {}", forebay::duration::show(limit));
            Err(OpenError::new(Failure::Timeout, message))
        })?;
        let expires_at = self.runtime.now() + LIFE;
        Ok(Pooled::new(connection, lease, lifeline, expires_at, Arc::clone(self)))
    }
}

impl<C: Connect> Manager for Opener<C> {
    type Type = Pooled<C>;
    type Error = Arc<OpenError>;

    async fn create(&self) -> Result<Pooled<C>, Arc<OpenError>> {
        let now = self.0.runtime.now();
        loop {
            let spare = self.0.spares.lock().pop();
            match spare {
                Some(spare) if spare.is_fit(now) => return Ok(spare),
                Some(unfit) => drop(unfit),
                None => return self.0.open_one().await,
            }
        }
    }

    async fn recycle(&self, pooled: &mut Pooled<C>, _: &Used) -> RecycleResult<Arc<OpenError>> {
        if !pooled.is_fit(self.0.runtime.now()) {
            return Err(RecycleError::message("too old, dead or retired"));
        }
        if !pooled.is_heard_of().await {
            return Err(RecycleError::message("does not answer any more"));
        }
        // A guard cleans before it gives back; this is for what happened to an idle connection since.
        if !pooled.cleaned().await {
            return Err(RecycleError::message("cannot be made clean"));
        }
        Ok(())
    }
}

/// One more of something, for as long as this lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A caller in line.
struct InLine<'a> {
    _count: Counted<'a>,
    runtime: &'a dyn Runtime,
    since: Instant,
}

impl<'a> InLine<'a> {
    fn join<C: Connect>(shared: &'a Shared<C>) -> Self {
        let runtime = &*shared.runtime;
        Self { _count: Counted::new(&shared.waiting), runtime, since: runtime.now() }
    }

    fn waited(&self) -> Duration {
        self.runtime.now().since(self.since)
    }
}
