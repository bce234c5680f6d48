//! The world outside the reservoirs: the services they call, and the audit of what they do.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{Runtime, VirtualTime};
use forebay::{Instant, Seed};
use forebay_fleet::{Item, LeaseMode, StoreOutagePolicy};
use parking_lot::Mutex;

use crate::events::EventSink;
use crate::scenario::Scenario;

mod cluster;
mod connection;
mod counting_limit;
mod credentials;
mod lease_audit;
mod table;

pub(crate) use cluster::{Cluster, Dropped, Refused};
pub(crate) use connection::ClusterConnector;
pub(crate) use counting_limit::CountingLimit;
pub(crate) use credentials::CredentialService;
pub(crate) use lease_audit::LeaseAudit;
pub(crate) use table::{SharedTable, TableLink};

/// Everything that the instances of one run share. Each part has its own lock; none is held during a call to
/// the code under test.
pub(crate) struct World {
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) time: VirtualTime,
    pub(crate) start: Instant,
    pub(crate) seed: Seed,
    pub(crate) cluster: Mutex<Cluster>,
    pub(crate) credentials: Mutex<CredentialService>,
    pub(crate) table: SharedTable,
    pub(crate) lease_audit: Mutex<LeaseAudit>,
    pub(crate) events: Mutex<EventSink>,
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
            lease_audit: Mutex::new(LeaseAudit::new(&scenario.endpoint, scenario.services.len())),
            events: Mutex::new(EventSink::new(&scenario, start)),
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

    /// Waits in true time. Cancel safe.
    pub(crate) async fn pass(&self, duration: Duration) {
        if !duration.is_zero() {
            self.time.sleep(self.now() + duration).await;
        }
    }

    fn connected(&self, instance: usize, refused: Option<&Refused>) {
        self.events.lock().connected(instance, self.now(), refused);
        if self.scenario.leases.is_some() {
            self.check_leases(instance, true);
        }
    }

    fn wrote(&self, key: &str, item: Option<&Item>) {
        let written = self.lease_audit.lock().wrote(key, item);
        if let Some(wrong) = written.wrong {
            self.events.lock().judge.ledger_inconsistent(self.now(), wrong);
        }
        for (name, died, slots) in written.reaped {
            self.events.lock().judge.reaped(&name, died, slots, self.now());
        }
        for instance in written.instances {
            self.check_leases(instance, false);
        }
    }

    /// Reports slots that the dead have held for too long.
    pub(crate) fn check_dead_holders(&self) {
        if self.scenario.leases.is_some_and(|leases| leases.mode == LeaseMode::Ledger) {
            let mut events = self.events.lock();
            self.lease_audit
                .lock()
                .check_dead(|name, died, slots| events.judge.reaped(name, died, slots, self.now()));
        }
    }

    /// Compares the sessions of an instance with its slots in the table. It has just connected, or its slots
    /// changed.
    fn check_leases(&self, instance: usize, connected: bool) {
        let Some(leases) = self.scenario.leases else { return };
        let now = self.now();
        let (sessions, counted, all) = {
            let cluster = self.cluster.lock();
            (cluster.known(instance), cluster.counted(instance), cluster.live())
        };
        let mut audit = self.lease_audit.lock();
        let is_strict = self.scenario.away == StoreOutagePolicy::Strict;
        let slots = audit.held_by(instance);
        // Others reap its slots by their own clocks, which may be fast.
        let lease = leases.length.mul_f64(1.0 - f64::from(self.scenario.clocks.drift_ppm) / 1e6);
        let excused = audit.excuse(instance, counted, now, lease) && !is_strict;
        let displaced = if all as u64 > leases.limit && !is_strict {
            let cluster = self.cluster.lock();
            audit.displaced(|instance| (cluster.known(instance), cluster.counted(instance)))
        } else {
            0
        };
        drop(audit);
        let mut events = self.events.lock();
        if sessions as u64 > slots && !excused {
            events.judge.unleased(instance, now, sessions, slots);
        }
        if connected && leases.mode == LeaseMode::Ledger {
            events.judge.check_limit(now, all as u64, leases.limit, displaced);
        }
    }

    /// The number of usable connections of an instance may have changed.
    pub(crate) fn recount(&self, instance: usize) {
        let usable = self.cluster.lock().usable(instance);
        let leases = if self.scenario.leases.is_some() { self.lease_audit.lock().held() } else { 0 };
        self.events.lock().judge.usable_changed(instance, self.now(), usable, leases);
    }

    /// Tells clients that the cluster ended their sessions. Returns the instance of each session.
    pub(crate) fn notify_clients(&self, dropped: Dropped) -> Vec<usize> {
        // The judge counts a loss when it happens, not when a client notices.
        for instance in 0..self.scenario.services.len() {
            self.recount(instance);
        }
        dropped.notify()
    }
}
