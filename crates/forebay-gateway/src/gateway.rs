//! The gateway: listens, logs clients in, and gives each a session.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::rt::{self, Runtime};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::backends::Backends;
use crate::clients::Clients;
use crate::config::{GatewayConfig, UnixSocket};
use crate::listener::{self, Bound};
use crate::login::{LoginPolicy, LoginShared};
use crate::seat::Ask;
use crate::workers::Workers;

mod cancel_requests;
mod cluster;
mod door;
mod pools;
mod readiness;
mod service;
mod shared;
mod start_error;

pub use cluster::{Cluster, RawPool};
pub use readiness::Readiness;
use shared::{CLOSE_TIME, Shared};
pub use start_error::StartError;

/// How long transactions may take to finish after the grace period.
const LAST_CALL: Duration = Duration::from_secs(5);

/// A running gateway. Dropping it stops it from listening; sessions go on until their clients leave.
pub struct Gateway {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    peer_address: Option<SocketAddr>,
    unix_socket: Option<PathBuf>,
    /// Ends the listeners, whose tasks have a receiver each.
    stop: watch::Sender<bool>,
    /// Ends the listener for peers when it is dropped. It goes on during a drain.
    _hear_peers: watch::Sender<()>,
}

impl Gateway {
    /// Starts a gateway: reads the users and certificates, opens a pool for each role, and listens.
    ///
    /// # Errors
    /// If any of these fails. Nothing is left behind then.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    pub async fn start(
        config: GatewayConfig,
        cluster: impl Cluster,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, StartError> {
        let workers = Workers::new([Arc::clone(&runtime)]);
        Self::start_with(config, cluster, runtime, workers, false).await
    }

    /// As [`start`](Self::start), with workers: each is a runtime, best a thread of its own, and each client is served by one of them. If
    /// there is none, and for everything else, `runtime` is used.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    ///
    /// # Cancel safety
    /// As [`start`](Self::start).
    pub async fn start_on(
        config: GatewayConfig,
        cluster: impl Cluster,
        runtime: Arc<dyn Runtime>,
        workers: impl IntoIterator<Item = Arc<dyn Runtime>>,
    ) -> Result<Self, StartError> {
        let workers = Workers::new(workers);
        if workers.count() == 0 {
            return Self::start(config, cluster, runtime).await;
        }
        Self::start_with(config, cluster, runtime, workers, true).await
    }

    async fn start_with(
        config: GatewayConfig,
        cluster: impl Cluster,
        runtime: Arc<dyn Runtime>,
        workers: Workers,
        moves: bool,
    ) -> Result<Self, StartError> {
        let policy = LoginPolicy::load(&config)?;
        check_places(&config)?;
        warn_of(&policy, &*runtime);
        let shared = Arc::new(Shared {
            login: LoginShared::new(policy, Arc::clone(&runtime)),
            clients: Clients::new(config.peers.as_ref().map(|peers| peers.id)),
            config: RwLock::new(Arc::new(config)),
            pools: Mutex::default(),
            reloading: tokio::sync::Mutex::default(),
            leaving: AtomicBool::new(false),
            cluster: Box::new(cluster),
            workers,
            moves,
            runtime,
        });
        let config = Arc::clone(&shared.config.read());
        let pools = shared.open_pools(&shared.login.policy(), config.timeouts.backend).await?;
        shared.pools.lock().replace(pools);
        // Only now, as a client that connects is to be served: a process that still serves the port goes on until then.
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for address in &config.listen {
            let bound = Bound::tcp(
                *address,
                config.is_only_v6(*address),
                shared.workers.count(),
                config.so_reuseport,
            );
            let bound = bound.map_err(|error| StartError::Listen { on: address.to_string(), error })?;
            addresses.extend(bound.first().and_then(Bound::address));
            listeners.extend(bound.into_iter().enumerate());
        }
        if let Some(socket) = &config.unix_socket {
            let unique = shared.runtime.entropy();
            let listener = Bound::unix(&socket.path(), socket.mode, config.so_reuseport, unique);
            listeners
                .push((0, listener.map_err(|error| StartError::Listen { on: socket.to_string(), error })?));
        }
        let unix_socket = config.unix_socket.as_ref().map(UnixSocket::path);
        let mut peer_address = None;
        let (hear_peers, heard) = watch::channel(());
        if let Some(peers) = &config.peers {
            let bound = Bound::tcp(peers.listen, false, 1, false);
            let bound = bound.map_err(|error| StartError::Listen { on: peers.listen.to_string(), error })?;
            for bound in bound {
                peer_address = bound.address();
                shared
                    .workers
                    .runtime(0)
                    .spawn(Box::pin(Arc::clone(&shared).hear_peers(bound, heard.clone())));
            }
        }
        let (stop, stopped) = watch::channel(false);
        for (worker, bound) in listeners {
            let task = Arc::clone(&shared).listen(worker, bound, stopped.clone());
            shared.workers.runtime(worker).spawn(Box::pin(task));
        }
        Ok(Self { shared, addresses, peer_address, unix_socket, stop, _hear_peers: hear_peers })
    }

    /// Where it listens for TCP connections.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it listens for cancel requests that its peers pass on.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.peer_address
    }

    /// Its Unix socket.
    #[must_use]
    pub fn unix_socket(&self) -> Option<&std::path::Path> {
        self.unix_socket.as_deref()
    }

    /// Tells whether new clients should come to it, for a load balancer.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        Readiness(Arc::downgrade(&self.shared))
    }

    /// The names of those who may log in.
    #[must_use]
    pub fn users(&self) -> Vec<String> {
        self.shared.login.policy().users.iter().map(|user| user.name.clone()).collect()
    }

    /// How many clients are connected.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.shared.clients.count()
    }

    /// The backends of each role and database that users have.
    #[must_use]
    pub fn backends(&self) -> Vec<((String, String), Arc<Backends>)> {
        self.shared
            .pools
            .lock()
            .active
            .iter()
            .map(|(role, backends)| (role.clone(), Arc::clone(backends)))
            .collect()
    }

    /// Reads users and certificates again, and takes limits, timeouts and peers from `config`. Clients that are connected stay as they
    /// are. A role that no user has any more keeps its connections until its last client has left. Where it listens does not change. With
    /// an error, nothing changes.
    ///
    /// # Errors
    /// Every problem with the files, or a role that the cluster does not let in.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing, and closes what was opened.
    pub async fn reload(&self, mut config: GatewayConfig) -> Result<(), StartError> {
        let shared = &self.shared;
        let _alone = shared.reloading.lock().await;
        // First: what is let in depends on where it listens.
        let running = Arc::clone(&shared.config.read());
        let kept = config.keep_until_restart(&running);
        let policy = LoginPolicy::load(&config)?;
        let wait = config.timeouts.backend;
        let pools = shared.open_pools(&policy, wait).await?;
        pools.values().for_each(|backends| backends.set_wait(wait));
        let before = shared.pools.lock().replace(pools);
        for setting in kept {
            tracing::warn!(setting, "this setting was changed, but needs a restart");
        }
        *shared.config.write() = Arc::new(config);
        warn_of(&policy, &*shared.runtime);
        shared.login.replace(policy);
        drop(before);
        Ok(())
    }

    /// Shuts down: stops listening, gives clients `grace` to leave by themselves, and then ends idle sessions (57P01), and the others as
    /// soon as their transaction ends. Clients that were connecting when it began are served like the others; those that log in after
    /// the grace are refused (57P03). Returns how many had to be cut off in the middle of a transaction.
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting; nobody can connect any more all the same. It can be called again, such as without a grace.
    pub async fn drain(&self, grace: Duration) -> usize {
        let Shared { login, clients, runtime, .. } = &*self.shared;
        self.shared.leaving.store(true, Ordering::Relaxed);
        self.stop.send_replace(true);
        let left = async {
            self.stop.closed().await;
            clients.disconnected().await;
        };
        let left = rt::within(&**runtime, grace, left).await;
        // Before all are asked to end: whoever enters later finds this.
        login.drain();
        if left.is_some() {
            self.close_pools().await;
            return 0;
        }
        clients.ask_all(Ask::End);
        let left = async {
            self.stop.closed().await;
            clients.gone().await;
        };
        if rt::within(&**runtime, LAST_CALL, left).await.is_some() {
            self.close_pools().await;
            return 0;
        }
        let cut = clients.count();
        clients.ask_all(Ask::EndNow);
        rt::within(&**runtime, CLOSE_TIME * 2, clients.gone()).await;
        self.close_pools().await;
        cut
    }

    async fn close_pools(&self) {
        let pools = self.shared.pools.lock().all();
        for backends in pools {
            backends.pool().drain(LAST_CALL).await;
        }
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("addresses", &self.addresses)
            .field("clients", &self.clients())
            .finish_non_exhaustive()
    }
}

fn warn_of(policy: &LoginPolicy, runtime: &dyn Runtime) {
    for warning in policy.warnings(runtime.wall()) {
        tracing::warn!("{warning}");
    }
}

/// Whether it will be able to listen. Pools take a while to open, and an operator should not wait for that to learn it.
fn check_places(config: &GatewayConfig) -> Result<(), StartError> {
    let peers = config.peers.as_ref().map(|peers| (peers.listen, false));
    let tcp = config.listen.iter().map(|address| (*address, config.so_reuseport)).chain(peers);
    for (address, shared) in tcp {
        let checked = listener::check_tcp(address, config.is_only_v6(address), shared);
        checked.map_err(|error| StartError::Listen { on: address.to_string(), error })?;
    }
    if let Some(socket) = &config.unix_socket {
        let checked = listener::check_unix(&socket.path(), config.so_reuseport);
        checked.map_err(|error| StartError::Listen { on: socket.to_string(), error })?;
    }
    Ok(())
}
