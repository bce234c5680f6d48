//! Loading batches into a table.

use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow_array::RecordBatch;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::sql::{
    CommandStatementIngest, ProstMessageExt, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use arrow_flight::{FlightData, FlightDescriptor};
use bytes::Bytes;
use forebay::{BoxError, Chain};
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use prost::Message;
use tokio::sync::oneshot;

use super::cancellation::RunningStatement;
use super::limits::Limits;
use super::options::QueryOptions;
use super::result::UpdateResult;
use super::update::decode_result;
use crate::connection::{Connection, TooLarge};
use crate::error::{Error, Phase, Result};
use crate::session::{Alteration, AsyncSession};
use crate::sql::is_temporary;

/// The target table of an ingest, and its options.
///
/// ```
/// use forebay_flight::Ingest;
///
/// let ingest = Ingest::into_table("events")
///     .create()
///     .on_progress(|progress| println!("{} rows sent", progress.rows));
/// ```
pub struct Ingest {
    table: String,
    schema: Option<String>,
    catalog: Option<String>,
    missing: TableNotExistOption,
    present: TableExistsOption,
    temporary: bool,
    options: QueryOptions,
    progress: ProgressCallback,
}

type ProgressCallback = Option<Box<dyn FnMut(IngestProgress) + Send>>;

/// The progress of an ingest: what was passed to the connection, which takes it as fast as the server does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IngestProgress {
    /// Batches so far.
    pub batches: u64,
    /// Rows so far.
    pub rows: u64,
}

impl Ingest {
    /// Appends to an existing table.
    #[must_use]
    pub fn into_table(table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            schema: None,
            catalog: None,
            missing: TableNotExistOption::Fail,
            present: TableExistsOption::Append,
            temporary: false,
            options: QueryOptions::new(),
            progress: None,
        }
    }

    /// Creates the table. Fails if it exists.
    #[must_use]
    pub fn create(mut self) -> Self {
        (self.missing, self.present) = (TableNotExistOption::Create, TableExistsOption::Fail);
        self
    }

    /// Creates the table if it does not exist.
    #[must_use]
    pub fn create_or_append(mut self) -> Self {
        (self.missing, self.present) = (TableNotExistOption::Create, TableExistsOption::Append);
        self
    }

    /// Creates the table. Replaces an existing one.
    #[must_use]
    pub fn create_or_replace(mut self) -> Self {
        (self.missing, self.present) = (TableNotExistOption::Create, TableExistsOption::Replace);
        self
    }

    /// The table's schema. Default: the server's.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// The table's catalog. Default: the server's.
    #[must_use]
    pub fn catalog(mut self, catalog: impl Into<String>) -> Self {
        self.catalog = Some(catalog.into());
        self
    }

    /// Creates a temporary table, which ends with the session. For sessions, not for pools.
    #[must_use]
    pub fn temporary(mut self) -> Self {
        self.temporary = true;
        self
    }

    /// The deadline, the cancellation and the compression of the load.
    #[must_use]
    pub fn options(mut self, options: QueryOptions) -> Self {
        self.options = options;
        self
    }

    /// Calls `progress` after each batch. It runs on the connection's task and must not block.
    #[must_use]
    pub fn on_progress(mut self, progress: impl FnMut(IngestProgress) + Send + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    pub(crate) fn query_options(&self) -> &QueryOptions {
        &self.options
    }

    fn command(&self, transaction_id: Option<Bytes>) -> Bytes {
        let definition =
            TableDefinitionOptions { if_not_exist: self.missing as i32, if_exists: self.present as i32 };
        CommandStatementIngest {
            table_definition_options: Some(definition),
            table: self.table.clone(),
            schema: self.schema.clone(),
            catalog: self.catalog.clone(),
            temporary: self.temporary,
            transaction_id,
            ..CommandStatementIngest::default()
        }
        .as_any()
        .encode_to_vec()
        .into()
    }
}

impl fmt::Debug for Ingest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ingest").field("table", &self.table).finish_non_exhaustive()
    }
}

impl AsyncSession {
    /// Loads batches into a table, as fast as the server takes them. All batches must have the schema of the
    /// first.
    ///
    /// # Errors
    /// See [`Error`]. [`Error::Input`] if the batches themselves end in an error. What was sent before may be
    /// stored, unless it is part of a transaction.
    ///
    /// # Cancel safety
    /// Dropping it cancels the statement on the server, in the background.
    pub async fn ingest<S, E>(&mut self, ingest: Ingest, batches: S) -> Result<UpdateResult>
    where
        S: Stream<Item = Result<RecordBatch, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let limits = self.limits(ingest.query_options());
        self.load(ingest, batches, &limits).await
    }

    pub(crate) async fn load<S, E>(
        &mut self,
        ingest: Ingest,
        batches: S,
        limits: &Limits,
    ) -> Result<UpdateResult>
    where
        S: Stream<Item = Result<RecordBatch, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let permit = self.permit(limits).await?;
        if ingest.temporary || is_temporary(&ingest.catalog, &ingest.schema, &ingest.table) {
            self.connection.alter(Alteration::objects());
        }
        let command = ingest.command(self.connection.transaction.id());
        limits.check(Phase::Execute)?;
        let statement = RunningStatement::begin(permit);
        let encoder =
            ingest.options.encoder().with_flight_descriptor(Some(FlightDescriptor::new_cmd(command)));
        let send = send(&self.connection, encoder, ingest.progress, batches, limits);
        let loaded = limits.run(Phase::Execute, send).await;
        statement.end(&loaded);
        loaded
    }
}

async fn send<S, E>(
    connection: &Arc<Connection>,
    encoder: FlightDataEncoderBuilder,
    mut progress: ProgressCallback,
    batches: S,
    limits: &Limits,
) -> Result<UpdateResult>
where
    S: Stream<Item = Result<RecordBatch, E>> + Send + 'static,
    E: Into<BoxError>,
{
    let mut so_far = IngestProgress::default();
    let batches = batches.map(move |batch| {
        let batch = batch.map_err(|error| FlightError::ExternalError(error.into()))?;
        so_far.batches += 1;
        so_far.rows += batch.num_rows() as u64;
        if let Some(progress) = &mut progress {
            progress(so_far);
        }
        Ok(batch)
    });
    let max_size = connection.max_message_size();
    let encoder = encoder.build(batches).map(move |data| {
        let data = data?;
        TooLarge::check(&data, max_size).map_err(|error| FlightError::ExternalError(error.into()))?;
        Ok(data)
    });
    let (report, failure) = oneshot::channel();
    let mut failure = Some(failure);
    let data = EncodedBatches { encoder: encoder.boxed(), report: Some(report) };
    let mut answer = pin!(async {
        let answer = connection.put(data, limits.remaining()).await;
        decode_result(answer.map_err(|status| connection.classify_within(&status, limits, Phase::Execute))?)
    });
    poll_fn(|context| {
        // Polled first: a failed input must not look like a failure of the server.
        if let Some(receiver) = &mut failure
            && let Poll::Ready(outcome) = Pin::new(receiver).poll(context)
        {
            failure = None;
            if let Ok(error) = outcome {
                return Poll::Ready(Err(error));
            }
        }
        answer.as_mut().poll(context)
    })
    .await
}

/// Encoded batches. When the input fails, the stream stays pending. If it ended, the server would take that
/// for the end of the data.
struct EncodedBatches {
    encoder: BoxStream<'static, Result<FlightData, FlightError>>,
    /// There until the input fails.
    report: Option<oneshot::Sender<Error>>,
}

impl Stream for EncodedBatches {
    type Item = FlightData;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FlightData>> {
        if self.report.is_none() {
            return Poll::Pending;
        }
        // This runs on the connection's task, which must survive a panic of the caller's stream.
        let polled = catch_unwind(AssertUnwindSafe(|| self.encoder.poll_next_unpin(context)));
        let message = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(None)) => return Poll::Ready(None),
            Ok(Poll::Ready(Some(Ok(data)))) => return Poll::Ready(Some(data)),
            Ok(Poll::Ready(Some(Err(FlightError::ExternalError(error))))) => Chain(&*error).to_string(),
            Ok(Poll::Ready(Some(Err(error)))) => error.to_string(),
            Err(_) => "their stream panicked".to_owned(),
        };
        if let Some(report) = self.report.take() {
            // Fails if the caller has given up.
            let _ = report.send(Error::Input { message });
        }
        Poll::Pending
    }
}
