//! The gateway: listens, logs clients in, and gives each a session.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use forebay::ConfigError;
use forebay::rt::{self, Runtime};
use forebay_dsql::{DsqlPool, Error, RawPostgres};
use parking_lot::{Mutex, RwLock};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use crate::backends::Backends;
use crate::clients::Clients;
use crate::config::GatewayConfig;
use crate::listener::{Accepted, Bound};
use crate::login::{self, ClientStream, LoggedIn, LoginPolicy, LoginShared, Peer};
use crate::metrics;
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
    #[error("cannot listen on {on}: {error}")]
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

/// A running gateway. Dropping it stops it from listening; sessions go on until their clients leave.
pub struct Gateway {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    unix_socket: Option<PathBuf>,
    stop: watch::Sender<bool>,
}

struct Shared {
    login: LoginShared,
    config: RwLock<Arc<GatewayConfig>>,
    clients: Arc<Clients>,
    backends: Mutex<BTreeMap<(String, String), Arc<Backends>>>,
    cluster: Box<dyn Cluster>,
    workers: Workers,
    /// The workers have runtimes of their own.
    moves: bool,
    runtime: Arc<dyn Runtime>,
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
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for address in &config.listen {
            let bound = Bound::tcp(*address, workers.count());
            let bound = bound.map_err(|error| StartError::Listen { on: address.to_string(), error })?;
            addresses.extend(bound.first().and_then(Bound::address));
            listeners.extend(bound.into_iter().enumerate());
        }
        if let Some(socket) = &config.unix_socket {
            let on = || socket.path().display().to_string();
            let listener = Bound::unix(&socket.path(), socket.mode);
            listeners.push((0, listener.map_err(|error| StartError::Listen { on: on(), error })?));
        }
        let unix_socket = config.unix_socket.as_ref().map(crate::config::UnixSocket::path);
        let shared = Arc::new(Shared {
            login: LoginShared::new(policy, Arc::clone(&runtime)),
            config: RwLock::new(Arc::new(config)),
            clients: Clients::new(),
            backends: Mutex::default(),
            cluster: Box::new(cluster),
            workers,
            moves,
            runtime,
        });
        let wait = shared.config.read().timeouts.backend;
        shared.open_pools(&shared.login.policy(), wait).await?;
        let (stop, stopped) = watch::channel(false);
        for (worker, bound) in listeners {
            let task = Arc::clone(&shared).listen(worker, bound, stopped.clone());
            shared.workers.runtime(worker).spawn(Box::pin(task));
        }
        Ok(Self { shared, addresses, unix_socket, stop })
    }

    /// Where it listens for TCP connections.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Its Unix socket.
    #[must_use]
    pub fn unix_socket(&self) -> Option<&std::path::Path> {
        self.unix_socket.as_deref()
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

    /// The backends of each role and database.
    #[must_use]
    pub fn backends(&self) -> Vec<((String, String), Arc<Backends>)> {
        self.shared
            .backends
            .lock()
            .iter()
            .map(|(role, backends)| (role.clone(), Arc::clone(backends)))
            .collect()
    }

    /// Reads users and certificates again, and takes limits and timeouts from `config`. Clients that are connected stay as they are.
    /// Where it listens does not change. With an error, nothing changes.
    ///
    /// # Errors
    /// Every problem with the files, or a role that the cluster does not let in.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing, except that a pool of a new role may be open already.
    pub async fn reload(&self, config: GatewayConfig) -> Result<(), StartError> {
        let policy = LoginPolicy::load(&config)?;
        self.shared.open_pools(&policy, config.timeouts.backend).await?;
        *self.shared.config.write() = Arc::new(config);
        self.shared.login.replace(policy);
        Ok(())
    }

    /// Shuts down: lets nobody in, gives clients `grace` to leave by themselves, and then ends idle sessions (57P01), and the others as
    /// soon as their transaction ends. Returns how many had to be cut off in the middle of one.
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting; nobody is let in any more all the same. It can be called again, such as without a grace.
    pub async fn drain(&self, grace: Duration) -> usize {
        let Shared { login, clients, runtime, .. } = &*self.shared;
        login.drain();
        self.stop.send_replace(true);
        let left = async |ask: Option<Ask>, wait: Duration| {
            if let Some(ask) = ask {
                clients.ask_all(ask);
            }
            rt::within(&**runtime, wait, clients.gone()).await.is_some()
        };
        if left(None, grace).await || left(Some(Ask::End), LAST_CALL).await {
            self.close_pools().await;
            return 0;
        }
        let cut = clients.count();
        left(Some(Ask::EndNow), CLOSE_TIME * 2).await;
        self.close_pools().await;
        cut
    }

    async fn close_pools(&self) {
        for (_, backends) in self.backends() {
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

impl Shared {
    /// Opens a pool for each role that users have, unless there is one. Clients wait for a connection of a new one for at most `wait`.
    async fn open_pools(&self, policy: &LoginPolicy, wait: Duration) -> Result<(), StartError> {
        for (role, database) in policy.users.roles() {
            let key = (role.to_owned(), database.to_owned());
            if self.backends.lock().contains_key(&key) {
                continue;
            }
            let opened = self.cluster.open(role, database).await;
            let pool = opened.map_err(|error| StartError::Cluster { role: role.to_owned(), error })?;
            self.backends.lock().insert(key, Arc::new(Backends::new(pool, wait, self.moves)));
        }
        Ok(())
    }

    async fn listen(self: Arc<Self>, here: usize, bound: Bound, mut stop: watch::Receiver<bool>) {
        let listener = match bound.listen() {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "a worker cannot listen"),
        };
        loop {
            let mut stopped = pin!(stop.wait_for(|stopped| *stopped));
            let mut accept = pin!(listener.accept());
            let accepted = poll_fn(|context| {
                // If the sender is gone, so is the gateway.
                if stopped.as_mut().poll(context).is_ready() {
                    return Poll::Ready(None);
                }
                accept.as_mut().poll(context).map(Some)
            });
            let Some(accepted) = accepted.await else { return };
            match accepted {
                Ok(accepted) => {
                    let (worker, load) = self.workers.place(here);
                    let served =
                        if worker == here { Ok(accepted) } else { accepted.leave().map(Accepted::Left) };
                    match served {
                        Ok(accepted) => {
                            let task = Arc::clone(&self).welcome(accepted, worker, load);
                            self.workers.runtime(worker).spawn(Box::pin(task));
                        }
                        Err(error) => {
                            tracing::warn!(%error, "a client could not be passed to another worker")
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a client could not be accepted");
                    self.runtime.sleep_until(self.runtime.now() + ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves a client on this worker.
    async fn welcome(self: Arc<Self>, accepted: Accepted, worker: usize, load: Load) {
        match accepted.arrive() {
            Ok(Accepted::Tcp(socket, peer)) => self.serve(socket, Peer::Tcp(peer), worker).await,
            Ok(Accepted::Unix(socket)) => self.serve(socket, Peer::Unix, worker).await,
            Ok(Accepted::Left(_)) => {}
            Err(error) => tracing::warn!(%error, "a client could not be passed to another worker"),
        }
        drop(load);
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
            Ok(login::Accepted::Cancel(key)) => self.clients.cancel(key),
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
        let backends = self.backends.lock().get(&key).cloned();
        // A reload adds the pools before the users.
        let Some(backends) = backends else { return };
        let reported = match Box::pin(backends.reported()).await {
            Ok(reported) => reported,
            Err(error) => {
                write::error(
                    &mut unsent,
                    &ServerError { severity: Severity::Fatal, ..refusal::no_backend(&error) },
                );
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
