//! The connections of a pool, to list, count and retire.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
    /// Whether it is to be closed as soon as nobody uses it.
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

/// Which connections may be dead. Kept only where the driver does not notice when an idle connection dies.
struct Doubt {
    /// A connection that did not answer anything for this long is in doubt.
    after: Duration,
    /// When a connection was last found dead, in nanoseconds of the runtime's clock; 0 if none was.
    found_dead_at: AtomicU64,
}

struct Entry {
    opened_at: Instant,
    retired: bool,
    monitor: ConnectionMonitor,
}

impl Registry {
    /// Where the driver does not notice deaths, a connection that did not answer anything for `check_after` is in doubt.
    pub(crate) fn new(runtime: Arc<dyn Runtime>, check_after: Option<Duration>) -> Self {
        let doubt = check_after.map(|after| Arc::new(Doubt { after, found_dead_at: AtomicU64::new(0) }));
        Self { entries: Arc::default(), next: Arc::default(), runtime, doubt }
    }

    /// A connection was found dead: others that have not answered since may be dead, too.
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

    /// Every connection, the oldest first, with those that are being closed and without those that are being opened.
    #[must_use]
    pub fn list(&self) -> Vec<ConnectionInfo> {
        let now = self.runtime.now();
        let listed = |(id, entry): (&ConnectionId, &Entry)| ConnectionInfo {
            id: *id,
            age: now.since(entry.opened_at),
            retired: entry.retired,
        };
        self.entries.lock().iter().map(listed).collect()
    }

    /// How many connections there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.lock().len()
    }

    /// Retires one connection: an idle one is closed now, one in use when it comes back. The pool opens another in its place.
    /// Returns whether there was one of that name.
    pub fn retire(&self, id: ConnectionId) -> bool {
        self.retire_where(|listed| listed == id) > 0
    }

    /// Retires every connection, such as after a change of credentials or of the schema. Returns how many there were.
    ///
    /// Idle ones go all at once, and their replacements come at the rate of the limiter: callers may have to wait.
    pub fn retire_all(&self) -> usize {
        self.retire_where(|_| true)
    }

    fn retire_where(&self, chosen: impl Fn(ConnectionId) -> bool) -> usize {
        let mut entries = self.entries.lock();
        let chosen = entries.iter_mut().filter(|(id, _)| chosen(**id));
        let monitors: Vec<ConnectionMonitor> = chosen
            .map(|(_, entry)| {
                entry.retired = true;
                entry.monitor.clone()
            })
            .collect();
        // Not under the lock: the reservoir may drop the connection at once, which removes it from these entries.
        drop(entries);
        monitors.iter().for_each(ConnectionMonitor::mark_dead);
        monitors.len()
    }

    fn register(&self, monitor: ConnectionMonitor) -> Registration {
        // Number and time under one lock, so that the list has the oldest first.
        let mut entries = self.entries.lock();
        let id = ConnectionId(self.next.fetch_add(1, Ordering::Relaxed));
        entries.insert(id, Entry { opened_at: self.runtime.now(), retired: false, monitor });
        Registration { id, registry: self.clone() }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list()).finish()
    }
}

/// An entry of the registry, which a drop removes.
struct Registration {
    id: ConnectionId,
    registry: Registry,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.entries.lock().remove(&self.id);
    }
}

/// A connection with its entry in the registry.
pub(crate) struct Registered<T> {
    /// Dropped before its entry is removed.
    connection: T,
    registration: Registration,
    /// When the server was last known to answer.
    heard_at: Instant,
}

impl<T> Registered<T> {
    /// This connection is dead, and others may be as well.
    pub(crate) fn doubt_others(&self) {
        self.registration.registry.doubt();
    }

    pub(crate) fn get(&self) -> &T {
        &self.connection
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        &mut self.connection
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.registration.id
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

/// A check or reset under way. Unless it succeeds, other connections are in doubt, too; also if it is dropped.
struct Asked<'a>(Option<&'a Registry>);

impl Asked<'_> {
    /// It succeeded, at this time.
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
    /// Whether a connection can be in doubt: the driver does not notice when an idle one dies.
    pub(crate) fn can_doubt(&self) -> bool {
        self.registry.doubt.is_some()
    }

    /// Whether it must be checked before it is lent: another was found dead since its last answer, or that was long ago.
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
        // Boxed, here and at the start of a pool: callers' futures would otherwise be too deep for the compiler.
        let connection = Box::pin(self.connector.open(monitor.clone())).await?;
        let heard_at = self.registry.runtime.now();
        Ok(Registered { connection, registration: self.registry.register(monitor), heard_at })
    }

    fn is_usable(&self, registered: &Self::Connection) -> bool {
        let usable = self.connector.is_usable(&registered.connection);
        if !usable {
            self.registry.doubt();
        }
        usable
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
        let Registered { connection, registration, .. } = registered;
        self.connector.close(connection).await;
        drop(registration);
    }
}
