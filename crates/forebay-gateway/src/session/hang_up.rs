//! The client is gone, and leaves its backend behind.
//!
//! A server does not notice that a client is gone before it writes to it. So a statement that runs goes on, and when everything is
//! answered, another session can have the backend. What the client has not sent to its end does not count: a COPY is given up, and so is a
//! transaction of extended requests that lacks its Sync.

use std::sync::Arc;

use super::requests::Request;
use super::scan::Effect;
use super::{Memory, Outbox, TransactionStatus, VirtualSession};
use crate::protocol::{ServerError, client, write};

/// What becomes of the backend of a client that is gone.
#[derive(Debug)]
pub enum HungUp {
    /// Another session can have it.
    Left(LeftBehind),
    /// Something is unanswered. Write what is in the outbox for the backend, pass its answers to
    /// [`from_server`](VirtualSession::from_server), and [hang up](VirtualSession::hang_up) again.
    Drain,
    /// Nobody can use it: half a request was sent, a cancel request waits, the server ends the connection, the session was pinned to it, or
    /// there is none.
    Useless,
}

/// A backend whose client is gone. Another session can have it, once an open transaction is rolled back.
#[derive(Debug)]
pub struct LeftBehind {
    /// What it remembers after that.
    pub memory: Memory,
    /// Settings may have been changed in a way that was not understood. `memory` holds if they are all reset.
    pub unknown_settings: bool,
}

impl VirtualSession {
    /// A session whose client is gone, and that has no backend.
    pub(crate) fn gone() -> Self {
        let mut session = Self::new(super::StartSettings::default(), super::SessionLimits::default());
        session.over = true;
        session
    }

    /// The client is gone: the session is over. What becomes of its backend. What is in the outbox for the client goes nowhere.
    pub fn hang_up(&mut self, out: &mut Outbox) -> HungUp {
        self.over = true;
        // This was not sent on. As it is half a request, or waits for an answer, nobody can rely on it.
        (self.held, self.client_side.partial) = (Vec::new(), Vec::new());
        let useless = self.pinned || self.client_side.is_halfway() || self.is_giving_up();
        match &mut self.backend {
            Some(backend) if !(useless || backend.ending || backend.spoilt) => {
                // Nobody waits for a second attempt.
                backend.first = None;
            }
            _ => return HungUp::Useless,
        }
        self.finish(out);
        if !self.requests.is_empty() || !self.server_side.is_between_frames() {
            return HungUp::Drain;
        }
        // A rollback that reports settings makes the pool reset them all.
        let unknown_settings = self.unsure || self.unsure_now || self.status != TransactionStatus::Idle;
        if self.status != TransactionStatus::Idle {
            self.apply(&Effect::Rollback);
        }
        // Known again, once they are reset.
        (self.unsure, self.unsure_now) = (false, false);
        let mut memory = self.detach();
        if unknown_settings {
            memory.settings = Arc::default();
            memory.reported = None;
        }
        if memory.is_spoilt() {
            HungUp::Useless
        } else {
            HungUp::Left(LeftBehind { memory, unknown_settings })
        }
    }

    /// Ends for the client what it has begun, so that the server answers everything.
    fn finish(&mut self, out: &mut Outbox) {
        let lacks_sync = self.unsynced || self.requests.end_without_sync();
        if !(self.copying || lacks_sync) {
            return;
        }
        // One of the extended requests may be a COPY, which takes nothing else. Without one, the server ignores this.
        write::frame(&mut out.to_server, client::COPY_FAIL, |out| {
            out.extend_from_slice(b"the client is gone\0")
        });
        if !std::mem::take(&mut self.copying) && !self.requests.is_empty() {
            self.requests.push(Request::CopyEnd);
        }
        if lacks_sync {
            if !self.skipping {
                // Otherwise the Sync would commit what the client has not ended.
                self.refuse(ServerError::error("08006", "the client is gone"), out);
            }
            write::bare(&mut out.to_server, client::SYNC);
            self.requests.push(Request::Sync);
            (self.unsynced, self.skipping) = (false, false);
            self.segment += 1;
        }
    }
}

#[cfg(test)]
mod tests;
