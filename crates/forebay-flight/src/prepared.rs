//! Prepared statements.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_flight::IpcMessage;
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, Any, CommandPreparedStatementQuery, CommandPreparedStatementUpdate,
    DoPutPreparedStatementResult, ProstMessageExt,
};
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use forebay::rt;
use prost::Message;

use crate::error::{Error, Phase, Result};
use crate::fetch::Fetch;
use crate::limits::Limits;
use crate::link::{Link, Turn};
use crate::making::{Answer, Making, Undoing};
use crate::put;
use crate::query_options::{Progress, QueryOptions};
use crate::result::{QueryResult, UpdateResult};
use crate::sql::Traits;
use crate::stream::QueryStream;

/// How long closing one in the background may take.
const CLOSE: Duration = Duration::from_secs(5);

/// A statement that the server has prepared, for the session it was made in.
///
/// It can be used until the session is given back or lost, also between other statements of the session.
pub struct AsyncPreparedQuery {
    link: Arc<Link>,
    tenancy: u64,
    /// What it does, to the session's transaction too.
    traits: Traits,
    handle: Bytes,
    dataset_schema: SchemaRef,
    parameter_schema: SchemaRef,
    default_timeout: Option<Duration>,
}

impl AsyncPreparedQuery {
    pub(crate) async fn prepare(
        turn: Turn,
        sql: &str,
        traits: Traits,
        limits: &Limits,
        default_timeout: Option<Duration>,
    ) -> Result<Self> {
        let link = Arc::clone(turn.link());
        let (tenancy, transaction_id) = (link.tenancy(), link.transaction.id());
        let request = ActionCreatePreparedStatementRequest { query: sql.to_owned(), transaction_id };
        let request = request.as_any().encode_to_vec();
        let mut making = Making::new(turn, unprepared);
        let answer = making.answer("CreatePreparedStatement", request, limits.remaining(), limits).await?;
        let answer = answer.map_err(|status| link.judge_within(&status, limits, Phase::Execute))?;
        let prepared =
            created(answer).ok_or_else(|| Error::protocol("a prepared statement without a handle"))?;
        Ok(Self {
            link,
            tenancy,
            traits,
            handle: prepared.prepared_statement_handle,
            dataset_schema: schema(prepared.dataset_schema)?,
            parameter_schema: schema(prepared.parameter_schema)?,
            default_timeout,
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

    /// Runs it as a query, with the parameters bound last, if any.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// Dropping it cancels the statement on the server, in the background; the next call waits for that.
    pub async fn query(&mut self) -> Result<QueryResult> {
        let limits = self.limits(QueryOptions::new());
        self.read(None, limits).await
    }

    /// Runs it as a query with these parameters.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_with_param(&mut self, params: RecordBatch) -> Result<QueryResult> {
        let limits = self.limits(QueryOptions::new());
        self.read(Some(params), limits).await
    }

    /// Runs it as a query, and gives the result as the server sends it.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_stream(&mut self, options: QueryOptions) -> Result<QueryStream<'_>> {
        let progress = options.progress.clone();
        let limits = self.limits(options);
        Ok(QueryStream::of_session(self.fetch(limits, progress.as_ref()).await?))
    }

    /// Sets parameters for the runs to come.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// Dropping it leaves open whether they are set.
    pub async fn set_parameters(&mut self, params: RecordBatch) -> Result<()> {
        let limits = self.limits(QueryOptions::new());
        self.bind(params, &limits).await
    }

    /// Runs it for what it changes.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`query`](Self::query); it may have been carried out.
    pub async fn update(&mut self) -> Result<UpdateResult> {
        let limits = self.limits(QueryOptions::new());
        self.write(None, &limits).await
    }

    /// Runs it once for each row of `batch`, with its columns as parameters.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    pub async fn update_with_record_batch(&mut self, batch: RecordBatch) -> Result<UpdateResult> {
        let limits = self.limits(QueryOptions::new());
        self.write(Some(batch), &limits).await
    }

    pub(crate) async fn read(&mut self, params: Option<RecordBatch>, limits: Limits) -> Result<QueryResult> {
        let fetch = match params {
            Some(params) => self.fetch_with_param(params, limits).await?,
            None => self.fetch(limits, None).await?,
        };
        let result = fetch.collect().await.map_err(|(error, _)| error)?;
        self.link.transaction.conclude(self.traits);
        Ok(result)
    }

    pub(crate) async fn fetch_with_param(&mut self, params: RecordBatch, limits: Limits) -> Result<Fetch> {
        self.bind(params, &limits).await?;
        self.fetch(limits, None).await
    }

    pub(crate) async fn write(&self, params: Option<RecordBatch>, limits: &Limits) -> Result<UpdateResult> {
        let command = CommandPreparedStatementUpdate { prepared_statement_handle: self.handle.clone() };
        let turn = self.ready(limits).await?;
        self.link.transaction.note(self.traits);
        let updated = put::update(turn, command.as_any().encode_to_vec().into(), params, limits).await?;
        self.link.transaction.conclude(self.traits);
        Ok(updated)
    }

    fn limits(&self, options: QueryOptions) -> Limits {
        let timeout = options.timeout.or(self.default_timeout);
        Limits::new(&self.link.server.runtime, timeout, options.cancel)
    }

    /// Waits for what still goes on from before in its session, which may be in other hands by then.
    async fn ready(&self, limits: &Limits) -> Result<Turn> {
        self.link.ready(self.tenancy, limits).await
    }

    fn command(&self) -> Bytes {
        let command = CommandPreparedStatementQuery { prepared_statement_handle: self.handle.clone() };
        command.as_any().encode_to_vec().into()
    }

    async fn bind(&mut self, params: RecordBatch, limits: &Limits) -> Result<()> {
        let turn = self.ready(limits).await?;
        let answer = put::put(turn, self.command(), Some(params), limits).await?;
        // A server may give the statement with its parameters another name; older ones say nothing.
        let renamed = answer.and_then(|answer| DoPutPreparedStatementResult::decode(answer).ok());
        if let Some(handle) = renamed.and_then(|result| result.prepared_statement_handle) {
            self.handle = handle;
        }
        Ok(())
    }

    async fn fetch(&self, limits: Limits, progress: Option<&Progress>) -> Result<Fetch> {
        let turn = self.ready(&limits).await?;
        self.link.transaction.note(self.traits);
        Fetch::start(turn, self.command(), limits, progress).await
    }
}

fn schema(message: Bytes) -> Result<SchemaRef> {
    if message.is_empty() {
        return Ok(Arc::new(Schema::empty()));
    }
    Schema::try_from(IpcMessage(message)).map(Arc::new).map_err(Error::protocol)
}

/// Closes what was prepared when nobody waited for it any more.
fn unprepared(link: Arc<Link>, answer: Option<Answer>) -> Undoing {
    Box::pin(async move {
        let Some(answer) = answer else { return false };
        if let Some(prepared) = answer.ok().and_then(created) {
            close(&link, prepared.prepared_statement_handle).await;
        }
        true
    })
}

fn created(body: Option<Bytes>) -> Option<ActionCreatePreparedStatementResult> {
    Any::decode(body?).ok()?.unpack().ok()?
}

async fn close(link: &Link, prepared_statement_handle: Bytes) {
    let request = ActionClosePreparedStatementRequest { prepared_statement_handle };
    let close = link.act("ClosePreparedStatement", request.as_any().encode_to_vec(), Some(CLOSE));
    if let Some(Err(status)) = rt::within(&*link.server.runtime, CLOSE, close).await {
        tracing::debug!(%status, "prepared statement not closed");
    }
}

/// Closes it on the server, in the background: nobody has to wait for that, and it is gone with its session anyway.
impl Drop for AsyncPreparedQuery {
    fn drop(&mut self) {
        if !self.link.is_usable() {
            return;
        }
        let (link, handle) = (Arc::clone(&self.link), std::mem::take(&mut self.handle));
        self.link.server.runtime.spawn(Box::pin(async move { close(&link, handle).await }));
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
