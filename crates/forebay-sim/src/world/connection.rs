//! The way from an instance to the cluster, and what it gets there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay::rt::{Runtime, VirtualProcess};
use forebay::{Connect, ConnectionMonitor, Failure, Instant, OpenError};
use forebay_fleet::StoreOutagePolicy;

use super::World;
use super::cluster::Line;
use crate::scenario::Refusal;

/// Connects one instance to the cluster.
#[derive(Clone)]
pub(crate) struct Link {
    world: Arc<World>,
    place: usize,
    process: VirtualProcess,
    /// Until when its token is good.
    token_until: Arc<AtomicU64>,
}

/// How long a token is good for.
const TOKEN_LIFE: Duration = Duration::from_secs(15 * 60);

impl Link {
    pub(crate) fn new(world: Arc<World>, place: usize, process: VirtualProcess) -> Self {
        Self { world, place, process, token_until: Arc::default() }
    }

    /// Closes a session under whoever has it, when its lease is taken back: as a driver does with its socket.
    fn heed(&self, monitor: ConnectionMonitor, session: u64) {
        let (world, place) = (Arc::clone(&self.world), self.place);
        self.process.spawn(Box::pin(async move {
            monitor.recalled().await;
            world.cluster.lock().close(session);
            world.recount(place);
        }));
    }
}

/// A session as its client sees it. Dropping it closes it.
pub(crate) struct Connection {
    world: Arc<World>,
    place: usize,
    session: u64,
    line: Arc<Line>,
    /// When the client had it.
    born: Instant,
}

impl Connection {
    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.line.is_alive()
    }

    /// How old it is by true time.
    pub(crate) fn true_age(&self, now: Instant) -> Duration {
        now.since(self.born)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.world.cluster.lock().close(self.session);
        self.world.recount(self.place);
    }
}

impl Connect for Link {
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
        let (world, place) = (&self.world, self.place);
        if world.cluster.lock().is_cut_off(place) {
            return std::future::pending().await;
        }
        let now = world.now();
        let has_token = now.as_nanos() < self.token_until.load(Ordering::Relaxed);
        let answer = world.cluster.lock().connect(place, has_token, now);
        world.connected(place, answer.as_ref().err());
        let admitted = match answer {
            Ok(admitted) => admitted,
            Err(refused) if refused.with == Refusal::Silence => return std::future::pending().await,
            Err(refused) => {
                world.pass(refused.takes).await;
                return Err(refusal(refused.with));
            }
        };
        // Made before the wait: whoever gives up on it closes it.
        let mut connection = Connection {
            world: Arc::clone(world),
            place,
            session: admitted.session,
            line: Arc::clone(&admitted.line),
            born: now,
        };
        if world.scenario.away == StoreOutagePolicy::Strict {
            self.heed(monitor.clone(), connection.session);
        }
        admitted.line.attach(monitor);
        world.pass(admitted.takes).await;
        if !connection.is_alive() {
            return Err(OpenError::new(Failure::Open, "the cluster closed the connection"));
        }
        connection.born = world.now();
        world.cluster.lock().deliver(connection.session);
        world.recount(place);
        Ok(connection)
    }

    fn is_usable(&self, connection: &Connection) -> bool {
        connection.is_alive()
    }

    async fn close(&self, connection: Connection) {
        self.world.cluster.lock().begin_close(connection.session);
        self.world.recount(self.place);
        self.world.pass(self.world.scenario.cluster.close_time).await;
        drop(connection);
    }
}

/// What a client makes of a refusal, by the code and text that the cluster gives.
fn refusal(with: Refusal) -> OpenError {
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
