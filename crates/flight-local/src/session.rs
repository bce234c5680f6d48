//! One session: a connection to the database, and everything that lives as long as it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::OwnedMutexGuard;
use tonic::Status;

use crate::error::Failure;
use crate::handle::{Handle, Kind};
use crate::options::Options;
use crate::polled::Polled;
use crate::race::unless;
use crate::run::Run;
use crate::shared::Shared;
use crate::supply::Supply;

/// How many results may wait to be fetched in one session; the oldest give way.
const WAITING: usize = 1_000;
/// How long a cancellation waits for what it has cancelled.
const PATIENCE: Duration = Duration::from_secs(1);

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    id: String,
    /// Whoever holds this has the session: statements run one after another.
    engine: Arc<tokio::sync::Mutex<Engine>>,
    desk: Mutex<Desk>,
    ended: AtomicBool,
}

/// The session's connection, made by the first statement.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    connection: Option<Connection>,
}

impl Engine {
    pub(crate) fn connection(&mut self, shared: &Shared) -> Result<&Connection, Failure> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            none => Ok(none.insert(shared.database.connect()?)),
        }
    }
}

/// What the session has given handles for.
#[derive(Debug)]
struct Desk {
    next: u64,
    waiting: BTreeMap<u64, (Arc<Run>, Supply)>,
    polled: BTreeMap<u64, Arc<Polled>>,
    runs: BTreeMap<u64, (Arc<Run>, Option<u64>)>,
    prepared: BTreeMap<u64, Prepared>,
    transaction: Option<u64>,
    options: Options,
}

/// A prepared statement and what is bound to it.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) text: String,
    pub(crate) parameters: Option<Vec<RecordBatch>>,
}

/// What came of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// It has stopped.
    Stopped,
    /// It will stop.
    Stopping,
    /// There was nothing to stop.
    Nothing,
}

impl Session {
    pub(crate) fn new(id: String, patience: Duration) -> Self {
        let desk = Desk {
            next: 1,
            waiting: BTreeMap::new(),
            polled: BTreeMap::new(),
            runs: BTreeMap::new(),
            prepared: BTreeMap::new(),
            transaction: None,
            options: Options::new(patience),
        };
        Self { id, engine: Arc::default(), desk: Mutex::new(desk), ended: AtomicBool::new(false) }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn handle(&self, kind: Kind, number: u64) -> Handle {
        Handle { session: self.id.clone(), kind, number }
    }

    /// A number nothing else of this session has.
    pub(crate) fn number(&self) -> u64 {
        let mut desk = self.desk.lock();
        desk.next += 1;
        desk.next - 1
    }

    /// A new execution, with this session's patience.
    pub(crate) fn new_run(&self, shared: &Shared) -> Arc<Run> {
        Run::new(shared.tally.clone(), self.options(|options| options.busy_timeout))
    }

    pub(crate) fn options<T>(&self, look: impl FnOnce(&mut Options) -> T) -> T {
        look(&mut self.desk.lock().options)
    }

    /// Waits for its turn.
    pub(crate) async fn lock(&self, run: &Run) -> Result<OwnedMutexGuard<Engine>, Status> {
        let engine = unless(self.engine.clone().lock_owned(), run.cancelled()).await;
        let engine = engine.ok_or_else(|| Failure::Interrupted.status(false))?;
        match self.ended.load(Ordering::SeqCst) {
            false => Ok(engine),
            true => Err(Status::not_found("the session has ended")),
        }
    }

    /// Interrupts everything; nothing begins any more.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        let (polled, waiting) = {
            let mut desk = self.desk.lock();
            for (run, _) in desk.runs.values() {
                run.cancel();
            }
            (std::mem::take(&mut desk.polled), std::mem::take(&mut desk.waiting))
        };
        // Their drop interrupts what is behind them.
        drop((polled, waiting));
    }

    /// Keeps a result, or the order for it, until its ticket comes.
    pub(crate) fn keep(&self, run: Arc<Run>, supply: Supply) -> Handle {
        let number = self.number();
        let mut desk = self.desk.lock();
        desk.waiting.insert(number, (run, supply));
        if desk.waiting.len() > WAITING {
            desk.waiting.pop_first();
        }
        self.handle(Kind::Statement, number)
    }

    /// What was kept for a ticket, once.
    pub(crate) fn redeem(&self, number: u64) -> Option<(Arc<Run>, Supply)> {
        self.desk.lock().waiting.remove(&number)
    }

    pub(crate) fn keep_polled(&self, number: u64, polled: Arc<Polled>) {
        self.desk.lock().polled.insert(number, polled);
    }

    pub(crate) fn polled(&self, number: u64) -> Option<Arc<Polled>> {
        self.desk.lock().polled.get(&number).cloned()
    }

    pub(crate) fn forget_polled(&self, number: u64) {
        let polled = self.desk.lock().polled.remove(&number);
        drop(polled);
    }

    /// Enters an execution among those that can be cancelled, until the guard goes.
    pub(crate) fn enlist(self: &Arc<Self>, number: u64, run: &Arc<Run>, prepared: Option<u64>) -> Enlisted {
        self.desk.lock().runs.insert(number, (run.clone(), prepared));
        // Whoever ended the session before that has not seen it.
        if self.ended.load(Ordering::SeqCst) {
            run.cancel();
        }
        Enlisted { session: self.clone(), number, run: run.clone() }
    }

    /// Cancels one statement, by the handle of its ticket or of its prepared statement.
    pub(crate) async fn cancel(&self, handle: &Handle) -> Cancelled {
        let number = handle.number;
        let runs: Vec<Arc<Run>> = {
            let mut desk = self.desk.lock();
            match handle.kind {
                Kind::Prepared => desk
                    .runs
                    .values()
                    .filter(|(_, prepared)| *prepared == Some(number))
                    .map(|(run, _)| run.clone())
                    .collect(),
                _ => {
                    if desk.waiting.remove(&number).is_some() {
                        return Cancelled::Stopped;
                    }
                    desk.runs.get(&number).map(|(run, _)| run.clone()).into_iter().collect()
                }
            }
        };
        stop(runs).await
    }

    /// Cancels whatever runs or waits for its turn in this session.
    pub(crate) async fn cancel_all(&self) -> Cancelled {
        let runs = self.desk.lock().runs.values().map(|(run, _)| run.clone()).collect();
        stop(runs).await
    }

    pub(crate) fn prepare(&self, text: String) -> Handle {
        let number = self.number();
        self.desk.lock().prepared.insert(number, Prepared { text, parameters: None });
        self.handle(Kind::Prepared, number)
    }

    pub(crate) fn prepared(&self, number: u64) -> Result<Prepared, Status> {
        let desk = self.desk.lock();
        desk.prepared
            .get(&number)
            .cloned()
            .ok_or_else(|| Status::not_found("the prepared statement was closed"))
    }

    pub(crate) fn bind(&self, number: u64, batches: Vec<RecordBatch>) -> Result<(), Status> {
        let mut desk = self.desk.lock();
        let prepared = desk.prepared.get_mut(&number);
        let prepared = prepared.ok_or_else(|| Status::not_found("the prepared statement was closed"))?;
        prepared.parameters = Some(batches);
        Ok(())
    }

    pub(crate) fn close_prepared(&self, number: u64) -> bool {
        self.desk.lock().prepared.remove(&number).is_some()
    }

    pub(crate) fn transaction(&self) -> Option<u64> {
        self.desk.lock().transaction
    }

    pub(crate) fn set_transaction(&self, transaction: Option<u64>) {
        self.desk.lock().transaction = transaction;
    }
}

async fn stop(runs: Vec<Arc<Run>>) -> Cancelled {
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
    match unless(all, crate::outside::sleep(PATIENCE)).await {
        Some(()) => Cancelled::Stopped,
        None => Cancelled::Stopping,
    }
}

/// An execution that can be cancelled. When this goes, it is over.
#[derive(Debug)]
pub(crate) struct Enlisted {
    session: Arc<Session>,
    number: u64,
    run: Arc<Run>,
}

impl Drop for Enlisted {
    fn drop(&mut self) {
        self.session.desk.lock().runs.remove(&self.number);
        self.run.end();
    }
}
