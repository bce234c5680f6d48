//! A connection that is lent to a caller.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use crate::connect::Connect;
use crate::core::{BoxedEntry, Core, Entry};
use crate::lease::HeldLease;

/// A connection that is lent to a caller. It dereferences to the connection, and returns it when it is
/// dropped.
///
/// A return takes tens of nanoseconds. If the connection is dirty or dead, it is reset or closed in the
/// background.
///
/// The guard borrows the [`Reservoir`](crate::Reservoir) handle it came from, which saves two atomic
/// operations. [`into_owned`](Self::into_owned) makes a guard that can be stored or sent anywhere.
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

    /// Converts the guard into one that does not borrow the handle.
    #[must_use]
    pub fn into_owned(mut self) -> OwnedCheckout<C> {
        Checkout { core: Cow::Owned(Arc::clone(&self.core)), entry: self.entry.take() }
    }

    /// Marks the connection as failed: the reservoir discards it when it is returned, and does not lend it
    /// again.
    pub fn mark_bad(&mut self) {
        self.entry.as_mut().expect(PRESENT).bad = true;
    }

    /// The time since the connection was opened.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.core.runtime.now().since(self.entry.as_ref().expect(PRESENT).life.born_at)
    }

    /// The time until the connection expires. `None` if lifetimes are not limited.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.entry.as_ref().expect(PRESENT).life.remaining(self.core.runtime.now())
    }

    /// Whether the connection should be returned now, for callers that hold one for long. It is due once it
    /// has died, once its guard window has begun, or once its retirement is due.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.core.is_due(self.entry.as_ref().expect(PRESENT))
    }

    /// Takes the connection out of the reservoir for good, together with its lease. The reservoir opens
    /// another one in its place. The lease is released when the caller drops it.
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

/// A connection that does not belong to the reservoir any more. Its lease is dropped after the connection and
/// is then released in the background. So the fleet never counts fewer connections than there are sockets.
#[derive(Debug)]
pub struct Detached<T> {
    /// The connection.
    pub connection: T,
    /// The lease of the connection, if the reservoir has a lease store. Drop it only after the connection is
    /// closed.
    pub lease: Option<HeldLease>,
}
