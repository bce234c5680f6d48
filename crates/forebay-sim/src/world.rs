//! The world outside the reservoirs: what they talk to, and who watches.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{Runtime, VirtualTime};
use forebay::{Instant, Seed};
use forebay_fleet::{Item, LeaseMode, StoreOutagePolicy};
use parking_lot::Mutex;

use crate::books::Books;
use crate::scenario::Scenario;

mod cluster;
mod connection;
mod credentials;
mod limit;
mod roll;
mod table;

pub(crate) use cluster::{Cluster, Dropped, Refused};
pub(crate) use connection::Link;
pub(crate) use credentials::CredentialService;
pub(crate) use limit::WatchedLimit;
pub(crate) use roll::Roll;
pub(crate) use table::{SharedTable, Way};

/// Everything that is shared by all instances of one run. Each part has its lock, and none is held while calling out.
pub(crate) struct World {
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) time: VirtualTime,
    pub(crate) start: Instant,
    pub(crate) seed: Seed,
    pub(crate) cluster: Mutex<Cluster>,
    pub(crate) credentials: Mutex<CredentialService>,
    pub(crate) table: SharedTable,
    pub(crate) roll: Mutex<Roll>,
    pub(crate) books: Mutex<Books>,
}

impl World {
    pub(crate) fn new(scenario: Arc<Scenario>, seed: Seed) -> Arc<Self> {
        let time = VirtualTime::with_seed(seed.fork("time"));
        let start = time.now();
        let world = Arc::new(Self {
            start,
            cluster: Mutex::new(Cluster::new(&scenario, seed.fork("cluster"), start)),
            credentials: Mutex::new(CredentialService::new(&scenario, seed.fork("credentials"))),
            table: SharedTable::new(&scenario, seed.fork("table")),
            roll: Mutex::new(Roll::new(&scenario.endpoint, scenario.services.len())),
            books: Mutex::new(Books::new(&scenario, start)),
            scenario,
            time,
            seed,
        });
        let witness = Arc::downgrade(&world);
        world.table.items.witness(move |key, item| {
            if let Some(world) = witness.upgrade() {
                world.wrote(key, item);
            }
        });
        world
    }

    pub(crate) fn now(&self) -> Instant {
        self.time.now()
    }

    /// Lets true time pass. Cancel safe.
    pub(crate) async fn pass(&self, duration: Duration) {
        if !duration.is_zero() {
            self.time.sleep(self.now() + duration).await;
        }
    }

    /// An instance has connected to the cluster, or was refused.
    fn connected(&self, place: usize, refused: Option<&Refused>) {
        self.books.lock().connected(place, self.now(), refused);
        if self.scenario.leases.is_some() {
            self.audit(place, true);
        }
    }

    /// An item of the table was written.
    fn wrote(&self, key: &str, item: Option<&Item>) {
        let written = self.roll.lock().wrote(key, item);
        if let Some(wrong) = written.wrong {
            self.books.lock().judge.ledger_is_off(self.now(), wrong);
        }
        for (name, died, slots) in written.reaped {
            self.books.lock().judge.reaped(&name, died, slots, self.now());
        }
        for place in written.places {
            self.audit(place, false);
        }
    }

    /// Looks for what the dead still hold.
    pub(crate) fn look_for_the_dead(&self) {
        if self.scenario.leases.is_some_and(|leases| leases.mode == LeaseMode::Ledger) {
            let mut books = self.books.lock();
            self.roll.lock().dead(|name, died, slots| books.judge.reaped(name, died, slots, self.now()));
        }
    }

    /// Compares what the cluster counts with what the table says: of an instance that has just connected, or whose slots
    /// have just changed.
    fn audit(&self, place: usize, connected: bool) {
        let Some(leases) = self.scenario.leases else { return };
        let now = self.now();
        let (sessions, counted, all) = {
            let cluster = self.cluster.lock();
            (cluster.known(place), cluster.counted(place), cluster.live())
        };
        let mut roll = self.roll.lock();
        let is_strict = self.scenario.away == StoreOutagePolicy::Strict;
        let slots = roll.held_by(place);
        // By the clock of whoever takes its slots, which may be fast.
        let lease = leases.length.mul_f64(1.0 - f64::from(self.scenario.clocks.drift_ppm) / 1e6);
        let excused = roll.excuse(place, counted, now, lease) && !is_strict;
        let displaced = if all as u64 > leases.limit && !is_strict {
            let cluster = self.cluster.lock();
            roll.displaced(|place| (cluster.known(place), cluster.counted(place)))
        } else {
            0
        };
        drop(roll);
        let mut books = self.books.lock();
        if sessions as u64 > slots && !excused {
            books.judge.unleased(place, now, sessions, slots);
        }
        if connected && leases.mode == LeaseMode::Ledger {
            books.judge.counted(now, all as u64, leases.limit, displaced);
        }
    }

    /// How many connections an instance can use has changed.
    pub(crate) fn recount(&self, place: usize) {
        let usable = self.cluster.lock().usable(place);
        let leases = if self.scenario.leases.is_some() { self.roll.lock().held() } else { 0 };
        self.books.lock().judge.resize(place, self.now(), usable, leases);
    }

    /// Tells clients of sessions that the cluster has ended, and returns whose they were.
    pub(crate) fn tell(&self, dropped: Dropped) -> Vec<usize> {
        // It counts for the fleet from the moment it happens, not when somebody notices.
        for place in 0..self.scenario.services.len() {
            self.recount(place);
        }
        dropped.tell()
    }
}
