//! Standard mode: a deadpool pool over the same connector, for those who have not asked for a reservoir.
//!
//! Connections are opened within the rate limit and replaced after 55 minutes; a warm-up fills the pool before it is
//! handed out, and a keeper fills it up again.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use deadpool::managed::{Manager, Metrics as Used, Object, Pool, PoolError, RecycleError, RecycleResult};
use forebay::rt::{self, Runtime};
use forebay::{
    CheckoutError, Config, Connect, ConnectionMonitor, Failure, Instant, Leases, Limit, OpenError, Seed,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::dsql::PoolStatus;
use crate::pool_metrics::PoolMetrics;
use crate::registry::{Registry, Tracked, Tracking};
use crate::settings::StandardSettings;

mod lease;
mod line;
mod pooled;
mod stock;

use lease::StandardLease;
use line::InLine;
pub(crate) use pooled::{Borrowed, Pooled};
use stock::{Handed, Ordered, Stock};

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
    pub(crate) figures: Config,
    pub(crate) settings: StandardSettings,
    pub(crate) metrics: PoolMetrics,
    limit: Arc<dyn Limit>,
    leases: Option<Arc<dyn Leases>>,
    stock: Stock<C>,
    /// Closed connections whose socket or lease is not gone yet.
    closing: AtomicUsize,
    /// Rung whenever a connection, or what was to become one, has gone.
    gone: Notify,
    waiting: AtomicUsize,
    /// When one was last found dead: what was not heard of since is asked before it is lent.
    doubted_at: Mutex<Option<Instant>>,
    /// The runtime is gone, and with it all that could be waited for.
    orphaned: AtomicBool,
}

/// A connection that is open, and not the pool's yet.
struct Opened<C: Connect> {
    connection: Tracked<C::Connection>,
    lease: Option<StandardLease>,
    /// Tells whether its lease was taken back.
    monitor: ConnectionMonitor,
}

impl<C: Connect> Opened<C> {
    /// Whether it can be lent: it lives, nobody has retired it, and its lease was not taken back.
    fn is_fit(&self, shared: &Shared<C>) -> bool {
        !self.monitor.is_recalled() && shared.connector.is_usable(&self.connection)
    }
}

/// Makes connections for deadpool.
pub(crate) struct Opener<C: Connect>(Arc<Shared<C>>);

/// What deadpool's pool gives.
type Got<C> = Result<Object<Opener<C>>, PoolError<Arc<OpenError>>>;

impl<C: Connect> Standard<C> {
    pub(crate) fn new(
        connector: Tracking<C>,
        runtime: Arc<dyn Runtime>,
        figures: Config,
        settings: StandardSettings,
        limit: Arc<dyn Limit>,
        leases: Option<Arc<dyn Leases>>,
        metrics: PoolMetrics,
    ) -> Self {
        let seed = figures.seed.unwrap_or_else(|| Seed::new(runtime.entropy())).fork("standard opens");
        let max_open = figures.max_open;
        let shared = Arc::new(Shared {
            connector,
            runtime,
            figures,
            settings,
            metrics,
            limit,
            leases,
            stock: Stock::new(max_open, seed.rng()),
            closing: AtomicUsize::new(0),
            gone: Notify::new(),
            waiting: AtomicUsize::new(0),
            doubted_at: Mutex::default(),
            orphaned: AtomicBool::new(false),
        });
        let built = Pool::builder(Opener(shared)).max_size(max_open).build();
        // Without a deadpool timeout there is nothing in a pool that needs a runtime, and nothing else to fail.
        Self { pool: built.expect("a pool without timeouts needs no runtime") }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<C>> {
        &self.pool.manager().0
    }

    /// Takes a connection, waiting for at most `wait`, whatever the reason, and counts the wait. If no connection is left and
    /// the server denies access, it fails at once. Cancel safe: what it was about to get stays in the pool.
    pub(crate) async fn acquire(&self, wait: Duration) -> Result<Borrowed<C>, CheckoutError> {
        let shared = self.shared();
        let mut got = pin!(self.pool.get());
        let (outcome, waited) = match poll_fn(|context| Poll::Ready(got.as_mut().poll(context))).await {
            Poll::Ready(got) => (Some(got), Duration::ZERO),
            Poll::Pending => {
                let line = InLine::join(shared);
                let got = rt::within(&*shared.runtime, wait, got).await;
                (got, line.waited())
            }
        };
        self.lent(outcome, waited)
    }

    /// The same for the pool's own purposes, uncounted.
    pub(crate) async fn take(&self, wait: Duration) -> Result<Borrowed<C>, CheckoutError> {
        let outcome = rt::within(&*self.shared().runtime, wait, self.pool.get()).await;
        self.lent(outcome, wait)
    }

    fn lent(&self, outcome: Option<Got<C>>, waited: Duration) -> Result<Borrowed<C>, CheckoutError> {
        match outcome {
            Some(Ok(object)) => Ok(Borrowed::new(object)),
            Some(Err(error)) => Err(self.refusal(Some(error), waited)),
            None => Err(self.refusal(None, waited)),
        }
    }

    fn refusal(&self, error: Option<PoolError<Arc<OpenError>>>, waited: Duration) -> CheckoutError {
        match error {
            _ if self.is_closed() => CheckoutError::Closed,
            Some(PoolError::Backend(error)) if error.is_permanent() => {
                CheckoutError::Denied { waited, last_open_error: error }
            }
            Some(PoolError::Backend(error)) => CheckoutError::Empty { waited, last_open_error: Some(error) },
            _ => {
                let Shared { figures, stock, runtime, .. } = &**self.shared();
                let max_open = figures.max_open;
                if self.open() >= max_open {
                    CheckoutError::Exhausted { waited, max_open }
                } else {
                    let last_open_error = stock.last_failure(runtime.now() - waited);
                    CheckoutError::Empty { waited, last_open_error }
                }
            }
        }
    }

    /// The warm-up is over: from now on callers wait, whatever becomes of single opens.
    pub(crate) fn warmed(&self) {
        self.shared().stock.warmed();
    }

    /// How many connections there are: in use, idle, and set aside.
    pub(crate) fn open(&self) -> usize {
        self.shared().stock.count().0
    }

    pub(crate) fn in_use(&self) -> usize {
        let status = self.pool.status();
        status.size.saturating_sub(status.available)
    }

    pub(crate) fn opening(&self) -> usize {
        self.shared().stock.count().1
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
        let unfit = self.shared().stock.sweep(|spare| spare.is_fit(now));
        // Outside of both locks: each is closed in a task of its own.
        drop((swept, unfit));
    }

    /// Begins to open one more, for the next in line or to be set aside; none if the pool owns all that it may. What comes
    /// of it can be waited for, and need not be.
    pub(crate) fn open_spare(&self) -> Option<oneshot::Receiver<Result<(), Arc<OpenError>>>> {
        self.shared().open_spare()
    }

    /// No more callers are served. What is idle is closed now, what is in use when it comes back.
    pub(crate) fn close(&self) {
        self.pool.close();
        drop(self.shared().stock.close());
    }

    /// Closes it because its runtime is gone: nothing it waits for would ever come.
    pub(crate) fn orphan(&self) {
        self.shared().orphaned.store(true, Ordering::Release);
        self.close();
    }

    /// Waits until every connection is closed, for at most `wait`. Cancel safe.
    pub(crate) async fn drained(&self, registry: &Registry, wait: Duration) {
        let shared = self.shared();
        if !self.is_empty(registry) && !shared.orphaned.load(Ordering::Acquire) {
            rt::within(&*shared.runtime, wait, self.emptied(registry)).await;
        }
        shared.metrics.stands(&PoolStatus::of_standard(self));
    }

    fn is_empty(&self, registry: &Registry) -> bool {
        self.closing() + self.opening() + self.open() + registry.count() == 0
    }

    async fn emptied(&self, registry: &Registry) {
        loop {
            let mut gone = std::pin::pin!(self.shared().gone.notified());
            gone.as_mut().enable();
            if self.is_empty(registry) {
                return;
            }
            gone.await;
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
    /// Opens one, unless the lease that it takes for that is taken back meanwhile.
    async fn open(&self) -> Result<Opened<C>, OpenError> {
        let monitor = ConnectionMonitor::unattached();
        let opened = unless(monitor.recalled(), self.open_at(monitor.clone())).await;
        opened.unwrap_or_else(|| Err(OpenError::new(Failure::Lease, "its lease was taken back")))
    }

    /// Token, lease, permit, open: each is had before the next is asked for, and given back if a later one fails.
    async fn open_at(&self, monitor: ConnectionMonitor) -> Result<Opened<C>, OpenError> {
        self.connector.prepare().await?;
        let lease = match &self.leases {
            Some(leases) => {
                Some(StandardLease::take(Arc::clone(leases), Arc::clone(&self.runtime), &monitor).await?)
            }
            None => None,
        };
        let permit = self.limit.acquire().await;
        permit.map_err(|error| OpenError::new(Failure::RateLimit, error))?.spend();
        let open = self.connector.open(monitor.clone());
        let limit = self.figures.open_timeout;
        let opened = rt::within(&*self.runtime, limit, open).await;
        let connection = opened.unwrap_or_else(|| {
            let message = format!("no connection within {}", forebay::duration::show(limit));
            Err(OpenError::new(Failure::Timeout, message))
        })?;
        Ok(Opened { connection, lease, monitor })
    }

    /// Has `pooled` asked and cleaned in a task, so that it is not lost with a caller who gives up. None if it had to go.
    async fn tended(self: &Arc<Self>, mut pooled: Pooled<C>) -> Option<Pooled<C>> {
        let (hand, handed) = Handed::new(Arc::clone(self));
        let shared = Arc::clone(self);
        self.runtime.spawn(Box::pin(async move {
            if pooled.tend().await
                && let Err(Ok(pooled)) = hand.send(Ok(pooled))
            {
                shared.land(pooled);
            }
        }));
        handed.given().await?.ok()
    }

    /// One was found dead without a word. Where connections do not tell of their death, others may be so, too.
    fn doubt(&self) {
        if self.figures.check_after.is_some() {
            *self.doubted_at.lock() = Some(self.runtime.now());
        }
    }
}

impl<C: Connect> Manager for Opener<C> {
    type Type = Pooled<C>;
    type Error = Arc<OpenError>;

    async fn create(&self) -> Result<Pooled<C>, Arc<OpenError>> {
        loop {
            let now = self.0.runtime.now();
            match self.0.order() {
                Ordered::Spare(spare) if !spare.is_fit(now) => drop(spare),
                Ordered::Spare(spare) if !spare.wants_tending(now) => return Ok(spare),
                Ordered::Spare(spare) => {
                    if let Some(spare) = self.0.tended(spare).await {
                        return Ok(spare);
                    }
                }
                Ordered::Later(handed) => match handed.given().await {
                    // Lost on its way here.
                    Some(Ok(pooled)) if !pooled.is_fit(self.0.runtime.now()) => drop(pooled),
                    Some(given) => return given,
                    None => return Err(Arc::new(OpenError::new(Failure::Open, "the pool is closed"))),
                },
                Ordered::Denied(error) => return Err(error),
            }
        }
    }

    async fn recycle(&self, pooled: &mut Pooled<C>, _: &Used) -> RecycleResult<Arc<OpenError>> {
        let now = self.0.runtime.now();
        if !pooled.is_fit(now) {
            return Err(RecycleError::message("too old, dead or retired"));
        }
        // A guard cleans before it gives back; this is for what happened to an idle connection since.
        if pooled.wants_tending(now) {
            let tended = self.0.tended(pooled.take()).await;
            *pooled =
                tended.ok_or(RecycleError::message("does not answer any more, or cannot be made clean"))?;
        }
        Ok(())
    }
}

/// What `work` comes to, unless `stop` comes first. Cancel safe if both are.
async fn unless<T>(stop: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    let (mut stop, mut work) = (pin!(stop), pin!(work));
    poll_fn(|context| match stop.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(context).map(Some),
    })
    .await
}
