//! Sends a result from its statement to the transport.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow_array::RecordBatch;
use arrow_flight::{FlightData, SchemaAsIpc};
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_schema::{Schema, SchemaRef};
use futures_util::Stream;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tonic::Status;

use crate::counters::{Tally, count};
use crate::error::Failure;
use crate::execution::{CancelOnDrop, Execution};
use crate::race::unless;
use crate::runtime;

/// How many messages a statement may be ahead of the transport.
const AHEAD: usize = 2;

pub(crate) fn pipe(run: &Arc<Execution>, persists: bool) -> (ResultSender, Receiver<FlightData>) {
    let (out, messages) = channel(AHEAD);
    (ResultSender { out, run: run.clone(), persists }, messages)
}

/// The sending end, on the statement's thread. The schema comes first.
#[derive(Debug)]
pub(crate) struct ResultSender {
    out: Sender<FlightData>,
    run: Arc<Execution>,
    /// Whether to continue without a receiver.
    persists: bool,
}

/// Receives a result: its schema, then its batches.
pub(crate) trait BatchSink {
    fn schema(&mut self, schema: &SchemaRef) -> Result<(), Failure>;
    fn batch(&mut self, batch: RecordBatch) -> Result<(), Failure>;
}

impl BatchSink for ResultSender {
    fn schema(&mut self, schema: &SchemaRef) -> Result<(), Failure> {
        self.message(encode_schema(schema))
    }

    fn batch(&mut self, batch: RecordBatch) -> Result<(), Failure> {
        self.message(encode(&batch)?)
    }
}

#[derive(Debug, Default)]
pub(crate) struct CollectedResult {
    pub(crate) schema: Option<SchemaRef>,
    pub(crate) batches: Vec<RecordBatch>,
}

impl BatchSink for CollectedResult {
    fn schema(&mut self, schema: &SchemaRef) -> Result<(), Failure> {
        self.schema = Some(schema.clone());
        Ok(())
    }

    fn batch(&mut self, batch: RecordBatch) -> Result<(), Failure> {
        self.batches.push(batch);
        Ok(())
    }
}

impl ResultSender {
    /// Waits for room, so a slow client slows its statement down.
    pub(crate) fn message(&mut self, message: FlightData) -> Result<(), Failure> {
        if self.run.discards_output() {
            return Ok(());
        }
        let out = &self.out;
        let sent = match out.try_reserve() {
            Ok(place) => {
                place.send(message);
                Some(true)
            }
            Err(_) => {
                runtime::wait_for(unless(async { out.send(message).await.is_ok() }, self.run.cancelled()))
            }
        };
        match sent {
            Some(true) => Ok(()),
            Some(false) if self.persists => Ok(()),
            _ => Err(Failure::Interrupted),
        }
    }
}

pub(crate) fn encode_schema(schema: &Schema) -> FlightData {
    SchemaAsIpc::new(schema, &IpcWriteOptions::default()).into()
}

pub(crate) fn encode(batch: &RecordBatch) -> Result<FlightData, Failure> {
    let mut dictionaries = DictionaryTracker::new(false);
    let (_, encoded) = IpcDataGenerator::default().encode(
        batch,
        &mut dictionaries,
        &IpcWriteOptions::default(),
        &mut IpcWriteContext::default(),
    )?;
    Ok(encoded.into())
}

/// A result for the transport. Dropping it cancels its statement.
#[derive(Debug)]
pub(crate) struct ResultStream {
    first: Option<FlightData>,
    messages: Receiver<FlightData>,
    /// The statement's task.
    verdict: Option<JoinHandle<Result<(), Status>>>,
    tally: Arc<Tally>,
    _cancel_on_drop: CancelOnDrop,
}

impl ResultStream {
    /// Waits for the first message, or for the failure.
    pub(crate) async fn begin(
        mut messages: Receiver<FlightData>,
        verdict: JoinHandle<Result<(), Status>>,
        tally: Arc<Tally>,
        cancel_on_drop: CancelOnDrop,
    ) -> Result<Self, Status> {
        let first = messages.recv().await;
        let verdict = match first {
            Some(_) => Some(verdict),
            None => {
                ended(verdict.await)?;
                None
            }
        };
        Ok(Self { first, messages, verdict, tally, _cancel_on_drop: cancel_on_drop })
    }
}

fn ended<E>(verdict: Result<Result<(), Status>, E>) -> Result<(), Status> {
    verdict.unwrap_or_else(|_| Err(Status::internal("the statement's thread ended early")))
}

impl Stream for ResultStream {
    type Item = Result<FlightData, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(schema) = self.first.take() {
            return Poll::Ready(Some(Ok(schema)));
        }
        if let Some(message) = std::task::ready!(self.messages.poll_recv(context)) {
            count(&self.tally.batches_sent);
            return Poll::Ready(Some(Ok(message)));
        }
        // The channel closes before the task ends.
        let Some(verdict) = &mut self.verdict else { return Poll::Ready(None) };
        let verdict = std::task::ready!(Pin::new(verdict).poll(context));
        self.verdict = None;
        Poll::Ready(ended(verdict).err().map(Err))
    }
}
