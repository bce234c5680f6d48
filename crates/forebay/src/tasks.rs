//! What runs in the background: the only loops, and the errands they and callers send out.

pub(crate) mod expiry;
pub(crate) mod maintenance;
pub(crate) mod reclaim;
pub(crate) mod refill;
pub(crate) mod report;
pub(crate) mod wait_timeouts;
