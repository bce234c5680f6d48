//! A segment that met a change of the schema is sent once more, if nothing else has happened.
//!
//! The first statement of a backend may meet one (OC001), and so may any statement of a session that has changed the schema itself, on
//! another backend. Nothing was executed then. Behind a BEGIN, the server has failed the block, so it begins again, too: the client has
//! seen nothing in it yet.

use super::requests::Request;
use super::scan::{self, Effect};
use super::{Hold, Outbox, TransactionStatus, VirtualSession, failure};
use crate::protocol::{ErrorFields, HEADER, ServerError, client, header, server, write};

/// The first segment of the client's frames on a backend, or in a transaction block. If the backend is behind, each one outside of a block.
#[derive(Debug, Default)]
pub(super) struct First {
    pub(super) frames: Vec<u8>,
    /// Its Sync or Query was sent.
    pub(super) complete: bool,
    /// It failed with the conflict, and is sent again when the server is ready.
    again: bool,
    /// The Query that has begun the block.
    begin: Vec<u8>,
}

/// A longer segment is not kept for a second attempt.
pub(super) const LONGEST_FIRST: usize = 16 << 10;

impl VirtualSession {
    /// Keeps a segment of the client, until the first answer.
    pub(super) fn remember_first(&mut self, kind: u8, frame: &[u8], length: usize) {
        let Some(backend) = &mut self.backend else { return };
        let Some(first) = &mut backend.first else { return };
        let is_ignored =
            matches!(kind, client::FLUSH | client::COPY_DATA | client::COPY_DONE | client::COPY_FAIL);
        if is_ignored && first.frames.is_empty() {
            // It begins no segment.
            return;
        }
        let whole = frame.get(..length);
        match whole {
            Some(frame)
                if !first.complete
                    && first.frames.len() + frame.len() <= LONGEST_FIRST
                    // Behind extended requests, a Query does not end what the server skips.
                    && (kind != client::QUERY || first.frames.is_empty())
                    && first.is_at(self.status) =>
            {
                first.frames.extend_from_slice(frame);
                first.complete = matches!(kind, client::QUERY | client::SYNC);
            }
            // Too long, in parts, or more was sent behind it: it cannot be sent again.
            _ => backend.first = None,
        }
    }

    /// The client gets an answer: from here on, nothing can be sent a second time, until the next segment or a block begins.
    pub(super) fn next_first(&mut self, kind: u8) {
        let is_last = self.requests.is_empty() && !self.unsynced;
        let ends = kind == server::READY_FOR_QUERY && self.status == TransactionStatus::Idle && is_last;
        let Some(backend) = &mut self.backend else { return };
        let before = backend.first.take();
        backend.first = match kind {
            server::COMMAND_COMPLETE => before.and_then(First::in_block),
            server::READY_FOR_QUERY if !ends => {
                before.filter(|first| is_last && first.frames.is_empty() && first.is_at(self.status))
            }
            _ => None,
        };
        if ends && backend.behind {
            backend.first = Some(First::default());
        }
    }

    /// Whether the segment that has failed with a conflict is sent once more.
    pub(super) fn is_met_again(&mut self) -> bool {
        // What a Sync commits was executed. A COMMIT ends the block that would begin again.
        let in_vain = matches!(self.requests.first(), None | Some(Request::Sync))
            || self.status != TransactionStatus::Idle && self.requests.iter().any(failure::commits);
        // Something of the gateway's own may have been sent behind it.
        let is_last = self.requests.are_one_segment();
        // The client's frames wait until a statement is prepared on this backend, and that is what fails.
        let rest_waits = self.requests.segments() == 0 && self.has_rest_of_segment();
        let Some(first) = self.backend.as_mut().and_then(|backend| backend.first.as_mut()) else {
            return false;
        };
        first.again = !first.again
            && !in_vain
            && first.is_at(self.status)
            && if first.complete { is_last } else { rest_waits };
        first.again
    }

    /// The server is ready. If the segment met a change of the schema, and nothing else has happened, it is sent once more.
    pub(super) fn again(&mut self, out: &mut Outbox) -> bool {
        let Some(first) =
            self.backend.as_mut().and_then(|backend| backend.first.take_if(|first| first.again))
        else {
            return false;
        };
        self.failed = false;
        let mut frames = first.frames;
        // What came since is behind it: all of a frame, or a part.
        frames.append(&mut self.held);
        frames.append(&mut self.client_side.partial);
        self.held = frames;
        if !first.begin.is_empty() {
            write::query(&mut out.to_server, b"ROLLBACK");
            out.to_server.extend_from_slice(&first.begin);
            self.requests.push(Request::OurBlock);
            self.requests.push(Request::OurBlock);
            // A Query removes the unnamed statement there.
            self.statements.meet_unnamed(false);
            self.hold = Hold::All;
        }
        true
    }

    /// The server has ended a block, or has begun one again.
    pub(super) fn block_begun(&mut self, status: TransactionStatus, out: &mut Outbox) {
        self.answered();
        let is_last = self.requests.is_empty();
        let Some(backend) = &mut self.backend else { return };
        let refusal = std::mem::take(&mut backend.refusal);
        if !refusal.is_empty() || is_last && status != TransactionStatus::InTransaction {
            // The client believes to be in a block that is none.
            backend.ending = true;
            let error = match &*refusal {
                [] => ServerError::fatal("08006", "the transaction could not begin again"),
                refusal => ErrorFields::read(refusal).to_fatal(),
            };
            self.end(&error, out);
        }
    }

    /// Whether the rest of the client's segment waits, so that all of it can be sent again.
    fn has_rest_of_segment(&self) -> bool {
        let kept = self.backend.as_ref().and_then(|backend| backend.first.as_ref());
        let Some(room) = kept.and_then(|first| LONGEST_FIRST.checked_sub(first.frames.len())) else {
            return false;
        };
        let mut at = 0;
        while let Ok(Some((kind, length))) = header(&self.held[at..]) {
            at += length;
            if at > room.min(self.held.len()) {
                return false;
            }
            match kind {
                client::SYNC => return true,
                client::PARSE | client::BIND | client::DESCRIBE | client::EXECUTE | client::CLOSE => {}
                _ => return false,
            }
        }
        false
    }
}

impl First {
    /// Whether it is the first one there.
    fn is_at(&self, status: TransactionStatus) -> bool {
        match status {
            TransactionStatus::Idle => self.begin.is_empty(),
            TransactionStatus::InTransaction => !self.begin.is_empty(),
            TransactionStatus::Failed => false,
        }
    }

    /// If this segment was a BEGIN and nothing else: what comes first in its block.
    fn in_block(self) -> Option<Self> {
        let text = self.frames.get(HEADER..)?.strip_suffix(b"\0")?;
        let begins = self.begin.is_empty() && self.frames[0] == client::QUERY && {
            // As plain as it is, the rules for backslashes do not matter.
            matches!(&*scan::pieces(text, false), [piece] if piece.effect == Effect::Begin)
        };
        begins.then(|| Self { begin: self.frames, ..Self::default() })
    }
}

#[cfg(test)]
mod tests;
