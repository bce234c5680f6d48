//! A connection lent to the body of a transaction.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;

/// A connection with an open transaction, lent to a body. It derefs to the connection, and goes back when it is dropped.
///
/// The body gets it by value. The compiler cannot prove that a future which borrows an argument is `Send`, so with a
/// reference no body in a spawned task could borrow from its surroundings.
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
