//! The lock. Under the feature `shuttle` it is shuttle's, so that every schedule around it can be explored.

#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::Mutex;
#[cfg(feature = "shuttle")]
pub(crate) use shuttle_parking_lot::Mutex;
