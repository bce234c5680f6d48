//! What is behind the gateway.

use std::future::Future;
use std::pin::Pin;

use forebay_dsql::{DsqlPool, Error, RawPostgres};

use crate::session::Memory;

/// A pool of connections to the cluster, as the gateway uses them.
pub type RawPool = DsqlPool<RawPostgres<Memory>>;

/// Opens pools of connections to the cluster.
pub trait Cluster: Send + Sync + 'static {
    /// Opens a pool of connections of this role to this database.
    fn open<'a>(
        &'a self,
        role: &'a str,
        database: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<RawPool, Error>> + Send + 'a>>;
}
