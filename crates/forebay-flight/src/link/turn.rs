//! Whose turn it is in a session.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::Link;
use crate::error::{Error, Phase, Result};
use crate::limits::Limits;

/// The right to send something in a session: what was given up before is cleared away. Whatever a caller sends needs one, and
/// [`Link::ready`] alone gives it. The session is not at rest until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    link: Arc<Link>,
}

impl Turn {
    /// Takes one without waiting: for errands, which the others wait for.
    pub(crate) fn take(link: &Arc<Link>) -> Self {
        link.running.fetch_add(1, Ordering::SeqCst);
        Self { link: Arc::clone(link) }
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Runs an action, and returns its first result.
    ///
    /// # Cancel safety
    /// Dropping it leaves open whether it was done.
    pub(crate) async fn act(&self, kind: &str, request: Vec<u8>, limits: &Limits) -> Result<Option<Bytes>> {
        let act = async {
            let answer = self.link.act(kind, request, limits.remaining()).await;
            answer.map_err(|status| self.link.judge_within(&status, limits, Phase::Execute))
        };
        limits.run(Phase::Execute, act).await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.link.running.fetch_sub(1, Ordering::SeqCst);
        self.link.errand_done.notify_waiters();
    }
}

impl Link {
    /// Waits for what still goes on from before, on behalf of whoever held the session in `tenancy`.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(crate) async fn ready(self: &Arc<Self>, tenancy: u64, limits: &Limits) -> Result<Turn> {
        loop {
            // Counted before it is looked: if the session is given back meanwhile, either this sees so, or the pool sees the count.
            let turn = Turn::take(self);
            if !self.is_usable() {
                return Err(lost("its connection is closed, or given up"));
            }
            if self.tenancy() != tenancy {
                return Err(lost("it is no longer held by whoever prepared the statement"));
            }
            if self.is_in_order() {
                return Ok(turn);
            }
            drop(turn);
            // Boxed, as it is rare and large: every call of a session has it in its future.
            let in_order = Box::pin(async { Ok(self.settled().await || self.recover().await) });
            if !limits.run(Phase::Execute, in_order).await? && self.is_usable() {
                return Err(lost("the server is still at work on what was given up in it"));
            }
        }
    }
}

fn lost(message: &str) -> Error {
    Error::SessionLost { message: message.to_owned(), may_have_run: false }
}
