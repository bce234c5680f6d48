//! The connections of a pool, to list, count and retire.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{BoxError, Connect, ConnectionMonitor, Failure, Instant, OpenError};
use parking_lot::Mutex;

use crate::error::is_refused_for_good;
use crate::pool::hooks::Hooks;

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
}

struct Entry {
    opened_at: Instant,
    retired: bool,
    monitor: ConnectionMonitor,
}

impl Registry {
    pub(crate) fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self { entries: Arc::default(), next: Arc::default(), runtime }
    }

    /// Every connection, the oldest first, with those that are being closed and without those that are being opened. A connection
    /// whose hook [`after_connect`](crate::Builder::after_connect) runs is on the list already.
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
        monitors.iter().for_each(ConnectionMonitor::retire);
        monitors.len()
    }

    /// What the list says of this connection.
    fn info(&self, id: ConnectionId) -> ConnectionInfo {
        let entries = self.entries.lock();
        let entry = entries.get(&id);
        let age = entry.map(|entry| self.runtime.now().since(entry.opened_at)).unwrap_or_default();
        ConnectionInfo { id, age, retired: entry.is_some_and(|entry| entry.retired) }
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
    /// A caller has had it, and `after_release` has not seen it since. Not kept up to date in a pool without that hook.
    lent: bool,
}

impl<T> Registered<T> {
    /// A caller gets it.
    pub(crate) fn lent(&mut self) {
        self.lent = true;
    }

    pub(crate) fn info(&self) -> ConnectionInfo {
        self.registration.registry.info(self.id())
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
pub(crate) struct Registering<C: Connect> {
    connector: Arc<C>,
    registry: Registry,
    hooks: Arc<Hooks<C>>,
}

impl<C: Connect> Registering<C> {
    pub(crate) fn new(connector: C, registry: Registry, hooks: Hooks<C>) -> Self {
        Self { connector: Arc::new(connector), registry, hooks: Arc::new(hooks) }
    }

    pub(crate) fn hooks(&self) -> &Hooks<C> {
        &self.hooks
    }
}

impl<C: Connect> Clone for Registering<C> {
    fn clone(&self) -> Self {
        let (connector, hooks) = (Arc::clone(&self.connector), Arc::clone(&self.hooks));
        Self { connector, registry: self.registry.clone(), hooks }
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
        let registration = self.registry.register(monitor);
        let mut registered = Registered { connection, registration, lent: false };
        let info = registered.info();
        if let Err(error) = self.hooks.connected(&self.connector, &mut registered.connection, info).await {
            self.close(registered).await;
            let is_permanent = is_refused_for_good(&*error);
            let error = OpenError::new(Failure::Open, error);
            return Err(if is_permanent { error.permanent() } else { error });
        }
        Ok(registered)
    }

    fn is_usable(&self, registered: &Self::Connection) -> bool {
        self.connector.is_usable(&registered.connection)
    }

    fn is_clean(&self, registered: &Self::Connection) -> bool {
        let is_released = !registered.lent || self.hooks.after_release.is_none();
        is_released && self.connector.is_clean(&registered.connection)
    }

    async fn reset(&self, registered: &mut Self::Connection) -> Result<(), BoxError> {
        let is_released = std::mem::take(&mut registered.lent) && self.hooks.after_release.is_some();
        // The hook for the end of a loan comes after that: it finds no transaction of the caller.
        let mut is_restored = !is_released || !self.connector.is_clean(&registered.connection);
        if is_restored {
            self.connector.reset(&mut registered.connection).await?;
        }
        if is_released {
            let info = registered.info();
            self.hooks.released(&mut registered.connection, info).await?;
            if !self.connector.is_clean(&registered.connection) {
                self.connector.reset(&mut registered.connection).await?;
                is_restored = true;
            }
        }
        if is_restored {
            let info = registered.info();
            self.hooks.reset(&self.connector, &mut registered.connection, info).await?;
        }
        Ok(())
    }

    fn unanswered_timeout(&self, registered: &Self::Connection) -> Duration {
        self.connector.unanswered_timeout(&registered.connection)
    }

    async fn check(&self, registered: &mut Self::Connection) -> Result<(), BoxError> {
        self.connector.check(&mut registered.connection).await
    }

    async fn close(&self, registered: Self::Connection) {
        let Registered { connection, registration, .. } = registered;
        self.connector.close(connection).await;
        drop(registration);
    }
}
