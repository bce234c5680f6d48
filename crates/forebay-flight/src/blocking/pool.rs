//! A pool of sessions, for threads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use forebay::BoxError;

use super::ingest::ingest_from;
use super::reader::QueryReader;
use super::runtime_thread::RuntimeThread;
use super::session::SessionHandle;
use crate::connection::{ConnectOptions, Endpoint};
use crate::error::Result;
use crate::pool::{AsyncFlightSQLPool, PoolConfig, PoolStatus};
use crate::statement::{Ingest, QueryOptions, QueryResult, UpdateResult};

/// How long closing a dropped pool may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A pool of sessions on one Flight SQL server, for threads. Each method does the same as that of
/// [`AsyncFlightSQLPool`], and blocks.
///
/// A clone is another handle to the same pool. With the last handle, its connections are closed and its
/// thread ends, in the background.
///
/// ```
/// # use flight_local::{Config, FlightLocal};
/// # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
/// # let server = runtime.block_on(FlightLocal::start(Config::default()))?;
/// # let url = server.url();
/// use forebay_flight::FlightSQLPool;
///
/// let pool = FlightSQLPool::with_default(&url)?;
/// pool.update("CREATE TABLE t (a INTEGER)")?;
///
/// // Two statements at the same time, each on its own session.
/// std::thread::scope(|scope| {
///     let one = scope.spawn(|| pool.query("SELECT 1"));
///     let two = scope.spawn(|| pool.query("SELECT 2"));
///     one.join().unwrap().and(two.join().unwrap())
/// })?;
///
/// // Several statements on the same session.
/// let mut session = pool.acquire_session()?;
/// session.begin_transaction()?;
/// session.update("INSERT INTO t VALUES (1)")?;
/// session.commit()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// See [`Error`](crate::Error).
#[derive(Clone)]
pub struct FlightSQLPool {
    inner: Arc<Inner>,
}

struct Inner {
    pool: AsyncFlightSQLPool,
    thread: Arc<RuntimeThread>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Sessions that are still held keep the thread running, but the pool closes now.
        let pool = self.pool.clone();
        self.thread.spawn(async move {
            pool.drain(Duration::ZERO).await;
        });
    }
}

impl FlightSQLPool {
    /// A pool with these settings. Waits for the first connection, unless `min_idle` is zero.
    pub fn new(endpoint: &str, config: PoolConfig) -> Result<Self> {
        Self::with_options(ConnectOptions::new(endpoint)?, config)
    }

    /// A pool with the settings of [`PoolConfig::default`].
    pub fn with_default(endpoint: &str) -> Result<Self> {
        Self::new(endpoint, PoolConfig::default())
    }

    /// A pool whose connections need more than an endpoint, such as TLS, credentials or headers.
    pub fn with_options(options: ConnectOptions, config: PoolConfig) -> Result<Self> {
        let thread = RuntimeThread::start()?;
        let pool = thread.block_on(AsyncFlightSQLPool::start(thread.runtime(), options, config))?;
        thread.run_last({
            let pool = pool.clone();
            async move {
                pool.drain(CLOSE_TIMEOUT).await;
            }
        });
        Ok(Self { inner: Arc::new(Inner { pool, thread }) })
    }

    /// Runs a query on a connection of the pool, and reads its whole result.
    pub fn query(&self, sql: &str) -> Result<QueryResult> {
        self.block_on(self.inner.pool.query(sql))
    }

    /// Runs a query with a timeout, parameters or other options.
    pub fn query_with_options(&self, sql: &str, opts: QueryOptions) -> Result<QueryResult> {
        self.block_on(self.inner.pool.query_with_options(sql, opts))
    }

    /// Runs a statement that changes something and returns rows. It never runs twice.
    pub fn execute(&self, sql: &str) -> Result<QueryResult> {
        self.block_on(self.inner.pool.execute(sql))
    }

    /// Runs a query, and returns its result as the server sends it.
    pub fn query_stream(&self, sql: &str) -> Result<QueryReader<'static>> {
        self.query_stream_with_options(sql, QueryOptions::new())
    }

    /// As [`query_stream`](Self::query_stream), with a timeout, parameters or other options.
    pub fn query_stream_with_options(&self, sql: &str, opts: QueryOptions) -> Result<QueryReader<'static>> {
        let stream = self.block_on(self.inner.pool.query_stream_with_options(sql, opts))?;
        Ok(QueryReader::new(stream, Arc::clone(&self.inner.thread)))
    }

    /// Runs a statement that changes something. It never runs twice.
    pub fn update(&self, sql: &str) -> Result<UpdateResult> {
        self.block_on(self.inner.pool.update(sql))
    }

    /// As [`update`](Self::update), with a timeout, parameters or other options.
    pub fn update_with_options(&self, sql: &str, opts: QueryOptions) -> Result<UpdateResult> {
        self.block_on(self.inner.pool.update_with_options(sql, opts))
    }

    /// Runs a query with parameters: the columns of `params`, in order.
    pub fn query_with_param(&self, sql: &str, params: RecordBatch) -> Result<QueryResult> {
        self.block_on(self.inner.pool.query_with_param(sql, params))
    }

    /// Runs a statement once for each row of `batch`, with its columns as parameters.
    pub fn update_with_record_batch(&self, sql: &str, batch: RecordBatch) -> Result<UpdateResult> {
        self.block_on(self.inner.pool.update_with_record_batch(sql, batch))
    }

    /// Loads batches into a table, as fast as the server takes them. The iterator runs on this thread. See
    /// [`Session::ingest`](crate::Session::ingest) for an iterator that blocks.
    pub fn ingest<B, E>(&self, ingest: Ingest, batches: B) -> Result<UpdateResult>
    where
        B: IntoIterator<Item = Result<RecordBatch, E>>,
        E: Into<BoxError>,
    {
        ingest_from(&self.inner.thread, batches, |stream| self.inner.pool.ingest(ingest, stream))
    }

    /// Takes a session for one thread that needs it for several statements.
    pub fn acquire_session(&self) -> Result<SessionHandle> {
        let handle = self.block_on(self.inner.pool.acquire_session())?;
        Ok(SessionHandle::new(handle, Arc::clone(&self.inner.thread)))
    }

    /// Takes a connection, as [`acquire_session`](Self::acquire_session) does.
    pub fn acquire(&self) -> Result<SessionHandle> {
        self.acquire_session()
    }

    /// The state of the pool now.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        self.inner.pool.status()
    }

    /// The endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.inner.pool.endpoint()
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &PoolConfig {
        self.inner.pool.config()
    }

    /// Serves no more callers, and waits at most `wait` until every connection is back and closed. Returns
    /// whether they are.
    pub fn drain(&self, wait: Duration) -> bool {
        self.block_on(self.inner.pool.drain(wait))
    }

    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.inner.thread.block_on(future)
    }
}

impl fmt::Debug for FlightSQLPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FlightSQLPool").field(&self.inner.pool).finish()
    }
}
