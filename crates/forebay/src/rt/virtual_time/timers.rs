//! Timers, ordered by time, and by creation among those of the same time.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::time::Instant;

/// The id of a timer: its time, and a sequence number.
pub(super) type Timer = (Instant, u64);

#[derive(Default)]
pub(super) struct Timers {
    pending: BTreeMap<Timer, Waker>,
    next: u64,
}

impl Timers {
    pub(super) fn set(&mut self, at: Instant, waker: Waker) -> Timer {
        let timer = (at, self.next);
        self.next += 1;
        self.pending.insert(timer, waker);
        timer
    }

    /// Replaces the waker of a timer, unless it has fired.
    pub(super) fn set_waker(&mut self, timer: Timer, waker: &Waker) {
        if let Some(present) = self.pending.get_mut(&timer) {
            present.clone_from(waker);
        }
    }

    /// Cancels a timer. Returns its waker, unless it has fired.
    pub(super) fn cancel(&mut self, timer: Timer) -> Option<Waker> {
        self.pending.remove(&timer)
    }

    /// Removes the next timer, if it is not after `limit`.
    pub(super) fn pop(&mut self, limit: Instant) -> Option<(Instant, Waker)> {
        let first = self.pending.first_entry().filter(|entry| entry.key().0 <= limit)?;
        let ((at, _), waker) = first.remove_entry();
        Some((at, waker))
    }
}
