//! Background tasks: the permanent ones, and those for single connections.

pub(crate) mod expiry;
pub(crate) mod maintenance;
pub(crate) mod reclaim;
pub(crate) mod refill;
pub(crate) mod report;
pub(crate) mod wait_timeouts;
