//! Counts the tasks that wait for a change of the tracker, so that a change without waiters costs nothing.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A counted waiter, until it is dropped.
pub(super) struct Awaited<'a>(&'a AtomicUsize);

impl<'a> Awaited<'a> {
    pub(super) fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
