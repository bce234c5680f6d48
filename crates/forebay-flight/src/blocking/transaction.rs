//! Transactions, for threads.

use std::ops::{Deref, DerefMut};

use super::session::Session;
use crate::error::Result;

/// A transaction. It derefs to its session, and is rolled back, in the background, if it is dropped without
/// [`commit`](Self::commit).
#[derive(Debug)]
pub struct Transaction<'a> {
    session: &'a mut Session,
    is_open: bool,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(session: &'a mut Session) -> Self {
        Self { session, is_open: true }
    }

    /// Commits it.
    pub fn commit(mut self) -> Result<()> {
        self.session.commit()?;
        self.is_open = false;
        Ok(())
    }

    /// Rolls it back.
    pub fn rollback(mut self) -> Result<()> {
        self.session.rollback()?;
        self.is_open = false;
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.session.abandon_transaction();
        }
    }
}

impl Deref for Transaction<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}

impl DerefMut for Transaction<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session
    }
}
