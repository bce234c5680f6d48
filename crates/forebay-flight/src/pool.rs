//! A pool of sessions, for tasks.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use forebay::rt::{Runtime, TokioRuntime};
use forebay::{Checkout, Event, OwnedCheckout, Reservoir};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tracing::Instrument;

use crate::budget::Budget;
use crate::config::PoolConfig;
use crate::connector::Connector;
use crate::endpoint::Endpoint;
use crate::error::{Error, Phase, Result};
use crate::fetch::Fetch;
use crate::limits::Limits;
use crate::metrics::PoolMetrics;
use crate::options::ConnectOptions;
use crate::query_options::QueryOptions;
use crate::result::{QueryResult, UpdateResult};
use crate::server::Server;
use crate::session::AsyncSession;
use crate::sql::Traits;
use crate::stream::QueryStream;

/// A pool of sessions on one Flight SQL server. Statements of different callers run in parallel, each on a session of its own.
///
/// A clone is another handle to the same pool; with the last one, its connections are closed.
///
/// ```
/// # use flight_local::{Config, FlightLocal};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = FlightLocal::start(Config::default()).await?;
/// # let url = server.url();
/// use forebay_flight::{AsyncFlightSQLPool, QueryOptions};
///
/// let pool = AsyncFlightSQLPool::with_default(&url).await?;
/// pool.update("CREATE TABLE t (a INTEGER)").await?;
/// let rows = pool
///     .query_with_options("SELECT * FROM t", QueryOptions::new().with_timeout_ms(2_000))
///     .await?;
/// assert!(rows.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AsyncFlightSQLPool {
    inner: Arc<Inner>,
}

struct Inner {
    reservoir: Reservoir<Connector>,
    runtime: Arc<dyn Runtime>,
    config: PoolConfig,
    endpoint: Endpoint,
    budget: Arc<Budget>,
    closing: watch::Sender<bool>,
}

impl Inner {
    fn close(&self) {
        self.closing.send_replace(true);
        self.budget.clear();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl AsyncFlightSQLPool {
    /// A pool with these settings. Waits for the first connection, unless `min_idle` is zero.
    ///
    /// # Errors
    /// [`Error::Config`] if endpoint or settings make no sense, or there is no tokio runtime; [`Error::Transport`] if the server cannot be
    /// reached; [`Error::Server`] if it refuses the credentials.
    ///
    /// # Cancel safety
    /// Dropping it closes what was opened.
    pub async fn new(endpoint: &str, config: PoolConfig) -> Result<Self> {
        Self::with_options(ConnectOptions::new(endpoint)?, config).await
    }

    /// A pool with the settings of [`PoolConfig::default`].
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Cancel safety
    /// As [`new`](Self::new).
    pub async fn with_default(endpoint: &str) -> Result<Self> {
        Self::new(endpoint, PoolConfig::default()).await
    }

    /// A pool of connections that need more than an endpoint: TLS, credentials, headers.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Cancel safety
    /// As [`new`](Self::new).
    pub async fn with_options(options: ConnectOptions, config: PoolConfig) -> Result<Self> {
        let runtime = TokioRuntime::current().map_err(|error| Error::config(error.to_string()))?;
        Self::start(Arc::new(runtime), options, config).await
    }

    pub(crate) async fn start(
        runtime: Arc<dyn Runtime>,
        options: ConnectOptions,
        config: PoolConfig,
    ) -> Result<Self> {
        let settings = config.reservoir(&options)?;
        let endpoint = options.endpoint.clone();
        let longest = options.connect_timeout.saturating_mul(3);
        let server =
            Server::new(options, Arc::clone(&runtime), &config.healthcheck_sql, config.quarantine())?;
        let budget = Arc::new(Budget::new(config.session_budget()));
        let (closing, is_closing) = watch::channel(false);
        let connector = Connector {
            server: Arc::new(server),
            budget: Arc::clone(&budget),
            default_timeout: config.default_timeout(),
            linger: config.linger(),
            closing: is_closing,
        };
        let first_failure = Arc::new(FirstFailure::default());
        let reservoir = Reservoir::builder(connector)
            .config(settings)
            .runtime(Arc::clone(&runtime))
            .leases(Arc::clone(&budget) as _)
            .observer(PoolMetrics::new(endpoint.to_string()))
            .observer({
                let first_failure = Arc::clone(&first_failure);
                move |event: &Event<'_>| first_failure.note(event)
            })
            .start_empty()
            .map_err(|error| Error::config(error.to_string()))?;
        let pool = Self { inner: Arc::new(Inner { reservoir, runtime, config, endpoint, budget, closing }) };
        pool.opened(longest, &first_failure).await?;
        Ok(pool)
    }

    /// Waits until the first connections are there, or one has failed.
    async fn opened(&self, longest: Duration, first_failure: &FirstFailure) -> Result<()> {
        let limits = Limits::new(&self.inner.runtime, None, None);
        let mut filled = std::pin::pin!(self.inner.reservoir.filled(longest));
        let mut failed = std::pin::pin!(first_failure.told());
        limits
            .run(
                Phase::Acquire,
                std::future::poll_fn(|context| {
                    if let std::task::Poll::Ready(is_filled) = filled.as_mut().poll(context) {
                        let late = Error::PoolTimeout { waited: longest, cause: None };
                        return std::task::Poll::Ready(if is_filled { Ok(()) } else { Err(late) });
                    }
                    failed.as_mut().poll(context).map(Err)
                }),
            )
            .await
    }

    /// Runs a query on a connection of the pool, and reads its whole result.
    ///
    /// A statement that is known to read only is run once more, on another connection, if the first fails on the way.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// Dropping it cancels the statement on the server, in the background, and loses no capacity.
    pub async fn query(&self, sql: &str) -> Result<QueryResult> {
        self.query_with_options(sql, QueryOptions::new()).await
    }

    /// As [`query`](Self::query), with options.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_with_options(&self, sql: &str, options: QueryOptions) -> Result<QueryResult> {
        let limits = self.limits(&options);
        let mut patience = self.patience(sql, &options);
        let traits = Traits::of(sql);
        loop {
            let mut connection = self.borrow(&limits).await?;
            let outcome = read(&mut connection, sql, traits, limits.clone());
            let (error, is_begun) = match outcome.instrument(self.span("query")).await {
                Ok(result) => return Ok(result),
                Err(failed) => failed,
            };
            drop(connection);
            patience.bear(error.stateless(), is_begun)?;
        }
    }

    /// Runs a statement that changes something and gives rows, as `INSERT ... RETURNING` does. It is never run twice.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`query`](Self::query); it may have been carried out.
    pub async fn execute(&self, sql: &str) -> Result<QueryResult> {
        self.query_with_options(sql, QueryOptions::new().with_retry(false)).await
    }

    /// Runs a query, and gives its result as the server sends it. The stream holds its connection until its end.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_stream(&self, sql: &str) -> Result<QueryStream<'static>> {
        self.query_stream_with_options(sql, QueryOptions::new()).await
    }

    /// As [`query_stream`](Self::query_stream), with options.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_stream_with_options(
        &self,
        sql: &str,
        options: QueryOptions,
    ) -> Result<QueryStream<'static>> {
        let limits = self.limits(&options);
        let mut patience = self.patience(sql, &options);
        let traits = Traits::of(sql);
        loop {
            let mut connection = self.borrow(&limits).await?.into_owned();
            let started = connection.fetch(sql, traits, limits.clone());
            match started.instrument(self.span("query")).await {
                Ok(fetch) => return Ok(QueryStream::of_pool(fetch, connection)),
                Err(error) => {
                    drop(connection);
                    patience.bear(error.stateless(), false)?;
                }
            }
        }
    }

    /// Runs a statement that changes something. It is never run twice.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`query`](Self::query); it may have been carried out.
    pub async fn update(&self, sql: &str) -> Result<UpdateResult> {
        self.update_with_options(sql, QueryOptions::new()).await
    }

    /// As [`update`](Self::update), with options.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    pub async fn update_with_options(&self, sql: &str, options: QueryOptions) -> Result<UpdateResult> {
        let limits = self.limits(&options);
        let mut patience = Patience::for_unsent(self);
        loop {
            let mut connection = self.borrow(&limits).await?;
            match connection.run_update(sql, &limits).instrument(self.span("update")).await {
                Ok(updated) => return Ok(updated),
                Err(error) => {
                    drop(connection);
                    patience.bear(error.stateless(), true)?;
                }
            }
        }
    }

    /// Runs a query with parameters, one row of them for each time it is to be run.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_with_param(&self, sql: &str, params: RecordBatch) -> Result<QueryResult> {
        let mut patience = Patience::for_unsent(self);
        loop {
            let mut connection = self.borrow(&self.limits(&QueryOptions::new())).await?;
            match connection.query_with_param(sql, params.clone()).instrument(self.span("query")).await {
                Ok(result) => return Ok(result),
                Err(error) => {
                    drop(connection);
                    patience.bear(error.stateless(), true)?;
                }
            }
        }
    }

    /// Runs a statement once for each row of `batch`, with its columns as parameters.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    pub async fn update_with_record_batch(&self, sql: &str, batch: RecordBatch) -> Result<UpdateResult> {
        let mut patience = Patience::for_unsent(self);
        loop {
            let mut connection = self.borrow(&self.limits(&QueryOptions::new())).await?;
            let updated = connection.update_with_record_batch(sql, batch.clone());
            match updated.instrument(self.span("update")).await {
                Ok(updated) => return Ok(updated),
                Err(error) => {
                    drop(connection);
                    patience.bear(error.stateless(), true)?;
                }
            }
        }
    }

    /// Takes a session for one caller, for whatever needs several statements on the same: transactions, temporary tables,
    /// settings, prepared statements. It goes back when it is dropped, clean or not at all.
    ///
    /// # Errors
    /// [`Error::PoolTimeout`] if none is free in time, [`Error::Closed`] if none will be.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing: what it was about to get goes to the next in line.
    pub async fn acquire_session(&self) -> Result<AsyncSessionHandle> {
        Ok(AsyncSessionHandle { connection: self.acquire().await? })
    }

    /// Takes a connection. [`acquire_session`](Self::acquire_session) is the same by another name.
    ///
    /// # Errors
    /// As [`acquire_session`](Self::acquire_session).
    ///
    /// # Cancel safety
    /// As [`acquire_session`](Self::acquire_session).
    pub async fn acquire(&self) -> Result<PooledConnection> {
        let unlimited = Limits::new(&self.inner.runtime, None, None);
        Ok(self.borrow(&unlimited).await?.into_owned())
    }

    /// What the pool looks like now.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        let status = self.inner.reservoir.status();
        PoolStatus {
            idle: status.ready,
            in_use: status.in_use,
            cleaning: status.in_care,
            opening: status.opening,
            closing: status.closing,
            waiting: status.waiting,
            max_size: status.max_open,
            sessions: self.inner.budget.used(),
            is_closed: status.closed,
        }
    }

    /// The endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &PoolConfig {
        &self.inner.config
    }

    /// Serves no more callers, and waits, for at most `wait`, until every connection is back and closed. Returns whether they are.
    ///
    /// # Cancel safety
    /// Dropping it stops the waiting, not the closing. It can be called again.
    pub async fn drain(&self, wait: Duration) -> bool {
        self.inner.close();
        self.inner.reservoir.drain(wait).await.is_complete()
    }

    fn limits(&self, options: &QueryOptions) -> Limits {
        let timeout = options.timeout.or(self.inner.config.default_timeout());
        Limits::new(&self.inner.runtime, timeout, options.cancel.clone())
    }

    fn patience(&self, sql: &str, options: &QueryOptions) -> Patience {
        let retry = options.retry.unwrap_or(self.inner.config.retry_on_failure);
        Patience { may_repeat: retry && Traits::of(sql).is_read_only, ..Patience::for_unsent(self) }
    }

    async fn borrow(&self, limits: &Limits) -> Result<Borrowed<'_>> {
        let acquire = async { self.inner.reservoir.checkout().await.map_err(Error::from) };
        let checkout = limits.run(Phase::Acquire, acquire).instrument(self.span("acquire")).await?;
        Ok(Borrowed { checkout: Some(checkout), endpoint: &self.inner.endpoint })
    }

    fn span(&self, what: &'static str) -> tracing::Span {
        tracing::debug_span!("flight", what, endpoint = %self.inner.endpoint)
    }
}

/// Runs a query to its end. An error comes with whether a batch had been read before it.
async fn read(
    session: &mut AsyncSession,
    sql: &str,
    traits: Traits,
    limits: Limits,
) -> Result<QueryResult, (Error, bool)> {
    let mut fetch: Fetch = session.fetch(sql, traits, limits).await.map_err(|error| (error, false))?;
    let mut batches = Vec::new();
    while let Some(batch) = std::future::poll_fn(|context| fetch.poll_next(context)).await {
        batches.push(batch.map_err(|error| (error, !batches.is_empty()))?);
    }
    Ok(QueryResult::new(fetch.schema().clone(), batches))
}

/// How often a statement that failed is sent again.
struct Patience {
    /// It is known to read only, and may be run a second time, once.
    may_repeat: bool,
    /// Connections that may turn out to be closed before anything is sent: each in the pool may.
    unsent: usize,
}

impl Patience {
    fn for_unsent(pool: &AsyncFlightSQLPool) -> Self {
        Self { may_repeat: false, unsent: pool.inner.config.max_size + 1 }
    }

    /// The error, unless it may be tried again.
    fn bear(&mut self, error: Error, is_begun: bool) -> Result<()> {
        if !error.is_of_the_way() {
            return Err(error);
        }
        if error.is_harmless() && self.unsent > 0 {
            self.unsent -= 1;
        } else if self.may_repeat && !is_begun {
            self.may_repeat = false;
        } else {
            return Err(error);
        }
        tracing::debug!(%error, "statement is sent again on another connection");
        Ok(())
    }
}

/// Why the first open failed.
#[derive(Default)]
struct FirstFailure {
    error: Mutex<Option<Error>>,
    told: Notify,
}

impl FirstFailure {
    fn note(&self, event: &Event<'_>) {
        if let Event::OpenFailed { error, .. } = event {
            let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<Error>());
            let cause = cause
                .cloned()
                .unwrap_or_else(|| Error::Transport { message: error.to_string(), may_have_run: false });
            self.error.lock().get_or_insert(cause);
            self.told.notify_waiters();
        }
    }

    async fn told(&self) -> Error {
        loop {
            let mut told = std::pin::pin!(self.told.notified());
            // Asked to be told before looking, so that nothing falls in between.
            told.as_mut().enable();
            if let Some(error) = self.error.lock().take() {
                return error;
            }
            told.await;
        }
    }
}

/// A connection for one statement.
struct Borrowed<'a> {
    /// There until it is dropped or made to last.
    checkout: Option<Checkout<'a, Connector>>,
    endpoint: &'a Endpoint,
}

const HELD: &str = "held until it is dropped";

impl Borrowed<'_> {
    fn into_owned(mut self) -> PooledConnection {
        let checkout = self.checkout.take().expect(HELD).into_owned();
        PooledConnection { checkout: Some(checkout), endpoint: self.endpoint.clone() }
    }
}

impl Deref for Borrowed<'_> {
    type Target = AsyncSession;

    fn deref(&self) -> &AsyncSession {
        self.checkout.as_ref().expect(HELD)
    }
}

impl DerefMut for Borrowed<'_> {
    fn deref_mut(&mut self) -> &mut AsyncSession {
        self.checkout.as_mut().expect(HELD)
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(checkout) = self.checkout.take() {
            let _span = tracing::debug_span!("flight", what = "release", endpoint = %self.endpoint).entered();
            drop(checkout);
        }
    }
}

/// A connection of a pool, with its session. It goes back when it is dropped: at once if it is clean, after it was made so if
/// that is possible, and not at all otherwise.
pub struct PooledConnection {
    /// There until it is dropped.
    checkout: Option<OwnedCheckout<Connector>>,
    endpoint: Endpoint,
}

impl PooledConnection {
    /// Closes it when it comes back, instead of lending it again.
    pub fn mark_bad(&mut self) {
        self.checkout.as_mut().expect(HELD).mark_bad();
    }

    /// How long ago it was opened.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.checkout.as_ref().expect(HELD).age()
    }
}

impl Deref for PooledConnection {
    type Target = AsyncSession;

    fn deref(&self) -> &AsyncSession {
        self.checkout.as_ref().expect(HELD)
    }
}

impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut AsyncSession {
        self.checkout.as_mut().expect(HELD)
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(checkout) = self.checkout.take() {
            let _span = tracing::debug_span!("flight", what = "release", endpoint = %self.endpoint).entered();
            checkout.link.end_tenancy();
            drop(checkout);
        }
    }
}

impl fmt::Debug for PooledConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PooledConnection").field(&**self).finish()
    }
}

/// A session of a pool, held by one caller. It derefs to [`AsyncSession`], and goes back when it is dropped; an open
/// transaction is rolled back then, and one with changed settings or temporary tables is closed.
#[derive(Debug)]
pub struct AsyncSessionHandle {
    connection: PooledConnection,
}

impl Deref for AsyncSessionHandle {
    type Target = AsyncSession;

    fn deref(&self) -> &AsyncSession {
        &self.connection
    }
}

impl DerefMut for AsyncSessionHandle {
    fn deref_mut(&mut self) -> &mut AsyncSession {
        &mut self.connection
    }
}

/// What a pool looks like at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatus {
    /// Connections to be had at once.
    pub idle: usize,
    /// Connections with callers.
    pub in_use: usize,
    /// Connections that are made fit for the next caller: a transaction is rolled back, a statement cancelled.
    pub cleaning: usize,
    /// Connections on their way.
    pub opening: usize,
    /// Connections on their way out, with those in quarantine.
    pub closing: usize,
    /// Callers in line.
    pub waiting: usize,
    /// Connections there may be.
    pub max_size: usize,
    /// Sessions that the server may have for this pool, of its `session_budget`.
    pub sessions: usize,
    /// No more callers are served.
    pub is_closed: bool,
}

impl fmt::Debug for AsyncFlightSQLPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncFlightSQLPool")
            .field("endpoint", &self.inner.endpoint)
            .field("status", &self.status())
            .finish()
    }
}
