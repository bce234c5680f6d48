//! The settings of one instance that both lease modes use.

use std::time::Duration;

use crate::settings::{FleetSettings, LeaseSettings, StoreOutagePolicy};

#[derive(Clone, Debug)]
pub(crate) struct LeaseParams {
    pub(crate) endpoint: String,
    pub(crate) service: String,
    /// The most connections of the fleet.
    pub(crate) limit: u64,
    pub(crate) block: u64,
    /// The time between two heartbeats, or between two reads of the counter.
    pub(crate) heartbeat: Duration,
    /// An entry or a counter that was not written for this long counts as unused.
    pub(crate) lease: Duration,
    /// The most connections this process needs, replacements included.
    pub(crate) max_open: u64,
    pub(crate) policy: StoreOutagePolicy,
}

impl LeaseParams {
    pub(crate) fn new(settings: &FleetSettings, lease: &LeaseSettings) -> Self {
        Self {
            endpoint: settings.endpoint.clone(),
            service: settings.service.clone(),
            limit: lease.limit,
            block: lease.block,
            heartbeat: lease.heartbeat,
            lease: lease.length,
            max_open: settings.max_open,
            policy: settings.outage_policy,
        }
    }
}
