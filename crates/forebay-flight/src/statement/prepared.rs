//! Prepared statements.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, Any, CommandPreparedStatementQuery, CommandPreparedStatementUpdate,
    DoPutPreparedStatementResult, ProstMessageExt,
};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use forebay::rt::{self, Runtime};
use prost::Message;

use super::cancellation::RunningStatement;
use super::fetch::{Fetch, decode_schema};
use super::limits::Limits;
use super::options::QueryOptions;
use super::result::{QueryResult, UpdateResult};
use super::stream::QueryStream;
use super::undoable_action::{Answer, UndoFuture, UndoableAction};
use super::update::{run_update, send_params};
use crate::connection::{Connection, StatementPermit};
use crate::error::{Error, Phase, Result};
use crate::sql::StatementTraits;

/// How long closing one in the background may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A statement that the server has prepared in one session. It may be a query or an update.
///
/// It works until its session is given back, closed or lost. Other statements of the session may run in
/// between.
///
/// # Errors
/// See [`Error`].
///
/// ```
/// # use flight_local::{Config, FlightLocal};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = FlightLocal::start(Config::default()).await?;
/// # let url = server.url();
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
/// use forebay_flight::{AsyncSession, QueryOptions};
///
/// let mut session = AsyncSession::connect(url.as_str()).await?;
/// session.update("CREATE TABLE city (id INTEGER, name TEXT)").await?;
///
/// // One column for each parameter, and one row for each time the update runs.
/// let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
/// let names: ArrayRef = Arc::new(StringArray::from(vec!["Oslo", "Lima"]));
/// let mut insert = session.prepare_query("INSERT INTO city VALUES (?, ?)").await?;
/// let rows = RecordBatch::try_from_iter([("id", ids), ("name", names)])?;
/// assert_eq!(insert.update_with_record_batch(rows).await?.rows_affected(), Some(2));
///
/// let mut select = session.prepare_query("SELECT name FROM city WHERE id = ?").await?;
/// for id in [1, 2] {
///     let id: ArrayRef = Arc::new(Int64Array::from(vec![id]));
///     let options = QueryOptions::new().with_params(RecordBatch::try_from_iter([("id", id)])?).with_timeout_ms(2_000);
///     assert_eq!(select.query_with_options(options).await?.row_count(), 1);
/// }
/// # Ok(())
/// # }
/// ```
pub struct AsyncPreparedQuery {
    /// Weak, so that a statement that outlives its session does not hold the session's connection open.
    connection: Weak<Connection>,
    runtime: Arc<dyn Runtime>,
    checkout_generation: u64,
    traits: StatementTraits,
    handle: Bytes,
    dataset_schema: SchemaRef,
    parameter_schema: SchemaRef,
    default_timeout: Option<Duration>,
    /// The parameters of runs that bring none. Some servers use a binding only once, so they are sent with each run.
    params: Option<RecordBatch>,
}

impl AsyncPreparedQuery {
    pub(crate) async fn prepare(
        permit: StatementPermit,
        sql: &str,
        traits: StatementTraits,
        limits: &Limits,
        default_timeout: Option<Duration>,
    ) -> Result<Self> {
        let connection = Arc::clone(permit.connection());
        let (checkout_generation, transaction_id) =
            (connection.checkout_generation(), connection.transaction.id());
        let request = ActionCreatePreparedStatementRequest { query: sql.to_owned(), transaction_id };
        let request = request.as_any().encode_to_vec();
        let mut action = UndoableAction::new(permit, undo_prepare);
        let sent = connection.moment();
        let answer = action.run("CreatePreparedStatement", request, limits.remaining(), limits).await?;
        let answer = answer.map_err(|status| connection.classify_within(&status, limits, Phase::Execute))?;
        let prepared =
            decode_created(answer).ok_or_else(|| Error::protocol("a prepared statement without a handle"))?;
        connection.record_activity(sent);
        Ok(Self {
            connection: Arc::downgrade(&connection),
            runtime: Arc::clone(&connection.server.runtime),
            checkout_generation,
            traits,
            handle: prepared.prepared_statement_handle,
            dataset_schema: decode_schema(&prepared.dataset_schema)?,
            parameter_schema: decode_schema(&prepared.parameter_schema)?,
            default_timeout,
            params: None,
        })
    }

    /// The columns of its result, as far as the server knows them.
    #[must_use]
    pub fn dataset_schema(&self) -> &SchemaRef {
        &self.dataset_schema
    }

    /// Its parameters, as far as the server knows them.
    #[must_use]
    pub fn parameter_schema(&self) -> &SchemaRef {
        &self.parameter_schema
    }

    /// Runs it as a query, with the parameters that were set last, if any.
    ///
    /// # Cancel safety
    /// Dropping it cancels the statement on the server, in the background. The next call waits for that.
    pub async fn query(&mut self) -> Result<QueryResult> {
        self.query_with_options(QueryOptions::new()).await
    }

    /// Runs it as a query with these parameters.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_with_param(&mut self, params: RecordBatch) -> Result<QueryResult> {
        self.query_with_options(QueryOptions::new().with_params(params)).await
    }

    /// Runs it as a query, with a timeout, parameters or other options.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_with_options(&mut self, options: QueryOptions) -> Result<QueryResult> {
        let (connection, limits) = (self.connection()?, self.limits(&options));
        let fetch = self.fetch(&options, limits).await?;
        let result = fetch.collect().await.map_err(|(error, _)| error)?;
        connection.transaction.statement_succeeded(self.traits);
        Ok(result)
    }

    /// Runs it as a query, and returns the result as the server sends it.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_stream(&mut self, options: QueryOptions) -> Result<QueryStream<'_>> {
        let limits = self.limits(&options);
        Ok(QueryStream::new(self.fetch(&options, limits).await?, None))
    }

    /// Sets the parameters of the next runs. They are sent with each run, and checked by the server now.
    ///
    /// # Cancel safety
    /// Dropping it leaves open whether they are set.
    pub async fn set_parameters(&mut self, params: RecordBatch) -> Result<()> {
        let options = QueryOptions::new().with_params(params.clone());
        self.bind(&options, &self.limits(&options)).await?;
        self.params = Some(params);
        Ok(())
    }

    /// Runs it as an update.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query). It may have been executed.
    pub async fn update(&mut self) -> Result<UpdateResult> {
        self.update_with_options(QueryOptions::new()).await
    }

    /// Runs it as an update, once for each row of `batch`, with the columns as parameters.
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    pub async fn update_with_record_batch(&mut self, batch: RecordBatch) -> Result<UpdateResult> {
        self.update_with_options(QueryOptions::new().with_params(batch)).await
    }

    /// Runs it as an update, with a timeout, parameters or other options.
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    pub async fn update_with_options(&mut self, options: QueryOptions) -> Result<UpdateResult> {
        let limits = self.limits(&options);
        self.run_update(&options, &limits).await
    }

    pub(crate) async fn run_update(&self, options: &QueryOptions, limits: &Limits) -> Result<UpdateResult> {
        let command = CommandPreparedStatementUpdate { prepared_statement_handle: self.handle.clone() };
        let (connection, permit) = self.permit(limits).await?;
        connection.transaction.statement_sent(self.traits);
        let options = self.with_params(options);
        let updated = run_update(permit, command.as_any().encode_to_vec().into(), &options, limits).await?;
        connection.transaction.statement_succeeded(self.traits);
        Ok(updated)
    }

    pub(crate) async fn fetch(&mut self, options: &QueryOptions, limits: Limits) -> Result<Fetch> {
        if self.traits.returns_nothing {
            self.run_update(options, &limits).await?;
            return Ok(Fetch::without_rows(&self.connection()?, limits));
        }
        let options = &*self.with_params(options);
        if let Some(params) = &options.params {
            if params.num_rows() != 1 {
                let rows = params.num_rows();
                return Err(Error::config(format!(
                    "a query takes one row of parameters, but there are {rows}: run it once for each row"
                )));
            }
            self.bind(options, &limits).await?;
        }
        let (connection, permit) = self.permit(&limits).await?;
        connection.transaction.statement_sent(self.traits);
        Fetch::start(permit, self.command(), limits, options.progress.as_ref()).await
    }

    /// The options with the parameters that were set before, unless they bring others.
    fn with_params<'a>(&self, options: &'a QueryOptions) -> Cow<'a, QueryOptions> {
        match &self.params {
            Some(params) if options.params.is_none() => {
                Cow::Owned(options.clone().with_params(params.clone()))
            }
            _ => Cow::Borrowed(options),
        }
    }

    fn limits(&self, options: &QueryOptions) -> Limits {
        let timeout = options.timeout.or(self.default_timeout);
        Limits::new(&self.runtime, timeout, options.cancel.clone())
    }

    fn connection(&self) -> Result<Arc<Connection>> {
        let connection = self.connection.upgrade();
        connection
            .ok_or_else(|| Error::session_lost("the session of the prepared statement is closed", false))
    }

    async fn permit(&self, limits: &Limits) -> Result<(Arc<Connection>, StatementPermit)> {
        let connection = self.connection()?;
        let permit = connection.permit(Some(self.checkout_generation), limits).await?;
        Ok((connection, permit))
    }

    fn command(&self) -> Bytes {
        let command = CommandPreparedStatementQuery { prepared_statement_handle: self.handle.clone() };
        command.as_any().encode_to_vec().into()
    }

    async fn bind(&mut self, options: &QueryOptions, limits: &Limits) -> Result<()> {
        let (_, permit) = self.permit(limits).await?;
        let answer =
            send_params(permit, RunningStatement::begin_parameters, self.command(), options, limits).await?;
        // A server may return a new handle for the statement with its parameters. Older servers return
        // nothing.
        let bound = answer.and_then(|answer| DoPutPreparedStatementResult::decode(answer).ok());
        if let Some(handle) = bound.and_then(|result| result.prepared_statement_handle) {
            self.handle = handle;
        }
        Ok(())
    }
}

/// Closes a statement that was prepared after its caller had given up.
fn undo_prepare(connection: Arc<Connection>, answer: Option<Answer>) -> UndoFuture {
    Box::pin(async move {
        let Some(answer) = answer else { return false };
        if let Some(prepared) = answer.ok().and_then(decode_created) {
            close(&connection, prepared.prepared_statement_handle).await;
        }
        true
    })
}

fn decode_created(body: Option<Bytes>) -> Option<ActionCreatePreparedStatementResult> {
    Any::decode(body?).ok()?.unpack().ok()?
}

async fn close(connection: &Connection, prepared_statement_handle: Bytes) {
    let request = ActionClosePreparedStatementRequest { prepared_statement_handle };
    let request = request.as_any().encode_to_vec();
    let close = connection.action("ClosePreparedStatement", request, Some(CLOSE_TIMEOUT));
    if let Some(Err(status)) = rt::within(&*connection.server.runtime, CLOSE_TIMEOUT, close).await {
        tracing::debug!(%status, "prepared statement not closed");
    }
}

/// Closes it on the server, in the background. No call waits for that, and the statement ends with its
/// session anyway.
impl Drop for AsyncPreparedQuery {
    fn drop(&mut self) {
        let Some(connection) = self.connection.upgrade().filter(|connection| connection.keeps_session())
        else {
            return;
        };
        let handle = std::mem::take(&mut self.handle);
        self.runtime.spawn(Box::pin(async move {
            // The session may have been closed before this task ran.
            if connection.keeps_session() {
                close(&connection, handle).await;
            }
        }));
    }
}

impl fmt::Debug for AsyncPreparedQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncPreparedQuery")
            .field("dataset_schema", &self.dataset_schema)
            .field("parameter_schema", &self.parameter_schema)
            .finish_non_exhaustive()
    }
}
