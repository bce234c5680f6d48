//! The client is gone, and leaves its backend behind.

use super::scan::Effect;
use super::{Memory, TransactionStatus, VirtualSession};

/// A backend whose client is gone. Another session can have it, once an open transaction is rolled back.
#[derive(Debug)]
pub struct LeftBehind {
    /// What it remembers after that.
    pub memory: Memory,
    /// Settings may have been changed in a way that was not understood. `memory` holds if they are all reset.
    pub unknown_settings: bool,
}

impl VirtualSession {
    /// The client is gone: the session is over. None if its backend is of no use to others, because something is unanswered or half sent.
    pub fn hang_up(&mut self) -> Option<LeftBehind> {
        self.over = true;
        let ending = self.backend.as_ref().is_none_or(|backend| backend.ending);
        let busy = !self.requests.is_empty()
            || self.unsynced
            || self.copying
            || self.skipping
            || !self.answer.is_empty()
            || self.body > 0
            || self.answer_body > 0;
        if ending || busy {
            return None;
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
            memory.settings = std::sync::Arc::default();
            memory.reported = None;
        }
        (!memory.is_spoilt()).then_some(LeftBehind { memory, unknown_settings })
    }
}
