//! A session: a connection to the database and everything that lives as long as it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::OwnedMutexGuard;
use tonic::Status;

use crate::background::BackgroundStatement;
use crate::error::Failure;
use crate::execution::Execution;
use crate::handle::{Handle, Kind};
use crate::options::Options;
use crate::race::unless;
use crate::result_source::ResultSource;
use crate::shared::Shared;

/// The largest number of unredeemed results in a session. The oldest are dropped.
const WAITING: usize = 1_000;
/// How long a cancellation waits for the statement to stop.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    /// Opened by the first statement. Locked by the running one: statements of a session run one after another.
    connection: Arc<tokio::sync::Mutex<Option<Connection>>>,
    state: Mutex<SessionState>,
    ended: AtomicBool,
}

/// Everything that has a handle.
#[derive(Debug)]
struct SessionState {
    next: u64,
    waiting: BTreeMap<u64, (Arc<Execution>, ResultSource)>,
    polled: BTreeMap<u64, Arc<BackgroundStatement>>,
    runs: BTreeMap<u64, (Arc<Execution>, Option<u64>)>,
    prepared: BTreeMap<u64, Prepared>,
    transaction: Option<u64>,
    options: Options,
}

/// A prepared statement and its bound parameters.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) text: String,
    pub(crate) parameters: Option<Vec<RecordBatch>>,
}

/// The result of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancelled {
    Stopped,
    Stopping,
    Nothing,
}

impl Session {
    pub(crate) fn new(id: String, patience: Duration) -> Self {
        let state = SessionState {
            next: 1,
            waiting: BTreeMap::new(),
            polled: BTreeMap::new(),
            runs: BTreeMap::new(),
            prepared: BTreeMap::new(),
            transaction: None,
            options: Options::new(patience),
        };
        Self { id, connection: Arc::default(), state: Mutex::new(state), ended: AtomicBool::new(false) }
    }

    pub(crate) fn handle(&self, kind: Kind, number: u64) -> Handle {
        Handle { session: self.id.clone(), kind, number }
    }

    /// A new number for a handle.
    pub(crate) fn number(&self) -> u64 {
        let mut state = self.state.lock();
        state.next += 1;
        state.next - 1
    }

    pub(crate) fn new_run(&self, shared: &Shared) -> Arc<Execution> {
        Execution::new(shared.tally.clone(), self.options(|options| options.busy_timeout))
    }

    pub(crate) fn options<T>(&self, look: impl FnOnce(&mut Options) -> T) -> T {
        look(&mut self.state.lock().options)
    }

    /// Waits until no other statement runs.
    pub(crate) async fn lock(&self, run: &Execution) -> Result<OwnedMutexGuard<Option<Connection>>, Status> {
        let connection = unless(self.connection.clone().lock_owned(), run.cancelled()).await;
        let connection = connection.ok_or_else(|| Failure::Interrupted.status(false))?;
        match self.ended.load(Ordering::SeqCst) {
            false => Ok(connection),
            true => Err(Status::not_found("the session has ended")),
        }
    }

    /// Cancels everything. No statement can begin afterwards.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        let (polled, waiting) = {
            let mut state = self.state.lock();
            for (run, _) in state.runs.values() {
                run.cancel();
            }
            (std::mem::take(&mut state.polled), std::mem::take(&mut state.waiting))
        };
        // Dropping them cancels their statements.
        drop((polled, waiting));
    }

    /// Keeps a result, or a statement, until its ticket is redeemed.
    pub(crate) fn keep(&self, run: Arc<Execution>, source: ResultSource) -> Handle {
        let number = self.number();
        let mut state = self.state.lock();
        state.waiting.insert(number, (run, source));
        if state.waiting.len() > WAITING {
            state.waiting.pop_first();
        }
        self.handle(Kind::Statement, number)
    }

    pub(crate) fn redeem(&self, number: u64) -> Option<(Arc<Execution>, ResultSource)> {
        self.state.lock().waiting.remove(&number)
    }

    pub(crate) fn keep_polled(&self, number: u64, polled: Arc<BackgroundStatement>) {
        self.state.lock().polled.insert(number, polled);
    }

    pub(crate) fn polled(&self, number: u64) -> Option<Arc<BackgroundStatement>> {
        self.state.lock().polled.get(&number).cloned()
    }

    pub(crate) fn forget_polled(&self, number: u64) {
        let polled = self.state.lock().polled.remove(&number);
        drop(polled);
    }

    /// Makes an execution cancellable until the guard is dropped.
    pub(crate) fn register(
        self: &Arc<Self>,
        number: u64,
        run: &Arc<Execution>,
        prepared: Option<u64>,
    ) -> RunningGuard {
        self.state.lock().runs.insert(number, (run.clone(), prepared));
        // If the session ended before, it did not cancel this execution.
        if self.ended.load(Ordering::SeqCst) {
            run.cancel();
        }
        RunningGuard { session: self.clone(), number, run: run.clone() }
    }

    /// Cancels a statement by the handle of its ticket or prepared statement.
    pub(crate) async fn cancel(&self, handle: &Handle) -> Cancelled {
        let number = handle.number;
        let runs: Vec<Arc<Execution>> = {
            let mut state = self.state.lock();
            match handle.kind {
                Kind::Prepared => state
                    .runs
                    .values()
                    .filter(|(_, prepared)| *prepared == Some(number))
                    .map(|(run, _)| run.clone())
                    .collect(),
                _ => {
                    if state.waiting.remove(&number).is_some() {
                        return Cancelled::Stopped;
                    }
                    state.runs.get(&number).map(|(run, _)| run.clone()).into_iter().collect()
                }
            }
        };
        stop(runs).await
    }

    /// Cancels everything that runs or waits in this session.
    pub(crate) async fn cancel_all(&self) -> Cancelled {
        let runs = self.state.lock().runs.values().map(|(run, _)| run.clone()).collect();
        stop(runs).await
    }

    pub(crate) fn prepare(&self, text: String) -> Handle {
        let number = self.number();
        self.state.lock().prepared.insert(number, Prepared { text, parameters: None });
        self.handle(Kind::Prepared, number)
    }

    pub(crate) fn prepared(&self, number: u64) -> Result<Prepared, Status> {
        let state = self.state.lock();
        state
            .prepared
            .get(&number)
            .cloned()
            .ok_or_else(|| Status::not_found("the prepared statement was closed"))
    }

    pub(crate) fn bind(&self, number: u64, batches: Vec<RecordBatch>) -> Result<(), Status> {
        let mut state = self.state.lock();
        let prepared = state.prepared.get_mut(&number);
        let prepared = prepared.ok_or_else(|| Status::not_found("the prepared statement was closed"))?;
        prepared.parameters = Some(batches);
        Ok(())
    }

    /// Forgets the parameters of a prepared statement.
    pub(crate) fn unbind(&self, number: u64) {
        if let Some(prepared) = self.state.lock().prepared.get_mut(&number) {
            prepared.parameters = None;
        }
    }

    pub(crate) fn close_prepared(&self, number: u64) -> bool {
        self.state.lock().prepared.remove(&number).is_some()
    }

    pub(crate) fn transaction(&self) -> Option<u64> {
        self.state.lock().transaction
    }

    pub(crate) fn set_transaction(&self, transaction: Option<u64>) {
        self.state.lock().transaction = transaction;
    }
}

async fn stop(runs: Vec<Arc<Execution>>) -> Cancelled {
    if runs.is_empty() {
        return Cancelled::Nothing;
    }
    for run in &runs {
        run.cancel();
    }
    let all = async {
        for run in &runs {
            run.ended().await;
        }
    };
    match unless(all, crate::runtime::sleep(PATIENCE)).await {
        Some(()) => Cancelled::Stopped,
        None => Cancelled::Stopping,
    }
}

/// A registered execution. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct RunningGuard {
    session: Arc<Session>,
    number: u64,
    run: Arc<Execution>,
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.session.state.lock().runs.remove(&self.number);
        self.run.end();
    }
}
