//! A connection in a caller's hands.

use std::fmt;
use std::ops::{Deref, DerefMut};

use forebay::{Checkout, Connect, OwnedCheckout};

use crate::error::{Class, Error};
use crate::registry::{ConnectionId, Tracked, Tracking};
use crate::session::Session;

/// A connection lent to a caller. It derefs to the connection, and gives it back when it is dropped; what is dirty is made
/// clean in the background first, and what is dead is not lent again.
///
/// It borrows the [`DsqlPool`](crate::DsqlPool) it came from; [`into_owned`](Self::into_owned) makes one that can be stored
/// or sent anywhere.
pub struct Lent<'a, C: Connect>(From<'a, C>);

enum From<'a, C: Connect> {
    Reservoir(Checkout<'a, Tracking<C>>),
    OwnedReservoir(OwnedCheckout<Tracking<C>>),
}

impl<'a, C: Connect> Lent<'a, C> {
    pub(crate) fn of_reservoir(checkout: Checkout<'a, Tracking<C>>) -> Self {
        Self(From::Reservoir(checkout))
    }

    pub(crate) fn of_owned(checkout: OwnedCheckout<Tracking<C>>) -> Self {
        Self(From::OwnedReservoir(checkout))
    }

    /// The same connection, no longer tied to the handle it came from.
    #[must_use]
    pub fn into_owned(self) -> Lent<'static, C> {
        Lent(match self.0 {
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
        self.tracked().id()
    }

    fn tracked(&self) -> &Tracked<C::Connection> {
        match &self.0 {
            From::Reservoir(checkout) => checkout,
            From::OwnedReservoir(checkout) => checkout,
        }
    }
}

impl<C: Connect> Deref for Lent<'_, C> {
    type Target = C::Connection;

    fn deref(&self) -> &C::Connection {
        self.tracked().get()
    }
}

impl<C: Connect> DerefMut for Lent<'_, C> {
    fn deref_mut(&mut self) -> &mut C::Connection {
        match &mut self.0 {
            From::Reservoir(checkout) => checkout.get_mut(),
            From::OwnedReservoir(checkout) => checkout.get_mut(),
        }
    }
}

impl<C: Connect<Connection: fmt::Debug>> fmt::Debug for Lent<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lent").field(&**self).finish()
    }
}

/// A lent connection holds a transaction as its connection does.
impl<C: Connect<Connection: Session + Sync>> Session for Lent<'_, C> {
    async fn begin(&mut self) -> Result<(), Error> {
        C::Connection::begin(self).await
    }

    async fn commit(&mut self) -> Result<(), Error> {
        C::Connection::commit(self).await
    }

    fn commit_was_sent(&self) -> bool {
        C::Connection::commit_was_sent(self)
    }

    fn judge(&mut self, error: &(dyn std::error::Error + 'static)) -> Class {
        C::Connection::judge(self, error)
    }

    async fn rollback(&mut self) -> Result<(), Error> {
        C::Connection::rollback(self).await
    }
}
