//! A connection in a caller's hands.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use crate::connect::Connect;
use crate::core::{BoxedEntry, Core, Entry};
use crate::lease::HeldLease;

/// A connection lent to a caller. It derefs to the connection, and returns it when it is dropped.
///
/// A return costs tens of nanoseconds: a dirty or dead connection is reset or closed in the background.
///
/// The guard borrows the [`Reservoir`](crate::Reservoir) handle it came from, which saves two atomic operations.
/// [`into_owned`](Self::into_owned) makes one that can be stored or sent anywhere.
pub struct Checkout<'a, C: Connect> {
    core: Cow<'a, Arc<Core<C>>>,
    /// Present until the guard is dropped or consumed.
    entry: Option<BoxedEntry<C>>,
}

/// A [`Checkout`] that does not borrow the handle it came from.
pub type OwnedCheckout<C> = Checkout<'static, C>;

const PRESENT: &str = "a guard holds its connection until it is dropped or consumed";

impl<'a, C: Connect> Checkout<'a, C> {
    #[inline]
    pub(crate) fn new(core: &'a Arc<Core<C>>, entry: BoxedEntry<C>) -> Self {
        Self { core: Cow::Borrowed(core), entry: Some(entry) }
    }

    /// The same connection, no longer tied to the handle it came from.
    #[must_use]
    pub fn into_owned(mut self) -> OwnedCheckout<C> {
        Checkout { core: Cow::Owned(Arc::clone(&self.core)), entry: self.entry.take() }
    }

    /// This connection failed: discard it when it comes back, instead of lending it again.
    pub fn mark_bad(&mut self) {
        self.entry.as_mut().expect(PRESENT).bad = true;
    }

    /// How old the connection is.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.core.runtime.now().since(self.entry.as_ref().expect(PRESENT).life.born_at)
    }

    /// How much of its life is left; none if lives are not limited.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.entry.as_ref().expect(PRESENT).life.remaining(self.core.runtime.now())
    }

    /// Whether a caller that holds connections for long should give this one back now: it has died, or its guard window
    /// has begun, or its replacement has been ordered.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.core.is_due(self.entry.as_ref().expect(PRESENT))
    }

    /// Takes the connection out of the reservoir for good, together with its lease. The reservoir opens another in
    /// its place; the lease is released when the caller lets go of it.
    #[must_use]
    pub fn detach(mut self) -> Detached<C::Connection> {
        let entry = self.entry.take().expect(PRESENT);
        let now = self.core.runtime.now();
        self.core.with_state(|state| state.detach(entry.key, now));
        let Entry { connection, lease, .. } = *entry;
        Detached { connection, lease }
    }
}

impl<C: Connect> Drop for Checkout<'_, C> {
    #[inline]
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        self.core.give_back(entry);
    }
}

impl<C: Connect> Deref for Checkout<'_, C> {
    type Target = C::Connection;

    #[inline]
    fn deref(&self) -> &C::Connection {
        &self.entry.as_ref().expect(PRESENT).connection
    }
}

impl<C: Connect> DerefMut for Checkout<'_, C> {
    #[inline]
    fn deref_mut(&mut self) -> &mut C::Connection {
        &mut self.entry.as_mut().expect(PRESENT).connection
    }
}

impl<C: Connect<Connection: fmt::Debug>> fmt::Debug for Checkout<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Checkout").field(&**self).finish()
    }
}

/// A connection that is no longer the reservoir's. The connection is dropped before the lease, which is then
/// released in the background: the fleet's count never falls ahead of the sockets'.
#[derive(Debug)]
pub struct Detached<T> {
    /// The connection.
    pub connection: T,
    /// Its lease, if the reservoir has a lease store. Drop it only after the connection is closed.
    pub lease: Option<HeldLease>,
}
