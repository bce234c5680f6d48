//! A session of a pool, for threads.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use crate::pooled::AsyncSessionHandle;
use crate::sync::engine::Engine;
use crate::sync::session::Session;

/// A session of a pool, held by one thread. It derefs to [`Session`], and goes back when it is dropped; an open transaction
/// is rolled back then, and one with changed settings or temporary tables is closed.
#[derive(Debug)]
pub struct SessionHandle(Session);

impl SessionHandle {
    pub(super) fn new(handle: AsyncSessionHandle, engine: Arc<Engine>) -> Self {
        Self(Session::pooled(handle, engine))
    }

    /// Closes it when it comes back, instead of lending it again.
    pub fn mark_bad(&mut self) {
        if let Some(handle) = self.0.lent_mut() {
            handle.mark_bad();
        }
    }

    /// How long ago it was opened.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.0.lent().map(AsyncSessionHandle::age).unwrap_or_default()
    }
}

impl Deref for SessionHandle {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl DerefMut for SessionHandle {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.0
    }
}
