//! A database in memory that can be told to misbehave: for trying things out, for tests and for demonstrations.

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

/// A server in memory, and the connector to it. Clones are the same server.
///
/// It behaves until it is told otherwise: opens take [no time](Self::open_time) and succeed, connections live until
/// they are closed or [killed](Self::kill_all).
#[derive(Clone)]
pub struct Memory {
    server: Arc<Mutex<Server>>,
    runtime: Arc<dyn Runtime>,
}

/// How a server answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// As it should.
    #[default]
    Well,
    /// With an error. An open fails for the given reason; anything else fails.
    Fail(Failure),
    /// With the word that access is denied, for good: an open fails with a [permanent](OpenError::permanent) error. Anything
    /// else fails.
    Deny,
    /// Well, and with an error, in turns.
    FailEveryOther(Failure),
    /// Not at all.
    Hang,
    /// Well, but the connection is dead by then.
    Dead,
    /// By making the client panic.
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
    /// A server that behaves.
    pub fn new(runtime: impl Runtime) -> Self {
        Self { server: Arc::default(), runtime: Arc::new(runtime) }
    }

    /// From now on an open takes so long.
    pub fn open_time(&self, time: Duration) {
        self.server.lock().open_time = time;
    }

    /// From now on whatever an open needs beforehand, such as a token, is had so.
    pub fn on_prepare(&self, answer: Answer) {
        self.server.lock().on_prepare = answer;
    }

    /// From now on opens are answered so.
    pub fn on_open(&self, answer: Answer) {
        self.server.lock().on_open = answer;
    }

    /// From now on resets are answered so.
    pub fn on_reset(&self, answer: Answer) {
        self.server.lock().on_reset = answer;
    }

    /// From now on health checks are answered so.
    pub fn on_check(&self, answer: Answer) {
        self.server.lock().on_check = answer;
    }

    /// From now on closes are answered so.
    pub fn on_close(&self, answer: Answer) {
        self.server.lock().on_close = answer;
    }

    /// How many connections are open. One that is recalled is closed at once, whoever has it.
    #[must_use]
    pub fn live(&self) -> usize {
        self.server.lock().live()
    }

    /// How many connections were open at most.
    #[must_use]
    pub fn peak(&self) -> usize {
        self.server.lock().peak
    }

    /// How many connections have been opened.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.server.lock().next
    }

    /// How many attempts to open have been made.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.server.lock().asked
    }

    /// When a connection that is still there, dead or alive, was opened.
    #[must_use]
    pub fn born_at(&self, id: u64) -> Option<Instant> {
        self.server.lock().births.get(&id).copied()
    }

    /// Ends every connection, as a failing server does.
    pub fn kill_all(&self) {
        let killed = std::mem::take(&mut self.server.lock().live);
        killed.values().for_each(ConnectionMonitor::mark_dead);
    }

    /// Ends one connection.
    pub fn kill(&self, id: u64) {
        let killed = self.server.lock().live.remove(&id);
        if let Some(monitor) = killed {
            monitor.mark_dead();
        }
    }

    /// Ends one connection without a word: its user finds out.
    pub fn kill_silently(&self, id: u64) {
        self.server.lock().live.remove(&id);
    }

    async fn answer(&self, answer: Answer) -> Result<(), Failure> {
        match answer {
            Answer::Well | Answer::Dead => Ok(()),
            Answer::Fail(failure) => Err(failure),
            Answer::Deny => Err(Failure::Auth),
            Answer::FailEveryOther(failure) => {
                if self.server.lock().asked % 2 == 0 {
                    Err(failure)
                } else {
                    Ok(())
                }
            }
            Answer::Hang => std::future::pending().await,
            Answer::Panic => panic!("the server in memory was told to panic"),
        }
    }

    async fn tend(&self, answer: Answer) -> Result<(), BoxError> {
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
            // Counted only where it may matter.
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
        self.tend(answer).await?;
        connection.dirty = false;
        Ok(())
    }

    async fn check(&self, connection: &mut MemoryConnection) -> Result<(), BoxError> {
        let answer = self.server.lock().on_check;
        self.tend(answer).await?;
        if connection.is_alive() { Ok(()) } else { Err("the connection is dead".into()) }
    }

    async fn close(&self, connection: MemoryConnection) {
        let answer = self.server.lock().on_close;
        // A close that fails is a close.
        let (Ok(()) | Err(_)) = self.answer(answer).await;
        drop(connection);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} live)", self.live())
    }
}

/// A connection to a server in memory. Dropping it closes it.
pub struct MemoryConnection {
    id: u64,
    dirty: bool,
    server: Memory,
}

impl MemoryConnection {
    /// Its number; no two connections of a server share one.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether the server still knows it.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.server.server.lock().live.get(&self.id).is_some_and(|monitor| !monitor.is_recalled())
    }

    /// Leaves something behind, such as an open transaction, that must be reset before the next user comes.
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
