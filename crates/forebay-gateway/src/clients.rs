//! The clients that are logged in, by the key that cancels their statements.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay::rt::Runtime;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::metrics;
use crate::seat::{Ask, Seat};

/// What a client shows to cancel its statement: the BackendKeyData of the gateway.
pub(crate) type CancelKey = [u8; 8];

/// Which byte of a key names the process. It is not the first one, whose first bit is taken.
const PROCESS: usize = 1;

/// Whose session a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// One of this process, if there is one.
    Here,
    /// One of the process with this number.
    Peer(u8),
}

/// The clients that are logged in.
pub(crate) struct Clients {
    /// The number of this process, if there are others.
    process: Option<u8>,
    seats: Mutex<BTreeMap<CancelKey, Arc<Seat>>>,
    /// Connections, also those of clients that are not logged in.
    connections: AtomicUsize,
    /// Notified when the last client has left, or the last connection has ended.
    empty: Notify,
}

impl Clients {
    /// Those of the process with this number, if it has one.
    pub(crate) fn new(process: Option<u8>) -> Arc<Self> {
        let (seats, connections, empty) = (Mutex::default(), AtomicUsize::new(0), Notify::new());
        Arc::new(Self { process, seats, connections, empty })
    }

    /// Somebody has connected.
    pub(crate) fn connected(self: &Arc<Self>) -> Connection {
        self.connections.fetch_add(1, Ordering::AcqRel);
        Connection(Arc::clone(self))
    }

    /// Whose session a key belongs to.
    pub(crate) fn owner(&self, key: CancelKey) -> Owner {
        match self.process {
            Some(own) if key[PROCESS] != own => Owner::Peer(key[PROCESS]),
            _ => Owner::Here,
        }
    }

    /// A client enters.
    pub(crate) fn enter(self: &Arc<Self>, runtime: &dyn Runtime) -> Client {
        let seat = Arc::new(Seat::default());
        let (key, mut seats) = loop {
            // From the system, not from a seed: nobody may guess it. Not under the lock, as the system takes its time.
            let mut key = runtime.entropy().to_be_bytes();
            // Drivers take the first half for the number of a process, which is positive.
            key[0] &= 0x7f;
            // The rest is still more than anybody can try.
            key[PROCESS] = self.process.unwrap_or(key[PROCESS]);
            let seats = self.seats.lock();
            if !seats.contains_key(&key) {
                break (key, seats);
            }
        };
        seats.insert(key, Arc::clone(&seat));
        metrics::clients(seats.len());
        Client { clients: Arc::clone(self), key, seat }
    }

    /// Cancels the statement of the client with this key, if there is one.
    pub(crate) fn cancel(&self, key: CancelKey) {
        let seat = self.seats.lock().get(&key).cloned();
        if let Some(seat) = seat {
            seat.ask(Ask::Cancel);
        }
    }

    /// Asks this of every client.
    pub(crate) fn ask_all(&self, ask: Ask) {
        let seats: Vec<_> = self.seats.lock().values().cloned().collect();
        seats.iter().for_each(|seat| seat.ask(ask));
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.seats.lock().len()
    }

    /// Waits until there are none. Cancel safe.
    pub(crate) async fn gone(&self) {
        self.until(|| self.count() == 0).await;
    }

    /// Waits until nobody is connected, also nobody who has not logged in yet. Cancel safe.
    pub(crate) async fn disconnected(&self) {
        self.until(|| self.connections.load(Ordering::Acquire) == 0).await;
    }

    async fn until(&self, holds: impl Fn() -> bool) {
        loop {
            let mut empty = std::pin::pin!(self.empty.notified());
            empty.as_mut().enable();
            if holds() {
                return;
            }
            empty.await;
        }
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clients").field(&self.count()).finish()
    }
}

/// A connection of somebody, until it is dropped.
pub(crate) struct Connection(Arc<Clients>);

impl Drop for Connection {
    fn drop(&mut self) {
        if self.0.connections.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.empty.notify_waiters();
        }
    }
}

/// A client that is logged in, until it is dropped.
pub(crate) struct Client {
    clients: Arc<Clients>,
    pub(crate) key: CancelKey,
    pub(crate) seat: Arc<Seat>,
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut seats = self.clients.seats.lock();
        seats.remove(&self.key);
        metrics::clients(seats.len());
        if seats.is_empty() {
            self.clients.empty.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay::rt::VirtualTime;

    use super::*;

    #[test]
    fn a_key_reaches_its_client_and_nobody_else() {
        let (time, clients) = (VirtualTime::new(), Clients::new(None));
        let [first, second] = [0, 1].map(|_| clients.enter(&time));
        assert_ne!(first.key, second.key);
        clients.cancel(second.key);
        assert!(
            !first.seat.take(Ask::Cancel) && second.seat.take(Ask::Cancel) && !second.seat.take(Ask::Cancel)
        );
        let late = second.key;
        drop(second);
        clients.cancel(late);
        assert!(!first.seat.take(Ask::Cancel));
        clients.ask_all(Ask::End);
        assert!(first.seat.take(Ask::End));
        drop(first);
        time.run(clients.gone());
    }

    #[tokio::test]
    async fn a_key_names_its_process_and_is_random_otherwise() {
        // With the randomness of the system.
        let (time, clients) = (forebay::rt::current().unwrap(), Clients::new(Some(201)));
        let held: Vec<Client> = (0..200).map(|_| clients.enter(&*time)).collect();
        let mut seen = [0_u8; 8];
        for client in &held {
            assert_eq!((client.key[PROCESS], client.key[0] & 0x80), (201, 0));
            assert_eq!(clients.owner(client.key), Owner::Here);
            seen.iter_mut().zip(client.key).for_each(|(seen, byte)| *seen |= byte);
        }
        // 55 bits: every other one is set in some key.
        assert_eq!(seen, [0x7f, 201, 255, 255, 255, 255, 255, 255]);
        assert_eq!(clients.owner([0; 8]), Owner::Peer(0));
        // Alone, it has all keys to itself.
        let alone = Clients::new(None);
        assert!((0..100).all(|_| alone.owner(alone.enter(&*time).key) == Owner::Here));
        assert_eq!(alone.owner([0; 8]), Owner::Here);
    }

    #[test]
    fn those_who_do_not_log_in_are_waited_for_until_they_leave() {
        use std::future::Future;
        use std::task::{Context, Waker};

        let clients = Clients::new(None);
        let [first, second] = [clients.connected(), clients.connected()];
        let mut left = Box::pin(clients.disconnected());
        let context = &mut Context::from_waker(Waker::noop());
        drop(first);
        assert!(left.as_mut().poll(context).is_pending());
        drop(second);
        assert!(left.as_mut().poll(context).is_ready());
    }
}
