//! The connector of an instance, and its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay::rt::{Runtime, VirtualProcess};
use forebay::{Connect, ConnectionMonitor, Failure, Instant, OpenError};
use forebay_fleet::StoreOutagePolicy;

use super::World;
use super::cluster::Socket;
use crate::scenario::Refusal;

/// Opens connections of one instance to the cluster.
#[derive(Clone)]
pub(crate) struct ClusterConnector {
    world: Arc<World>,
    instance: usize,
    process: VirtualProcess,
    /// When the token expires.
    token_until: Arc<AtomicU64>,
}

const TOKEN_LIFE: Duration = Duration::from_secs(15 * 60);

impl ClusterConnector {
    pub(crate) fn new(world: Arc<World>, instance: usize, process: VirtualProcess) -> Self {
        Self { world, instance, process, token_until: Arc::default() }
    }

    /// Closes the session when its lease is recalled, even in use, as a driver closes its socket.
    fn close_on_recall(&self, monitor: ConnectionMonitor, session: u64) {
        let (world, instance) = (Arc::clone(&self.world), self.instance);
        self.process.spawn(Box::pin(async move {
            monitor.recalled().await;
            world.cluster.lock().close(session);
            world.recount(instance);
        }));
    }
}

/// The client side of a session. Dropping it closes the session.
pub(crate) struct Connection {
    world: Arc<World>,
    instance: usize,
    session: u64,
    socket: Arc<Socket>,
    /// When the client got it.
    born: Instant,
}

impl Connection {
    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.socket.is_alive()
    }

    /// Its age in true time.
    pub(crate) fn true_age(&self, now: Instant) -> Duration {
        now.since(self.born)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.world.cluster.lock().close(self.session);
        self.world.recount(self.instance);
    }
}

impl Connect for ClusterConnector {
    type Connection = Connection;

    async fn prepare(&self) -> Result<(), OpenError> {
        let (takes, outcome) = self.world.credentials.lock().token();
        self.world.pass(takes).await;
        if outcome.is_ok() {
            self.token_until.store((self.world.now() + TOKEN_LIFE).as_nanos(), Ordering::Relaxed);
        }
        outcome
    }

    async fn open(&self, monitor: ConnectionMonitor) -> Result<Connection, OpenError> {
        let (world, instance) = (&self.world, self.instance);
        if world.cluster.lock().is_cut_off(instance) {
            return std::future::pending().await;
        }
        let now = world.now();
        let has_token = now.as_nanos() < self.token_until.load(Ordering::Relaxed);
        let answer = world.cluster.lock().connect(instance, has_token, now);
        world.connected(instance, answer.as_ref().err());
        let admitted = match answer {
            Ok(admitted) => admitted,
            Err(refused) if refused.with == Refusal::Silence => return std::future::pending().await,
            Err(refused) => {
                world.pass(refused.takes).await;
                return Err(open_error(refused.with));
            }
        };
        // Created before the wait: if the open is cancelled, the drop closes the session.
        let mut connection = Connection {
            world: Arc::clone(world),
            instance,
            session: admitted.session,
            socket: Arc::clone(&admitted.socket),
            born: now,
        };
        if world.scenario.away == StoreOutagePolicy::Strict {
            self.close_on_recall(monitor.clone(), connection.session);
        }
        admitted.socket.attach(monitor);
        world.pass(admitted.takes).await;
        if !connection.is_alive() {
            return Err(OpenError::new(Failure::Open, "the cluster closed the connection"));
        }
        connection.born = world.now();
        world.cluster.lock().deliver(connection.session);
        world.recount(instance);
        Ok(connection)
    }

    fn is_usable(&self, connection: &Connection) -> bool {
        connection.is_alive()
    }

    async fn close(&self, connection: Connection) {
        self.world.cluster.lock().begin_close(connection.session);
        self.world.recount(self.instance);
        self.world.pass(self.world.scenario.cluster.close_time).await;
        drop(connection);
    }
}

/// The error of a client, with the code and text of Aurora DSQL.
fn open_error(with: Refusal) -> OpenError {
    match with {
        Refusal::TooManyConnections => OpenError::new(
            Failure::TooManyConnections,
            "53300: Unable to accept connection, too many open connections.",
        ),
        Refusal::RateExceeded => {
            OpenError::new(Failure::Throttled, "53400: Unable to accept connection, rate exceeded.")
        }
        Refusal::WakingUp => OpenError::new(
            Failure::Open,
            "Unable to accept connection, waking up cluster, please retry later",
        ),
        Refusal::AccessDenied => OpenError::new(Failure::Auth, "Unable to accept connection, access denied"),
        Refusal::Unreachable | Refusal::Silence => OpenError::new(Failure::Open, "connection refused"),
    }
}
