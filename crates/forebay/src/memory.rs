//! A server in memory that fails on request: for experiments, tests and demonstrations.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::connect::{Connect, ConnectionMonitor};
use crate::error::{BoxError, OpenError};
use crate::event::Failure;
use crate::rt::Runtime;
use crate::sync::Mutex;
use crate::time::Instant;

/// A server in memory, and the connector for it. Clones share one server.
///
/// By default, opens succeed and take [no time](Self::open_time), and connections live until they are closed
/// or [killed](Self::kill_all).
#[derive(Clone)]
pub struct Memory {
    server: Arc<Mutex<Server>>,
    runtime: Arc<dyn Runtime>,
}

/// How the server answers a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// It succeeds.
    #[default]
    Well,
    /// It fails. An open fails for the given reason.
    Fail(Failure),
    /// It denies access for good: an open fails with a [permanent](OpenError::permanent) error.
    Deny,
    /// It fails and succeeds by turns.
    FailEveryOther(Failure),
    /// It never answers.
    Hang,
    /// It succeeds, but the connection is dead.
    Dead,
    /// The client panics.
    Panic,
}

#[derive(Default)]
struct Server {
    open_time: Duration,
    on_prepare: Answer,
    on_open: Answer,
    on_reset: Answer,
    on_check: Answer,
    on_close: Answer,
    live: BTreeMap<u64, ConnectionMonitor>,
    births: BTreeMap<u64, Instant>,
    next: u64,
    asked: u64,
    peak: usize,
}

impl Server {
    fn live(&self) -> usize {
        self.live.values().filter(|monitor| !monitor.is_recalled()).count()
    }
}

impl Memory {
    /// A server whose requests all succeed.
    pub fn new(runtime: impl Runtime) -> Self {
        Self { server: Arc::default(), runtime: Arc::new(runtime) }
    }

    /// Sets how long opens take from now on. Default: zero.
    pub fn open_time(&self, time: Duration) {
        self.server.lock().open_time = time;
    }

    /// Sets the answer to [`prepare`](Connect::prepare) from now on.
    pub fn on_prepare(&self, answer: Answer) {
        self.server.lock().on_prepare = answer;
    }

    /// Sets the answer to opens from now on.
    pub fn on_open(&self, answer: Answer) {
        self.server.lock().on_open = answer;
    }

    /// Sets the answer to resets from now on.
    pub fn on_reset(&self, answer: Answer) {
        self.server.lock().on_reset = answer;
    }

    /// Sets the answer to health checks from now on.
    pub fn on_check(&self, answer: Answer) {
        self.server.lock().on_check = answer;
    }

    /// Sets the answer to closes from now on.
    pub fn on_close(&self, answer: Answer) {
        self.server.lock().on_close = answer;
    }

    /// How many connections are open. A recalled connection counts as closed.
    #[must_use]
    pub fn live(&self) -> usize {
        self.server.lock().live()
    }

    /// The largest number of connections that were open together.
    #[must_use]
    pub fn peak(&self) -> usize {
        self.server.lock().peak
    }

    /// How many connections have been opened.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.server.lock().next
    }

    /// How many opens were attempted.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.server.lock().asked
    }

    /// When the connection was opened. `None` once the client has dropped it.
    #[must_use]
    pub fn born_at(&self, id: u64) -> Option<Instant> {
        self.server.lock().births.get(&id).copied()
    }

    /// Ends all connections, and reports their deaths to the reservoir.
    pub fn kill_all(&self) {
        let killed = std::mem::take(&mut self.server.lock().live);
        killed.values().for_each(ConnectionMonitor::mark_dead);
    }

    /// Ends one connection, and reports its death to the reservoir.
    pub fn kill(&self, id: u64) {
        let killed = self.server.lock().live.remove(&id);
        if let Some(monitor) = killed {
            monitor.mark_dead();
        }
    }

    /// Retires all connections.
    pub fn retire_all(&self) {
        let live: Vec<_> = self.server.lock().live.values().cloned().collect();
        live.iter().for_each(ConnectionMonitor::retire);
    }

    /// Ends one connection without a report: its user finds out.
    pub fn kill_silently(&self, id: u64) {
        self.server.lock().live.remove(&id);
    }

    async fn answer(&self, answer: Answer) -> Result<(), Failure> {
        match answer {
            Answer::Well | Answer::Dead => Ok(()),
            Answer::Fail(failure) => Err(failure),
            Answer::Deny => Err(Failure::Auth),
            Answer::FailEveryOther(failure) => {
                if self.server.lock().asked.is_multiple_of(2) {
                    Err(failure)
                } else {
                    Ok(())
                }
            }
            Answer::Hang => std::future::pending().await,
            Answer::Panic => panic!("the server in memory was told to panic"),
        }
    }

    async fn maintain(&self, answer: Answer) -> Result<(), BoxError> {
        self.answer(answer).await.map_err(|failure| format!("told to fail: {failure}").into())
    }
}

impl Connect for Memory {
    type Connection = MemoryConnection;

    async fn prepare(&self) -> Result<(), OpenError> {
        let answer = self.server.lock().on_prepare;
        self.answer(answer).await.map_err(|failure| OpenError::new(failure, "told to fail"))
    }

    async fn open(&self, monitor: ConnectionMonitor) -> Result<MemoryConnection, OpenError> {
        let (time, answer) = {
            let mut server = self.server.lock();
            server.asked += 1;
            (server.open_time, server.on_open)
        };
        if !time.is_zero() {
            self.runtime.sleep_until(self.runtime.now() + time).await;
        }
        self.answer(answer).await.map_err(|failure| match answer {
            Answer::Deny => OpenError::new(failure, "told to deny access").permanent(),
            _ => OpenError::new(failure, "told to fail"),
        })?;
        let now = self.runtime.now();
        let mut server = self.server.lock();
        let id = server.next;
        server.next += 1;
        server.births.insert(id, now);
        if answer != Answer::Dead {
            server.live.insert(id, monitor.clone());
            // An exact count is expensive, and matters only for a new peak.
            if server.live.len() > server.peak {
                server.peak = server.peak.max(server.live());
            }
        }
        drop(server);
        if answer == Answer::Dead {
            monitor.mark_dead();
        }
        Ok(MemoryConnection { id, dirty: false, server: self.clone() })
    }

    fn is_usable(&self, connection: &MemoryConnection) -> bool {
        connection.is_alive()
    }

    fn is_clean(&self, connection: &MemoryConnection) -> bool {
        !connection.dirty
    }

    async fn reset(&self, connection: &mut MemoryConnection) -> Result<(), BoxError> {
        let answer = self.server.lock().on_reset;
        self.maintain(answer).await?;
        connection.dirty = false;
        Ok(())
    }

    async fn check(&self, connection: &mut MemoryConnection) -> Result<(), BoxError> {
        let answer = self.server.lock().on_check;
        self.maintain(answer).await?;
        if connection.is_alive() { Ok(()) } else { Err("the connection is dead".into()) }
    }

    async fn close(&self, connection: MemoryConnection) {
        let answer = self.server.lock().on_close;
        // A failed close closes the connection, too.
        let (Ok(()) | Err(_)) = self.answer(answer).await;
        drop(connection);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} live)", self.live())
    }
}

/// A connection to a [`Memory`] server. Dropping it closes it.
pub struct MemoryConnection {
    id: u64,
    dirty: bool,
    server: Memory,
}

impl MemoryConnection {
    /// Its number, which is unique within the server.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether the server has not ended the connection.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.server.server.lock().live.get(&self.id).is_some_and(|monitor| !monitor.is_recalled())
    }

    /// Makes the connection dirty, as an open transaction does. It must be reset before the next caller uses
    /// it.
    pub fn make_dirty(&mut self) {
        self.dirty = true;
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        let mut server = self.server.server.lock();
        server.live.remove(&self.id);
        server.births.remove(&self.id);
    }
}

impl fmt::Debug for MemoryConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryConnection({})", self.id)
    }
}
