//! A connection lent to the body of a transaction.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;

/// A connection with a transaction open, in the hands of a body. It derefs to the connection, and goes back when it is
/// dropped.
///
/// It is handed over and not lent by reference, since the compiler cannot tell that a future which borrows an argument
/// may be sent to another thread, and then no body could use anything it borrows from its surroundings.
pub struct Transaction<S> {
    /// There until it is dropped.
    session: Option<S>,
    back: Arc<Mutex<Option<S>>>,
}

/// Where it comes back to.
pub(super) struct Loan<S>(Arc<Mutex<Option<S>>>);

impl<S> Transaction<S> {
    pub(super) fn lend(session: S) -> (Self, Loan<S>) {
        let back = Arc::new(Mutex::new(None));
        (Self { session: Some(session), back: Arc::clone(&back) }, Loan(back))
    }
}

impl<S> Loan<S> {
    /// The connection; none if the body has kept it.
    pub(super) fn back(self) -> Option<S> {
        self.0.lock().take()
    }
}

impl<S> Deref for Transaction<S> {
    type Target = S;

    fn deref(&self) -> &S {
        self.session.as_ref().expect("there until it is dropped")
    }
}

impl<S> DerefMut for Transaction<S> {
    fn deref_mut(&mut self) -> &mut S {
        self.session.as_mut().expect("there until it is dropped")
    }
}

impl<S> Drop for Transaction<S> {
    fn drop(&mut self) {
        *self.back.lock() = self.session.take();
    }
}

impl<S: fmt::Debug> fmt::Debug for Transaction<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transaction").field(&**self).finish()
    }
}
