//! What a pool gets from the fleet of its process.

use std::fmt;
use std::sync::Arc;

use forebay::{Builder, Connect, Leases, Limit};

/// What a pool gets from the fleet of its process: all of it, in one place, so that a service, a simulation of it and an example cannot be wired
/// differently.
///
/// | what | how |
/// |---|---|
/// | how many connections | `leases` |
/// | how fast | `limit` |
/// | whose turn it is to retire some | `leases`, which know the [index](crate::Fleet::instance_index) of the process |
/// | room for replacements | the slots that [`FleetSettings::for_pools`](crate::FleetSettings::for_pools) has asked for |
#[derive(Clone, Default)]
pub struct Wiring {
    /// Counts connections, if the fleet does.
    pub leases: Option<Arc<dyn Leases>>,
    /// Rations opens, if the fleet does. Otherwise each pool has a limit of its own.
    pub limit: Option<Arc<dyn Limit>>,
}

impl Wiring {
    /// Gives all of it to a reservoir.
    pub fn reservoir<C: Connect>(self, mut reservoir: Builder<C>) -> Builder<C> {
        if let Some(leases) = self.leases {
            reservoir = reservoir.leases(leases);
        }
        if let Some(limit) = self.limit {
            reservoir = reservoir.limit(limit);
        }
        reservoir
    }
}

impl fmt::Debug for Wiring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wiring")
            .field("leases", &self.leases.is_some())
            .field("limit", &self.limit.is_some())
            .finish()
    }
}
