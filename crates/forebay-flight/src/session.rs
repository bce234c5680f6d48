//! One session on the server, for one caller at a time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use forebay::ConnectionMonitor;
use forebay::rt::{Runtime, TokioRuntime};

use crate::config::PoolConfig;
use crate::error::{Error, Phase, Result};
use crate::link::Link;
use crate::options::ConnectOptions;
use crate::prepared::AsyncPreparedQuery;
use crate::query_options::QueryOptions;
use crate::result::{QueryResult, UpdateResult};
use crate::server::Server;
use crate::sql::Traits;
use crate::stream::QueryStream;

mod inner;

/// One session: one TCP connection, never replaced by another behind its caller's back.
///
/// [`connect`](Self::connect) opens one for a program that needs no pool; a pool's sessions deref to it. Statements run one after
/// another, so all methods want it exclusively. When its connection is gone, every call fails with
/// [`SessionLost`](Error::SessionLost).
pub struct AsyncSession {
    pub(crate) link: Arc<Link>,
    /// Something of it would show to the next borrower.
    pub(crate) is_altered: bool,
    /// The server has been told that it ends.
    pub(crate) is_over: bool,
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
    /// [`Error::Config`] for an endpoint that is none, [`Error::Transport`] if the server cannot be reached,
    /// [`Error::Server`] if it refuses the credentials.
    ///
    /// # Cancel safety
    /// Dropping it closes what was half made.
    pub async fn connect<E>(to: E) -> Result<Self>
    where
        E: TryInto<ConnectOptions>,
        Error: From<E::Error>,
    {
        let runtime = TokioRuntime::current().map_err(|error| Error::config(error.to_string()))?;
        Self::connect_on(Arc::new(runtime), to.try_into()?).await
    }

    pub(crate) async fn connect_on(runtime: Arc<dyn Runtime>, options: ConnectOptions) -> Result<Self> {
        let defaults = PoolConfig::default();
        let server = Server::new(options, runtime, &defaults.healthcheck_sql, defaults.quarantine())?;
        Self::open(&Arc::new(server), ConnectionMonitor::unattached(), None).await
    }

    pub(crate) async fn open(
        server: &Arc<Server>,
        monitor: ConnectionMonitor,
        default_timeout: Option<Duration>,
    ) -> Result<Self> {
        let link = Link::open(server, monitor).await?;
        Ok(Self { link, is_altered: false, is_over: false, default_timeout })
    }

    /// Runs a query and reads its whole result.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// Dropping it cancels the statement on the server, in the background; the next call waits for that.
    pub async fn query(&mut self, sql: &str) -> Result<QueryResult> {
        self.query_with_options(sql, QueryOptions::new()).await
    }

    /// As [`query`](Self::query), with options.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_with_options(&mut self, sql: &str, options: QueryOptions) -> Result<QueryResult> {
        let traits = Traits::of(sql);
        let progress = options.progress.clone();
        let limits = self.limits(options);
        let fetch = self.fetch(sql, traits, limits, progress.as_ref()).await?;
        let result = fetch.collect().await.map_err(|(error, _)| error)?;
        self.link.transaction.conclude(traits);
        Ok(result)
    }

    /// Runs a statement that changes something and gives rows, as `INSERT ... RETURNING` does.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`query`](Self::query); it may have been carried out.
    pub async fn execute(&mut self, sql: &str) -> Result<QueryResult> {
        self.query(sql).await
    }

    /// Runs a query, and gives its result as the server sends it.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_stream(&mut self, sql: &str) -> Result<QueryStream<'_>> {
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
        &mut self,
        sql: &str,
        options: QueryOptions,
    ) -> Result<QueryStream<'_>> {
        let progress = options.progress.clone();
        let limits = self.limits(options);
        Ok(QueryStream::of_session(self.fetch(sql, Traits::of(sql), limits, progress.as_ref()).await?))
    }

    /// Runs a statement that changes something.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`query`](Self::query); it may have been carried out.
    pub async fn update(&mut self, sql: &str) -> Result<UpdateResult> {
        self.update_with_options(sql, QueryOptions::new()).await
    }

    /// As [`update`](Self::update), with options.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    pub async fn update_with_options(&mut self, sql: &str, options: QueryOptions) -> Result<UpdateResult> {
        let limits = self.limits(options);
        self.run_update(sql, &limits).await
    }

    /// Runs a query with parameters, one row of them for each time it is to be run.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_with_param(&mut self, sql: &str, params: RecordBatch) -> Result<QueryResult> {
        let limits = self.limits(QueryOptions::new());
        self.prepare_within(sql, &limits).await?.read(Some(params), limits).await
    }

    /// Runs a statement once for each row of `batch`, with its columns as parameters.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    pub async fn update_with_record_batch(&mut self, sql: &str, batch: RecordBatch) -> Result<UpdateResult> {
        let limits = self.limits(QueryOptions::new());
        self.update_with_param(sql, batch, limits).await
    }

    /// Prepares a statement. It is good for as long as this session is held.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// Dropped before it is done, the statement is closed in the background; the next call waits for that.
    pub async fn prepare(&mut self, sql: &str) -> Result<AsyncPreparedQuery> {
        let limits = self.limits(QueryOptions::new());
        self.prepare_within(sql, &limits).await
    }

    /// As [`prepare`](Self::prepare).
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`prepare`](Self::prepare).
    pub async fn prepare_query(&mut self, sql: &str) -> Result<AsyncPreparedQuery> {
        self.prepare(sql).await
    }

    /// Ends the session: on the server too, where it knows how.
    ///
    /// # Errors
    /// None today: a server that does not answer is left to itself.
    ///
    /// # Cancel safety
    /// Dropping it closes the connection all the same.
    pub async fn close(self) -> Result<()> {
        crate::connector::close(self).await;
        Ok(())
    }

    /// Whether its connection lives, as far as is known without asking.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link.is_usable()
    }

    /// Asks the server whether the session answers.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn ping(&mut self) -> Result<()> {
        let limits = self.limits(QueryOptions::new());
        let turn = self.ready(&limits).await?;
        limits.run(Phase::Execute, Box::pin(turn.link().ping())).await
    }
}

/// Tells the server in the background that the session ends, where it knows how: it may keep it for long otherwise.
impl Drop for AsyncSession {
    fn drop(&mut self) {
        if !self.is_over {
            crate::connector::part(&self.link);
        }
        // What was prepared in it may still be held, and must not make the server begin another.
        self.link.refuse();
    }
}

impl fmt::Debug for AsyncSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncSession")
            .field("link", &self.link)
            .field("transaction", &self.link.transaction)
            .finish()
    }
}
