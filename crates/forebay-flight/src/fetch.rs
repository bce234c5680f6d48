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

use crate::error::{Code, Error, Phase, Result};
use crate::ladder::Statement;
use crate::limits::{Limits, Watch};
use crate::link::{Link, Turn};
use crate::query_options::Progress;
use crate::result::QueryResult;

mod places;
mod progress;

use places::Places;

/// A result that is being read.
pub(crate) struct Fetch {
    // The first field, and so dropped first: the call is aborted before the statement is cancelled.
    reading: Reading,
    statement: Option<Statement>,
    link: Arc<Link>,
    places: Arc<Places>,
    rest: VecDeque<FlightEndpoint>,
    schema: Option<SchemaRef>,
    /// The schema as it was announced, encoded; it may be missing.
    announced: Bytes,
    limits: Limits,
    watch: Watch,
}

enum Reading {
    Opening(Pin<Box<dyn Future<Output = Result<Source>> + Send>>),
    From(Source),
    Done,
}

/// Where one endpoint's data come from.
struct Source {
    data: FlightDataDecoder,
    link: Arc<Link>,
}

impl Source {
    /// The next message. One whose body is shorter than its header says makes Arrow's decoder panic: that is the server's fault,
    /// and no reason to end the caller. The decoder is not used again after it.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<DecodedPayload, FlightError>>> {
        let decoded = catch_unwind(AssertUnwindSafe(|| self.data.poll_next_unpin(context)));
        let unreadable =
            || FlightError::DecodeError("a batch whose body is not what its header says".to_owned());
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
    /// Runs a command and begins to read its result: two calls, if the result has one endpoint. The schema is there
    /// when this is done.
    ///
    /// # Cancel safety
    /// Dropping it cancels the statement.
    pub(crate) async fn start(
        turn: Turn,
        command: Bytes,
        limits: Limits,
        progress: Option<&Progress>,
    ) -> Result<Self> {
        limits.check(Phase::Execute)?;
        let link = Arc::clone(turn.link());
        Self::begin(Statement::begin(turn), &link, command, limits, progress).await
    }

    /// The same for a question about the catalog: what answers it is no statement that could be cancelled by its name.
    ///
    /// # Cancel safety
    /// As [`start`](Self::start).
    pub(crate) async fn ask(turn: Turn, command: Bytes, limits: Limits) -> Result<Self> {
        limits.check(Phase::Execute)?;
        let link = Arc::clone(turn.link());
        Self::begin(Statement::nameless(turn), &link, command, limits, None).await
    }

    async fn begin(
        mut statement: Statement,
        link: &Arc<Link>,
        command: Bytes,
        limits: Limits,
        progress: Option<&Progress>,
    ) -> Result<Self> {
        let started = limits.run(Phase::Execute, async {
            let info = match progress {
                Some(progress) => progress::poll(link, &command, &limits, progress, &mut statement).await,
                None => Ok(None),
            };
            let info = match info {
                Ok(None) => link.info(command, limits.remaining()).await,
                Ok(Some(info)) => Ok(info),
                Err(status) => Err(status),
            };
            info.map_err(|status| link.judge_within(&status, &limits, Phase::Execute))
        });
        let info = match started.await {
            Ok(info) => info,
            Err(error) => {
                let error = if statement.is_answered() { error.after_answer() } else { error };
                close_if_answered(&mut Some(statement), &error);
                return Err(error);
            }
        };
        let rest: VecDeque<_> = info.endpoint.clone().into();
        let announced = info.schema.clone();
        statement.known_as(info);
        let mut fetch = Self {
            reading: Reading::Done,
            statement: Some(statement),
            link: Arc::clone(link),
            places: Places::of(link),
            schema: None,
            announced,
            rest,
            watch: limits.watch(),
            limits,
        };
        fetch.open_next();
        poll_fn(|context| fetch.poll_schema(context)).await?;
        Ok(fetch)
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        self.schema.as_ref().expect("started with its schema")
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.link.server.runtime
    }

    /// Reads all that is left. An error comes with whether a batch had been read before it.
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
                let places = Arc::clone(&self.places);
                Reading::Opening(Box::pin(places.open(endpoint, self.limits.clone())))
            }
            None => {
                if let Some(statement) = self.statement.take() {
                    statement.over();
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
                // Nothing to read, or a server that sends nothing for a result without rows.
                Item::End => self.schema = Some(announced(&self.announced)?),
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
            if let Poll::Ready(error) = self.watch.poll(context, &phase) {
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
                            None => {
                                self.schema = Some(match schema.fields().is_empty() {
                                    // Some servers take the columns from the first batch, and there is none.
                                    true => announced(&self.announced)?,
                                    false => schema,
                                });
                                return Poll::Ready(Ok(Item::Schema));
                            }
                            Some(first) if first.fields() == schema.fields() => {}
                            Some(_) => {
                                let error = Error::protocol("two endpoints of a result with two schemas");
                                return Poll::Ready(Err(self.fail(error)));
                            }
                        },
                    },
                    Some(Err(error)) => {
                        let error = judge(&error, &source.link, &self.link, &self.limits, phase);
                        return Poll::Ready(Err(self.fail(error)));
                    }
                    None => self.open_next(),
                },
            }
        }
    }

    /// Until its schema is there, the server is at work on it.
    fn phase(&self) -> Phase {
        if self.schema.is_none() { Phase::Execute } else { Phase::Fetch }
    }

    /// Ends it with an error. The server has answered the statement's first call, and many carry it out then: from there on
    /// nothing may be taken for a statement that was not sent.
    fn fail(&mut self, error: Error) -> Error {
        let error = error.after_answer();
        self.reading = Reading::Done;
        self.rest.clear();
        close_if_answered(&mut self.statement, &error);
        // One that is not closed is cancelled here.
        self.statement = None;
        error
    }
}

/// The columns as they were announced with the result; none if they were not.
fn announced(schema: &Bytes) -> Result<SchemaRef> {
    if schema.is_empty() {
        return Ok(Arc::new(Schema::empty()));
    }
    Schema::try_from(IpcMessage(schema.clone())).map(Arc::new).map_err(Error::protocol)
}

/// A server that refuses a statement is done with it. `OUT_OF_RANGE` may be this side's, though: a message was too large. What makes
/// no sense was never sent.
pub(crate) fn close_if_answered(statement: &mut Option<Statement>, error: &Error) {
    let is_over = match error {
        Error::Server { code, .. } => *code != Code::OutOfRange,
        error => matches!(error, Error::Config { .. }),
    };
    if is_over && let Some(statement) = statement.take() {
        statement.over();
    }
}

fn judge(error: &FlightError, link: &Arc<Link>, home: &Arc<Link>, limits: &Limits, phase: Phase) -> Error {
    let FlightError::Tonic(status) = error else { return Error::protocol(error) };
    let error = link.judge_within(status, limits, phase);
    // Another connection that is lost takes no session with it.
    if Arc::ptr_eq(link, home) { error } else { error.stateless() }
}
