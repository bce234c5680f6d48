//! A statement that runs in the background until somebody fetches its result.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tonic::Status;

use crate::run::Run;
use crate::sink::Answer;

/// A statement that was begun by a poll.
#[derive(Debug)]
pub(crate) struct Polled {
    pub(crate) run: Arc<Run>,
    outcome: Mutex<Outcome>,
    bell: Notify,
}

#[derive(Debug)]
enum Outcome {
    /// It has neither a row nor an error yet.
    None,
    Ready(Box<Answer>),
    Failed(Status),
    /// Somebody has it.
    Taken,
}

/// What a poll finds.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    Result,
    Failure(Status),
}

impl Polled {
    pub(crate) fn new(run: Arc<Run>) -> Self {
        Self { run, outcome: Mutex::new(Outcome::None), bell: Notify::new() }
    }

    /// The first rows are there, or an error is.
    pub(crate) fn set(&self, answer: Result<Answer, Status>) {
        let outcome = answer.map_or_else(Outcome::Failed, |answer| Outcome::Ready(Box::new(answer)));
        *self.outcome.lock() = outcome;
        self.bell.notify_waiters();
    }

    pub(crate) fn look(&self) -> Found {
        match &*self.outcome.lock() {
            Outcome::None => Found::Nothing,
            Outcome::Ready(_) | Outcome::Taken => Found::Result,
            Outcome::Failed(status) => Found::Failure(status.clone()),
        }
    }

    /// Waits until there is something to find.
    pub(crate) async fn found(&self) {
        loop {
            // Made before the look, so that no bell is missed in between.
            let bell = self.bell.notified();
            if !matches!(self.look(), Found::Nothing) {
                return;
            }
            bell.await;
        }
    }

    /// The result, once.
    pub(crate) async fn take(&self) -> Result<Answer, Status> {
        self.found().await;
        match std::mem::replace(&mut *self.outcome.lock(), Outcome::Taken) {
            Outcome::Ready(answer) => Ok(*answer),
            Outcome::Failed(status) => Err(status),
            Outcome::None | Outcome::Taken => Err(Status::not_found("the result was fetched already")),
        }
    }
}
