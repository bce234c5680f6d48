//! Actions that make something on the server, of which only the answer tells the name.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay::rt;
use tonic::Status;

use crate::error::{Phase, Result};
use crate::limits::Limits;
use crate::link::{Link, Turn};

/// How long an answer that nobody waits for any more may take.
const LATE: Duration = Duration::from_secs(5);

/// What the server says of it.
pub(crate) type Answer = Result<Option<Bytes>, Status>;

/// Undoes what a late answer tells of; none came, if there is none. Whether the session is in order then.
pub(crate) type Undo = fn(Arc<Link>, Option<Answer>) -> Undoing;

pub(crate) type Undoing = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Something that is being made. If nobody waits for it any more, it is undone once it is there, before the session is used again.
pub(crate) struct Making {
    /// From when it is sent until it is answered.
    call: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    undo: Undo,
    // The last field, and so dropped after the errand has begun.
    turn: Turn,
}

impl Making {
    pub(crate) fn new(turn: Turn, undo: Undo) -> Self {
        Self { call: None, undo, turn }
    }

    /// Sends it. The server is told of `limit`, if it is better that it is not made at all than late.
    ///
    /// # Cancel safety
    /// What it makes is undone when this is dropped.
    pub(crate) async fn answer(
        &mut self,
        kind: &'static str,
        request: Vec<u8>,
        limit: Option<Duration>,
        limits: &Limits,
    ) -> Result<Answer> {
        let link = Arc::clone(self.turn.link());
        let answer = async {
            let call = self.call.insert(Box::pin(async move { link.act(kind, request, limit).await }));
            let answer = call.await;
            self.call = None;
            Ok(answer)
        };
        limits.run(Phase::Execute, answer).await
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let (link, undo) = (Arc::clone(self.turn.link()), self.undo);
        self.turn.link().errand(async move {
            let answer = rt::within(&*link.server.runtime, LATE, call).await;
            undo(link, answer).await
        });
    }
}
