//! The leases and the limit of a pool.

use std::fmt;
use std::sync::Arc;

use forebay::{Builder, Connect, Leases, Limit};

/// Everything that a pool gets from the fleet of its process. Services, the simulator and examples all use this.
///
/// | what | how |
/// |---|---|
/// | how many connections | `leases` |
/// | how fast | `limit` |
/// | when to retire connections | `leases`, by the [index](crate::Fleet::instance_index) of the process |
/// | slots for replacements | computed by [`FleetSettings::for_pools`](crate::FleetSettings::for_pools) |
#[derive(Clone, Default)]
pub struct Wiring {
    /// The leases, if the fleet has a connection limit.
    pub leases: Option<Arc<dyn Leases>>,
    /// The connect rate, if the fleet shares one. Otherwise each pool has its own limit.
    pub limit: Option<Arc<dyn Limit>>,
}

impl Wiring {
    /// Gives leases and limit to a reservoir.
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
