//! A statement that runs in the background until a client fetches its result.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tonic::Status;

use crate::execution::Execution;
use crate::result_stream::ResultStream;

/// A statement that `PollFlightInfo` has started.
#[derive(Debug)]
pub(crate) struct BackgroundStatement {
    pub(crate) run: Arc<Execution>,
    outcome: Mutex<Outcome>,
    changed: Notify,
}

#[derive(Debug)]
enum Outcome {
    /// Neither a row nor an error yet.
    None,
    Ready(Box<ResultStream>),
    Failed(Status),
    /// A client has fetched it.
    Fetched,
}

/// What a poll finds.
#[derive(Debug)]
pub(crate) enum PollState {
    Nothing,
    Result,
    Failure(Status),
}

impl BackgroundStatement {
    pub(crate) fn new(run: Arc<Execution>) -> Self {
        Self { run, outcome: Mutex::new(Outcome::None), changed: Notify::new() }
    }

    /// Sets the first rows, or the error.
    pub(crate) fn set(&self, answer: Result<ResultStream, Status>) {
        let outcome = answer.map_or_else(Outcome::Failed, |answer| Outcome::Ready(Box::new(answer)));
        *self.outcome.lock() = outcome;
        self.changed.notify_waiters();
    }

    pub(crate) fn look(&self) -> PollState {
        match &*self.outcome.lock() {
            Outcome::None => PollState::Nothing,
            Outcome::Ready(_) | Outcome::Fetched => PollState::Result,
            Outcome::Failed(status) => PollState::Failure(status.clone()),
        }
    }

    /// Waits for rows or an error.
    pub(crate) async fn found(&self) {
        loop {
            // Created before the check, so that no notification is missed.
            let changed = self.changed.notified();
            if !matches!(self.look(), PollState::Nothing) {
                return;
            }
            changed.await;
        }
    }

    /// Takes the result; it can be fetched once.
    pub(crate) async fn take(&self) -> Result<ResultStream, Status> {
        self.found().await;
        match std::mem::replace(&mut *self.outcome.lock(), Outcome::Fetched) {
            Outcome::Ready(answer) => Ok(*answer),
            Outcome::Failed(status) => Err(status),
            Outcome::None | Outcome::Fetched => Err(Status::not_found("the result was fetched already")),
        }
    }
}
