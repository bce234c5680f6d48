//! A connection in a caller's hands.

use std::fmt;
use std::ops::{Deref, DerefMut};

use forebay::{Checkout, Connect, OwnedCheckout};

use crate::error::{Error, ErrorKind};
use crate::pool::registry::{ConnectionId, Registered, Registering};
use crate::transaction::Session;

/// A connection lent to a caller. It derefs to the connection, and gives it back when it is dropped; what is dirty is made
/// clean in the background first, and what is dead is not lent again.
///
/// It borrows the [`DsqlPool`](crate::DsqlPool) it came from; [`into_owned`](Self::into_owned) makes one that can be stored
/// or sent anywhere.
pub struct PooledConnection<'a, C: Connect>(From<'a, C>);

enum From<'a, C: Connect> {
    Reservoir(Checkout<'a, Registering<C>>),
    OwnedReservoir(OwnedCheckout<Registering<C>>),
}

impl<'a, C: Connect> PooledConnection<'a, C> {
    pub(crate) fn of_reservoir(checkout: Checkout<'a, Registering<C>>) -> Self {
        Self(From::Reservoir(checkout))
    }

    pub(crate) fn of_owned(checkout: OwnedCheckout<Registering<C>>) -> Self {
        Self(From::OwnedReservoir(checkout))
    }

    /// The same connection, no longer tied to the handle it came from.
    #[must_use]
    pub fn into_owned(self) -> PooledConnection<'static, C> {
        PooledConnection(match self.0 {
            From::Reservoir(checkout) => From::OwnedReservoir(checkout.into_owned()),
            From::OwnedReservoir(checkout) => From::OwnedReservoir(checkout),
        })
    }

    /// This connection failed: close it when it comes back, instead of lending it again.
    pub fn mark_bad(&mut self) {
        match &mut self.0 {
            From::Reservoir(checkout) => {
                checkout.doubt_others();
                checkout.mark_bad();
            }
            From::OwnedReservoir(checkout) => {
                checkout.doubt_others();
                checkout.mark_bad();
            }
        }
    }

    /// What the [`Registry`](crate::Registry) calls it.
    #[must_use]
    pub fn id(&self) -> ConnectionId {
        self.registered().id()
    }

    fn registered(&self) -> &Registered<C::Connection> {
        match &self.0 {
            From::Reservoir(checkout) => checkout,
            From::OwnedReservoir(checkout) => checkout,
        }
    }
}

impl<C: Connect> Deref for PooledConnection<'_, C> {
    type Target = C::Connection;

    fn deref(&self) -> &C::Connection {
        self.registered().get()
    }
}

impl<C: Connect> DerefMut for PooledConnection<'_, C> {
    fn deref_mut(&mut self) -> &mut C::Connection {
        match &mut self.0 {
            From::Reservoir(checkout) => checkout.get_mut(),
            From::OwnedReservoir(checkout) => checkout.get_mut(),
        }
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

    async fn rollback(&mut self) -> Result<(), Error> {
        C::Connection::rollback(self).await
    }
}
