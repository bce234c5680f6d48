//! The end of a transaction, whatever it waits for.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use forebay::Instant;
use forebay::rt::{Runtime, Task};

use crate::error::{Error, ErrorKind};

/// When a transaction ends as a whole. It has one timer, set when the transaction waits for the first time.
pub(super) struct Deadline {
    at: Option<Instant>,
    limit: Duration,
    timer: Option<Task>,
    runtime: Arc<dyn Runtime>,
}

impl Deadline {
    pub(super) fn new(at: Option<Instant>, began: Instant, runtime: Arc<dyn Runtime>) -> Self {
        let limit = at.map_or(Duration::MAX, |at| at.since(began));
        Self { at, limit, timer: None, runtime }
    }

    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Whether it has come.
    pub(super) fn is_over(&self) -> bool {
        self.at.is_some_and(|at| self.runtime.now() >= at)
    }

    /// Runs `future` until then; none if it takes longer. On a tie, the future wins. Cancel safe if `future` is, which is dropped at
    /// the deadline.
    pub(super) async fn race<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            let Some(at) = self.at else { return Poll::Pending };
            let timer = self.timer.get_or_insert_with(|| self.runtime.sleep_until(at));
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            // It must not be polled again.
            self.timer = None;
            Poll::Ready(None)
        })
        .await
    }

    /// The error of a transaction that had got to this place by then.
    pub(super) fn error(&self, kind: ErrorKind, place: &'static str) -> Error {
        Error::new(kind, Over { limit: self.limit, place })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the deadline of {} came {place}", forebay::duration::show(*.limit))]
struct Over {
    limit: Duration,
    place: &'static str,
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Deadline").field(&self.at).finish()
    }
}
