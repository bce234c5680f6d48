//! `DoPut`: updates, parameters and ingestion.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use arrow_array::RecordBatch;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder, FlightRecordBatchStream};
use arrow_flight::error::FlightError;
use arrow_flight::sql::{
    Command, CommandPreparedStatementQuery, CommandPreparedStatementUpdate, CommandStatementIngest,
    CommandStatementUpdate, DoPutPreparedStatementResult, DoPutUpdateResult,
};
use arrow_flight::{FlightData, PutResult};
use futures_util::future::{Either, select};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use prost::Message;
use tokio::sync::mpsc::channel;
use tonic::{Response, Status, Streaming};

use super::{BoxStream, Caller, Service, command, flow, unknown};
use crate::execute::{self, BoundStatement};
use crate::handle::Kind;
use crate::ingest::{IngestMessage, ingest};
use crate::session::Session;
use crate::statement_task::run_to_value;

/// How many batches may wait for the statement.
const AHEAD: usize = 4;

impl Service {
    pub(super) async fn put(
        &self,
        caller: &Caller,
        mut data: Streaming<FlightData>,
    ) -> Result<Response<BoxStream<PutResult>>, Status> {
        let first = data.message().await?.ok_or_else(|| Status::invalid_argument("the stream is empty"))?;
        let descriptor = first.flight_descriptor.as_ref();
        let descriptor =
            descriptor.ok_or_else(|| Status::invalid_argument("the first message has no descriptor"))?;
        let command = command(&descriptor.cmd)?;
        let session = self.session(caller)?;
        // The first message may also contain the schema.
        let data = stream::iter([Ok(first)]).chain(data);
        let answer = match command {
            Command::CommandStatementUpdate(CommandStatementUpdate { query, transaction_id }) => {
                self.check_transaction(&session, transaction_id.as_deref())?;
                self.update(caller, &session, BoundStatement::plain(query), None).await?
            }
            Command::CommandPreparedStatementUpdate(CommandPreparedStatementUpdate {
                prepared_statement_handle,
            }) => {
                let number = self.own_handle(&session, &prepared_statement_handle, Kind::Prepared)?.number;
                let prepared = session.prepared(number)?;
                // Parameters in this call are for this call; otherwise those that were bound before apply.
                let parameters = batches(data).await?.or(prepared.parameters);
                self.update(
                    caller,
                    &session,
                    BoundStatement { text: prepared.text, parameters },
                    Some(number),
                )
                .await?
            }
            Command::CommandPreparedStatementQuery(CommandPreparedStatementQuery {
                prepared_statement_handle,
            }) => {
                let handle = self.own_handle(&session, &prepared_statement_handle, Kind::Prepared)?;
                session.bind(handle.number, batches(data).await?.unwrap_or_default())?;
                let result = DoPutPreparedStatementResult { prepared_statement_handle: Some(handle.bytes()) };
                PutResult { app_metadata: result.encode_to_vec().into() }
            }
            Command::CommandStatementIngest(command) => {
                self.check_transaction(&session, command.transaction_id.as_deref())?;
                self.ingest(caller, &session, command, data).await?
            }
            other => return Err(unknown(other.type_url())),
        };
        Ok(self.respond(flow([answer]), &session))
    }

    async fn update(
        &self,
        caller: &Caller,
        session: &Arc<Session>,
        statement: BoundStatement,
        prepared: Option<u64>,
    ) -> Result<PutResult, Status> {
        let task = self.task(caller, session, &statement.text, prepared);
        let alters = self.shared.config.quirks.alters_session_on_insert && statement.parameters.is_some();
        let changed = run_to_value(&self.shared, task, move |connection, run| {
            if alters {
                connection.execute_batch("CREATE TEMP TABLE IF NOT EXISTS flight_local_inserted (n)")?;
            }
            execute::update(connection, &statement, run)
        })
        .await?;
        Ok(counted(if self.shared.config.zero_counts { 0 } else { changed }))
    }

    async fn ingest(
        &self,
        caller: &Caller,
        session: &Arc<Session>,
        command: CommandStatementIngest,
        data: impl Stream<Item = Result<FlightData, Status>> + Send + Unpin + 'static,
    ) -> Result<PutResult, Status> {
        let task = self.task(caller, session, &format!("INGEST INTO {}", command.table), None);
        let (feed, fed) = channel(AHEAD);
        let tally = self.shared.tally.clone();
        let taking = run_to_value(&self.shared, task, move |connection, run| {
            ingest(connection, &command, fed, run, &tally)
        });
        let feeding = async move {
            let mut decoder = FlightDataDecoder::new(data.map_err(FlightError::from));
            while let Some(decoded) = contained(decoder.try_next()).await.map_err(Status::from)? {
                let item = match decoded.payload {
                    DecodedPayload::Schema(schema) => IngestMessage::Schema(schema),
                    DecodedPayload::RecordBatch(batch) => IngestMessage::Batch(batch),
                    DecodedPayload::None => continue,
                };
                // The statement has failed and reports why.
                if feed.send(item).await.is_err() {
                    return Ok(());
                }
            }
            at_its_end().await;
            let (Ok(()) | Err(_)) = feed.send(IngestMessage::End).await;
            Ok::<_, Status>(())
        };
        both(feeding, taking).await.map(counted)
    }
}

/// Waits for the statement, which may fail while the client still sends. If the client's stream fails, both
/// end.
async fn both<T>(
    feeding: impl Future<Output = Result<(), Status>>,
    taking: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match select(pin!(feeding), pin!(taking)).await {
        Either::Left((fed, taking)) => {
            fed?;
            taking.await
        }
        Either::Right((taken, _)) => taken,
    }
}

/// Decodes a message and catches panics: Arrow panics if a body is shorter than its header says. The decoder
/// must not be used after that.
async fn contained<T>(decoding: impl Future<Output = Result<T, FlightError>>) -> Result<T, FlightError> {
    let mut decoding = pin!(decoding);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| decoding.as_mut().poll(context)));
        let unreadable =
            || FlightError::DecodeError("the body of a batch does not match its header".to_owned());
        polled.unwrap_or_else(|_| Poll::Ready(Err(unreadable())))
    })
    .await
}

/// Returns only if the client has ended its stream. For tonic, a stream that breaks off looks the same; but
/// once this yields, hyper drops the whole call.
async fn at_its_end() {
    tokio::task::yield_now().await;
}

fn counted(record_count: i64) -> PutResult {
    PutResult { app_metadata: DoPutUpdateResult { record_count }.encode_to_vec().into() }
}

/// All batches of a stream; `None` without a schema.
async fn batches(
    data: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
) -> Result<Option<Vec<RecordBatch>>, Status> {
    let data = data.try_filter(|message| std::future::ready(!message.data_header.is_empty()));
    let mut decoded = FlightRecordBatchStream::new_from_flight_data(data.map_err(FlightError::from).boxed());
    let mut batches = Vec::new();
    while let Some(batch) = contained(decoded.try_next()).await.map_err(Status::from)? {
        batches.push(batch);
    }
    at_its_end().await;
    Ok(decoded.schema().is_some().then_some(batches))
}
