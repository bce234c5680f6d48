//! Counts that are undone on drop.

use forebay::Instant;

use super::reserved::ReservedPermit;
use super::state::State;
use super::{Inner, Rate};

/// A request for permits. When it is dropped, the next caller may start another.
pub(super) struct Reserving<'a>(pub(super) &'a Inner);

impl Drop for Reserving<'_> {
    fn drop(&mut self) {
        self.0.state.lock().reserving = false;
        self.0.changed.notify_waiters();
    }
}

/// A caller until it has a permit. It has a reserved one that is not due yet, or it is counted as waiting. When it is dropped,
/// it is counted no more, and the next caller gets what was reserved.
pub(super) struct Waiting<'a> {
    rate: &'a Rate,
    reserved: Option<ReservedPermit>,
}

impl<'a> Waiting<'a> {
    pub(super) fn begin(rate: &'a Rate) -> Self {
        rate.0.state.lock().waiting += 1;
        Self { rate, reserved: None }
    }

    /// The reserved permit of this caller, one that has not lapsed and is due by `deadline`.
    pub(super) fn reserve(
        &mut self,
        state: &mut State,
        now: Instant,
        deadline: Instant,
    ) -> Option<ReservedPermit> {
        if self.reserved.is_some_and(|permit| permit.until < now) {
            self.take(state);
        }
        if self.reserved.is_none() {
            self.reserved = state.reserved.take(now, deadline);
            state.waiting -= u32::from(self.reserved.is_some());
        }
        self.reserved
    }

    /// Takes the reserved permit away: it is granted, or has lapsed.
    pub(super) fn take(&mut self, state: &mut State) -> Option<ReservedPermit> {
        state.waiting += u32::from(self.reserved.is_some());
        self.reserved.take()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        match self.reserved.take() {
            Some(permit) => self.rate.give_back_reserved(permit),
            None => self.rate.0.state.lock().waiting -= 1,
        }
    }
}
