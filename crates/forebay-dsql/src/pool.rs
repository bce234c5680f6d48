//! A pool of connections to a cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{CheckoutError, ConfigError, Connect, Reservoir, Status};
use forebay_fleet::FleetStatus;

use crate::driver::Driver;
use crate::error::Error;
use crate::member::WeakMember;
use crate::options::Options;
use crate::status_page::ServedPage;
use crate::token::{Identity, Signer, TokenCache, TokenStatus};
use crate::transaction::{BodyError, OpenTransaction, Session, Sessions, Transaction, Transactions};

mod builder;
mod hooks;
mod keeper;
mod lending;
pub mod metrics;
mod mode;
mod pooled_connection;
pub(crate) mod registry;
mod standard;
mod warmup;

pub use builder::Builder;
pub(crate) use builder::Made;
pub use hooks::HookFuture;
use metrics::PoolMetrics;
pub use mode::PoolMode;
pub use pooled_connection::PooledConnection;
use registry::Registering;
pub use registry::{ConnectionId, ConnectionInfo, Registry};

/// A handle to a cluster, with connections of tokio-postgres.
#[cfg(feature = "tokio-postgres")]
pub type Dsql = DsqlPool<crate::postgres::Postgres>;

/// A handle to a cluster, with connections of sqlx.
#[cfg(feature = "sqlx")]
pub type SqlxDsql = DsqlPool<crate::sqlx::Sqlx>;

/// A pool of connections to a cluster, in reservoir mode or in standard mode. Callers use both in the same way.
///
/// A clone is another handle to the same connections. When the last is dropped they are closed: idle ones at once,
/// those in use when they come back. [`drain`](Self::drain) does the same and waits for it.
pub struct DsqlPool<C: Connect> {
    pub(crate) mode: PoolMode,
    pub(crate) reservoir: Reservoir<Registering<C>>,
    pub(crate) connector: Registering<C>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) metrics: PoolMetrics,
    pub(crate) registry: Registry,
    pub(crate) acquire_timeout: Duration,
    /// How long a whole transaction may take.
    pub(crate) deadline: Option<Duration>,
    /// How long it may take a connection to answer.
    pub(crate) maintenance_timeout: Duration,
    pub(crate) transactions: Transactions,
    pub(crate) tokens: Option<PoolTokens>,
    pub(crate) member: Option<WeakMember>,
    /// The page that shows this pool. It is served as long as a pool has it.
    pub(crate) page: Option<Arc<ServedPage>>,
}

/// The parts of a pool that tell what it does. A pool that is still starting has them, too.
#[cfg_attr(not(feature = "status-page"), expect(dead_code, reason = "only the page reads them"))]
pub(crate) struct PoolHandles<'a, C: Connect> {
    pub(crate) reservoir: &'a Reservoir<Registering<C>>,
    pub(crate) mode: PoolMode,
    pub(crate) member: Option<&'a WeakMember>,
    pub(crate) tokens: Option<&'a PoolTokens>,
}

/// The tokens of a pool's connections.
#[derive(Clone)]
pub(crate) struct PoolTokens {
    pub(crate) cache: TokenCache,
    pub(crate) identity: Identity,
}

impl PoolTokens {
    pub(crate) fn status(&self) -> Option<TokenStatus> {
        self.cache.status(&self.identity)
    }
}

impl<C: Driver> DsqlPool<C> {
    /// Connects as `options` say, with tokens signed by `signer`. In reservoir mode it waits until the low watermark is
    /// reached, in standard mode until the pool is warm; in both it serves with what it has if that takes too long.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    ///
    /// # Errors
    /// If the options make no sense, or there is no runtime: [`Permanent`](crate::ErrorKind::Permanent). At once if the cluster
    /// denies access and lets no connection in: [`Auth`](crate::ErrorKind::Auth). What may pass does not fail `connect`, such as a
    /// cluster that cannot be reached, an expired signature or credentials that do not come: it is logged, and `acquire` returns
    /// it. [`status`](Self::status) says how many connections are open.
    pub async fn connect(options: Options, signer: impl Signer) -> Result<Self, Error> {
        Self::builder(options, signer).connect().await
    }

    /// Like [`connect`](Self::connect), with further settings.
    pub fn builder(options: Options, signer: impl Signer) -> Builder<C> {
        Builder::new(options, signer)
    }
}

impl<C: Connect> DsqlPool<C> {
    /// Takes a connection. If none is idle, it waits in a queue for at most the acquire timeout of the options, whatever the
    /// reason. If no connection is left and the cluster denies access, it fails at once. With `DSQL_RESERVOIR_EMPTY_WAIT`, it
    /// fails that soon while a reservoir is short of connections.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: what it was about to get goes to the next in the queue, or stays in the pool.
    ///
    /// # Errors
    /// [`Empty`](CheckoutError::Empty), [`Denied`](CheckoutError::Denied), [`Exhausted`](CheckoutError::Exhausted) or
    /// [`Closed`](CheckoutError::Closed). The [kind](crate::ErrorKind::of) of the first two is that of the failure that keeps
    /// the pool empty, if that will not pass by itself: [`Auth`](crate::ErrorKind::Auth) or [`Permanent`](crate::ErrorKind::Permanent).
    pub async fn acquire(&self) -> Result<PooledConnection<'_, C>, CheckoutError> {
        self.lend(None).await
    }

    /// Takes a connection, waiting for at most `wait`, whatever the reason and whatever the options say. If no connection is left
    /// and the cluster denies access, it fails at once.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, wait: Duration) -> Result<PooledConnection<'_, C>, CheckoutError> {
        self.lend(Some(wait)).await
    }

    /// Takes a connection if one is ready, and does not wait for another. It waits only for the answer of one that may be dead,
    /// and for the hook [`before_acquire`](Builder::before_acquire), if there is one; each for the maintenance timeout at most.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), at once.
    pub async fn try_acquire(&self) -> Result<PooledConnection<'_, C>, CheckoutError> {
        self.lend_ready().await
    }

    /// Runs `body` in a transaction and commits it. After a conflict it runs the whole transaction again. See
    /// [`Transactions::run`].
    ///
    /// ```no_run
    /// # async fn pay(dsql: &forebay_dsql::Dsql) -> Result<u64, forebay_dsql::Error> {
    /// dsql.run("pay", async |tx| {
    ///     tx.execute("UPDATE account SET balance = balance - 1 WHERE id = 7", &[]).await?;
    ///     Ok(tx.execute("UPDATE account SET balance = balance + 1 WHERE id = 8", &[]).await?)
    /// })
    /// .await
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of the last attempt. [`ErrorKind::CommitUnknown`](crate::ErrorKind::CommitUnknown) if the connection was lost in COMMIT.
    ///
    /// # Cancel safety
    /// If the future is dropped, its transaction is rolled back in the background. If it was waiting for a COMMIT, the
    /// transaction may have been committed or not.
    pub async fn run<T, E, F, B, By>(&self, operation: &'static str, body: B) -> Result<T, E>
    where
        C: Connect<Connection: Session + Sync>,
        E: BodyError<By>,
        F: Future<Output = Result<T, E>>,
        B: FnMut(Transaction<PooledConnection<'static, C>>) -> F,
    {
        self.transactions.run(self, operation, body).await
    }

    /// Like [`run`](Self::run), for an `async` closure that changes what it captures, or owns it. See
    /// [`Transactions::run_mut`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_mut<T, E, B, By>(&self, operation: &'static str, body: B) -> Result<T, E>
    where
        C: Connect<Connection: Session + Sync>,
        E: BodyError<By>,
        B: AsyncFnMut(Transaction<PooledConnection<'static, C>>) -> Result<T, E>,
    {
        self.transactions.run_mut(self, operation, body).await
    }

    /// Begins a transaction, for a caller that commits or rolls back by itself. A drop rolls back in the background. It is
    /// not run again after a conflict: see [`run`](Self::run) for that.
    ///
    /// All of it ends at the [deadline](Options::deadline) of the pool, from the wait for a connection to COMMIT.
    ///
    /// ```no_run
    /// # async fn pay(dsql: &forebay_dsql::Dsql) -> Result<(), forebay_dsql::Error> {
    /// let tx = dsql.begin().await?;
    /// tx.execute("UPDATE account SET balance = balance - 1 WHERE id = 7", &[]).await?;
    /// tx.execute("UPDATE account SET balance = balance + 1 WHERE id = 8", &[]).await?;
    /// tx.commit().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run), up to BEGIN.
    ///
    /// # Cancel safety
    /// If the future is dropped, its connection goes back, and what was begun is rolled back.
    pub async fn begin(&self) -> Result<OpenTransaction<PooledConnection<'static, C>>, Error>
    where
        C: Connect<Connection: Session + Sync>,
    {
        self.transactions.begin(self, "begin").await
    }

    /// The same with a deadline of its own, such as for a long report.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    ///
    /// # Cancel safety
    /// As [`begin`](Self::begin).
    pub async fn begin_within(
        &self,
        deadline: Duration,
    ) -> Result<OpenTransaction<PooledConnection<'static, C>>, Error>
    where
        C: Connect<Connection: Session + Sync>,
    {
        self.transactions.begin_within(self, "begin", deadline).await
    }

    /// What runs its transactions, for callers that begin and commit themselves.
    #[must_use]
    pub fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    /// The state of the pool now.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        PoolStatus::new(self.mode, &self.reservoir.status())
    }

    /// The state of the reservoir, in reservoir mode.
    #[must_use]
    pub fn reservoir_status(&self) -> Option<Status> {
        (self.mode == PoolMode::Reservoir).then(|| self.reservoir.status())
    }

    /// What a page shows of it.
    #[cfg(feature = "status-page")]
    pub(crate) fn handles(&self) -> PoolHandles<'_, C> {
        PoolHandles {
            reservoir: &self.reservoir,
            mode: self.mode,
            member: self.member.as_ref(),
            tokens: self.tokens.as_ref(),
        }
    }

    /// The age of the token that new connections use. `None` if the connector has no tokens, or has not asked for one.
    #[must_use]
    pub fn token_status(&self) -> Option<TokenStatus> {
        self.tokens.as_ref()?.status()
    }

    /// What this process knows of its fleet. `None` if the pool does not belong to a [`Member`](crate::Member), or if that shares
    /// nothing with others.
    #[must_use]
    pub fn fleet_status(&self) -> Option<FleetStatus> {
        self.member.as_ref()?.fleet_status()
    }

    /// Where the status page that shows this pool is served, if the options ask for one.
    #[cfg(feature = "status-page")]
    #[must_use]
    pub fn status_page(&self) -> Option<std::net::SocketAddr> {
        self.page.as_ref().map(|page| page.address())
    }

    /// Lists, counts and retires connections.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// How many connections the pool owns: in use or idle.
    #[must_use]
    pub fn size(&self) -> usize {
        self.reservoir.status().size()
    }

    /// How many connections nobody uses.
    #[must_use]
    pub fn num_idle(&self) -> usize {
        self.reservoir.status().ready
    }

    /// Changes how many connections callers can have. Further ones are opened at the pace of the limiter. Surplus ones are closed
    /// at once if they are idle, and when they come back if they are in use.
    ///
    /// A [`Member`](crate::Member) with leases never holds more connections than it has joined its fleet with. For a pool that is to grow,
    /// join with more: [`MemberBuilder::max_open`](crate::MemberBuilder::max_open).
    ///
    /// # Errors
    /// If the number does not fit the other settings, such as a low watermark above it. Then nothing changes.
    pub fn resize(&self, max_connections: usize) -> Result<(), ConfigError> {
        self.reservoir.resize(max_connections).map_err(|ConfigError { mut problems }| {
            for problem in problems.iter_mut().filter(|problem| problem.setting == "max_open") {
                problem.setting = "max_connections".into();
            }
            ConfigError { problems }
        })
    }

    /// Closes the pool, without waiting for the connections. No more callers are served, and those that wait get
    /// [`Closed`](CheckoutError::Closed). Connections in use are closed when they come back. [`drain`](Self::drain) does the same,
    /// and waits for it.
    pub fn close(&self) {
        self.reservoir.close();
    }

    /// Whether the pool was closed or drained.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.reservoir.status().closed
    }

    /// Closes the pool and waits, for at most `wait`, until every connection is closed and every lease released.
    ///
    /// No more callers are served from the first poll on. Connections in use are closed when they come back.
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting, not the closing. It can be called again.
    pub async fn drain(&self, wait: Duration) -> Drained {
        let drained = self.reservoir.drain(wait).await;
        Drained { in_use: drained.in_use, closing: drained.closing + drained.other }
    }
}

/// Transactions run on its connections.
impl<C: Connect<Connection: Session + Sync>> Sessions for DsqlPool<C> {
    type Session = PooledConnection<'static, C>;

    async fn session(&self) -> Result<PooledConnection<'static, C>, Error> {
        Ok(self.acquire().await?.into_owned())
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.acquire_timeout)
    }

    fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    async fn session_within(&self, wait: Duration) -> Result<PooledConnection<'static, C>, Error> {
        Ok(self.acquire_within(wait).await?.into_owned())
    }
}

impl<C: Connect> Clone for DsqlPool<C> {
    fn clone(&self) -> Self {
        Self {
            mode: self.mode,
            reservoir: self.reservoir.clone(),
            connector: self.connector.clone(),
            runtime: Arc::clone(&self.runtime),
            metrics: self.metrics.clone(),
            registry: self.registry.clone(),
            acquire_timeout: self.acquire_timeout,
            deadline: self.deadline,
            maintenance_timeout: self.maintenance_timeout,
            transactions: self.transactions.clone(),
            tokens: self.tokens.clone(),
            member: self.member.clone(),
            page: self.page.clone(),
        }
    }
}

impl<C: Connect> fmt::Debug for DsqlPool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DsqlPool").field(&self.status()).finish()
    }
}

/// The state of a pool at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatus {
    /// Its mode.
    pub mode: PoolMode,
    /// How many connections it may own.
    pub max_open: usize,
    /// How many it owns: in use or idle.
    pub open: usize,
    /// Those with callers, or in maintenance.
    pub in_use: usize,
    /// How many of these no caller has: they are being reset or checked, or wait for the answer to a statement that was given up. If it
    /// is many for long, the cluster is slow.
    pub in_maintenance: usize,
    /// Those nobody uses.
    pub idle: usize,
    /// Those being opened.
    pub opening: usize,
    /// Callers that wait.
    pub waiting: usize,
    /// No more callers are served.
    pub closed: bool,
}

impl PoolStatus {
    fn new(mode: PoolMode, status: &Status) -> Self {
        Self {
            mode,
            max_open: status.max_open,
            open: status.size(),
            in_use: status.in_use + status.in_maintenance,
            in_maintenance: status.in_maintenance,
            idle: status.ready,
            opening: status.opening,
            waiting: status.waiting,
            closed: status.closed,
        }
    }
}

/// What a drain could not finish in its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Connections still in use.
    pub in_use: usize,
    /// Connections being opened or closed, or whose lease is not released yet.
    pub closing: usize,
}

impl Drained {
    /// Whether everything is closed and released.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.in_use + self.closing == 0
    }
}
