//! The table that the fleet shares, and the network between: it delays calls, loses some, and has outages.

use std::sync::Arc;
use std::time::Duration;

use forebay::{Instant, Rng, Seed};
use forebay_fleet::{Change, Delivery, FaultyTable, MemoryTable, Network, TableError, Update};
use parking_lot::Mutex;

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
    fn delivery(&mut self) -> Delivery {
        let latency = self.latency.draw(&mut self.rng);
        let mut chance = |share: f64| share > 0.0 && fraction(&mut self.rng) < share;
        if self.outages > 0 {
            // Some networks refuse packets, some drop them.
            let refused = || TableError::Unknown("the table does not answer".into());
            return if chance(0.5) { Delivery::Refused(latency, refused()) } else { Delivery::Lost };
        }
        if chance(self.error_rate) {
            let throttled = Delivery::Refused(latency, TableError::Throttled);
            return if chance(0.5) { throttled } else { Delivery::Lost };
        }
        let half = latency / 2;
        let answer = if chance(self.lost_answers) { None } else { Some(half) };
        Delivery::Arrives { request: half, answer }
    }
}

/// The network link of one instance to the table. A call that is cancelled may still arrive.
pub(crate) struct TableLink {
    world: Arc<World>,
    instance: usize,
}

impl TableLink {
    /// The table, as instance `instance` reaches it.
    pub(crate) fn table(world: &Arc<World>, instance: usize) -> FaultyTable<Self> {
        let link = Self { world: Arc::clone(world), instance };
        FaultyTable::with_network(world.table.items.clone(), world.time.clone(), link)
    }
}

impl Network for TableLink {
    fn deliver(&self, _is_transaction: bool) -> Delivery {
        let (world, instance) = (&self.world, self.instance);
        if world.scenario.table.is_none() && world.reaches_table(instance) {
            return Delivery::Direct;
        }
        // Drawn even if the instance is cut off: the other draws must not depend on that.
        let delivery = world.table.network.lock().delivery();
        if world.is_cut_off(instance) { Delivery::Lost } else { delivery }
    }

    fn is_connected(&self) -> bool {
        self.world.reaches_table(self.instance)
    }

    fn confirmed(&self, update: &Update, sent: Instant) {
        // A write that only removes the dead does not renew the writer's own entry.
        let renews = update.changes.iter().any(|change| matches!(change, Change::Set(..)));
        self.world.lease_audit.lock().confirmed(self.instance, update.key.clone(), renews.then_some(sent));
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
