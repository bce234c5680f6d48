//! What all tasks of a gateway share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use forebay::rt::Runtime;
use futures_util::future::try_join_all;
use parking_lot::{Mutex, RwLock};

use super::cluster::Cluster;
use super::pools::{Pools, RoleKey};
use super::start_error::StartError;
use crate::backends::Backends;
use crate::clients::Clients;
use crate::config::GatewayConfig;
use crate::login::{LoginPolicy, LoginShared};
use crate::workers::Workers;

/// How long a client may take to close its side at the end.
pub(super) const CLOSE_TIME: Duration = Duration::from_secs(1);

/// What all tasks of a gateway share. What they do is in files of their own.
pub(super) struct Shared {
    pub(super) login: LoginShared,
    pub(super) config: RwLock<Arc<GatewayConfig>>,
    pub(super) clients: Arc<Clients>,
    pub(super) pools: Mutex<Pools>,
    /// One reload at a time.
    pub(super) reloading: tokio::sync::Mutex<()>,
    /// A drain has begun.
    pub(super) leaving: AtomicBool,
    pub(super) cluster: Box<dyn Cluster>,
    pub(super) workers: Workers,
    /// The workers have runtimes of their own.
    pub(super) moves: bool,
    pub(super) runtime: Arc<dyn Runtime>,
}

impl Shared {
    /// The pools of all roles that users have: those that are open, and new ones. Clients wait for a connection of a new one for at most
    /// `wait`.
    pub(super) async fn open_pools(
        &self,
        policy: &LoginPolicy,
        wait: Duration,
    ) -> Result<BTreeMap<RoleKey, Arc<Backends>>, StartError> {
        let roles = policy.users.roles().into_iter();
        // All at once: each waits for a while before it begins, and for the limit that they share.
        let opened = try_join_all(roles.map(|(role, database)| self.open_pool(role, database, wait))).await?;
        Ok(opened.into_iter().collect())
    }

    async fn open_pool(
        &self,
        role: &str,
        database: &str,
        wait: Duration,
    ) -> Result<(RoleKey, Arc<Backends>), StartError> {
        let key = (role.to_owned(), database.to_owned());
        let open = self.pools.lock().find(&key);
        let backends = match open {
            Some(backends) => backends,
            None => {
                let opened = self.cluster.open(role, database).await;
                let pool = opened.map_err(|error| StartError::Cluster { role: role.to_owned(), error })?;
                Arc::new(Backends::new(pool, wait, self.moves))
            }
        };
        Ok((key, backends))
    }
}
