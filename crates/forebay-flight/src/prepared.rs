//! Prepared statements.

use std::fmt;
use std::pin::Pin;
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
use tonic::Status;

use crate::error::{Error, Phase, Result};
use crate::fetch::Fetch;
use crate::limits::Limits;
use crate::link::Link;
use crate::put;
use crate::query_options::{Progress, QueryOptions};
use crate::result::{QueryResult, UpdateResult};
use crate::sql::Traits;
use crate::stream::QueryStream;
use crate::transaction::Current;

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
    transaction: Current,
    handle: Bytes,
    dataset_schema: SchemaRef,
    parameter_schema: SchemaRef,
    default_timeout: Option<Duration>,
}

impl AsyncPreparedQuery {
    pub(crate) async fn prepare(
        link: &Arc<Link>,
        sql: &str,
        transaction: Current,
        traits: Traits,
        limits: &Limits,
        default_timeout: Option<Duration>,
    ) -> Result<Self> {
        let transaction_id = transaction.id();
        let request = ActionCreatePreparedStatementRequest { query: sql.to_owned(), transaction_id };
        let request = request.as_any().encode_to_vec();
        let mut creating = Creating::begin(link, request, limits);
        let answer = limits.run(Phase::Execute, async {
            let answer = creating.answer().await;
            answer.map_err(|status| link.judge_within(&status, limits, Phase::Execute))
        });
        let prepared =
            created(answer.await?).ok_or_else(|| Error::protocol("a prepared statement without a handle"))?;
        Ok(Self {
            link: Arc::clone(link),
            tenancy: link.tenancy(),
            traits,
            transaction,
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
    /// Dropping it cancels the statement on the server, in the background.
    pub async fn query(&mut self) -> Result<QueryResult> {
        let limits = self.limits(QueryOptions::new())?;
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
        let limits = self.limits(QueryOptions::new())?;
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
        let limits = self.limits(options)?;
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
        let limits = self.limits(QueryOptions::new())?;
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
        let limits = self.limits(QueryOptions::new())?;
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
        let limits = self.limits(QueryOptions::new())?;
        self.write(Some(batch), &limits).await
    }

    pub(crate) async fn read(&mut self, params: Option<RecordBatch>, limits: Limits) -> Result<QueryResult> {
        if let Some(params) = params {
            self.bind(params, &limits).await?;
        }
        let result = QueryStream::of_session(self.fetch(limits, None).await?).collect().await?;
        self.transaction.conclude(self.traits);
        Ok(result)
    }

    pub(crate) async fn write(&self, params: Option<RecordBatch>, limits: &Limits) -> Result<UpdateResult> {
        let command = CommandPreparedStatementUpdate { prepared_statement_handle: self.handle.clone() };
        self.transaction.note(self.traits);
        let updated =
            put::update(&self.link, command.as_any().encode_to_vec().into(), params, limits).await?;
        self.transaction.conclude(self.traits);
        Ok(updated)
    }

    fn limits(&self, options: QueryOptions) -> Result<Limits> {
        if self.link.tenancy() != self.tenancy || !self.link.is_usable() {
            let message = "the session that this statement was prepared in is no longer held".to_owned();
            return Err(Error::SessionLost { message, may_have_run: false });
        }
        let timeout = options.timeout.or(self.default_timeout);
        Ok(Limits::new(&self.link.server.runtime, timeout, options.cancel))
    }

    fn command(&self) -> Bytes {
        let command = CommandPreparedStatementQuery { prepared_statement_handle: self.handle.clone() };
        command.as_any().encode_to_vec().into()
    }

    async fn bind(&mut self, params: RecordBatch, limits: &Limits) -> Result<()> {
        let answer = put::put(&self.link, self.command(), Some(params), limits).await?;
        // A server may give the statement with its parameters another name; older ones say nothing.
        let renamed = answer.and_then(|answer| DoPutPreparedStatementResult::decode(answer).ok());
        if let Some(handle) = renamed.and_then(|result| result.prepared_statement_handle) {
            self.handle = handle;
        }
        Ok(())
    }

    async fn fetch(&self, limits: Limits, progress: Option<&Progress>) -> Result<Fetch> {
        self.transaction.note(self.traits);
        Fetch::start(&self.link, self.command(), limits, progress).await
    }
}

fn schema(message: Bytes) -> Result<SchemaRef> {
    if message.is_empty() {
        return Ok(Arc::new(Schema::empty()));
    }
    Schema::try_from(IpcMessage(message)).map(Arc::new).map_err(Error::protocol)
}

/// A statement that is being prepared. If nobody waits for it any more, it is closed when it is there.
struct Creating {
    link: Arc<Link>,
    /// There until it is answered.
    call: Option<Answer>,
}

type Answer = Pin<Box<dyn Future<Output = Result<Option<Bytes>, Status>> + Send>>;

impl Creating {
    fn begin(link: &Arc<Link>, request: Vec<u8>, limits: &Limits) -> Self {
        let (link, limit) = (Arc::clone(link), limits.remaining());
        let call = Box::pin({
            let link = Arc::clone(&link);
            async move { link.act("CreatePreparedStatement", request, limit).await }
        });
        Self { link, call: Some(call) }
    }

    async fn answer(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(call) = &mut self.call else { return Ok(None) };
        let answer = call.await;
        self.call = None;
        answer
    }
}

impl Drop for Creating {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let link = Arc::clone(&self.link);
        self.link.errand(async move {
            let Some(answer) = rt::within(&*link.server.runtime, CLOSE, call).await else { return false };
            if let Some(prepared) = answer.ok().and_then(created) {
                close(&link, prepared.prepared_statement_handle).await;
            }
            true
        });
    }
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
