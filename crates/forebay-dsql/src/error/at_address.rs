//! Where a connection was refused: the system does not say it.

use std::net::SocketAddr;

use forebay::BoxError;

/// An error at an address.
#[derive(Debug, thiserror::Error)]
#[error("no connection to {address}")]
pub(super) struct AtAddress {
    pub(super) address: SocketAddr,
    #[source]
    pub(super) error: BoxError,
}
