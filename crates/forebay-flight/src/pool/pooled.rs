//! A connection that a pool has lent.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use forebay::{Checkout, OwnedCheckout};

use super::connector::Connector;
use crate::connection::Endpoint;
use crate::session::AsyncSession;

/// A connection for one statement.
pub(crate) struct Borrowed<'a> {
    /// There until it is dropped or made owned.
    checkout: Option<Checkout<'a, Connector>>,
    endpoint: &'a Endpoint,
}

const HELD: &str = "held until it is dropped";

impl<'a> Borrowed<'a> {
    pub(crate) fn new(checkout: Checkout<'a, Connector>, endpoint: &'a Endpoint) -> Self {
        Self { checkout: Some(checkout), endpoint }
    }

    /// The same connection, without a reference to the pool.
    pub(crate) fn into_owned(mut self) -> PooledConnection {
        let checkout = self.checkout.take().expect(HELD).into_owned();
        PooledConnection { checkout: Some(checkout), endpoint: self.endpoint.clone() }
    }
}

impl Deref for Borrowed<'_> {
    type Target = AsyncSession;

    fn deref(&self) -> &AsyncSession {
        self.checkout.as_ref().expect(HELD)
    }
}

impl DerefMut for Borrowed<'_> {
    fn deref_mut(&mut self) -> &mut AsyncSession {
        self.checkout.as_mut().expect(HELD)
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(checkout) = self.checkout.take() {
            let _span = tracing::debug_span!("flight", what = "release", endpoint = %self.endpoint).entered();
            drop(checkout);
        }
    }
}

/// A connection of a pool, with its session. It goes back to the pool when it is dropped. A session that is not clean is cleaned first,
/// or closed if that is impossible.
pub struct PooledConnection {
    /// There until it is dropped.
    checkout: Option<OwnedCheckout<Connector>>,
    endpoint: Endpoint,
}

impl PooledConnection {
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

impl Deref for PooledConnection {
    type Target = AsyncSession;

    fn deref(&self) -> &AsyncSession {
        self.checkout.as_ref().expect(HELD)
    }
}

impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut AsyncSession {
        self.checkout.as_mut().expect(HELD)
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(checkout) = self.checkout.take() {
            let _span = tracing::debug_span!("flight", what = "release", endpoint = %self.endpoint).entered();
            checkout.connection.end_checkout();
            drop(checkout);
        }
    }
}

impl fmt::Debug for PooledConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PooledConnection").field(&**self).finish()
    }
}

/// A session of a pool, held by one caller. It derefs to [`AsyncSession`], and goes back to the pool when it is dropped. The pool then
/// rolls back an open transaction, and closes a session with changed settings or temporary tables.
#[derive(Debug)]
pub struct AsyncSessionHandle {
    connection: PooledConnection,
}

impl AsyncSessionHandle {
    pub(crate) fn new(connection: PooledConnection) -> Self {
        Self { connection }
    }

    /// Makes the pool close it when it comes back, instead of lending it again.
    pub fn mark_bad(&mut self) {
        self.connection.mark_bad();
    }

    /// How long ago it was opened.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.connection.age()
    }
}

impl Deref for AsyncSessionHandle {
    type Target = AsyncSession;

    fn deref(&self) -> &AsyncSession {
        &self.connection
    }
}

impl DerefMut for AsyncSessionHandle {
    fn deref_mut(&mut self) -> &mut AsyncSession {
        &mut self.connection
    }
}
