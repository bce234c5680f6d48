//! Reading a result: its endpoints in order, one batch at a time, as fast as the reader asks for them.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow_array::RecordBatch;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_flight::{FlightEndpoint, IpcMessage};
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use forebay::rt::Runtime;
use futures_util::StreamExt;

use super::cancellation::RunningStatement;
use super::limits::{Expiry, Limits};
use super::options::Progress;
use super::prepared::AsyncPreparedQuery;
use super::result::QueryResult;
use crate::connection::{Connection, StatementPermit};
use crate::error::{Error, Phase, Result};

mod endpoints;
mod progress;

use endpoints::EndpointConnections;

/// A result that is being read.
pub(crate) struct Fetch {
    // The first field, and so dropped first: the call is aborted before the statement is cancelled.
    reading: Reading,
    statement: Option<RunningStatement>,
    connection: Arc<Connection>,
    connections: Arc<EndpointConnections>,
    rest: VecDeque<FlightEndpoint>,
    schema: Option<SchemaRef>,
    /// The encoded schema of the `FlightInfo`. It may be empty.
    declared: Bytes,
    limits: Limits,
    expiry: Expiry,
    /// Must not be closed while its result is read: a ticket may refer to it.
    _prepared: Option<AsyncPreparedQuery>,
}

enum Reading {
    Opening(Pin<Box<dyn Future<Output = Result<Source>> + Send>>),
    From(Source),
    Done,
}

/// The data of one endpoint.
struct Source {
    data: FlightDataDecoder,
    connection: Arc<Connection>,
}

impl Source {
    /// The next message. Arrow's decoder panics if a body is shorter than its header says. That is the
    /// server's fault, and must not end the caller. The decoder is not used again afterwards.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<DecodedPayload, FlightError>>> {
        let decoded = catch_unwind(AssertUnwindSafe(|| self.data.poll_next_unpin(context)));
        let unreadable =
            || FlightError::DecodeError("a batch whose body does not match its header".to_owned());
        decoded
            .map(|polled| polled.map_ok(|decoded| decoded.payload))
            .unwrap_or_else(|_| Poll::Ready(Some(Err(unreadable()))))
    }
}

enum Item {
    Schema,
    Batch(RecordBatch),
    End,
}

impl Fetch {
    /// Runs a command and starts to read its result: two calls if the result has one endpoint. Returns once
    /// the schema is known.
    ///
    /// # Cancel safety
    /// Dropping it cancels the statement.
    pub(crate) async fn start(
        permit: StatementPermit,
        command: Bytes,
        limits: Limits,
        progress: Option<&Progress>,
    ) -> Result<Self> {
        limits.check(Phase::Execute)?;
        let connection = Arc::clone(permit.connection());
        Self::begin(RunningStatement::begin(permit), &connection, command, limits, progress).await
    }

    /// The same for a catalog query, which cannot be cancelled by its `FlightInfo`.
    ///
    /// # Cancel safety
    /// As [`start`](Self::start).
    pub(crate) async fn start_catalog(
        permit: StatementPermit,
        command: Bytes,
        limits: Limits,
    ) -> Result<Self> {
        limits.check(Phase::Execute)?;
        let connection = Arc::clone(permit.connection());
        Self::begin(RunningStatement::begin_catalog(permit), &connection, command, limits, None).await
    }

    async fn begin(
        mut statement: RunningStatement,
        connection: &Arc<Connection>,
        command: Bytes,
        limits: Limits,
        progress: Option<&Progress>,
    ) -> Result<Self> {
        let started = limits.run(Phase::Execute, async {
            let info = match progress {
                Some(progress) => {
                    progress::poll(connection, &command, &limits, progress, &mut statement).await
                }
                None => Ok(None),
            };
            let info = match info {
                Ok(None) => connection.info(command, limits.remaining()).await,
                Ok(Some(info)) => Ok(info),
                Err(status) => Err(status),
            };
            info.map_err(|status| connection.classify_within(&status, &limits, Phase::Execute))
        });
        let info = match started.await {
            Ok(info) => info,
            Err(error) => {
                let failed = Err(if statement.is_answered() { error.after_answer() } else { error });
                statement.end(&failed);
                return failed;
            }
        };
        let rest: VecDeque<_> = info.endpoint.clone().into();
        let declared = info.schema.clone();
        statement.set_info(info);
        let mut fetch = Self {
            reading: Reading::Done,
            statement: Some(statement),
            connection: Arc::clone(connection),
            connections: EndpointConnections::new(connection),
            schema: None,
            declared,
            rest,
            expiry: limits.expiry(),
            limits,
            _prepared: None,
        };
        fetch.open_next();
        poll_fn(|context| fetch.poll_schema(context)).await?;
        Ok(fetch)
    }

    /// The result of a statement that returned no rows.
    pub(crate) fn without_rows(connection: &Arc<Connection>, limits: Limits) -> Self {
        Self {
            reading: Reading::Done,
            statement: None,
            connection: Arc::clone(connection),
            connections: EndpointConnections::new(connection),
            schema: Some(Arc::new(Schema::empty())),
            declared: Bytes::new(),
            rest: VecDeque::new(),
            expiry: limits.expiry(),
            limits,
            _prepared: None,
        }
    }

    /// Keeps the prepared statement that it reads from until it is dropped.
    pub(crate) fn with_prepared(self, prepared: AsyncPreparedQuery) -> Self {
        Self { _prepared: Some(prepared), ..self }
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        self.schema.as_ref().expect("started with its schema")
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.connection.server.runtime
    }

    /// Reads the rest. An error comes with whether a batch was read before it.
    ///
    /// # Cancel safety
    /// Dropping it cancels the statement.
    pub(crate) async fn collect(mut self) -> Result<QueryResult, (Error, bool)> {
        let mut batches = Vec::new();
        while let Some(batch) = poll_fn(|context| self.poll_next(context)).await {
            batches.push(batch.map_err(|error| (error, !batches.is_empty()))?);
        }
        Ok(QueryResult::new(self.schema().clone(), batches))
    }

    fn open_next(&mut self) {
        self.reading = match self.rest.pop_front() {
            Some(endpoint) => {
                let connections = Arc::clone(&self.connections);
                Reading::Opening(Box::pin(connections.open(endpoint, self.limits.clone())))
            }
            None => {
                if let Some(statement) = self.statement.take() {
                    statement.finish();
                }
                Reading::Done
            }
        };
    }

    fn poll_schema(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        while self.schema.is_none() {
            match ready!(self.poll_item(context))? {
                Item::Schema => {}
                Item::Batch(_) => {
                    return Poll::Ready(Err(self.fail(Error::protocol("a batch before its schema"))));
                }
                // There is no endpoint, or the server sends nothing for a result without rows.
                Item::End => self.schema = Some(decode_schema(&self.declared)?),
            }
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        loop {
            match ready!(self.poll_item(context)) {
                Ok(Item::Schema) => {}
                Ok(Item::Batch(batch)) => return Poll::Ready(Some(Ok(batch))),
                Ok(Item::End) => return Poll::Ready(None),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Result<Item>> {
        loop {
            if matches!(self.reading, Reading::Done) {
                return Poll::Ready(Ok(Item::End));
            }
            let phase = self.phase();
            if let Poll::Ready(error) = self.expiry.poll(context, &phase) {
                return Poll::Ready(Err(self.fail(error)));
            }
            match &mut self.reading {
                Reading::Done => {}
                Reading::Opening(opening) => match ready!(opening.as_mut().poll(context)) {
                    Ok(source) => self.reading = Reading::From(source),
                    Err(error) => return Poll::Ready(Err(self.fail(error))),
                },
                Reading::From(source) => match ready!(source.poll_next(context)) {
                    Some(Ok(payload)) => match payload {
                        DecodedPayload::None => {}
                        DecodedPayload::RecordBatch(batch) => return Poll::Ready(Ok(Item::Batch(batch))),
                        DecodedPayload::Schema(schema) => match &self.schema {
                            // A part without rows may have no columns. Another one has them.
                            None if schema.fields().is_empty()
                                && self.declared.is_empty()
                                && !self.rest.is_empty() => {}
                            Some(_) if schema.fields().is_empty() => {}
                            None => {
                                self.schema = Some(match schema.fields().is_empty() {
                                    // Some servers take the columns from the first batch, and here there is
                                    // none.
                                    true => decode_schema(&self.declared)?,
                                    false => schema,
                                });
                                return Poll::Ready(Ok(Item::Schema));
                            }
                            Some(first) if first.fields() == schema.fields() => {}
                            Some(_) => {
                                let error =
                                    Error::protocol("two endpoints of a result have different schemas");
                                return Poll::Ready(Err(self.fail(error)));
                            }
                        },
                    },
                    Some(Err(error)) => {
                        let error =
                            classify(&error, &source.connection, &self.connection, &self.limits, phase);
                        return Poll::Ready(Err(self.fail(error)));
                    }
                    None => self.open_next(),
                },
            }
        }
    }

    /// Until the schema arrives, the server executes the statement.
    fn phase(&self) -> Phase {
        if self.schema.is_none() { Phase::Execute } else { Phase::Fetch }
    }

    /// Ends it with an error. The server has answered the first call, and many servers execute the statement
    /// then: from here on no error may say that it was not sent.
    fn fail(&mut self, error: Error) -> Error {
        let error = error.after_answer();
        self.reading = Reading::Done;
        self.rest.clear();
        if let Some(statement) = self.statement.take() {
            statement.end::<()>(&Err(error.clone()));
        }
        error
    }
}

/// An encoded schema. Without columns if there is none.
pub(super) fn decode_schema(schema: &Bytes) -> Result<SchemaRef> {
    if schema.is_empty() {
        return Ok(Arc::new(Schema::empty()));
    }
    Schema::try_from(IpcMessage(schema.clone())).map(Arc::new).map_err(Error::protocol)
}

fn classify(
    error: &FlightError,
    connection: &Arc<Connection>,
    own: &Arc<Connection>,
    limits: &Limits,
    phase: Phase,
) -> Error {
    let FlightError::Tonic(status) = error else { return Error::protocol(error) };
    let error = connection.classify_within(status, limits, phase);
    // A lost connection to another location takes no session with it.
    if Arc::ptr_eq(connection, own) { error } else { error.without_session() }
}
