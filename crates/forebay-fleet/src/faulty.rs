//! A table behind a bad network: slow, losing requests, losing answers, throttled, in conflict, away.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{Rng, Seed, StoreFuture};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::item::Item;
use crate::table::{Cancelled, Cursor, Delete, Page, Table, TableError, Update, Write};

/// What goes wrong, and how often: chances are in thousandths of all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The shortest and the longest time a call takes. Half of it passes before the table sees the request.
    pub latency: (Duration, Duration),
    /// The request never arrives, and no answer comes.
    pub lost_requests: u32,
    /// It is done, and no answer comes.
    pub lost_answers: u32,
    /// It arrives and is done, but long after the caller has given up.
    pub late_requests: u32,
    /// Refused: too many requests.
    pub throttled: u32,
    /// Refused: another transaction is under way. Only transactions are.
    pub conflicts: u32,
    /// Nothing arrives at all: half the calls hang, half fail at once.
    pub away: bool,
}

/// A table that goes wrong as it is told. What a caller no longer waits for happens all the same, as on a network.
pub struct FaultyTable {
    table: Arc<dyn Table>,
    /// The network's own: it outlives the processes that call.
    runtime: Arc<dyn Runtime>,
    faults: Mutex<Faults>,
    rng: Mutex<Rng>,
}

/// What is to become of one call.
enum Fate {
    Done { before: Duration, after: Duration },
    DoneUnheard { after: Duration },
    Refused(TableError),
    Lost,
}

impl FaultyTable {
    /// A way to `table` without faults. `runtime` carries requests that their senders no longer wait for.
    pub fn new(table: impl Table, runtime: impl Runtime, seed: Seed) -> Self {
        Self {
            table: Arc::new(table),
            runtime: Arc::new(runtime),
            faults: Mutex::default(),
            rng: Mutex::new(seed.fork("faulty").rng()),
        }
    }

    /// From now on this goes wrong.
    pub fn set(&self, faults: Faults) {
        *self.faults.lock() = faults;
    }

    /// What goes wrong at present.
    #[must_use]
    pub fn faults(&self) -> Faults {
        *self.faults.lock()
    }

    fn fate(&self, transaction: bool) -> Fate {
        let (faults, mut rng) = (self.faults(), self.rng.lock());
        let mut chance = |thousandths: u32| thousandths > 0 && rng.below(1000) < u64::from(thousandths);
        let unheard = |after| Fate::DoneUnheard { after };
        if faults.away {
            let refused = || TableError::Unknown("the connection was refused".into());
            return if chance(500) { Fate::Refused(refused()) } else { Fate::Lost };
        }
        if chance(faults.lost_requests) {
            return Fate::Lost;
        }
        if chance(faults.throttled) {
            return Fate::Refused(TableError::Throttled);
        }
        if transaction && chance(faults.conflicts) {
            return Fate::Refused(TableError::Cancelled(vec![Cancelled::Conflict, Cancelled::Fine]));
        }
        let (lost, late) = (chance(faults.lost_answers), chance(faults.late_requests));
        let (least, most) = faults.latency;
        let half = (least + rng.up_to(most.saturating_sub(least))) / 2;
        if lost {
            return unheard(half);
        }
        if late {
            return unheard(Duration::from_secs(5) + rng.up_to(Duration::from_secs(20)));
        }
        Fate::Done { before: half, after: half }
    }

    /// Carries one call, whatever becomes of who asked for it.
    fn carry<T: Send + 'static>(
        &self,
        transaction: bool,
        call: impl FnOnce(Arc<dyn Table>) -> StoreFuture<'static, Result<T, TableError>> + Send + 'static,
    ) -> StoreFuture<'_, Result<T, TableError>> {
        Box::pin(async move {
            let (after, answered) = match self.fate(transaction) {
                Fate::Refused(error) => return Err(error),
                Fate::Lost => return std::future::pending().await,
                Fate::Done { before, after } => (before, Some(after)),
                Fate::DoneUnheard { after } => (after, None),
            };
            let (answer, heard) = oneshot::channel();
            let (runtime, table) = (Arc::clone(&self.runtime), Arc::clone(&self.table));
            self.runtime.spawn(Box::pin(async move {
                pause(&*runtime, after).await;
                let outcome = call(table).await;
                pause(&*runtime, answered.unwrap_or_default()).await;
                // Nobody may be listening any more.
                drop(answer.send(outcome));
            }));
            if answered.is_none() {
                return std::future::pending().await;
            }
            match heard.await {
                Ok(outcome) => outcome,
                Err(_) => Err(TableError::Unknown("the connection was lost".into())),
            }
        })
    }
}

async fn pause(runtime: &dyn Runtime, duration: Duration) {
    if !duration.is_zero() {
        runtime.sleep_until(runtime.now() + duration).await;
    }
}

impl fmt::Debug for FaultyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FaultyTable").field(&self.faults()).finish()
    }
}

impl Table for FaultyTable {
    fn update<'a>(&'a self, update: &'a Update) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        let update = update.clone();
        self.carry(false, |table| Box::pin(async move { table.update(&update).await }))
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
