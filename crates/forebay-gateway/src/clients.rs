//! The clients that are logged in, by the key that cancels their statements.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use forebay::rt::Runtime;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::metrics;
use crate::seat::{Ask, Seat};

/// What a client shows to cancel its statement: the BackendKeyData of the gateway.
pub(crate) type CancelKey = [u8; 8];

/// The clients that are logged in.
pub(crate) struct Clients {
    seats: Mutex<BTreeMap<CancelKey, Arc<Seat>>>,
    /// Notified when the last has left.
    empty: Notify,
}

impl Clients {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { seats: Mutex::default(), empty: Notify::new() })
    }

    /// A client enters.
    pub(crate) fn enter(self: &Arc<Self>, runtime: &dyn Runtime) -> Client {
        let seat = Arc::new(Seat::default());
        let (key, mut seats) = loop {
            // From the system, not from a seed: nobody may guess it. Not under the lock, as the system takes its time.
            let mut key = runtime.entropy().to_be_bytes();
            // Drivers take the first half for the number of a process, which is positive.
            key[0] &= 0x7f;
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
        loop {
            let mut empty = std::pin::pin!(self.empty.notified());
            empty.as_mut().enable();
            if self.count() == 0 {
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
        let (time, clients) = (VirtualTime::new(), Clients::new());
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
}
