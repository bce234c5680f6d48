//! One session on the server, for one caller at a time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use forebay::ConnectionMonitor;
use forebay::rt::{self, Runtime};

use crate::connection::{ConnectOptions, Connection, Server};
use crate::error::{Error, Phase, Result};
use crate::pool::PoolConfig;
use crate::sql::StatementTraits;
use crate::statement::{AsyncPreparedQuery, QueryOptions, QueryResult, QueryStream, UpdateResult};

mod alteration;
mod catalog;
mod execution;
mod options;
pub(crate) mod transaction;

pub(crate) use alteration::Alteration;
pub use catalog::{TableFilter, TableName};
pub use options::OptionValue;
pub use transaction::AsyncTransaction;
use transaction::ROLLBACK_TIMEOUT;

/// How long a socket may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// One session: one TCP connection that is never replaced by another.
///
/// [`connect`](Self::connect) opens one for a program without a pool. The sessions of a pool deref to it.
/// Statements run one after another, so all methods take `&mut self`. Once its connection is gone, every call
/// fails with [`SessionLost`](Error::SessionLost).
///
/// # Errors
/// See [`Error`].
pub struct AsyncSession {
    pub(crate) connection: Arc<Connection>,
    /// The server knows that the session has ended, or never created it.
    pub(crate) is_closed: bool,
    default_timeout: Option<Duration>,
}

impl AsyncSession {
    /// Connects to a server.
    ///
    /// ```
    /// # use flight_local::{Config, FlightLocal};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = FlightLocal::start(Config::default()).await?;
    /// # let url = server.url();
    /// use forebay_flight::AsyncSession;
    ///
    /// let mut session = AsyncSession::connect(url.as_str()).await?;
    /// session.update("CREATE TEMP TABLE t (a INTEGER)").await?;
    /// let mut transaction = session.begin().await?;
    /// transaction.update("INSERT INTO t VALUES (1), (2)").await?;
    /// transaction.commit().await?;
    /// assert_eq!(session.query("SELECT a FROM t").await?.row_count(), 2);
    /// session.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid endpoint or without a tokio runtime, [`Error::Transport`] if the
    /// server cannot be reached, [`Error::Server`] if it refuses the credentials.
    ///
    /// # Cancel safety
    /// Dropping it closes the connection.
    pub async fn connect<E>(to: E) -> Result<Self>
    where
        E: TryInto<ConnectOptions>,
        Error: From<E::Error>,
    {
        let runtime = rt::current().map_err(|error| Error::config(error.to_string()))?;
        Self::connect_on(runtime, to.try_into()?).await
    }

    pub(crate) async fn connect_on(runtime: Arc<dyn Runtime>, options: ConnectOptions) -> Result<Self> {
        let (defaults, reset) = (PoolConfig::default(), options.reset.clone());
        let server = Server::new(options, runtime, &defaults.healthcheck_sql, defaults.quarantine(), reset)?;
        Self::open(&Arc::new(server), ConnectionMonitor::unattached(), None).await
    }

    pub(crate) async fn open(
        server: &Arc<Server>,
        monitor: ConnectionMonitor,
        default_timeout: Option<Duration>,
    ) -> Result<Self> {
        let connection = Connection::open(server, monitor).await?;
        Ok(Self { connection, is_closed: false, default_timeout })
    }

    /// Runs a query and reads its whole result.
    ///
    /// # Cancel safety
    /// Dropping it cancels the statement on the server, in the background. The next call waits for that.
    pub async fn query(&mut self, sql: &str) -> Result<QueryResult> {
        self.query_with_options(sql, QueryOptions::new()).await
    }

    /// Runs a query with a timeout, parameters or other options.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_with_options(&mut self, sql: &str, options: QueryOptions) -> Result<QueryResult> {
        let (limits, traits) = (self.limits(&options), StatementTraits::of(sql));
        let fetch = self.fetch(sql, traits, limits, &options).await?;
        let result = fetch.collect().await.map_err(|(error, _)| error)?;
        self.connection.transaction.statement_succeeded(traits);
        Ok(result)
    }

    /// Runs a statement that changes something and may return rows, such as `INSERT ... RETURNING`.
    ///
    /// A statement that certainly returns no rows is sent as an update, and its result has no columns. Others are sent as
    /// queries. Some servers run a query twice, once to find its columns: where only the server can tell whether a statement
    /// returns rows, such as `CALL`, and no rows are needed, use [`update`](Self::update).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query). It may have been executed.
    pub async fn execute(&mut self, sql: &str) -> Result<QueryResult> {
        self.query(sql).await
    }

    /// Runs a query, and returns its result as the server sends it.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_stream(&mut self, sql: &str) -> Result<QueryStream<'_>> {
        self.query_stream_with_options(sql, QueryOptions::new()).await
    }

    /// As [`query_stream`](Self::query_stream), with a timeout, parameters or other options.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_stream_with_options(
        &mut self,
        sql: &str,
        options: QueryOptions,
    ) -> Result<QueryStream<'_>> {
        let limits = self.limits(&options);
        let fetch = self.fetch(sql, StatementTraits::of(sql), limits, &options).await?;
        Ok(QueryStream::new(fetch, None))
    }

    /// Runs a statement that changes something.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query). It may have been executed.
    pub async fn update(&mut self, sql: &str) -> Result<UpdateResult> {
        self.update_with_options(sql, QueryOptions::new()).await
    }

    /// As [`update`](Self::update), with a timeout, parameters or other options.
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    pub async fn update_with_options(&mut self, sql: &str, options: QueryOptions) -> Result<UpdateResult> {
        let limits = self.limits(&options);
        self.run_update(sql, &limits, &options).await
    }

    /// Runs a query with parameters: the columns of `params`, in order.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_with_param(&mut self, sql: &str, params: RecordBatch) -> Result<QueryResult> {
        self.query_with_options(sql, QueryOptions::new().with_params(params)).await
    }

    /// Runs a statement once for each row of `batch`, with its columns as parameters.
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    pub async fn update_with_record_batch(&mut self, sql: &str, batch: RecordBatch) -> Result<UpdateResult> {
        self.update_with_options(sql, QueryOptions::new().with_params(batch)).await
    }

    /// Prepares a statement: a query or an update. It works for as long as this session is held.
    ///
    /// # Cancel safety
    /// If it is dropped, the statement is closed in the background. The next call waits for that.
    pub async fn prepare_query(&mut self, sql: &str) -> Result<AsyncPreparedQuery> {
        let limits = self.limits(&QueryOptions::new());
        self.prepare_within(sql, &limits).await
    }

    /// Ends the session, on the server too if it supports that.
    ///
    /// # Errors
    /// None at present: a server that does not answer is ignored.
    ///
    /// # Cancel safety
    /// Dropping it closes the connection, too.
    pub async fn close(self) -> Result<()> {
        self.close_confirmed().await;
        Ok(())
    }

    /// Ends the session, and waits until its socket is closed. Returns whether the server confirmed the end.
    pub(crate) async fn close_confirmed(mut self) -> bool {
        let runtime = Arc::clone(&self.connection.server.runtime);
        let liveness = Arc::clone(self.connection.liveness());
        if self.connection.transaction.is_abandoned() {
            // It is being rolled back. The end of the session must not cross that.
            rt::within(&*runtime, ROLLBACK_TIMEOUT, self.connection.background_done()).await;
        }
        self.connection.roll_back_before_close().await;
        let is_confirmed = self.can_be_closed() && self.connection.close_session().await;
        if !is_confirmed {
            self.reset_before_close().await;
        }
        self.is_closed = true;
        drop(self);
        rt::within(&*runtime, CLOSE_TIMEOUT, liveness.closed()).await;
        is_confirmed
    }

    /// Whether the server may have a session for this connection, and supports closing it.
    fn can_be_closed(&self) -> bool {
        let connection = &self.connection;
        connection.may_have_session() && connection.server.close_session.may_work()
    }

    /// Whether its connection is open, as far as is known without a call.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connection.is_usable()
    }

    /// Runs the health check, to see whether the session answers.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn ping(&mut self) -> Result<()> {
        let limits = self.limits(&QueryOptions::new());
        let permit = self.permit(&limits).await?;
        limits.run(Phase::Execute, Box::pin(permit.connection().ping())).await
    }
}

/// Closes the session on the server in the background, if that is supported: otherwise the server may keep it
/// for long.
impl Drop for AsyncSession {
    fn drop(&mut self) {
        let holds_transaction = self.connection.transaction.is_open() && self.connection.may_have_session();
        if !self.is_closed && (self.can_be_closed() || holds_transaction) {
            let connection = Arc::clone(&self.connection);
            self.connection.spawn_background(async move {
                connection.roll_back_before_close().await;
                if connection.server.close_session.may_work() {
                    connection.close_session().await;
                }
                true
            });
        }
        // A prepared statement that is still held must not make the server create another session.
        self.connection.mark_unusable();
    }
}

impl fmt::Debug for AsyncSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncSession")
            .field("connection", &self.connection)
            .field("transaction", &self.connection.transaction)
            .finish()
    }
}

#[cfg(test)]
mod tests;
