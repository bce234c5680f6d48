//! For code that already has a pool: new connections come from a reservoir instead of from the server.

#[cfg(feature = "bb8")]
mod bb8;
#[cfg(feature = "deadpool")]
mod deadpool;

use std::fmt;

use crate::checkout::OwnedCheckout;
use crate::connect::Connect;
use crate::reservoir::Reservoir;

/// What a deadpool or bb8 pool takes its connections from: a reservoir.
///
/// The pool keeps its own idle connections, and so does not know when one is too old. Therefore the tap refuses to
/// [reuse](OwnedCheckout::is_due) a connection in its guard window, due for retirement or dead: the pool drops it, which
/// gives it back to the reservoir, and takes a fresh one, which costs nanoseconds and not an open.
///
/// Let the reservoir own as many connections as the pool may hold, and a few more.
pub struct ReservoirManager<C: Connect>(Reservoir<C>);

impl<C: Connect> ReservoirManager<C> {
    /// A tap on `reservoir`.
    #[must_use]
    pub fn new(reservoir: Reservoir<C>) -> Self {
        Self(reservoir)
    }

    /// The reservoir behind it.
    #[must_use]
    pub fn reservoir(&self) -> &Reservoir<C> {
        &self.0
    }

    /// Whether the pool may hand `connection` to another caller as it is.
    fn is_reusable(&self, connection: &OwnedCheckout<C>) -> bool {
        let connector = &self.0.core().connector;
        !connection.is_due() && connector.is_usable(connection) && connector.is_clean(connection)
    }
}

impl<C: Connect> Clone for ReservoirManager<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: Connect> fmt::Debug for ReservoirManager<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReservoirManager").field(&self.0).finish()
    }
}
