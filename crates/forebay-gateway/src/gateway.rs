//! The gateway: listens, logs clients in, and gives each a session.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use forebay::ConfigError;
use forebay::rt::{self, Runtime};
use forebay_dsql::{DsqlPool, Error, RawPostgres};
use parking_lot::{Mutex, RwLock};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use crate::backends::Backends;
use crate::clients::{Clients, Connection, Owner};
use crate::config::{GatewayConfig, UnixSocket};
use crate::listener::{self, Accepted, Bound, Listener};
use crate::login::{self, CancelRequest, ClientStream, LoggedIn, LoginPolicy, LoginShared, Peer};
use crate::metrics;
use crate::peers;
use crate::protocol::{ServerError, Severity, write};
use crate::refusal;
use crate::relay::{End, Policy, Relay};
use crate::seat::Ask;
use crate::session::{Memory, SessionLimits, StartSettings, VirtualSession};
use crate::workers::{Load, Workers};

/// After a failed accept, such as for want of file descriptors, nothing is accepted for this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a client may take to close its side at the end.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// How long a cancel request may take on its way to a peer.
const PEER_TIME: Duration = Duration::from_secs(5);
/// How long transactions may take to finish after the grace period.
const LAST_CALL: Duration = Duration::from_secs(5);

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

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration, the users file or a certificate.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It cannot listen there.
    #[error("cannot listen on {on}: {error}{}", remedy(error))]
    Listen {
        /// An address, or the path of a socket.
        on: String,
        /// What the system says.
        error: io::Error,
    },
    /// The cluster cannot be used by a role.
    #[error("no connection to the cluster as role {role:?}: {error}")]
    Cluster {
        /// The role.
        role: String,
        /// Why.
        error: Error,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process listens there: stop it, choose another port, or set so_reuseport to share the port with it"
        }
        io::ErrorKind::AlreadyExists => "; remove what is there, or choose another unix_socket_dir",
        io::ErrorKind::PermissionDenied => {
            "; choose a port above 1023, and a directory that this process may write to"
        }
        io::ErrorKind::NotFound => "; make the directory first",
        _ => "",
    }
}

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

struct Shared {
    login: LoginShared,
    config: RwLock<Arc<GatewayConfig>>,
    clients: Arc<Clients>,
    pools: Mutex<Pools>,
    /// One reload at a time.
    reloading: tokio::sync::Mutex<()>,
    /// A drain has begun.
    leaving: AtomicBool,
    cluster: Box<dyn Cluster>,
    workers: Workers,
    /// The workers have runtimes of their own.
    moves: bool,
    runtime: Arc<dyn Runtime>,
}

/// The backends of each role and database.
#[derive(Default)]
struct Pools {
    /// Those that users have.
    active: BTreeMap<RoleKey, Arc<Backends>>,
    /// Those that no user has any more. Their clients keep them open.
    retired: BTreeMap<RoleKey, Weak<Backends>>,
}

/// A role and a database.
type RoleKey = (String, String);

impl Pools {
    fn find(&self, key: &RoleKey) -> Option<Arc<Backends>> {
        let retired = || self.retired.get(key).and_then(Weak::upgrade);
        self.active.get(key).cloned().or_else(retired)
    }

    /// From now on, these are the ones that users have. Returns the others: drop them without a lock.
    fn replace(&mut self, active: BTreeMap<RoleKey, Arc<Backends>>) -> BTreeMap<RoleKey, Arc<Backends>> {
        let before = std::mem::replace(&mut self.active, active);
        self.retired.extend(before.iter().map(|(key, backends)| (key.clone(), Arc::downgrade(backends))));
        self.retired.retain(|key, backends| !self.active.contains_key(key) && backends.strong_count() > 0);
        before
    }

    /// All that are open.
    fn all(&self) -> Vec<Arc<Backends>> {
        let retired = self.retired.values().filter_map(Weak::upgrade);
        self.active.values().cloned().chain(retired).collect()
    }
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
            let bound = Bound::tcp(*address, shared.workers.count(), config.so_reuseport);
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
            let bound = Bound::tcp(peers.listen, 1, false);
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
        let policy = LoginPolicy::load(&config)?;
        let wait = config.timeouts.backend;
        let pools = shared.open_pools(&policy, wait).await?;
        pools.values().for_each(|backends| backends.set_wait(wait));
        let before = shared.pools.lock().replace(pools);
        let running = Arc::clone(&shared.config.read());
        for setting in config.keep_until_restart(&running) {
            tracing::warn!(setting, "this setting was changed, but needs a restart");
        }
        *shared.config.write() = Arc::new(config);
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

/// Tells whether new clients should come to a gateway. It does not keep the gateway running.
#[derive(Clone)]
pub struct Readiness(Weak<Shared>);

impl Readiness {
    /// Why not, in words for an operator. Empty if they should.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let Some(shared) = self.0.upgrade() else { return vec!["the gateway has ended".to_owned()] };
        let mut reasons = Vec::new();
        if shared.leaving.load(Ordering::Relaxed) {
            reasons.push("the gateway is draining".to_owned());
        }
        // If one role works, the gateway is worth its clients.
        if shared.pools.lock().active.values().all(|backends| backends.pool().status().open == 0) {
            reasons.push("no role has a connection to the cluster".to_owned());
        }
        reasons
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readiness").field(&self.reasons()).finish()
    }
}

/// Whether it will be able to listen. Pools take a while to open, and an operator should not wait for that to learn it.
fn check_places(config: &GatewayConfig) -> Result<(), StartError> {
    let peers = config.peers.as_ref().map(|peers| (peers.listen, false));
    let tcp = config.listen.iter().map(|address| (*address, config.so_reuseport)).chain(peers);
    for (address, shared) in tcp {
        let checked = listener::check_tcp(address, shared);
        checked.map_err(|error| StartError::Listen { on: address.to_string(), error })?;
    }
    if let Some(socket) = &config.unix_socket {
        let checked = listener::check_unix(&socket.path(), config.so_reuseport);
        checked.map_err(|error| StartError::Listen { on: socket.to_string(), error })?;
    }
    Ok(())
}

impl Shared {
    /// The pools of all roles that users have: those that are open, and new ones. Clients wait for a connection of a new one for at most
    /// `wait`.
    async fn open_pools(
        &self,
        policy: &LoginPolicy,
        wait: Duration,
    ) -> Result<BTreeMap<RoleKey, Arc<Backends>>, StartError> {
        let mut pools = BTreeMap::new();
        for (role, database) in policy.users.roles() {
            let key = (role.to_owned(), database.to_owned());
            let open = self.pools.lock().find(&key);
            let backends = match open {
                Some(backends) => backends,
                None => {
                    let opened = self.cluster.open(role, database).await;
                    let pool =
                        opened.map_err(|error| StartError::Cluster { role: role.to_owned(), error })?;
                    Arc::new(Backends::new(pool, wait, self.moves))
                }
            };
            pools.insert(key, backends);
        }
        Ok(pools)
    }

    async fn listen(self: Arc<Self>, here: usize, bound: Bound, mut stop: watch::Receiver<bool>) {
        let mut listener = match bound.listen() {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "a worker cannot listen"),
        };
        self.accept(&listener, here, async { drop(stop.wait_for(|stopped| *stopped).await) }).await;
        // If the sender is gone, so is the gateway.
        if stop.has_changed().is_err() {
            return;
        }
        // Who has connected is served, and who connects from now on finds the successor, if there is one.
        let time = listener.close_door();
        self.accept(&listener, here, self.runtime.sleep_until(self.runtime.now() + time)).await;
        match listener.rest() {
            Ok(rest) => rest.into_iter().for_each(|accepted| self.place(accepted, here)),
            Err(error) => tracing::warn!(%error, "clients could not be accepted"),
        }
    }

    /// Accepts clients until `end`.
    async fn accept(self: &Arc<Self>, listener: &Listener, here: usize, end: impl Future<Output = ()>) {
        let mut end = pin!(end);
        loop {
            let mut accept = pin!(listener.accept());
            let accepted = poll_fn(|context| {
                if end.as_mut().poll(context).is_ready() {
                    return Poll::Ready(None);
                }
                accept.as_mut().poll(context).map(Some)
            });
            match accepted.await {
                None => return,
                Some(Ok(accepted)) => self.place(accepted, here),
                Some(Err(error)) => {
                    tracing::warn!(%error, "a client could not be accepted");
                    self.runtime.sleep_until(self.runtime.now() + ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Gives a client to a worker.
    fn place(self: &Arc<Self>, accepted: Accepted, here: usize) {
        let connection = self.clients.connected();
        let (worker, load) = self.workers.place(here);
        let served = if worker == here { Ok(accepted) } else { accepted.leave().map(Accepted::Left) };
        match served {
            Ok(accepted) => {
                let task = Arc::clone(self).welcome(accepted, worker, load, connection);
                self.workers.runtime(worker).spawn(Box::pin(task));
            }
            Err(error) => tracing::warn!(%error, "a client could not be passed to another worker"),
        }
    }

    /// Serves a client on this worker.
    async fn welcome(self: Arc<Self>, accepted: Accepted, worker: usize, load: Load, connection: Connection) {
        match accepted.arrive() {
            Ok(Accepted::Tcp(socket, peer)) => self.serve(socket, Peer::Tcp(peer), worker).await,
            Ok(Accepted::Unix(socket)) => self.serve(socket, Peer::Unix, worker).await,
            Ok(Accepted::Left(_)) => {}
            Err(error) => tracing::warn!(%error, "a client could not be passed to another worker"),
        }
        drop((load, connection));
    }

    /// Listens for cancel requests that peers pass on.
    async fn hear_peers(self: Arc<Self>, bound: Bound, mut gone: watch::Receiver<()>) {
        let listener = match bound.listen() {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "peers cannot be heard"),
        };
        let mut gone = pin!(async { while gone.changed().await.is_ok() {} });
        loop {
            let mut accept = pin!(listener.accept());
            let accepted = poll_fn(|context| {
                if gone.as_mut().poll(context).is_ready() {
                    return Poll::Ready(None);
                }
                accept.as_mut().poll(context).map(Some)
            });
            match accepted.await {
                None => return,
                Some(Ok(Accepted::Tcp(socket, peer))) => {
                    let shared = Arc::clone(&self);
                    let heard = async move {
                        match login::passed_on(socket, Peer::Tcp(peer), &shared.login).await {
                            Ok(request) => {
                                metrics::peer_cancel("received");
                                // It is not passed on again, whatever its key says: so it cannot go round in circles.
                                shared.clients.cancel(request.key());
                            }
                            Err(error) => {
                                tracing::info!(%peer, %error, "this was not a cancel request of a peer")
                            }
                        }
                    };
                    self.workers.runtime(0).spawn(Box::pin(heard));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    tracing::warn!(%error, "a peer could not be accepted");
                    self.runtime.sleep_until(self.runtime.now() + ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Cancels a statement here, or passes the request on to the process that has the session.
    async fn cancel<S>(&self, request: CancelRequest<S>) {
        let key = request.key();
        let Owner::Peer(id) = self.clients.owner(key) else { return self.clients.cancel(key) };
        let config = Arc::clone(&self.config.read());
        let Some(address) = config.peers.as_ref().and_then(|peers| peers.addresses.get(&id)) else {
            return metrics::peer_cancel("unknown");
        };
        match rt::within(&*self.runtime, PEER_TIME, peers::pass_on(address, key)).await {
            Some(Ok(())) => metrics::peer_cancel("passed_on"),
            failed => {
                metrics::peer_cancel("failed");
                let error = failed.map_or_else(
                    || "no answer in time".to_owned(),
                    |result| result.err().map_or_else(String::new, |error| error.to_string()),
                );
                tracing::warn!(peer = id, %address, %error, "a cancel request could not be passed on");
            }
        }
    }

    /// One connection, from its first byte to its last.
    async fn serve<S>(self: &Arc<Self>, socket: S, peer: Peer, worker: usize)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        // Boxed: what a login needs is freed when it ends, and sessions last.
        match Box::pin(login::login(socket, peer, &self.login)).await {
            Ok(login::Accepted::Client(client)) => {
                metrics::login("accepted");
                self.relay(*client, worker).await;
            }
            Ok(login::Accepted::Cancel(request)) => self.cancel(request).await,
            Ok(login::Accepted::Gone) => {}
            Err(error) => {
                metrics::login(error.label());
                tracing::info!(%peer, %error, "a client was not let in");
            }
        }
    }

    /// A client that is logged in, until it leaves.
    async fn relay<S>(&self, client: LoggedIn<S>, worker: usize)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let LoggedIn { mut stream, user, start, unread, mut unsent, slot } = client;
        let key = (user.role.clone(), user.database.clone());
        let found = self.pools.lock().find(&key);
        let ready = match found {
            Some(backends) => {
                let reported = Box::pin(backends.reported()).await;
                reported.map(|reported| (backends, reported)).map_err(|error| refusal::no_backend(&error))
            }
            None => Err(refusal::no_role()),
        };
        let (backends, reported) = match ready {
            Ok(ready) => ready,
            Err(error) => {
                write::error(&mut unsent, &ServerError { severity: Severity::Fatal, ..error });
                let _ =
                    rt::within(&*self.runtime, CLOSE_TIME, Box::pin(last_words(&mut stream, &unsent))).await;
                return;
            }
        };
        let mut relay = {
            let config = Arc::clone(&self.config.read());
            let limits = SessionLimits {
                max_message: config.limits.message_size,
                max_statements: config.limits.statements,
                max_statement_bytes: config.limits.statements_size,
                ..SessionLimits::default()
            };
            let session = VirtualSession::new(StartSettings::new(start.iter()), limits);
            let policy = Arc::new(Policy::new(&user, &config.timeouts));
            let client = self.clients.enter(&*self.runtime);
            // A drain that began meanwhile has asked everybody else.
            if self.login.is_draining() {
                client.seat.ask(Ask::End);
            }
            let runtime = Arc::clone(self.workers.runtime(worker));
            let mut relay = Relay::new(stream, session, backends, client, policy, runtime);
            relay.greet(&reported, &unsent, &unread);
            relay
        };
        drop((reported, unsent, unread, start, user));
        let end = (&mut relay).await;
        metrics::ended(match end {
            End::Left => "left",
            End::Broken => "broken",
            End::Dismissed => "dismissed",
        });
        // A client that said good-bye reads nothing any more.
        if end == End::Dismissed {
            // An error means that it is closed already.
            let _ = rt::within(&*self.runtime, CLOSE_TIME, relay.client().shutdown()).await;
        }
        drop(slot);
    }
}

/// Says why the client cannot stay.
async fn last_words<S>(stream: &mut ClientStream<S>, words: &[u8]) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(words).await?;
    stream.shutdown().await
}
