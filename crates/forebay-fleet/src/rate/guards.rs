//! Counts that are undone on drop.

use forebay::{Instant, Permit};

use super::{Inner, Rate};

/// A request for permits. When it is dropped, the next caller may start another.
pub(super) struct Reserving<'a>(pub(super) &'a Inner);

impl Drop for Reserving<'_> {
    fn drop(&mut self) {
        self.0.state.lock().reserving = false;
        self.0.changed.notify_waiters();
    }
}

/// A caller that has neither a permit nor a reservation, while it is counted.
pub(super) struct Waiting<'a> {
    inner: &'a Inner,
    counted: std::cell::Cell<bool>,
}

impl<'a> Waiting<'a> {
    pub(super) fn begin(inner: &'a Inner) -> Self {
        inner.state.lock().waiting += 1;
        Self { inner, counted: std::cell::Cell::new(true) }
    }

    pub(super) fn set_counted(&self, counted: bool) {
        let mut state = self.inner.state.lock();
        match (self.counted.replace(counted), counted) {
            (true, false) => state.waiting = state.waiting.saturating_sub(1),
            (false, true) => state.waiting += 1,
            _ => {}
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.set_counted(false);
    }
}

/// A reserved permit. When it is dropped, the next caller gets it.
pub(super) struct Reservation {
    pub(super) rate: Rate,
    pub(super) at: Option<Instant>,
}

impl Reservation {
    pub(super) fn permit(mut self) -> Permit {
        let (rate, at) = (self.rate.clone(), self.at.take());
        Permit::new(move || {
            if let Some(at) = at {
                rate.give_back(at);
            }
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(at) = self.at.take() {
            self.rate.give_back(at);
        }
    }
}
