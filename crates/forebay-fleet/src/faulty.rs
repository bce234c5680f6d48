//! A table behind an unreliable network.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{Instant, Rng, Seed, StoreFuture};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::item::Item;
use crate::table::{Cancelled, Cursor, Delete, Page, Table, TableError, Update, Write};

/// What happens to one call.
#[derive(Debug)]
pub enum Delivery {
    /// The caller calls the table itself, without a network.
    Direct,
    /// The request arrives.
    Arrives {
        /// The time to the table.
        request: Duration,
        /// The time back; none if the answer is lost.
        answer: Option<Duration>,
    },
    /// The caller gets this error after the given time, and the table does not see the call.
    Refused(Duration, TableError),
    /// The request is lost, and there is no answer.
    Lost,
}

/// The network between a caller and a table.
pub trait Network: Send + Sync + 'static {
    /// Decides about the next call.
    fn deliver(&self, is_transaction: bool) -> Delivery;

    /// Whether a request or an answer that is in flight arrives now.
    fn is_connected(&self) -> bool {
        true
    }

    /// The caller knows that `update`, sent at `sent`, was made.
    fn confirmed(&self, update: &Update, sent: Instant) {
        let _ = (update, sent);
    }
}

/// Random faults. Chances are in thousandths of all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The shortest and the longest time of a call. Half of it passes before the table sees the request.
    pub latency: (Duration, Duration),
    /// The request is lost.
    pub lost_requests: u32,
    /// The call is made, and the answer is lost.
    pub lost_answers: u32,
    /// The call is made long after the caller has given up.
    pub late_requests: u32,
    /// Refused: too many requests.
    pub throttled: u32,
    /// Refused: another transaction is in progress. Only for transactions.
    pub conflicts: u32,
    /// No call arrives: half of them hang, half fail at once.
    pub outage: bool,
}

/// A network with random [`Faults`].
#[derive(Debug)]
pub struct RandomFaults {
    faults: Mutex<Faults>,
    rng: Mutex<Rng>,
}

impl Network for RandomFaults {
    fn deliver(&self, is_transaction: bool) -> Delivery {
        let (faults, mut rng) = (*self.faults.lock(), self.rng.lock());
        let mut chance = |thousandths: u32| thousandths > 0 && rng.below(1000) < u64::from(thousandths);
        let refused = |error| Delivery::Refused(Duration::ZERO, error);
        if faults.outage {
            let error = TableError::Unknown("the connection was refused".into());
            return if chance(500) { refused(error) } else { Delivery::Lost };
        }
        if chance(faults.lost_requests) {
            return Delivery::Lost;
        }
        if chance(faults.throttled) {
            return refused(TableError::Throttled);
        }
        if is_transaction && chance(faults.conflicts) {
            return refused(TableError::Cancelled(vec![Cancelled::Conflict, Cancelled::Fine]));
        }
        let (lost, late) = (chance(faults.lost_answers), chance(faults.late_requests));
        let (least, most) = faults.latency;
        let half = (least + rng.up_to(most.saturating_sub(least))) / 2;
        let late_by = |rng: &mut Rng| Duration::from_secs(5) + rng.up_to(Duration::from_secs(20));
        match (lost, late) {
            (true, _) => Delivery::Arrives { request: half, answer: None },
            (_, true) => Delivery::Arrives { request: late_by(&mut rng), answer: None },
            _ => Delivery::Arrives { request: half, answer: Some(half) },
        }
    }
}

/// A table behind a [`Network`]. A call that its caller no longer waits for may still be made.
pub struct FaultyTable<N = RandomFaults> {
    table: Arc<dyn Table>,
    /// Carries the calls, and outlives the callers.
    runtime: Arc<dyn Runtime>,
    network: Arc<N>,
}

impl FaultyTable {
    /// A table with random faults; none at first. `runtime` carries the calls that callers no longer wait for.
    pub fn new(table: impl Table, runtime: impl Runtime, seed: Seed) -> Self {
        let rng = Mutex::new(seed.fork("faulty").rng());
        Self::with_network(table, runtime, RandomFaults { faults: Mutex::default(), rng })
    }

    /// Changes the faults.
    pub fn set(&self, faults: Faults) {
        *self.network.faults.lock() = faults;
    }

    /// The present faults.
    #[must_use]
    pub fn faults(&self) -> Faults {
        *self.network.faults.lock()
    }
}

impl<N: Network> FaultyTable<N> {
    /// A table behind this network. `runtime` carries the calls that callers no longer wait for.
    pub fn with_network(table: impl Table, runtime: impl Runtime, network: N) -> Self {
        Self { table: Arc::new(table), runtime: Arc::new(runtime), network: Arc::new(network) }
    }

    /// Carries one call, even if the caller gives up.
    fn carry<T: Send + 'static>(
        &self,
        is_transaction: bool,
        call: impl FnOnce(Arc<dyn Table>) -> StoreFuture<'static, Result<T, TableError>> + Send + 'static,
    ) -> StoreFuture<'_, Result<T, TableError>> {
        Box::pin(async move {
            let (request, answer) = match self.network.deliver(is_transaction) {
                Delivery::Direct => return call(Arc::clone(&self.table)).await,
                Delivery::Refused(after, error) => {
                    pause(&*self.runtime, after).await;
                    return Err(error);
                }
                Delivery::Lost => return std::future::pending().await,
                Delivery::Arrives { request, answer } => (request, answer),
            };
            let (sender, receiver) = oneshot::channel();
            let (runtime, table) = (Arc::clone(&self.runtime), Arc::clone(&self.table));
            let network = Arc::clone(&self.network);
            self.runtime.spawn(Box::pin(async move {
                pause(&*runtime, request).await;
                if !network.is_connected() {
                    return;
                }
                let outcome = call(table).await;
                let Some(answer) = answer else { return };
                pause(&*runtime, answer).await;
                if network.is_connected() {
                    // The caller may have given up.
                    drop(sender.send(outcome));
                }
            }));
            match receiver.await {
                Ok(outcome) => outcome,
                // A lost answer never comes: callers have their own timeouts.
                Err(_) => std::future::pending().await,
            }
        })
    }
}

async fn pause(runtime: &dyn Runtime, duration: Duration) {
    if !duration.is_zero() {
        runtime.sleep_until(runtime.now() + duration).await;
    }
}

impl<N> fmt::Debug for FaultyTable<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyTable")
    }
}

impl<N: Network> Table for FaultyTable<N> {
    fn update<'a>(&'a self, update: &'a Update) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        let (sent, sent_update) = (self.runtime.now(), update.clone());
        let call = self.carry(false, |table| Box::pin(async move { table.update(&sent_update).await }));
        Box::pin(async move {
            let outcome = call.await;
            if outcome.is_ok() {
                self.network.confirmed(update, sent);
            }
            outcome
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        let key = key.to_owned();
        self.carry(false, |table| Box::pin(async move { table.get(&key).await }))
    }

    fn delete<'a>(&'a self, delete: &'a Delete) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        let delete = delete.clone();
        self.carry(false, |table| Box::pin(async move { table.delete(&delete).await }))
    }

    fn transact<'a>(
        &'a self,
        writes: &'a [Write],
        token: &'a str,
    ) -> StoreFuture<'a, Result<(), TableError>> {
        let (writes, token) = (writes.to_vec(), token.to_owned());
        self.carry(true, |table| Box::pin(async move { table.transact(&writes, &token).await }))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a Cursor>,
    ) -> StoreFuture<'a, Result<Page, TableError>> {
        let (prefix, after) = (prefix.to_owned(), after.cloned());
        self.carry(false, |table| Box::pin(async move { table.scan(&prefix, after.as_ref()).await }))
    }
}
