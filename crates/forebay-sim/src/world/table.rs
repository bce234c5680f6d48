//! The store that the whole fleet shares, and the way there: slow at times, losing calls at times, cut at times.

use std::sync::Arc;
use std::time::Duration;

use forebay::{Instant, Rng, Seed};
use forebay_fleet::{Change, Delivery, FaultyTable, MemoryTable, Network, TableError, Update};
use parking_lot::Mutex;

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
    fn delivery(&mut self) -> Delivery {
        let latency = self.latency.draw(&mut self.rng);
        let mut chance = |share: f64| share > 0.0 && fraction(&mut self.rng) < share;
        if self.outages > 0 {
            // Some networks refuse, some swallow.
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

/// One instance's way to the table. What it no longer waits for happens all the same.
pub(crate) struct Way {
    world: Arc<World>,
    place: usize,
}

impl Way {
    /// The table, as instance `place` reaches it.
    pub(crate) fn table(world: &Arc<World>, place: usize) -> FaultyTable<Self> {
        let way = Self { world: Arc::clone(world), place };
        FaultyTable::with_network(world.table.items.clone(), world.time.clone(), way)
    }
}

impl Network for Way {
    fn deliver(&self, _is_transaction: bool) -> Delivery {
        let (world, place) = (&self.world, self.place);
        if world.scenario.table.is_none() && world.reaches_table(place) {
            return Delivery::Direct;
        }
        // Drawn even if the instance is cut off: the other draws must not depend on that.
        let delivery = world.table.weather.lock().delivery();
        if world.is_cut_off(place) { Delivery::Lost } else { delivery }
    }

    fn is_connected(&self) -> bool {
        self.world.reaches_table(self.place)
    }

    fn confirmed(&self, update: &Update, sent: Instant) {
        // Who takes the dead out of an item has not said that it lives.
        let renews = update.changes.iter().any(|change| matches!(change, Change::Set(..)));
        self.world.roll.lock().confirmed(self.place, update.key.clone(), renews.then_some(sent));
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
