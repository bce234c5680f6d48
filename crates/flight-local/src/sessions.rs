//! The sessions and their owners.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tonic::Status;

use crate::client::Client;
use crate::config::SessionKey;
use crate::counters::count;
use crate::error::StartError;
use crate::runtime;
use crate::session::Session;
use crate::shared::Shared;

pub(crate) const COOKIE: &str = "arrow_flight_session_id";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Peer(SocketAddr, SocketAddr),
    Cookie(String),
}

impl Key {
    /// The key that a call comes with, if any.
    fn of(client: &Client, cookie: Option<&str>, shared: &Shared) -> Option<Self> {
        match shared.config.session_key {
            SessionKey::Connection => Some(Self::Peer(client.peer, client.local)),
            SessionKey::Cookie => cookie.map(|cookie| Self::Cookie(cookie.to_owned())),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Sessions {
    /// The prefix of session ids. It is random, so that sessions of an earlier server are not found.
    prefix: String,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_key: BTreeMap<Key, String>,
    by_id: BTreeMap<String, Entry>,
    made: u64,
}

#[derive(Debug)]
struct Entry {
    session: Arc<Session>,
    key: Key,
    clients: BTreeSet<u64>,
    /// How often its last connection has closed. A linger timer is valid for one of these times.
    left: u64,
}

impl Sessions {
    pub(crate) fn new() -> Result<Self, StartError> {
        let prefix = runtime::secret()?.chars().take(8).collect();
        Ok(Self { prefix, table: Mutex::default() })
    }

    /// The number of sessions, and of those without a connection.
    pub(crate) fn number(&self) -> (usize, usize) {
        let table = self.table.lock();
        (table.by_id.len(), table.by_id.values().filter(|entry| entry.clients.is_empty()).count())
    }

    /// The session of a caller; creates one if there is none.
    pub(crate) fn of(
        &self,
        client: &Client,
        cookie: Option<&str>,
        shared: &Shared,
    ) -> Result<Arc<Session>, Status> {
        let mut table = self.table.lock();
        // Checked under this lock, which `hung_up` also takes: no session is created for a closed connection.
        if !shared.clients.is_open(client.number) {
            return Err(Status::cancelled("the connection has ended"));
        }
        let key = Key::of(client, cookie, shared);
        if let Some(id) = key.as_ref().and_then(|key| table.by_key.get(key)).cloned()
            && let Some(entry) = table.by_id.get_mut(&id)
        {
            entry.clients.insert(client.number);
            return Ok(entry.session.clone());
        }
        if let Some(Key::Cookie(_)) = key {
            return Err(Status::not_found(
                "the session of this cookie has ended; begin another without a cookie",
            ));
        }
        if table.by_id.len() >= shared.config.session_limit {
            count(&shared.tally.refused);
            return Err(Status::resource_exhausted(format!(
                "there are {} sessions, and no more are allowed; close some",
                table.by_id.len()
            )));
        }
        table.made += 1;
        let id = format!("{}-{}", self.prefix, table.made);
        let key = key.unwrap_or_else(|| Key::Cookie(id.clone()));
        let session = Arc::new(Session::new(id.clone(), shared.config.busy_timeout));
        let entry = Entry {
            session: session.clone(),
            key: key.clone(),
            clients: BTreeSet::from([client.number]),
            left: 0,
        };
        table.by_key.insert(key, id.clone());
        table.by_id.insert(id, entry);
        count(&shared.tally.sessions_ever);
        Ok(session)
    }

    /// The session of a caller, if there is one.
    pub(crate) fn find(
        &self,
        client: &Client,
        cookie: Option<&str>,
        shared: &Shared,
    ) -> Option<Arc<Session>> {
        let key = Key::of(client, cookie, shared)?;
        let table = self.table.lock();
        let id = table.by_key.get(&key)?;
        table.by_id.get(id).map(|entry| entry.session.clone())
    }

    pub(crate) fn named(&self, id: &str) -> Result<Arc<Session>, Status> {
        let table = self.table.lock();
        let entry = table.by_id.get(id);
        entry.map(|entry| entry.session.clone()).ok_or_else(|| Status::not_found("the session has ended"))
    }

    /// Ends a session. Its statements are cancelled and its transaction is rolled back.
    pub(crate) fn end(&self, id: &str) -> bool {
        let entry = {
            let mut table = self.table.lock();
            let entry = table.by_id.remove(id);
            if let Some(entry) = &entry {
                table.by_key.remove(&entry.key);
            }
            entry
        };
        entry.map(|entry| entry.session.end()).is_some()
    }

    /// Ends all sessions, and returns how many there were.
    pub(crate) fn end_all(&self) -> usize {
        let ids: Vec<String> = self.table.lock().by_id.keys().cloned().collect();
        ids.iter().filter(|id| self.end(id)).count()
    }

    /// Ends the sessions of a closed connection, at once or after their linger time.
    pub(crate) fn hung_up(&self, client: u64, shared: &Arc<Shared>) {
        let left: Vec<(String, u64)> = {
            let mut table = self.table.lock();
            let mut left = Vec::new();
            for (id, entry) in &mut table.by_id {
                if entry.clients.remove(&client) && entry.clients.is_empty() {
                    entry.left += 1;
                    left.push((id.clone(), entry.left));
                }
            }
            left
        };
        let linger = shared.config.session_linger;
        for (id, times) in left {
            if linger.is_zero() {
                self.end(&id);
                continue;
            }
            let shared = shared.clone();
            let runtime = shared.runtime.clone();
            runtime.spawn(async move {
                runtime::sleep(linger).await;
                if shared.sessions.is_left(&id, times) {
                    shared.sessions.end(&id);
                }
            });
        }
    }

    /// Whether no connection has used the session since that time.
    fn is_left(&self, id: &str, times: u64) -> bool {
        let table = self.table.lock();
        table.by_id.get(id).is_some_and(|entry| entry.clients.is_empty() && entry.left == times)
    }
}
