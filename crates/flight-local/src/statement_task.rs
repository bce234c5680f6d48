//! Runs statements: waits for the session, applies faults, runs them on a thread and counts them.

use std::sync::Arc;

use arrow_flight::FlightData;
use rusqlite::Connection;
use tokio::sync::OwnedMutexGuard;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;
use tonic::Status;

use crate::client::Client;
use crate::counters::RunningStatement;
use crate::error::Failure;
use crate::execute;
use crate::execution::{CancelOnDrop, Execution};
use crate::faults::Fault;
use crate::race::unless;
use crate::result_source::ResultSource;
use crate::result_stream::{BatchSink, ResultSender, ResultStream, pipe};
use crate::runtime;
use crate::session::Session;
use crate::shared::Shared;

/// A statement that is to run, and its caller.
#[derive(Debug)]
pub(crate) struct StatementTask {
    pub(crate) session: Arc<Session>,
    pub(crate) run: Arc<Execution>,
    /// Its number among the session's handles.
    pub(crate) number: u64,
    pub(crate) prepared: Option<u64>,
    /// The connection that a fault resets.
    pub(crate) client: Arc<Client>,
    pub(crate) text: String,
}

/// Runs something that is not a client's statement: without counters and faults.
pub(crate) async fn run_internal<T: Send + 'static>(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Status> {
    let run = session.new_run(shared);
    let connection = session.lock(&run).await?;
    let _cancel_on_drop = CancelOnDrop::new(run.clone(), true);
    on_thread(shared, session, connection, run, move |connection, _| work(connection))
        .await
        .map_err(|failure| failure.status(shared.config.internal_errors))
}

/// Runs a statement when the session is free. If this future is dropped, the statement stops, unless it runs
/// as a separate task.
pub(crate) async fn run_statement<T: Send + 'static>(
    shared: Arc<Shared>,
    task: StatementTask,
    work: impl FnOnce(&Connection, &Execution) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Status> {
    let StatementTask { session, run, number, prepared, client, text } = task;
    let _registered = session.register(number, &run, prepared);
    let connection = session.lock(&run).await?;
    let mut running = RunningStatement::begin(&shared.tally);
    shared.log(&text);
    let result = execute_with_faults(&shared, &session, connection, &run, &client, work).await;
    if !matches!(&result, Err(status) if status.code() == tonic::Code::Cancelled) {
        running.finish();
    }
    result
}

async fn execute_with_faults<T: Send + 'static>(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    connection: OwnedMutexGuard<Option<Connection>>,
    run: &Arc<Execution>,
    client: &Client,
    work: impl FnOnce(&Connection, &Execution) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Status> {
    let interrupted = || Failure::Interrupted.status(false);
    let delay = shared.faults.delay();
    if !delay.is_zero() {
        unless(runtime::sleep(delay), run.cancelled()).await.ok_or_else(interrupted)?;
    }
    let fault = shared.faults.next();
    match fault {
        Fault::None => {}
        Fault::Hang => {
            run.cancelled().await;
            return Err(interrupted());
        }
        Fault::ResetBefore => {
            client.reset();
            return Err(Status::unavailable("a fault has cut the connection"));
        }
        Fault::ResetAfter => run.discard_output(),
        Fault::Internal => return Err(Status::internal("a fault has made the statement fail")),
    }
    let result = on_thread(shared, session, connection, run.clone(), work).await;
    if fault == Fault::ResetAfter {
        client.reset();
    }
    result.map_err(|failure| failure.status(shared.config.internal_errors))
}

/// Runs work on a blocking thread, and releases the session there.
async fn on_thread<T: Send + 'static>(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    mut connection: OwnedMutexGuard<Option<Connection>>,
    run: Arc<Execution>,
    work: impl FnOnce(&Connection, &Execution) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let (shared, session) = (shared.clone(), session.clone());
    let task = runtime::blocking(move || {
        let _entered = run.enter();
        let connection = match &mut *connection {
            Some(connection) => connection,
            none => none.insert(shared.database.connect()?),
        };
        let result = work(connection, &run);
        if result.is_err() && shared.config.quirks.rolls_back_on_error && !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK")?;
        }
        // The client's own statement or a cancellation may have ended the transaction. A later statement that
        // names it must not run outside of it.
        if connection.is_autocommit() {
            session.set_transaction(None);
        }
        match result {
            // Whatever the error is, the cause is the cancellation.
            Err(_) if run.is_cancelled() => Err(Failure::Interrupted),
            result => result,
        }
    });
    task.await.unwrap_or_else(|_| Err(Failure::Request("the statement's thread ended early".to_owned())))
}

/// The result channel, the task, and a guard that cancels it.
type Begun = (Receiver<FlightData>, JoinHandle<Result<(), Status>>, CancelOnDrop);

/// Starts a statement as a separate task.
pub(crate) fn start(shared: &Arc<Shared>, task: StatementTask, source: ResultSource) -> Begun {
    let persists = !shared.config.interrupt_on_drop;
    let run = task.run.clone();
    let (sender, messages) = pipe(&run, persists);
    let max_rows = shared.config.max_batch_rows.max(1);
    let work =
        move |connection: &Connection, run: &Execution| produce(connection, &source, max_rows, sender, run);
    let task = runtime::spawn(run_statement(shared.clone(), task, work));
    (messages, task, CancelOnDrop::new(run, !persists))
}

fn produce(
    connection: &Connection,
    source: &ResultSource,
    max_rows: usize,
    mut sender: ResultSender,
    run: &Execution,
) -> Result<(), Failure> {
    match source {
        ResultSource::Statement(statement, _) => {
            execute::query(connection, statement, max_rows, &mut sender, run)
        }
        ResultSource::Prebuilt(prebuilt) => prebuilt.stream(&mut sender, run),
        ResultSource::Batches(schema, batches) => {
            sender.schema(schema)?;
            batches.iter().try_for_each(|batch| sender.batch(batch.clone()))
        }
    }
}

/// Starts a statement and waits for the beginning of its result.
pub(crate) async fn run_to_stream(
    shared: &Arc<Shared>,
    task: StatementTask,
    source: ResultSource,
) -> Result<ResultStream, Status> {
    let (messages, task, cancel_on_drop) = start(shared, task, source);
    ResultStream::begin(messages, task, shared.tally.clone(), cancel_on_drop).await
}

pub(crate) async fn run_to_value<T: Send + 'static>(
    shared: &Arc<Shared>,
    task: StatementTask,
    work: impl FnOnce(&Connection, &Execution) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Status> {
    let _cancel_on_drop = CancelOnDrop::new(task.run.clone(), shared.config.interrupt_on_drop);
    let task = runtime::spawn(run_statement(shared.clone(), task, work));
    task.await.unwrap_or_else(|_| Err(Status::internal("the statement's thread ended early")))
}
