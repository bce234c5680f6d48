//! A connection that a pool has lent.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use forebay::Checkout;

use super::connector::Connector;
use crate::connection::Endpoint;
use crate::session::AsyncSession;

/// A connection of a pool, with its session, to which it derefs. It goes back to the pool when it is dropped.
/// The pool then rolls back an open transaction, and closes a session with changed settings or temporary
/// tables.
pub struct PooledConnection<'a> {
    /// There until it is dropped or made owned.
    checkout: Option<Checkout<'a, Connector>>,
    endpoint: Cow<'a, Endpoint>,
}

/// A session of a pool, held by one caller.
pub type AsyncSessionHandle = PooledConnection<'static>;

const HELD: &str = "held until it is dropped";

impl<'a> PooledConnection<'a> {
    pub(super) fn new(checkout: Checkout<'a, Connector>, endpoint: &'a Endpoint) -> Self {
        Self { checkout: Some(checkout), endpoint: Cow::Borrowed(endpoint) }
    }

    /// The same connection, without a reference to the pool.
    pub(super) fn into_owned(mut self) -> AsyncSessionHandle {
        let checkout = self.checkout.take().expect(HELD).into_owned();
        PooledConnection {
            checkout: Some(checkout),
            endpoint: Cow::Owned(self.endpoint.clone().into_owned()),
        }
    }

    /// Makes the pool close it when it comes back, instead of lending it again.
    pub fn mark_bad(&mut self) {
        self.checkout.as_mut().expect(HELD).mark_bad();
    }

    /// How long ago it was opened.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.checkout.as_ref().expect(HELD).age()
    }
}

impl Deref for PooledConnection<'_> {
    type Target = AsyncSession;

    fn deref(&self) -> &AsyncSession {
        self.checkout.as_ref().expect(HELD)
    }
}

impl DerefMut for PooledConnection<'_> {
    fn deref_mut(&mut self) -> &mut AsyncSession {
        self.checkout.as_mut().expect(HELD)
    }
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        if let Some(checkout) = self.checkout.take() {
            let _span = tracing::debug_span!("flight", what = "release", endpoint = %self.endpoint).entered();
            checkout.connection.end_checkout();
            drop(checkout);
        }
    }
}

impl fmt::Debug for PooledConnection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PooledConnection").field(&**self).finish()
    }
}
