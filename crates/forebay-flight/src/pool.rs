//! A pool of sessions, for tasks.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use forebay::rt::{self, Runtime};
use forebay::{Event, Reservoir};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tracing::Instrument;

use crate::connection::{ConnectOptions, Endpoint, Server};
use crate::error::{Error, Phase, Result};
use crate::metrics::PoolMetrics;
use crate::statement::QueryOptions;
use crate::statement::limits::Limits;

mod config;
mod connector;
mod pooled;
mod retries;
mod session_budget;
mod statements;

pub use config::PoolConfig;
use connector::Connector;
pub use pooled::{AsyncSessionHandle, PooledConnection};
use session_budget::SessionBudget;

/// A pool of sessions on one Flight SQL server. Statements of different callers run in parallel, each on a
/// session of its own.
///
/// A clone is another handle to the same pool. Its connections are closed with the last handle.
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
///
/// # Errors
/// See [`Error`].
#[derive(Clone)]
pub struct AsyncFlightSQLPool {
    inner: Arc<Inner>,
}

struct Inner {
    reservoir: Reservoir<Connector>,
    runtime: Arc<dyn Runtime>,
    config: PoolConfig,
    endpoint: Endpoint,
    budget: Arc<SessionBudget>,
    closing: watch::Sender<bool>,
}

impl Inner {
    fn close(&self) {
        self.closing.send_replace(true);
        // Dropped outside the budget's lock, since a session may spawn a task when it is dropped.
        drop(self.budget.take_promised());
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
    /// [`Error::Config`] if the endpoint or a setting is invalid, or there is no tokio runtime.
    /// [`Error::Transport`] if the server cannot be reached. [`Error::Server`] if it refuses the credentials.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections.
    pub async fn new(endpoint: &str, config: PoolConfig) -> Result<Self> {
        Self::with_options(ConnectOptions::new(endpoint)?, config).await
    }

    /// A pool with the settings of [`PoolConfig::default`].
    ///
    /// # Cancel safety
    /// As [`new`](Self::new).
    pub async fn with_default(endpoint: &str) -> Result<Self> {
        Self::new(endpoint, PoolConfig::default()).await
    }

    /// A pool whose connections need more than an endpoint, such as TLS, credentials or headers.
    ///
    /// # Cancel safety
    /// As [`new`](Self::new).
    pub async fn with_options(options: ConnectOptions, config: PoolConfig) -> Result<Self> {
        let runtime = rt::current().map_err(|error| Error::config(error.to_string()))?;
        Self::start(runtime, options, config).await
    }

    pub(crate) async fn start(
        runtime: Arc<dyn Runtime>,
        options: ConnectOptions,
        config: PoolConfig,
    ) -> Result<Self> {
        let options = config.apply_to(options);
        let settings = config.reservoir(&options)?;
        let endpoint = options.endpoint.clone();
        let open_timeout = options.open_timeout();
        let server = Server::new(
            options,
            Arc::clone(&runtime),
            &config.healthcheck_sql,
            config.quarantine(),
            config.reset(),
        )?;
        let budget = Arc::new(SessionBudget::new(config.session_budget()));
        let (closing, is_closing) = watch::channel(false);
        let connector = Connector {
            server: Arc::new(server),
            budget: Arc::clone(&budget),
            default_timeout: config.default_timeout(),
            linger: config.linger(),
            idle_timeout: config.idle_timeout(),
            closing: is_closing,
        };
        let (report, first_failure) = oneshot::channel();
        let report = Mutex::new(Some(report));
        let reservoir = Reservoir::builder(connector)
            .config(settings)
            .runtime(Arc::clone(&runtime))
            .leases(Arc::clone(&budget) as _)
            .observer(PoolMetrics::new(endpoint.to_string()))
            .observer(move |event: &Event<'_>| {
                if let Event::OpenFailed { error, .. } = event
                    && let Some(report) = report.lock().take()
                {
                    let cause = error.get_ref().downcast_ref::<Error>();
                    let cause = cause.cloned().unwrap_or_else(|| Error::transport(error.to_string(), false));
                    // Fails once the pool has started.
                    let _ = report.send(cause);
                }
            })
            .start_empty()
            .map_err(|error| Error::config(error.to_string()))?;
        let pool = Self { inner: Arc::new(Inner { reservoir, runtime, config, endpoint, budget, closing }) };
        pool.opened(open_timeout, first_failure).await?;
        Ok(pool)
    }

    /// Waits until the first connections are open, or one has failed.
    async fn opened(&self, timeout: Duration, mut first_failure: oneshot::Receiver<Error>) -> Result<()> {
        let mut filled = pin!(self.inner.reservoir.filled(timeout));
        poll_fn(|context| {
            if let Poll::Ready(is_filled) = filled.as_mut().poll(context) {
                let late = Error::PoolTimeout { waited: timeout, cause: None };
                return Poll::Ready(if is_filled { Ok(()) } else { Err(late) });
            }
            pin!(&mut first_failure).poll(context).map(|failure| Err(failure.unwrap_or(Error::Closed)))
        })
        .await
    }

    /// Takes a session for one caller that needs it for several statements: transactions, temporary tables,
    /// settings, prepared statements. It goes back to the pool when it is dropped.
    ///
    /// # Errors
    /// [`Error::PoolTimeout`] if none is free in time, [`Error::Closed`] if the pool is closed.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing: the next waiter gets the session.
    pub async fn acquire_session(&self) -> Result<AsyncSessionHandle> {
        self.acquire().await
    }

    /// Takes a connection, as [`acquire_session`](Self::acquire_session) does.
    ///
    /// # Cancel safety
    /// As [`acquire_session`](Self::acquire_session).
    pub async fn acquire(&self) -> Result<AsyncSessionHandle> {
        let unlimited = Limits::new(&self.inner.runtime, None, None);
        Ok(self.borrow(&unlimited).await?.into_owned())
    }

    /// The state of the pool now.
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
            sessions: self.inner.budget.used() + self.inner.budget.lingering(),
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

    /// Serves no more callers, and waits at most `wait` until every connection is back and closed. Returns
    /// whether they are.
    ///
    /// # Cancel safety
    /// Dropping it stops the wait, not the closing. It can be called again.
    pub async fn drain(&self, wait: Duration) -> bool {
        self.inner.close();
        self.inner.reservoir.drain(wait).await.is_complete()
    }

    fn limits(&self, options: &QueryOptions) -> Limits {
        let timeout = options.timeout.or(self.inner.config.default_timeout());
        Limits::new(&self.inner.runtime, timeout, options.cancel.clone())
    }

    async fn borrow(&self, limits: &Limits) -> Result<PooledConnection<'_>> {
        limits.check(Phase::ACQUIRE)?;
        let acquire = async {
            let checkout = self.inner.reservoir.checkout();
            let outcome = match limits.remaining() {
                // The reservoir keeps this deadline, since it knows why there is no connection.
                Some(left) => checkout.within(left.min(self.inner.config.acquire_timeout())),
                None => checkout,
            };
            outcome.await.map_err(|error| limits.checkout_error(error))
        };
        let cancellable = limits.without_deadline();
        let checkout = cancellable.run(Phase::ACQUIRE, acquire).instrument(self.span("acquire")).await?;
        Ok(PooledConnection::new(checkout, &self.inner.endpoint))
    }

    fn span(&self, what: &'static str) -> tracing::Span {
        tracing::debug_span!("flight", what, endpoint = %self.inner.endpoint)
    }
}

/// The state of a pool at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatus {
    /// Connections that are free.
    pub idle: usize,
    /// Connections that callers hold.
    pub in_use: usize,
    /// Connections that are being cleaned for the next caller: a transaction is rolled back, a statement is
    /// cancelled.
    pub cleaning: usize,
    /// Connections that are being opened.
    pub opening: usize,
    /// Connections that are being closed, including those in quarantine.
    pub closing: usize,
    /// Callers that wait.
    pub waiting: usize,
    /// The most connections.
    pub max_size: usize,
    /// Sessions that the server may have for this pool: those that count towards `session_budget`, and those that were closed
    /// without the server's confirmation in the last 20 minutes.
    pub sessions: usize,
    /// Whether the pool serves no more callers.
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
