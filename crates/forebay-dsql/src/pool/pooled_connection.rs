//! A connection in a caller's hands.

use std::fmt;
use std::ops::{Deref, DerefMut};

use forebay::{Checkout, Connect, Instant};

use crate::error::{Error, ErrorKind};
use crate::pool::registry::{ConnectionId, Registered, Registering};
use crate::transaction::Session;

/// A connection lent to a caller. It derefs to the connection, and returns it when it is dropped. A dirty connection is reset
/// in the background first, and a dead one is closed.
///
/// It borrows the [`DsqlPool`](crate::DsqlPool) it came from; [`into_owned`](Self::into_owned) makes one that can be stored
/// or sent anywhere.
pub struct PooledConnection<'a, C: Connect>(pub(crate) Checkout<'a, Registering<C>>);

impl<C: Connect> PooledConnection<'_, C> {
    /// The same connection, no longer tied to the handle it came from.
    #[must_use]
    pub fn into_owned(self) -> PooledConnection<'static, C> {
        PooledConnection(self.0.into_owned())
    }

    /// This connection failed: close it when it comes back, instead of lending it again.
    pub fn mark_bad(&mut self) {
        self.0.mark_bad();
    }

    /// Whether it should be given back now, for those that hold one for long: it has died, its retirement is due, or it is about to expire.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.0.is_due()
    }

    /// The time until it expires. `None` if lifetimes are not limited.
    #[must_use]
    pub fn remaining(&self) -> Option<std::time::Duration> {
        self.0.remaining()
    }

    /// Its name in the [`Registry`](crate::Registry).
    #[must_use]
    pub fn id(&self) -> ConnectionId {
        Registered::id(&self.0)
    }
}

impl<C: Connect> Deref for PooledConnection<'_, C> {
    type Target = C::Connection;

    fn deref(&self) -> &C::Connection {
        self.0.get()
    }
}

impl<C: Connect> DerefMut for PooledConnection<'_, C> {
    fn deref_mut(&mut self) -> &mut C::Connection {
        self.0.get_mut()
    }
}

impl<C: Connect<Connection: fmt::Debug>> fmt::Debug for PooledConnection<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PooledConnection").field(&**self).finish()
    }
}

/// A lent connection holds a transaction as its connection does.
impl<C: Connect<Connection: Session + Sync>> Session for PooledConnection<'_, C> {
    async fn begin(&mut self) -> Result<(), Error> {
        C::Connection::begin(self).await
    }

    async fn commit(&mut self) -> Result<(), Error> {
        C::Connection::commit(self).await
    }

    fn commit_was_sent(&self) -> bool {
        C::Connection::commit_was_sent(self)
    }

    fn classify(&mut self, error: &(dyn std::error::Error + 'static)) -> ErrorKind {
        C::Connection::classify(self, error)
    }

    fn set_deadline(&mut self, at: Option<Instant>) {
        C::Connection::set_deadline(self, at);
    }

    async fn rollback(&mut self) -> Result<(), Error> {
        C::Connection::rollback(self).await
    }
}
