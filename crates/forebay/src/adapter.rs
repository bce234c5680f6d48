//! For applications that already have a pool: the pool takes its connections from a reservoir.

#[cfg(feature = "bb8")]
mod bb8;
#[cfg(feature = "deadpool")]
mod deadpool;

use std::fmt;

use crate::checkout::OwnedCheckout;
use crate::connect::Connect;
use crate::reservoir::Reservoir;

/// A manager for deadpool and bb8 pools. It takes connections from a reservoir instead of opening them.
///
/// Such a pool keeps idle connections of its own, and cannot tell when one is too old. The manager therefore
/// rejects a connection for [reuse](OwnedCheckout::is_due) that is in its guard window, due for retirement,
/// or dead. The pool drops it, which returns it to the reservoir, and takes a fresh one. This costs
/// nanoseconds, not an open.
///
/// Set the reservoir's [`max_open`](crate::Config::max_open) a little higher than the size of the pool.
pub struct ReservoirManager<C: Connect>(Reservoir<C>);

impl<C: Connect> ReservoirManager<C> {
    /// A manager that takes connections from `reservoir`.
    #[must_use]
    pub fn new(reservoir: Reservoir<C>) -> Self {
        Self(reservoir)
    }

    /// The reservoir that the connections come from.
    #[must_use]
    pub fn reservoir(&self) -> &Reservoir<C> {
        &self.0
    }

    /// Whether the pool may lend `connection` again without a reset.
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
