//! The contestants of `checkout`: this project, and the crates that people use instead.
//!
//! Each peer gets its best settings: it checks no connection when it lends it, it has no lifetimes, no idle
//! times and, where possible, no timeouts, and it has room for all connections from the start. This project
//! keeps its defaults: it compares each connection with its deadline and counts what happens.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::ready;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use deadpool::{managed, unmanaged};
use forebay::{Checkout, CheckoutError, Config, Connect, ConnectionMonitor, Metrics, OpenError, Reservoir};

use crate::clock;

/// The connection that every pool lends. It does nothing, so that only the lending is measured.
pub(crate) type Payload = u64;

/// A pool in the race. Each task holds its own clone, as each of these crates recommends.
pub(crate) trait Pool: Clone + Send + Sync + Sized + 'static {
    /// Its name in the tables.
    const NAME: &'static str;

    /// Why it did not lend.
    type Error: Debug + Send;

    /// A pool with this many connections, all open and idle. Called inside a tokio runtime.
    fn filled(connections: usize) -> impl Future<Output = anyhow::Result<Self>> + Send;
}

/// A pool that lends at once or not at all.
pub(crate) trait TryLend: Pool {
    /// A connection on loan. Dropping it returns it.
    type Lent<'a>: Deref<Target = Payload>;

    fn try_lend(&self) -> Result<Self::Lent<'_>, Self::Error>;
}

/// A pool whose callers can wait for a connection.
pub(crate) trait Lend: Pool {
    /// A connection on loan. Dropping it returns it.
    type Lent<'a>: Deref<Target = Payload> + Send;

    fn lend(&self) -> impl Future<Output = Result<Self::Lent<'_>, Self::Error>> + Send;
}

/// Ends the run: no contestant has a reason to refuse here.
pub(crate) fn refused<P: Pool>(error: P::Error) -> anyhow::Error {
    anyhow::anyhow!("{} did not lend a connection: {error:?}", P::NAME)
}

/// Opens connections after a delay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connector {
    pub(crate) open_time: Duration,
}

impl Connect for Connector {
    type Connection = Payload;

    async fn open(&self, _monitor: ConnectionMonitor) -> Result<Payload, OpenError> {
        if !self.open_time.is_zero() {
            clock::pause(self.open_time).await;
        }
        Ok(0)
    }
}

/// A reservoir with its default lifetimes, so that it compares deadlines, and with its counters, which are
/// always on. Only the fill is fast: it is over before anything is measured. With `METRICS`, an observer
/// feeds an exporter.
#[derive(Clone, Debug)]
pub(crate) struct Observed<const METRICS: bool>(Reservoir<Connector>);

pub(crate) type Forebay = Observed<false>;
pub(crate) type ForebayWithMetrics = Observed<true>;

impl<const METRICS: bool> Pool for Observed<METRICS> {
    const NAME: &'static str = if METRICS { "forebay, with metrics" } else { "forebay" };
    type Error = CheckoutError;

    async fn filled(connections: usize) -> anyhow::Result<Self> {
        let config =
            Config::default().max_open(connections).startup_jitter(Duration::ZERO).rate(100_000.0, 100_000);
        let mut builder = Reservoir::builder(Connector::default()).config(config);
        if METRICS {
            builder = builder.observer(Metrics::new("bench"));
        }
        let reservoir = builder.start().await?;
        anyhow::ensure!(reservoir.status().ready == connections, "forebay is not filled");
        Ok(Self(reservoir))
    }
}

impl<const METRICS: bool> TryLend for Observed<METRICS> {
    type Lent<'a> = Checkout<'a, Connector>;

    #[inline]
    fn try_lend(&self) -> Result<Checkout<'_, Connector>, CheckoutError> {
        self.0.try_checkout()
    }
}

impl<const METRICS: bool> Lend for Observed<METRICS> {
    type Lent<'a> = Checkout<'a, Connector>;

    #[inline]
    fn lend(&self) -> impl Future<Output = Result<Checkout<'_, Connector>, CheckoutError>> + Send {
        self.0.checkout()
    }
}

/// crossbeam's `ArrayQueue`: not a pool, but the least that lending between threads can cost. It has no
/// waiting, no deadlines, no counters and no bound on what is lent.
#[derive(Clone, Debug)]
pub(crate) struct Queue(Arc<ArrayQueue<Payload>>);

/// A connection that drop pushes back.
pub(crate) struct Popped<'a> {
    queue: &'a ArrayQueue<Payload>,
    connection: Payload,
}

impl Deref for Popped<'_> {
    type Target = Payload;

    #[inline]
    fn deref(&self) -> &Payload {
        &self.connection
    }
}

impl Drop for Popped<'_> {
    #[inline]
    fn drop(&mut self) {
        let pushed = self.queue.push(self.connection);
        debug_assert!(pushed.is_ok(), "there is room for what was popped");
    }
}

/// The pool had no idle connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoneIdle;

impl Pool for Queue {
    const NAME: &'static str = "crossbeam ArrayQueue";
    type Error = NoneIdle;

    async fn filled(connections: usize) -> anyhow::Result<Self> {
        let queue = ArrayQueue::new(connections);
        for connection in 0..connections {
            queue.push(connection as Payload).map_err(|_| anyhow::anyhow!("the queue is full"))?;
        }
        Ok(Self(Arc::new(queue)))
    }
}

impl TryLend for Queue {
    type Lent<'a> = Popped<'a>;

    #[inline]
    fn try_lend(&self) -> Result<Popped<'_>, NoneIdle> {
        let connection = self.0.pop().ok_or(NoneIdle)?;
        Ok(Popped { queue: &self.0, connection })
    }
}

impl Lend for Queue {
    type Lent<'a> = Popped<'a>;

    #[inline]
    fn lend(&self) -> impl Future<Output = Result<Popped<'_>, NoneIdle>> + Send {
        ready(self.try_lend())
    }
}

/// Opens connections that are numbered from 0 and can always be lent again.
#[derive(Debug, Default)]
pub(crate) struct Numbered(AtomicU64);

impl managed::Manager for Numbered {
    type Type = Payload;
    type Error = Infallible;

    async fn create(&self) -> Result<Payload, Infallible> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed))
    }

    #[inline]
    async fn recycle(&self, _: &mut Payload, _: &managed::Metrics) -> managed::RecycleResult<Infallible> {
        Ok(())
    }
}

/// deadpool's managed pool without timeouts. Last in, first out, as in this project: the same connection is
/// lent again while it is in the processor's cache.
#[derive(Clone, Debug)]
pub(crate) struct Deadpool(pub(crate) managed::Pool<Numbered>);

impl Pool for Deadpool {
    const NAME: &'static str = "deadpool managed";
    type Error = managed::PoolError<Infallible>;

    async fn filled(connections: usize) -> anyhow::Result<Self> {
        let pool = managed::Pool::builder(Numbered::default())
            .max_size(connections)
            .queue_mode(managed::QueueMode::Lifo)
            .build()?;
        let pool = Self(pool);
        open_all(&pool, connections).await?;
        Ok(pool)
    }
}

impl Lend for Deadpool {
    type Lent<'a> = managed::Object<Numbered>;

    #[inline]
    async fn lend(&self) -> Result<managed::Object<Numbered>, Self::Error> {
        self.0.get().await
    }
}

/// Fills a pool that opens connections on demand only: borrows all of them at once.
async fn open_all<P: Lend>(pool: &P, connections: usize) -> anyhow::Result<()> {
    let mut all = Vec::with_capacity(connections);
    for _ in 0..connections {
        all.push(pool.lend().await.map_err(refused::<P>)?);
    }
    Ok(())
}

/// deadpool's unmanaged pool without timeouts. It has no lifetimes, and keeps what it is given.
#[derive(Clone, Debug)]
pub(crate) struct DeadpoolUnmanaged(unmanaged::Pool<Payload>);

impl Pool for DeadpoolUnmanaged {
    const NAME: &'static str = "deadpool unmanaged";
    type Error = unmanaged::PoolError;

    async fn filled(connections: usize) -> anyhow::Result<Self> {
        Ok(Self(unmanaged::Pool::from(vec![0; connections])))
    }
}

impl TryLend for DeadpoolUnmanaged {
    type Lent<'a> = unmanaged::Object<Payload>;

    #[inline]
    fn try_lend(&self) -> Result<unmanaged::Object<Payload>, unmanaged::PoolError> {
        self.0.try_get()
    }
}

impl Lend for DeadpoolUnmanaged {
    type Lent<'a> = unmanaged::Object<Payload>;

    #[inline]
    async fn lend(&self) -> Result<unmanaged::Object<Payload>, unmanaged::PoolError> {
        self.0.get().await
    }
}

/// Opens connections that are always valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain;

impl bb8::ManageConnection for Plain {
    type Connection = Payload;
    type Error = Infallible;

    async fn connect(&self) -> Result<Payload, Infallible> {
        Ok(0)
    }

    async fn is_valid(&self, _connection: &mut Payload) -> Result<(), Infallible> {
        Ok(())
    }

    #[inline]
    fn has_broken(&self, _connection: &mut Payload) -> bool {
        false
    }
}

/// bb8 without checks and lifetimes, so that it needs no reaper. Its timeout cannot be switched off. The
/// guard borrows the pool, which is cheaper than its other guard.
#[derive(Clone, Debug)]
pub(crate) struct Bb8(bb8::Pool<Plain>);

impl Pool for Bb8 {
    const NAME: &'static str = "bb8";
    type Error = bb8::RunError<Infallible>;

    async fn filled(connections: usize) -> anyhow::Result<Self> {
        let connections = u32::try_from(connections)?;
        let pool = bb8::Pool::builder()
            .max_size(connections)
            .min_idle(connections)
            .test_on_check_out(false)
            .max_lifetime(None)
            .idle_timeout(None)
            .queue_strategy(bb8::QueueStrategy::Lifo)
            .build(Plain)
            .await?;
        Ok(Self(pool))
    }
}

impl Lend for Bb8 {
    type Lent<'a> = bb8::PooledConnection<'a, Plain>;

    #[inline]
    async fn lend(&self) -> Result<bb8::PooledConnection<'_, Plain>, Self::Error> {
        self.0.get().await
    }
}

#[mobc::async_trait]
impl mobc::Manager for Plain {
    type Connection = Payload;
    type Error = Infallible;

    async fn connect(&self) -> Result<Payload, Infallible> {
        Ok(0)
    }

    async fn check(&self, connection: Payload) -> Result<Payload, Infallible> {
        Ok(connection)
    }
}

/// mobc without checks, lifetimes and timers. It returns connections in a separate task.
#[derive(Clone)]
pub(crate) struct Mobc(mobc::Pool<Plain>);

impl Pool for Mobc {
    const NAME: &'static str = "mobc";
    type Error = mobc::Error<Infallible>;

    async fn filled(connections: usize) -> anyhow::Result<Self> {
        let most = u64::try_from(connections)?;
        let pool = mobc::Pool::builder()
            .max_open(most)
            .max_idle(most)
            .test_on_check_out(false)
            .max_lifetime(None)
            .max_idle_lifetime(None)
            .get_timeout(None)
            .build(Plain);
        let pool = Self(pool);
        open_all(&pool, connections).await?;
        while pool.0.state().await.idle < most {
            tokio::task::yield_now().await;
        }
        Ok(pool)
    }
}

impl Lend for Mobc {
    type Lent<'a> = mobc::Connection<Plain>;

    #[inline]
    async fn lend(&self) -> Result<mobc::Connection<Plain>, Self::Error> {
        self.0.get().await
    }
}

impl r2d2::ManageConnection for Plain {
    type Connection = Payload;
    type Error = Infallible;

    fn connect(&self) -> Result<Payload, Infallible> {
        Ok(0)
    }

    fn is_valid(&self, _connection: &mut Payload) -> Result<(), Infallible> {
        Ok(())
    }

    #[inline]
    fn has_broken(&self, _connection: &mut Payload) -> bool {
        false
    }
}

/// r2d2 without checks and lifetimes. It blocks, so it takes part only where no caller waits.
#[derive(Clone, Debug)]
pub(crate) struct R2d2(r2d2::Pool<Plain>);

impl Pool for R2d2 {
    const NAME: &'static str = "r2d2";
    type Error = NoneIdle;

    async fn filled(connections: usize) -> anyhow::Result<Self> {
        // `build` returns when the pool is full.
        let pool = r2d2::Pool::builder()
            .max_size(u32::try_from(connections)?)
            .test_on_check_out(false)
            .max_lifetime(None)
            .idle_timeout(None)
            .build(Plain)?;
        Ok(Self(pool))
    }
}

impl TryLend for R2d2 {
    type Lent<'a> = r2d2::PooledConnection<Plain>;

    #[inline]
    fn try_lend(&self) -> Result<r2d2::PooledConnection<Plain>, NoneIdle> {
        self.0.try_get().ok_or(NoneIdle)
    }
}
