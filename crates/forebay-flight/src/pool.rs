//! A pool of sessions, for tasks.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use forebay::rt::{Runtime, TokioRuntime};
use forebay::{Event, Reservoir};
use tokio::sync::watch;
use tracing::Instrument;

use crate::budget::Budget;
use crate::config::PoolConfig;
use crate::connector::Connector;
use crate::endpoint::Endpoint;
use crate::error::{Error, Phase, Result};
use crate::first_failure::FirstFailure;
use crate::limits::Limits;
use crate::metrics::PoolMetrics;
use crate::options::ConnectOptions;
use crate::pooled::{AsyncSessionHandle, Borrowed, PooledConnection};
use crate::query_options::QueryOptions;
use crate::server::Server;

mod statements;

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
        // Outside the budget's lock: each may have to say something to the runtime.
        drop(self.budget.unpromise());
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
        let longest = options.opening();
        let server =
            Server::new(options, Arc::clone(&runtime), &config.healthcheck_sql, config.quarantine())?;
        let budget = Arc::new(Budget::new(config.session_budget()));
        let (closing, is_closing) = watch::channel(false);
        let connector = Connector {
            server: Arc::new(server),
            budget: Arc::clone(&budget),
            default_timeout: config.default_timeout(),
            linger: config.linger(),
            idle_ttl: config.idle_ttl(),
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
        let mut filled = pin!(self.inner.reservoir.filled(longest));
        let mut failed = pin!(first_failure.told());
        poll_fn(|context| {
            if let Poll::Ready(is_filled) = filled.as_mut().poll(context) {
                let late = Error::PoolTimeout { waited: longest, cause: None };
                return Poll::Ready(if is_filled { Ok(()) } else { Err(late) });
            }
            failed.as_mut().poll(context).map(Err)
        })
        .await
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
        Ok(AsyncSessionHandle::new(self.acquire().await?))
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
            cleaning: status.in_maintenance,
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

    async fn borrow(&self, limits: &Limits) -> Result<Borrowed<'_>> {
        limits.check(Phase::ACQUIRE)?;
        let acquire = async {
            let checkout = self.inner.reservoir.checkout();
            let outcome = match limits.remaining() {
                // The reservoir keeps this deadline, since it knows why there was no connection by then.
                Some(left) => checkout.within(left.min(self.inner.config.acquire_timeout())),
                None => checkout,
            };
            outcome.await.map_err(|error| limits.unconnected(error))
        };
        let cancellable = limits.without_deadline();
        let checkout = cancellable.run(Phase::ACQUIRE, acquire).instrument(self.span("acquire")).await?;
        Ok(Borrowed::new(checkout, &self.inner.endpoint))
    }

    fn span(&self, what: &'static str) -> tracing::Span {
        tracing::debug_span!("flight", what, endpoint = %self.inner.endpoint)
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
