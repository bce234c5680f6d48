//! The status page of this process: its pools, its leases and its token, live.

#[cfg(not(feature = "status-page"))]
mod absent;
#[cfg(feature = "status-page")]
mod served;
#[cfg(feature = "status-page")]
mod source;

#[cfg(not(feature = "status-page"))]
pub(crate) use absent::ServedPage;
#[cfg(feature = "status-page")]
pub(crate) use served::ServedPage;
