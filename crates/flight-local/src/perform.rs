//! How a statement comes to be executed: its turn, its faults, its thread, its counts.

use std::sync::Arc;

use arrow_flight::FlightData;
use rusqlite::Connection;
use tokio::sync::OwnedMutexGuard;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;
use tonic::Status;

use crate::counters::AtWork;
use crate::error::Failure;
use crate::execute;
use crate::faults::Fault;
use crate::outside;
use crate::race::unless;
use crate::run::{Leash, Run};
use crate::session::{Engine, Session};
use crate::shared::Shared;
use crate::sink::{Answer, Output, Sink, pipe};
use crate::supply::Supply;
use crate::wire::Line;

/// A statement on its way: whose it is, and who waits for it.
#[derive(Debug)]
pub(crate) struct Errand {
    pub(crate) session: Arc<Session>,
    pub(crate) run: Arc<Run>,
    /// Its number among the session's handles.
    pub(crate) number: u64,
    pub(crate) prepared: Option<u64>,
    /// The connection that a fault would cut.
    pub(crate) line: Arc<Line>,
    pub(crate) text: String,
}

/// Executes something that is no statement of a client's: without counts and faults.
pub(crate) async fn aside<T: Send + 'static>(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Status> {
    let run = session.new_run(shared);
    let engine = session.lock(&run).await?;
    let _leash = Leash::new(run.clone(), true);
    on_thread(shared, session, engine, run, move |connection, _| work(connection))
        .await
        .map_err(|failure| failure.status(shared.config.internal_errors))
}

/// Executes a statement in its turn. It goes on when this future is dropped only if it runs as a task of its own.
pub(crate) async fn perform<T: Send + 'static>(
    shared: Arc<Shared>,
    errand: Errand,
    work: impl FnOnce(&Connection, &Run) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Status> {
    let Errand { session, run, number, prepared, line, text } = errand;
    let _enlisted = session.enlist(number, &run, prepared);
    let engine = session.lock(&run).await?;
    let mut at_work = AtWork::begin(&shared.tally);
    shared.log(&text);
    let result = execute_with_faults(&shared, &session, engine, &run, &line, work).await;
    if !matches!(&result, Err(status) if status.code() == tonic::Code::Cancelled) {
        at_work.finish();
    }
    result
}

async fn execute_with_faults<T: Send + 'static>(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    engine: OwnedMutexGuard<Engine>,
    run: &Arc<Run>,
    line: &Line,
    work: impl FnOnce(&Connection, &Run) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Status> {
    let interrupted = || Failure::Interrupted.status(false);
    let delay = shared.faults.delay();
    if !delay.is_zero() {
        unless(outside::sleep(delay), run.cancelled()).await.ok_or_else(interrupted)?;
    }
    let fault = shared.faults.next();
    match fault {
        Fault::None => {}
        Fault::Hang => {
            run.cancelled().await;
            return Err(interrupted());
        }
        Fault::ResetBefore => {
            line.cut();
            return Err(Status::unavailable("a fault has cut the connection"));
        }
        Fault::ResetAfter => run.hush(),
        Fault::Internal => return Err(Status::internal("a fault has made the statement fail")),
    }
    let result = on_thread(shared, session, engine, run.clone(), work).await;
    if fault == Fault::ResetAfter {
        line.cut();
    }
    result.map_err(|failure| failure.status(shared.config.internal_errors))
}

/// Executes something on a thread that may block, and lets go of the session there.
async fn on_thread<T: Send + 'static>(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    mut engine: OwnedMutexGuard<Engine>,
    run: Arc<Run>,
    work: impl FnOnce(&Connection, &Run) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let (shared, session) = (shared.clone(), session.clone());
    let task = outside::blocking(move || {
        let _entered = run.enter();
        let connection = engine.connection(&shared)?;
        let result = work(connection, &run);
        // By a statement of the client's own, or by an interruption, which undoes the whole of it: what names it from
        // now on must not run outside of it.
        if connection.is_autocommit() {
            session.set_transaction(None);
        }
        match result {
            // Whatever it says it died of.
            Err(_) if run.is_cancelled() => Err(Failure::Interrupted),
            result => result,
        }
    });
    task.await.unwrap_or_else(|_| Err(Failure::Request("the statement's thread ended early".to_owned())))
}

/// A result on its way: where it comes out, how it ends, and what ends it early.
type Begun = (Receiver<FlightData>, JoinHandle<Result<(), Status>>, Leash);

/// Begins a statement, as a task of its own.
pub(crate) fn begin(shared: &Arc<Shared>, errand: Errand, supply: Supply) -> Begun {
    let persists = !shared.config.interrupt_on_drop;
    let run = errand.run.clone();
    let (sink, messages) = pipe(&run, persists);
    let max_rows = shared.config.max_batch_rows.max(1);
    let work = move |connection: &Connection, run: &Run| produce(connection, &supply, max_rows, sink, run);
    let task = outside::spawn(perform(shared.clone(), errand, work));
    (messages, task, Leash::new(run, !persists))
}

fn produce(
    connection: &Connection,
    supply: &Supply,
    max_rows: usize,
    mut sink: Sink,
    run: &Run,
) -> Result<(), Failure> {
    match supply {
        Supply::Order(order, _) => execute::query(connection, order, max_rows, &mut sink, run),
        Supply::Prebuilt(prebuilt) => prebuilt.stream(&mut sink, run),
        Supply::Kept(schema, batches) => {
            sink.schema(schema)?;
            batches.iter().try_for_each(|batch| sink.batch(batch.clone()))
        }
    }
}

/// Begins a statement and waits for the first of its result.
pub(crate) async fn answer(shared: &Arc<Shared>, errand: Errand, supply: Supply) -> Result<Answer, Status> {
    let (messages, task, leash) = begin(shared, errand, supply);
    Answer::begin(messages, task, shared.tally.clone(), leash).await
}

/// Executes a statement whose result is one value, and waits for it.
pub(crate) async fn outcome<T: Send + 'static>(
    shared: &Arc<Shared>,
    errand: Errand,
    work: impl FnOnce(&Connection, &Run) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Status> {
    let _leash = Leash::new(errand.run.clone(), shared.config.interrupt_on_drop);
    let task = outside::spawn(perform(shared.clone(), errand, work));
    task.await.unwrap_or_else(|_| Err(Status::internal("the statement's thread ended early")))
}
