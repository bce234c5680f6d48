//! Actions that create something on the server whose name only the answer gives.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay::rt;
use tonic::Status;

use super::limits::Limits;
use crate::connection::{Connection, StatementPermit};
use crate::error::{Phase, Result};

/// How long to wait for the answer of an action whose caller has given up.
const LATE_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The server's answer.
pub(crate) type Answer = Result<Option<Bytes>, Status>;

/// Undoes what a late answer reports; there is none if the server did not answer. Returns whether the session
/// can be used afterwards.
pub(crate) type Undo = fn(Arc<Connection>, Option<Answer>) -> UndoFuture;

pub(crate) type UndoFuture = Pin<Box<dyn Future<Output = bool> + Send>>;

/// An action that creates something. If its caller gives up, what it creates is undone before the session is
/// used again.
pub(crate) struct UndoableAction {
    /// From when it is sent until it is answered.
    call: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    undo: Undo,
    // The last field, and so dropped after the background task has begun.
    permit: StatementPermit,
}

impl UndoableAction {
    pub(crate) fn new(permit: StatementPermit, undo: Undo) -> Self {
        Self { call: None, undo, permit }
    }

    /// Runs it. `limit` is the deadline to send to the server, if the action should fail rather than end
    /// late.
    ///
    /// # Cancel safety
    /// Dropping it undoes what the action creates.
    pub(crate) async fn run(
        &mut self,
        kind: &'static str,
        request: Vec<u8>,
        limit: Option<Duration>,
        limits: &Limits,
    ) -> Result<Answer> {
        let connection = Arc::clone(self.permit.connection());
        let answer = async {
            let call = async move { connection.action(kind, request, limit).await };
            let answer = self.call.insert(Box::pin(call)).await;
            self.call = None;
            Ok(answer)
        };
        limits.run(Phase::Execute, answer).await
    }
}

impl Drop for UndoableAction {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let (connection, undo) = (Arc::clone(self.permit.connection()), self.undo);
        self.permit.connection().spawn_background(async move {
            let answer = rt::within(&*connection.server.runtime, LATE_ANSWER_TIMEOUT, call).await;
            undo(connection, answer).await
        });
    }
}
