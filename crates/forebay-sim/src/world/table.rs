//! The store that the whole fleet shares, and the way there: slow at times, losing calls at times, cut at times.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{Rng, Seed, StoreFuture};
use forebay_fleet::{Change, Cursor, Delete, Item, MemoryTable, Page, Table, TableError, Update, Write};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::World;
use crate::latency::{Latency, fraction};
use crate::record::TableBill;
use crate::scenario::Scenario;

/// One table for all.
pub(crate) struct SharedTable {
    pub(crate) items: MemoryTable,
    /// The key of the item that the rate is shared in.
    rate: String,
    weather: Mutex<Weather>,
}

/// What calls meet on their way.
struct Weather {
    latency: Latency,
    error_rate: f64,
    lost_answers: f64,
    /// How many outages there are at the moment.
    outages: u32,
    /// Who does not reach it, but reaches the cluster: as often as they were cut off.
    cut_off: Vec<usize>,
    rng: Rng,
}

/// What is to become of one call.
enum Fate {
    /// It arrives after this, and its answer as much later.
    Done(Duration),
    /// It arrives after this, and its answer never.
    Unheard(Duration),
    Refused(Duration, TableError),
    Lost,
}

impl SharedTable {
    pub(crate) fn new(scenario: &Scenario, seed: Seed) -> Self {
        let (latency, error_rate, lost_answers) = match scenario.table {
            Some(table) => (table.latency, table.error_rate, table.lost_answers),
            None => (Latency::constant(Duration::ZERO), 0.0, 0.0),
        };
        let weather =
            Weather { latency, error_rate, lost_answers, outages: 0, cut_off: Vec::new(), rng: seed.rng() };
        let rate = format!("forebay_bucket#{}", scenario.endpoint);
        Self { items: MemoryTable::new(), rate, weather: Mutex::new(weather) }
    }

    /// Nobody reaches it any more.
    pub(crate) fn go_away(&self) {
        self.weather.lock().outages += 1;
    }

    /// One reason less not to reach it.
    pub(crate) fn come_back(&self) {
        self.weather.lock().outages -= 1;
    }

    /// An instance does not reach it any more.
    pub(crate) fn cut_off(&self, place: usize) {
        self.weather.lock().cut_off.push(place);
    }

    /// One reason less for it not to.
    pub(crate) fn reconnect(&self, place: usize) {
        let cut_off = &mut self.weather.lock().cut_off;
        if let Some(found) = cut_off.iter().position(|cut| *cut == place) {
            cut_off.swap_remove(found);
        }
    }

    /// From now on nothing goes wrong there.
    pub(crate) fn behave(&self) {
        let mut weather = self.weather.lock();
        weather.cut_off.clear();
        (weather.outages, weather.error_rate, weather.lost_answers) = (0, 0.0, 0.0);
    }

    /// What it has cost so far.
    pub(crate) fn bill(&self) -> TableBill {
        let all = self.items.bill();
        let rate_writes = self.items.bill_of(&self.rate).writes;
        TableBill { write_units: all.write_units, read_units: all.read_units, rate_writes }
    }

    fn is_away(&self, place: usize) -> bool {
        let weather = self.weather.lock();
        weather.outages > 0 || weather.cut_off.contains(&place)
    }
}

impl Weather {
    fn fate(&mut self) -> Fate {
        let latency = self.latency.draw(&mut self.rng);
        let mut chance = |share: f64| share > 0.0 && fraction(&mut self.rng) < share;
        if self.outages > 0 {
            // Some networks refuse, some swallow.
            let refused = || TableError::Unknown("the table does not answer".into());
            return if chance(0.5) { Fate::Refused(latency, refused()) } else { Fate::Lost };
        }
        if chance(self.error_rate) {
            return if chance(0.5) { Fate::Refused(latency, TableError::Throttled) } else { Fate::Lost };
        }
        if chance(self.lost_answers) { Fate::Unheard(latency / 2) } else { Fate::Done(latency / 2) }
    }
}

/// One instance's way to the table. What it no longer waits for happens all the same.
pub(crate) struct Way {
    world: Arc<World>,
    place: usize,
}

impl Way {
    pub(crate) fn new(world: &Arc<World>, place: usize) -> Self {
        Self { world: Arc::clone(world), place }
    }

    /// Carries one call there, and its answer back.
    fn carry<T: Send + 'static>(
        &self,
        call: impl FnOnce(MemoryTable) -> StoreFuture<'static, Result<T, TableError>> + Send + 'static,
    ) -> StoreFuture<'_, Result<T, TableError>> {
        let (world, place) = (Arc::clone(&self.world), self.place);
        Box::pin(async move {
            if world.scenario.table.is_none() && world.reaches_table(place) {
                return call(world.table.items.clone()).await;
            }
            let fate = world.table.weather.lock().fate();
            let cut_off = world.is_cut_off(place);
            let (half, is_heard) = match fate {
                _ if cut_off => return std::future::pending().await,
                Fate::Lost => return std::future::pending().await,
                Fate::Refused(latency, error) => {
                    world.pass(latency).await;
                    return Err(error);
                }
                Fate::Done(half) => (half, true),
                Fate::Unheard(half) => (half, false),
            };
            let (answer, heard) = oneshot::channel();
            let network = Arc::clone(&world);
            world.time.spawn(Box::pin(async move {
                network.pass(half).await;
                if !network.reaches_table(place) {
                    return;
                }
                let outcome = call(network.table.items.clone()).await;
                network.pass(half).await;
                if is_heard && network.reaches_table(place) {
                    // Nobody may be listening any more.
                    drop(answer.send(outcome));
                }
            }));
            match heard.await {
                Ok(outcome) => outcome,
                // What is lost is never heard of; when to give up is the caller's affair.
                Err(_) => std::future::pending().await,
            }
        })
    }
}

impl World {
    fn is_cut_off(&self, place: usize) -> bool {
        self.cluster.lock().is_cut_off(place) || self.table.weather.lock().cut_off.contains(&place)
    }

    pub(crate) fn reaches_table(&self, place: usize) -> bool {
        !self.table.is_away(place) && !self.cluster.lock().is_cut_off(place)
    }
}

impl Table for Way {
    fn update<'a>(&'a self, update: &'a Update) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        let (world, place, sent, key) =
            (Arc::clone(&self.world), self.place, self.world.now(), update.key.clone());
        // Who takes the dead out of an item has not said that it lives.
        let renews = update.changes.iter().any(|change| matches!(change, Change::Set(..)));
        let update = update.clone();
        let call = self.carry(|table| Box::pin(async move { table.update(&update).await }));
        Box::pin(async move {
            let outcome = call.await;
            if outcome.is_ok() {
                world.roll.lock().confirmed(place, key, renews.then_some(sent));
            }
            outcome
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        let key = key.to_owned();
        self.carry(|table| Box::pin(async move { table.get(&key).await }))
    }

    fn delete<'a>(&'a self, delete: &'a Delete) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        let delete = delete.clone();
        self.carry(|table| Box::pin(async move { table.delete(&delete).await }))
    }

    fn transact<'a>(
        &'a self,
        writes: &'a [Write],
        token: &'a str,
    ) -> StoreFuture<'a, Result<(), TableError>> {
        let (writes, token) = (writes.to_vec(), token.to_owned());
        self.carry(|table| Box::pin(async move { table.transact(&writes, &token).await }))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a Cursor>,
    ) -> StoreFuture<'a, Result<Page, TableError>> {
        let (prefix, after) = (prefix.to_owned(), after.cloned());
        self.carry(|table| Box::pin(async move { table.scan(&prefix, after.as_ref()).await }))
    }
}
