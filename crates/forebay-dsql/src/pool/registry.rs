//! Every connection there is, whichever pool owns it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{BoxError, Connect, ConnectionMonitor, Instant, OpenError};
use parking_lot::Mutex;

/// The name of a connection in a [`Registry`]; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A connection in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// Its name.
    pub id: ConnectionId,
    /// How old it is.
    pub age: Duration,
    /// Whether it was told to go, and will as soon as nobody uses it.
    pub retired: bool,
}

/// Lists, counts and retires the connections of a pool, in both modes.
///
/// A clone is another handle to the same registry.
#[derive(Clone)]
pub struct Registry {
    entries: Arc<Mutex<BTreeMap<ConnectionId, Entry>>>,
    next: Arc<AtomicU64>,
    runtime: Arc<dyn Runtime>,
    doubt: Option<Arc<Doubt>>,
}

/// Which connections may be dead. Kept only where connections do not tell of their death.
struct Doubt {
    /// One that was not heard of for so long is in doubt.
    after: Duration,
    /// When a connection was last found dead, in nanoseconds of the runtime's clock; 0 if none was.
    found_dead_at: AtomicU64,
}

struct Entry {
    opened_at: Instant,
    retired: Arc<AtomicBool>,
    monitor: ConnectionMonitor,
}

impl Registry {
    /// Where connections do not tell of their death, one that was not heard of for `check_after` is in doubt.
    pub(crate) fn new(runtime: Arc<dyn Runtime>, check_after: Option<Duration>) -> Self {
        let doubt = check_after.map(|after| Arc::new(Doubt { after, found_dead_at: AtomicU64::new(0) }));
        Self { entries: Arc::default(), next: Arc::default(), runtime, doubt }
    }

    /// One was found dead: others may be, too, that were not heard of since.
    fn doubt(&self) {
        if let Some(doubt) = &self.doubt {
            doubt.found_dead_at.fetch_max(self.runtime.now().as_nanos(), Ordering::AcqRel);
        }
    }

    fn doubts(&self, heard_at: Instant, now: Instant) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| {
            heard_at.as_nanos() < doubt.found_dead_at.load(Ordering::Acquire)
                || now.since(heard_at) >= doubt.after
        })
    }

    /// Every connection, the oldest first. Those being opened are not in it yet, those being closed still are.
    #[must_use]
    pub fn list(&self) -> Vec<ConnectionInfo> {
        let now = self.runtime.now();
        let listed = |(id, entry): (&ConnectionId, &Entry)| ConnectionInfo {
            id: *id,
            age: now.since(entry.opened_at),
            retired: entry.retired.load(Ordering::Acquire),
        };
        self.entries.lock().iter().map(listed).collect()
    }

    /// How many connections there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.lock().len()
    }

    /// Retires one connection: if it is idle it goes now, if it is in use when it comes back. The pool opens another in
    /// its place. Whether there was one of that name.
    pub fn retire(&self, id: ConnectionId) -> bool {
        self.retire_where(|listed| listed == id) > 0
    }

    /// Retires every connection, such as after a change of credentials or of the schema. How many there were.
    ///
    /// Idle ones go all at once, and their replacements come at the rate of the limiter: callers may have to wait.
    pub fn retire_all(&self) -> usize {
        self.retire_where(|_| true)
    }

    fn retire_where(&self, chosen: impl Fn(ConnectionId) -> bool) -> usize {
        let entries = self.entries.lock();
        let chosen = entries.iter().filter(|(id, _)| chosen(**id));
        let monitors: Vec<ConnectionMonitor> = chosen
            .map(|(_, entry)| {
                entry.retired.store(true, Ordering::Release);
                entry.monitor.clone()
            })
            .collect();
        // Not under the lock: a reservoir that hears of it may drop the connection, which comes back here.
        drop(entries);
        monitors.iter().for_each(ConnectionMonitor::mark_dead);
        monitors.len()
    }

    fn enter(&self, monitor: ConnectionMonitor) -> Ticket {
        let retired = Arc::new(AtomicBool::new(false));
        // Number and time under one lock, or the list would not have the oldest first.
        let mut entries = self.entries.lock();
        let id = ConnectionId(self.next.fetch_add(1, Ordering::Relaxed));
        let entry = Entry { opened_at: self.runtime.now(), retired: Arc::clone(&retired), monitor };
        entries.insert(id, entry);
        drop(entries);
        Ticket { id, retired, registry: self.clone() }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list()).finish()
    }
}

/// A place in the registry. Dropping it gives the place up.
struct Ticket {
    id: ConnectionId,
    retired: Arc<AtomicBool>,
    registry: Registry,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.registry.entries.lock().remove(&self.id);
    }
}

/// A connection with its place in the registry.
pub(crate) struct Registered<T> {
    /// Dropped before its place is given up.
    connection: T,
    ticket: Ticket,
    /// When the server was last known to answer.
    heard_at: Instant,
}

impl<T> Registered<T> {
    /// This one is dead: so may be others.
    pub(crate) fn doubt_others(&self) {
        self.ticket.registry.doubt();
    }

    pub(crate) fn get(&self) -> &T {
        &self.connection
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        &mut self.connection
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.ticket.id
    }
}

/// A connector whose connections are in a registry.
pub(crate) struct Registering<C> {
    connector: Arc<C>,
    registry: Registry,
}

impl<C> Registering<C> {
    pub(crate) fn new(connector: C, registry: Registry) -> Self {
        Self { connector: Arc::new(connector), registry }
    }
}

/// A connection was asked something. Unless it answers well, others are in doubt, too; also if it is given up.
struct Asked<'a>(Option<&'a Registry>);

impl Asked<'_> {
    /// When it answered.
    fn well(mut self) -> Option<Instant> {
        self.0.take().map(|registry| registry.runtime.now())
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(registry) = self.0 {
            registry.doubt();
        }
    }
}

impl<C: Connect> Registering<C> {
    /// Whether connections do not tell of their death, so that one can be in doubt.
    pub(crate) fn can_doubt(&self) -> bool {
        self.registry.doubt.is_some()
    }

    /// Whether it should be asked before it is lent: another was found dead since it was last heard of, or that was long ago.
    pub(crate) fn is_in_doubt(&self, registered: &Registered<C::Connection>, now: Instant) -> bool {
        self.registry.doubts(registered.heard_at, now)
    }
}

impl<C> Clone for Registering<C> {
    fn clone(&self) -> Self {
        Self { connector: Arc::clone(&self.connector), registry: self.registry.clone() }
    }
}

impl<C: Connect> Connect for Registering<C> {
    type Connection = Registered<C::Connection>;

    async fn prepare(&self) -> Result<(), OpenError> {
        self.connector.prepare().await
    }

    async fn open(&self, monitor: ConnectionMonitor) -> Result<Self::Connection, OpenError> {
        // Boxed, here and at the start of a pool: callers' own futures would become too deep for the compiler.
        let connection = Box::pin(self.connector.open(monitor.clone())).await?;
        let heard_at = self.registry.runtime.now();
        Ok(Registered { connection, ticket: self.registry.enter(monitor), heard_at })
    }

    fn is_usable(&self, registered: &Self::Connection) -> bool {
        let usable = self.connector.is_usable(&registered.connection);
        if !usable {
            self.registry.doubt();
        }
        usable && !registered.ticket.retired.load(Ordering::Acquire)
    }

    fn is_clean(&self, registered: &Self::Connection) -> bool {
        self.connector.is_clean(&registered.connection)
    }

    async fn reset(&self, registered: &mut Self::Connection) -> Result<(), BoxError> {
        let asked = Asked(Some(&self.registry));
        self.connector.reset(&mut registered.connection).await?;
        registered.heard_at = asked.well().unwrap_or(registered.heard_at);
        Ok(())
    }

    async fn check(&self, registered: &mut Self::Connection) -> Result<(), BoxError> {
        let asked = Asked(Some(&self.registry));
        self.connector.check(&mut registered.connection).await?;
        registered.heard_at = asked.well().unwrap_or(registered.heard_at);
        Ok(())
    }

    async fn close(&self, registered: Self::Connection) {
        let Registered { connection, ticket, .. } = registered;
        self.connector.close(connection).await;
        drop(ticket);
    }
}
