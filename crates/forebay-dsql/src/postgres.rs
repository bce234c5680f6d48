//! Connections of tokio-postgres.

use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use forebay::rt::{self, Runtime};
use forebay::{BoxError, ConfigError, Connect, ConnectionMonitor, Instant, OpenError};
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::{Client, Statement};

use crate::driver::addresses::{self, Answers};
use crate::driver::given_up::GivenUp;
use crate::driver::tls::Tls;
use crate::driver::{self, ConnectorParts};
use crate::error::{Conflict, Error, ErrorKind, is_failed_transaction};
use crate::token::Token;
use crate::transaction::Session;
use crate::wire::{AbortOnDrop, ConnectionState, DriverTask, StateTracker};

mod statement_cache;
#[cfg(test)]
mod tests;
mod tls;

use statement_cache::StatementCache;
use tls::TrackedTls;

/// TCP probes a peer that is silent for this long.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// The connection ends if bytes are not acknowledged for this long.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// How long the end of a transaction waits for rows that nobody reads.
const UNREAD: Duration = Duration::from_secs(5);
/// How many steps a reset may take: transaction, settings, a changed schema, and one to be sure.
const STEPS: usize = 5;

/// Opens connections of tokio-postgres to a cluster, with tokens from a cache.
pub struct Postgres {
    parts: ConnectorParts,
    tls: Tls,
}

impl Postgres {
    async fn dial(&self, token: Token, monitor: ConnectionMonitor) -> Result<PostgresConnection, Error> {
        let addresses = addresses::resolve(&self.parts.options).await?;
        self.dial_any(&addresses, &token, &monitor).await
    }

    async fn dial_any(
        &self,
        addresses: &[IpAddr],
        token: &Token,
        monitor: &ConnectionMonitor,
    ) -> Result<PostgresConnection, Error> {
        let limit = self.parts.options.config().open_timeout;
        let dial = |address, answers| self.dial_one(address, answers, token, monitor.clone());
        let opened =
            addresses::first_reached(addresses, self.parts.options.port(), &*self.parts.runtime, limit, dial)
                .await?;
        opened.restore_deadline();
        // The driver must be polled once before it notices requests.
        match opened.tracker.answered().await {
            ConnectionState::Broken => {
                Err(Error::new(ErrorKind::Disconnected, "the session ended right after its start"))
            }
            _ => Ok(opened),
        }
    }

    async fn dial_one(
        &self,
        address: IpAddr,
        answers: Answers,
        token: &Token,
        monitor: ConnectionMonitor,
    ) -> Result<PostgresConnection, Error> {
        let options = &self.parts.options;
        let mut config = tokio_postgres::Config::new();
        config
            .user(options.user())
            .password(token.expose_secret())
            .dbname(options.database())
            .application_name(options.application_name())
            .host(options.host())
            .hostaddr(address)
            .port(options.port())
            .keepalives_idle(KEEPALIVE)
            .tcp_user_timeout(UNACKNOWLEDGED)
            .ssl_mode(SslMode::Require)
            .ssl_negotiation(if options.direct_tls() {
                SslNegotiation::Direct
            } else {
                SslNegotiation::Postgres
            });
        let tracker = Arc::new(StateTracker::default());
        let tls =
            TrackedTls::new(self.tls.clone(), Arc::clone(&tracker), answers, Arc::clone(&self.parts.runtime));
        let (client, connection) = config.connect(tls).await?;
        let ended = Ended(Arc::clone(&tracker));
        let (driver, abort_on_drop) = DriverTask::new(connection, Arc::clone(&tracker));
        self.parts.runtime.spawn(Box::pin(async move {
            // The order of drops: the socket closes, then the tracker says so, then the monitor reports the death.
            let _death = monitor.clone().guard();
            let _ended = ended;
            // A recall ends the connection here, whatever its caller is doing with it.
            let mut driver = driver;
            let mut recalled = pin!(monitor.recalled());
            let mut task = Waker::noop().clone();
            poll_fn(|context| {
                // Once the waker is registered, a load is enough.
                let recalled = if task.will_wake(context.waker()) {
                    monitor.is_recalled()
                } else {
                    task.clone_from(context.waker());
                    recalled.as_mut().poll(context).is_ready()
                };
                if recalled { Poll::Ready(()) } else { Pin::new(&mut driver).poll(context) }
            })
            .await;
        }));
        let runtime = Arc::clone(&self.parts.runtime);
        Ok(PostgresConnection {
            client,
            statements: StatementCache::default(),
            tracker,
            abort_on_drop,
            runtime,
            deadline: options.deadline(),
            commit_was_sent: true,
        })
    }
}

/// Whether the schema has changed, which every open connection is told once.
fn is_conflict(error: &tokio_postgres::Error) -> bool {
    matches!(ErrorKind::of(error), ErrorKind::Conflict(_))
}

/// Tells the tracker that the socket is gone.
struct Ended(Arc<StateTracker>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.set_ended();
    }
}

impl driver::Driver for Postgres {
    fn new(parts: ConnectorParts) -> Result<Self, ConfigError> {
        Ok(Self { tls: Tls::new(&parts.options)?, parts })
    }

    async fn settle(&self, connection: &mut PostgresConnection) -> Result<(), BoxError> {
        connection.tracker.answered().await.is_settled()?;
        connection.tracker.settle();
        Ok(())
    }

    fn is_settled(connection: &PostgresConnection) -> bool {
        connection.tracker.is_settled()
    }
}

impl Connect for Postgres {
    type Connection = PostgresConnection;

    async fn prepare(&self) -> Result<(), OpenError> {
        self.parts.prepare().await
    }

    async fn open(&self, monitor: ConnectionMonitor) -> Result<PostgresConnection, OpenError> {
        self.parts.open(|token| self.dial(token, monitor.clone())).await
    }

    fn is_usable(&self, connection: &PostgresConnection) -> bool {
        !connection.tracker.is_broken() && !connection.client.is_closed()
    }

    fn is_clean(&self, connection: &PostgresConnection) -> bool {
        connection.tracker.state() == ConnectionState::Clean
            && connection.tracker.limits.is_each(connection.deadline)
    }

    fn unanswered_timeout(&self, connection: &PostgresConnection) -> Duration {
        let tracker = &connection.tracker;
        match tracker.state() {
            // Rows that nobody reads are no fault of the server.
            ConnectionState::Unanswered if tracker.is_undelivered() => Duration::ZERO,
            ConnectionState::Unanswered => driver::SET_ASIDE,
            _ => driver::SLOW_SPELL,
        }
    }

    async fn reset(&self, connection: &mut PostgresConnection) -> Result<(), BoxError> {
        // The reservoir limits a reset.
        connection.tracker.limits.set_each(None);
        for _ in 0..STEPS {
            let mut state = connection.tracker.answered().await;
            // All that was given up is answered.
            if connection.tracker.resume() {
                state = connection.tracker.state();
            }
            match state {
                ConnectionState::Clean => {
                    connection.restore_deadline();
                    return Ok(());
                }
                ConnectionState::InTransaction => connection.client.batch_execute("ROLLBACK").await?,
                ConnectionState::Altered => match connection.client.batch_execute("RESET ALL").await {
                    Ok(()) => connection.tracker.settings_restored(),
                    Err(error) if is_conflict(&error) => {}
                    Err(error) => return Err(error.into()),
                },
                ConnectionState::Broken | ConnectionState::Unanswered => {
                    return Err("the connection is closed".into());
                }
            }
        }
        Err("the connection does not become clean".into())
    }

    async fn check(&self, connection: &mut PostgresConnection) -> Result<(), BoxError> {
        // The reservoir limits a check.
        connection.tracker.limits.set_each(None);
        match connection.client.batch_execute("SELECT 1").await {
            // The connection lives. Ask again, so that its next user does not get the same error.
            Err(error) if is_conflict(&error) => match connection.client.batch_execute("SELECT 1").await {
                Err(error) if !is_conflict(&error) => return Err(error.into()),
                _ => {}
            },
            asked => asked?,
        }
        connection.restore_deadline();
        Ok(())
    }

    async fn close(&self, connection: PostgresConnection) {
        let PostgresConnection { client, tracker, abort_on_drop, .. } = connection;
        let unanswered = tracker.state() == ConnectionState::Unanswered;
        // Without its client, the driver says good-bye and ends. One that still waits for an answer is aborted.
        drop(client);
        if unanswered {
            drop(abort_on_drop);
            tracker.ended().await;
        } else {
            tracker.ended().await;
            drop(abort_on_drop);
        }
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Postgres").field(&self.parts.options.host()).finish()
    }
}

/// A connection of tokio-postgres. It derefs to its [`Client`].
pub struct PostgresConnection {
    client: Client,
    statements: StatementCache,
    tracker: Arc<StateTracker>,
    /// Held, so that the socket goes with the connection.
    abort_on_drop: AbortOnDrop,
    runtime: Arc<dyn Runtime>,
    /// How long a statement may take, unless its caller says otherwise.
    deadline: Option<Duration>,
    /// Of the last COMMIT.
    commit_was_sent: bool,
}

impl PostgresConnection {
    /// Its state, known without asking the server. With several threads, an answer may reach its caller a moment before the
    /// tracker knows of it, and the state is still [`Unanswered`](ConnectionState::Unanswered); `tracker().answered().await`
    /// waits for that.
    #[must_use]
    pub fn state(&self) -> ConnectionState {
        self.tracker.state()
    }

    /// The statement `sql`, prepared on this connection once and kept as long as the connection. The next call with the same text costs
    /// no round trip. Meant for texts that belong to the program: they are never forgotten.
    ///
    /// # Errors
    /// If the server does not accept it.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing but the statement.
    pub async fn prepare_cached(&self, sql: &str) -> Result<Statement, Error> {
        self.statements.get_or_prepare(&self.client, sql).await
    }

    /// Forgets what [`prepare_cached`](Self::prepare_cached) has prepared: after a change of the schema, statements may not fit any more.
    /// A transaction of a pool does that by itself before it is run again.
    pub fn clear_cached_statements(&self) {
        self.statements.clear();
    }

    /// How long each statement may take from now on, from its request to the end of its answer; `None` for no limit. Until this connection
    /// goes back to its pool, it replaces [`Options::deadline`](crate::Options::deadline), such as for a long report.
    ///
    /// A statement that takes longer is given up: it fails with SQLSTATE 57014, or with 08007 if it may have been carried out and
    /// committed, as one outside of a transaction. Later statements on this connection fail without being sent. The pool gets the
    /// connection back as soon as the server has answered.
    pub fn set_statement_deadline(&mut self, limit: Option<Duration>) {
        self.tracker.limits.set_each(limit);
    }

    fn restore_deadline(&self) {
        self.tracker.limits.set_each(self.deadline);
    }

    /// Fails if rows of a stream stay unread: a request after them would never be answered.
    async fn all_read(&self) -> Result<(), Error> {
        if self.tracker.is_delivered() {
            return Ok(());
        }
        let delivered = rt::within(&*self.runtime, UNREAD, self.tracker.delivered()).await;
        delivered.ok_or_else(|| {
            let error = "rows of a statement are not read, and nothing can be done before they are: read a stream to \
                         its end, or drop it, before its transaction ends";
            Error::new(ErrorKind::Permanent, error)
        })
    }

    /// The tracker of its state. It may outlive the connection.
    #[must_use]
    pub fn tracker(&self) -> &Arc<StateTracker> {
        &self.tracker
    }
}

impl Deref for PostgresConnection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for PostgresConnection {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl fmt::Debug for PostgresConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresConnection").field(&self.state()).finish()
    }
}

impl Session for PostgresConnection {
    async fn begin(&mut self) -> Result<(), Error> {
        self.tracker.begins();
        Ok(self.client.batch_execute("BEGIN").await?)
    }

    async fn commit(&mut self) -> Result<(), Error> {
        self.commit_was_sent = false;
        self.all_read().await?;
        if self.tracker.is_given_up() {
            return Err(GivenUp::NotSent.into());
        }
        let before = self.tracker.commits();
        if self.tracker.has_committed() || self.tracker.has_begun_another() {
            return Err(driver::ended_by_body());
        }
        // Until the opposite is known, also if this is dropped.
        self.commit_was_sent = true;
        let answer = self.client.batch_execute("COMMIT").await;
        // One that never left was not carried out, whatever became of the connection.
        self.commit_was_sent = answer.is_ok() || self.tracker.commits() != before;
        match answer {
            // What the body had sent without waiting for it is answered only now.
            Ok(()) if self.tracker.has_begun_another() => Err(driver::ended_by_body()),
            Ok(()) if self.tracker.is_rolled_back() && self.tracker.has_committed() => {
                Err(driver::ended_by_body())
            }
            Ok(()) if self.tracker.is_rolled_back() => Err(driver::rolled_back(self.tracker.conflict())),
            Ok(()) if self.tracker.committed_nothing() => Err(driver::ended_by_body()),
            Ok(()) => Ok(()),
            // Anything but a refusal of a server that goes on.
            Err(error)
                if self.commit_was_sent
                    && (error.as_db_error().is_none()
                        || self.tracker.is_broken() && self.tracker.is_committing()) =>
            {
                Err(Error::new(ErrorKind::CommitUnknown, error))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn commit_was_sent(&self) -> bool {
        self.commit_was_sent
    }

    fn classify(&mut self, error: &(dyn std::error::Error + 'static)) -> ErrorKind {
        let kind = match ErrorKind::of(error) {
            // What failed the transaction was overlooked.
            ErrorKind::Permanent if is_failed_transaction(error) => {
                self.tracker.conflict().unwrap_or(ErrorKind::Permanent)
            }
            kind => kind,
        };
        // They may not fit the new schema; the next attempt prepares them again.
        if kind == ErrorKind::Conflict(Conflict::Schema) {
            self.statements.clear();
        }
        match kind {
            ErrorKind::Conflict(_)
            | ErrorKind::Unavailable
            | ErrorKind::Disconnected
            | ErrorKind::TimedOut
                if self.tracker.is_committing() || self.tracker.has_committed() =>
            {
                ErrorKind::CommitUnknown
            }
            kind => kind,
        }
    }

    fn set_deadline(&mut self, at: Option<Instant>) {
        match at {
            Some(at) => self.tracker.limits.set_until(at),
            None => self.restore_deadline(),
        }
    }

    async fn rollback(&mut self) -> Result<(), Error> {
        self.all_read().await?;
        Ok(self.client.batch_execute("ROLLBACK").await?)
    }
}
