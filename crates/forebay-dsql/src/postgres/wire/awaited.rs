//! Those who wait for a change of the tracker, counted, so that nobody is told where nobody waits.

use std::sync::atomic::{AtomicUsize, Ordering};

/// One of them. Dropped, it is no longer counted.
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
