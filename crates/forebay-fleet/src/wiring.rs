//! What a fleet gives to the pools of its process.

use std::fmt;
use std::sync::Arc;

use forebay::{Builder, Connect, Leases, Limit};

/// What a pool gets from the fleet of its process. All of it is in one place, so that a service, a simulation and an example
/// are wired alike.
///
/// | what | how |
/// |---|---|
/// | how many connections | `leases` |
/// | how fast they are opened | `limit` |
/// | when they are retired | `leases`, which have the [index](crate::Fleet::instance_index) of the process |
/// | slots for replacements | [`FleetSettings::for_pools`](crate::FleetSettings::for_pools) |
#[derive(Clone, Default)]
pub struct Wiring {
    /// Counts connections, if the fleet does.
    pub leases: Option<Arc<dyn Leases>>,
    /// Limits the rate of opens, if the fleet does. Otherwise each pool has a limit of its own.
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
