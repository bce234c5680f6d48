//! What is counted while a caller waits, undone when it is dropped.

use forebay::{Instant, Permit};

use super::{Inner, Rate};

/// Asking is over, whatever ends it: the next caller may ask.
pub(super) struct Asking<'a>(pub(super) &'a Inner);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.state.lock().asking = false;
        self.0.changed.notify_waiters();
    }
}

/// A caller without a permit.
pub(super) struct Waiting<'a> {
    inner: &'a Inner,
    counted: std::cell::Cell<bool>,
}

impl<'a> Waiting<'a> {
    pub(super) fn begin(inner: &'a Inner) -> Self {
        inner.state.lock().waiting += 1;
        Self { inner, counted: std::cell::Cell::new(true) }
    }

    pub(super) fn has_turn(&self, has: bool) {
        let mut state = self.inner.state.lock();
        match (self.counted.replace(!has), has) {
            (true, true) => state.waiting = state.waiting.saturating_sub(1),
            (false, false) => state.waiting += 1,
            _ => {}
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.has_turn(true);
    }
}

/// A turn that was taken; dropped, it goes to the next.
pub(super) struct Turn {
    pub(super) rate: Rate,
    pub(super) at: Option<Instant>,
}

impl Turn {
    pub(super) fn permit(mut self) -> Permit {
        let (rate, at) = (self.rate.clone(), self.at.take());
        Permit::new(move || {
            if let Some(at) = at {
                rate.give_back(at);
            }
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(at) = self.at.take() {
            self.rate.give_back(at);
        }
    }
}
