//! A transaction in the hands of its caller.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::{Deadline, Operation, Session, commit};
use crate::error::{Error, ErrorKind};
use crate::metrics::Outcome;

/// A transaction that [`begin`](crate::DsqlPool::begin) has begun. It derefs to its connection. If it is dropped, the pool rolls it
/// back in the background.
///
/// It ends at its deadline: a statement that is not answered by then fails with SQLSTATE 57014, and later ones fail without being sent.
/// Such a transaction cannot be committed any more, also if its caller ignores that.
#[must_use = "a transaction that is dropped is rolled back"]
pub struct OpenTransaction<S: Session> {
    session: S,
    operation: Operation,
    deadline: Deadline,
}

impl<S: Session> OpenTransaction<S> {
    pub(super) fn new(session: S, operation: Operation, deadline: Deadline) -> Self {
        Self { session, operation, deadline }
    }

    /// Commits it.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) if another transaction was first: begin again from the start.
    /// [`TimedOut`](ErrorKind::TimedOut) if the deadline came before COMMIT was sent. [`CommitUnknown`](ErrorKind::CommitUnknown)
    /// if it came, or the connection was lost, while COMMIT was unanswered.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction may have been committed or not.
    pub async fn commit(mut self) -> Result<(), Error> {
        let committed = commit(&mut self.session, &mut self.deadline).await;
        match &committed {
            Ok(()) => self.operation.outcome = Outcome::Committed,
            Err(error) => self.operation.failed(error.kind()),
        }
        committed
    }

    /// Rolls it back. A drop does the same in the background.
    ///
    /// # Errors
    /// If the connection was lost, or the deadline came first. Nothing is committed then, either.
    ///
    /// # Cancel safety
    /// If the future is dropped, the pool rolls back in the background.
    pub async fn rollback(mut self) -> Result<(), Error> {
        self.operation.outcome = Outcome::Failed;
        match self.deadline.race(self.session.rollback()).await {
            Some(rolled_back) => {
                rolled_back?;
                self.session.set_deadline(None);
                Ok(())
            }
            None => Err(self.deadline.error(ErrorKind::TimedOut, "before ROLLBACK was answered")),
        }
    }
}

impl<S: Session> Deref for OpenTransaction<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.session
    }
}

impl<S: Session> DerefMut for OpenTransaction<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.session
    }
}

impl<S: Session + fmt::Debug> fmt::Debug for OpenTransaction<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenTransaction").field(&self.session).finish()
    }
}
