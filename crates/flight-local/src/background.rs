//! A statement that runs in the background until somebody fetches its result.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tonic::Status;

use crate::execution::Execution;
use crate::result_stream::ResultStream;

/// A statement that was begun by a poll.
#[derive(Debug)]
pub(crate) struct BackgroundStatement {
    pub(crate) run: Arc<Execution>,
    outcome: Mutex<Outcome>,
    bell: Notify,
}

#[derive(Debug)]
enum Outcome {
    /// It has neither a row nor an error yet.
    None,
    Ready(Box<ResultStream>),
    Failed(Status),
    /// Somebody has it.
    Taken,
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
        Self { run, outcome: Mutex::new(Outcome::None), bell: Notify::new() }
    }

    /// The first rows are there, or an error is.
    pub(crate) fn set(&self, answer: Result<ResultStream, Status>) {
        let outcome = answer.map_or_else(Outcome::Failed, |answer| Outcome::Ready(Box::new(answer)));
        *self.outcome.lock() = outcome;
        self.bell.notify_waiters();
    }

    pub(crate) fn look(&self) -> PollState {
        match &*self.outcome.lock() {
            Outcome::None => PollState::Nothing,
            Outcome::Ready(_) | Outcome::Taken => PollState::Result,
            Outcome::Failed(status) => PollState::Failure(status.clone()),
        }
    }

    /// Waits until there is something to find.
    pub(crate) async fn found(&self) {
        loop {
            // Made before the look, so that no bell is missed in between.
            let bell = self.bell.notified();
            if !matches!(self.look(), PollState::Nothing) {
                return;
            }
            bell.await;
        }
    }

    /// The result, once.
    pub(crate) async fn take(&self) -> Result<ResultStream, Status> {
        self.found().await;
        match std::mem::replace(&mut *self.outcome.lock(), Outcome::Taken) {
            Outcome::Ready(answer) => Ok(*answer),
            Outcome::Failed(status) => Err(status),
            Outcome::None | Outcome::Taken => Err(Status::not_found("the result was fetched already")),
        }
    }
}
