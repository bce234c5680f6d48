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
use tonic::Status;

use crate::error::{Error, Phase, Result};
use crate::fetch::close_if_answered;
use crate::ladder::Statement;
use crate::limits::Limits;
use crate::link::{Link, TooLarge};
use crate::put;
use crate::query_options::QueryOptions;
use crate::result::UpdateResult;
use crate::session::AsyncSession;
use crate::sql::is_temporary;

/// Where batches go, and who hears how many have gone.
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
    progress: Option<Box<dyn FnMut(IngestProgress) + Send>>,
}

/// How far an ingest has come: what was handed to the connection, which takes it as fast as the server does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IngestProgress {
    /// Batches so far.
    pub batches: u64,
    /// Rows so far.
    pub rows: u64,
}

impl Ingest {
    /// Adds to a table, which must be there.
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

    /// Makes the table, which must not be there.
    #[must_use]
    pub fn create(mut self) -> Self {
        (self.missing, self.present) = (TableNotExistOption::Create, TableExistsOption::Fail);
        self
    }

    /// Makes the table if it is not there.
    #[must_use]
    pub fn create_or_append(mut self) -> Self {
        (self.missing, self.present) = (TableNotExistOption::Create, TableExistsOption::Append);
        self
    }

    /// Makes the table, in place of one that is there.
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

    /// The table ends with the session. For sessions, not for pools.
    #[must_use]
    pub fn temporary(mut self) -> Self {
        self.temporary = true;
        self
    }

    /// Deadline and cancellation.
    #[must_use]
    pub fn options(mut self, options: QueryOptions) -> Self {
        self.options = options;
        self
    }

    /// Tells after each batch how far it has come. Called where the connection is served: it must not block.
    #[must_use]
    pub fn on_progress(mut self, progress: impl FnMut(IngestProgress) + Send + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    pub(crate) fn query_options(&self) -> QueryOptions {
        self.options.clone()
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
    /// Loads batches into a table, as fast as the server takes them. All batches must have the first one's schema.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::Input`] if the batches themselves end in an error. What was sent before may have been stored, unless
    /// it is part of a transaction.
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
        let turn = self.ready(limits).await?;
        self.is_altered |= ingest.temporary || is_temporary(&ingest.catalog, &ingest.schema, &ingest.table);
        let command = ingest.command(self.link.transaction.id());
        limits.check(Phase::Execute)?;
        let statement = Statement::begin(turn);
        let sent = limits.run(Phase::Execute, send(&self.link, command, ingest.progress, batches, limits));
        match sent.await {
            Ok(loaded) => {
                statement.over();
                Ok(loaded)
            }
            Err(error) => {
                close_if_answered(&mut Some(statement), &error);
                Err(error)
            }
        }
    }
}

type Progress = Option<Box<dyn FnMut(IngestProgress) + Send>>;

async fn send<S, E>(
    link: &Arc<Link>,
    command: Bytes,
    mut progress: Progress,
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
    let encoder = FlightDataEncoderBuilder::new()
        .with_flight_descriptor(Some(FlightDescriptor::new_cmd(command)))
        .build(batches);
    let largest = link.largest();
    let encoder = encoder.map(move |data| {
        let data = data?;
        TooLarge::check(&data, largest).map_err(|error| FlightError::ExternalError(error.into()))?;
        Ok(data)
    });
    let encoder = encoder.boxed();
    let (tell, told) = oneshot::channel();
    let mut told = Some(told);
    let data = Outgoing { encoder, tell: Some(tell) };
    let judge = |status: Status| link.judge_within(&status, limits, Phase::Execute);
    let mut answer = pin!(async {
        let answer = link.put(data, limits.remaining()).await.map_err(judge)?;
        put::updated(&answer.ok_or_else(|| Error::protocol("an ingest without a result"))?)
    });
    poll_fn(|context| {
        // Looked at first: a failed input must not be taken for a server that broke off.
        if let Some(failure) = &mut told
            && let Poll::Ready(outcome) = Pin::new(failure).poll(context)
        {
            told = None;
            if let Ok(error) = outcome {
                return Poll::Ready(Err(error));
            }
        }
        answer.as_mut().poll(context)
    })
    .await
}

/// Encoded batches. When the input fails, it goes silent instead of ending, which the server would take for the end of the data.
struct Outgoing {
    encoder: BoxStream<'static, Result<FlightData, FlightError>>,
    /// There until it has failed.
    tell: Option<oneshot::Sender<Error>>,
}

impl Stream for Outgoing {
    type Item = FlightData;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FlightData>> {
        if self.tell.is_none() {
            return Poll::Pending;
        }
        // This is polled where the connection is served, which must survive what callers do.
        let polled = catch_unwind(AssertUnwindSafe(|| self.encoder.poll_next_unpin(context)));
        let message = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(None)) => return Poll::Ready(None),
            Ok(Poll::Ready(Some(Ok(data)))) => return Poll::Ready(Some(data)),
            Ok(Poll::Ready(Some(Err(FlightError::ExternalError(error))))) => Chain(&*error).to_string(),
            Ok(Poll::Ready(Some(Err(error)))) => error.to_string(),
            Err(_) => "their stream panicked".to_owned(),
        };
        if let Some(tell) = self.tell.take() {
            // Whoever no longer listens has given up already.
            let _ = tell.send(Error::Input { message });
        }
        Poll::Pending
    }
}
