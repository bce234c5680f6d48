//! A connection in a caller's hands.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use crate::connect::Connect;
use crate::core::{BoxedEntry, Core, Entry};
use crate::lease::HeldLease;

/// A connection lent to a caller. It derefs to the connection, and gives it back when it is dropped.
///
/// Giving back costs tens of nanoseconds: a connection that is dirty or dead is dealt with in the background.
///
/// It borrows the [`Reservoir`](crate::Reservoir) it came from, which saves two atomic operations;
/// [`into_owned`](Self::into_owned) makes one that can be stored or sent anywhere.
pub struct Checkout<'a, C: Connect> {
    home: Home<'a, C>,
    /// There until the guard is dropped or the connection detached.
    entry: Option<BoxedEntry<C>>,
    bad: bool,
}

/// Where a connection goes back to.
enum Home<'a, C: Connect> {
    Borrowed(&'a Arc<Core<C>>),
    Owned(Arc<Core<C>>),
}

impl<C: Connect> Home<'_, C> {
    #[inline]
    fn core(&self) -> &Arc<Core<C>> {
        match self {
            Self::Borrowed(core) => core,
            Self::Owned(core) => core,
        }
    }
}

impl<'a, C: Connect> Checkout<'a, C> {
    #[inline]
    pub(crate) fn new(core: &'a Arc<Core<C>>, entry: BoxedEntry<C>) -> Self {
        Self { home: Home::Borrowed(core), entry: Some(entry), bad: false }
    }

    /// The same connection, no longer tied to the handle it came from.
    #[must_use]
    pub fn into_owned(mut self) -> Checkout<'static, C> {
        let home = Home::Owned(Arc::clone(self.home.core()));
        Checkout { home, entry: self.entry.take(), bad: self.bad }
    }

    /// This connection failed: discard it when it comes back, instead of lending it again.
    pub fn mark_bad(&mut self) {
        self.bad = true;
    }

    /// How old the connection is.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.home.core().runtime.now().since(self.entry().life.born_at)
    }

    /// How much of its life is left; none if lives are not limited.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.entry().life.remaining(self.home.core().runtime.now())
    }

    /// Takes the connection out of the reservoir for good, together with its lease. The reservoir opens another in
    /// its place; the lease is released when the caller lets go of it.
    #[must_use]
    pub fn detach(mut self) -> Detached<C::Connection> {
        let entry = self.entry.take().expect("a guard holds its connection until it is consumed");
        let now = self.home.core().runtime.now();
        self.home.core().ask(|state| state.detach(entry.key, now));
        let Entry { connection, lease, .. } = *entry;
        Detached { connection, lease }
    }

    #[inline]
    fn entry(&self) -> &BoxedEntry<C> {
        self.entry.as_ref().expect("a guard holds its connection until it is consumed")
    }
}

impl<C: Connect> Deref for Checkout<'_, C> {
    type Target = C::Connection;

    #[inline]
    fn deref(&self) -> &C::Connection {
        &self.entry().connection
    }
}

impl<C: Connect> DerefMut for Checkout<'_, C> {
    #[inline]
    fn deref_mut(&mut self) -> &mut C::Connection {
        &mut self.entry.as_mut().expect("a guard holds its connection until it is consumed").connection
    }
}

impl<C: Connect> Drop for Checkout<'_, C> {
    #[inline]
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.home.core().give_back(entry, self.bad);
        }
    }
}

impl<C: Connect<Connection: fmt::Debug>> fmt::Debug for Checkout<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkout").field("connection", &**self).field("bad", &self.bad).finish_non_exhaustive()
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
