//! The table that the fleet shares, and the network between: it delays calls, loses some, and has outages.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{Rng, Seed, StoreFuture};
use forebay_fleet::{Change, Cursor, Delete, Item, MemoryTable, Page, Table, TableError, Update, Write};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::World;
use crate::latency::{Latency, fraction};
use crate::samples::TableBill;
use crate::scenario::Scenario;

pub(crate) struct SharedTable {
    pub(crate) items: MemoryTable,
    /// The key of the item with the shared rate.
    rate_key: String,
    network: Mutex<NetworkFaults>,
}

struct NetworkFaults {
    latency: Latency,
    error_rate: f64,
    lost_answers: f64,
    /// How many outages overlap at present.
    outages: u32,
    /// Instances that reach the cluster but not the table; once per partition.
    cut_off: Vec<usize>,
    rng: Rng,
}

/// The fate of one call, drawn when it is sent.
enum Delivery {
    /// Request and answer each take this long.
    Answered(Duration),
    /// The request takes this long; the answer is lost.
    AnswerLost(Duration),
    Refused(Duration, TableError),
    RequestLost,
}

impl SharedTable {
    pub(crate) fn new(scenario: &Scenario, seed: Seed) -> Self {
        let (latency, error_rate, lost_answers) = match scenario.table {
            Some(table) => (table.latency, table.error_rate, table.lost_answers),
            None => (Latency::constant(Duration::ZERO), 0.0, 0.0),
        };
        let rng = seed.rng();
        let network =
            NetworkFaults { latency, error_rate, lost_answers, outages: 0, cut_off: Vec::new(), rng };
        let rate_key = format!("forebay_bucket#{}", scenario.endpoint);
        Self { items: MemoryTable::new(), rate_key, network: Mutex::new(network) }
    }

    pub(crate) fn begin_outage(&self) {
        self.network.lock().outages += 1;
    }

    pub(crate) fn end_outage(&self) {
        self.network.lock().outages -= 1;
    }

    pub(crate) fn cut_off(&self, instance: usize) {
        self.network.lock().cut_off.push(instance);
    }

    /// Ends one partition of the instance.
    pub(crate) fn reconnect(&self, instance: usize) {
        let cut_off = &mut self.network.lock().cut_off;
        if let Some(found) = cut_off.iter().position(|cut| *cut == instance) {
            cut_off.swap_remove(found);
        }
    }

    pub(crate) fn clear_faults(&self) {
        let mut network = self.network.lock();
        network.cut_off.clear();
        (network.outages, network.error_rate, network.lost_answers) = (0, 0.0, 0.0);
    }

    pub(crate) fn bill(&self) -> TableBill {
        let all = self.items.bill();
        let rate_writes = self.items.bill_of(&self.rate_key).writes;
        TableBill { write_units: all.write_units, read_units: all.read_units, rate_writes }
    }
}

impl NetworkFaults {
    fn deliver(&mut self) -> Delivery {
        let latency = self.latency.draw(&mut self.rng);
        let mut chance = |share: f64| share > 0.0 && fraction(&mut self.rng) < share;
        if self.outages > 0 {
            // Some networks refuse packets, some drop them.
            let refused = || TableError::Unknown("the table does not answer".into());
            return if chance(0.5) { Delivery::Refused(latency, refused()) } else { Delivery::RequestLost };
        }
        if chance(self.error_rate) {
            let throttled = Delivery::Refused(latency, TableError::Throttled);
            return if chance(0.5) { throttled } else { Delivery::RequestLost };
        }
        let half = latency / 2;
        if chance(self.lost_answers) { Delivery::AnswerLost(half) } else { Delivery::Answered(half) }
    }
}

/// The network link of one instance to the table. A call that is cancelled may still arrive.
pub(crate) struct TableLink {
    world: Arc<World>,
    instance: usize,
}

impl TableLink {
    pub(crate) fn new(world: &Arc<World>, instance: usize) -> Self {
        Self { world: Arc::clone(world), instance }
    }

    /// Carries a call to the table and its answer back.
    fn carry<T: Send + 'static>(
        &self,
        call: impl FnOnce(MemoryTable) -> StoreFuture<'static, Result<T, TableError>> + Send + 'static,
    ) -> StoreFuture<'_, Result<T, TableError>> {
        let (world, instance) = (Arc::clone(&self.world), self.instance);
        Box::pin(async move {
            if world.scenario.table.is_none() && world.reaches_table(instance) {
                return call(world.table.items.clone()).await;
            }
            // Drawn even if the instance is cut off: the other draws must not depend on that.
            let delivery = world.table.network.lock().deliver();
            let (half, is_answered) = match delivery {
                _ if world.is_cut_off(instance) => return std::future::pending().await,
                Delivery::RequestLost => return std::future::pending().await,
                Delivery::Refused(latency, error) => {
                    world.pass(latency).await;
                    return Err(error);
                }
                Delivery::Answered(half) => (half, true),
                Delivery::AnswerLost(half) => (half, false),
            };
            let (answer, received) = oneshot::channel();
            let network = Arc::clone(&world);
            world.time.spawn(Box::pin(async move {
                network.pass(half).await;
                if !network.reaches_table(instance) {
                    return;
                }
                let outcome = call(network.table.items.clone()).await;
                network.pass(half).await;
                if is_answered && network.reaches_table(instance) {
                    // The caller may have given up.
                    drop(answer.send(outcome));
                }
            }));
            match received.await {
                Ok(outcome) => outcome,
                // A lost answer never comes: the caller has its own timeout.
                Err(_) => std::future::pending().await,
            }
        })
    }
}

impl World {
    fn is_cut_off(&self, instance: usize) -> bool {
        self.cluster.lock().is_cut_off(instance) || self.table.network.lock().cut_off.contains(&instance)
    }

    pub(crate) fn reaches_table(&self, instance: usize) -> bool {
        self.table.network.lock().outages == 0 && !self.is_cut_off(instance)
    }
}

impl Table for TableLink {
    fn update<'a>(&'a self, update: &'a Update) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        let (world, instance) = (Arc::clone(&self.world), self.instance);
        let (sent, key) = (world.now(), update.key.clone());
        // A write that only removes the dead does not renew the writer's own entry.
        let renews = update.changes.iter().any(|change| matches!(change, Change::Set(..)));
        let update = update.clone();
        let call = self.carry(|table| Box::pin(async move { table.update(&update).await }));
        Box::pin(async move {
            let outcome = call.await;
            if outcome.is_ok() {
                world.lease_audit.lock().confirmed(instance, key, renews.then_some(sent));
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
