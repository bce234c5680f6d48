//! Mode counter in quiet times, in outages, and with operators.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{ProcessClock, Runtime, VirtualTime};
use forebay::{LeaseId, Seed};
use forebay_fleet::operator::{self, ReconcileError};
use forebay_fleet::{
    Change, Faults, FaultyTable, Fleet, LeaseMode, MemoryTable, StartError, Table, Tables, Update,
};

use crate::support::{ENDPOINT, leases, seconds, settings};

struct Scene {
    time: VirtualTime,
    table: MemoryTable,
    faulty: Arc<FaultyTable>,
    fleet: Fleet,
}

impl Scene {
    /// One instance of a fleet with a limit of ten.
    fn new() -> Self {
        let (time, table) = (VirtualTime::new(), MemoryTable::new());
        let faulty = Arc::new(FaultyTable::new(table.clone(), time.clone(), Seed::new(1)));
        let tables = Tables { leases: Arc::clone(&faulty) as _, rate: Arc::clone(&faulty) as _ };
        let fleet = start(&time, tables, LeaseMode::Counter).unwrap();
        Self { time, table, faulty, fleet }
    }

    /// Takes up to `most` leases.
    fn take(&self, most: usize) -> Vec<LeaseId> {
        let leases = self.fleet.leases().unwrap();
        std::iter::from_fn(|| self.time.run(leases.acquire()).ok()).take(most).collect()
    }

    fn counter(&self) -> operator::CounterReport {
        self.time.run(operator::survey(&self.table, &self.time, ENDPOINT)).unwrap().counter.unwrap()
    }
}

fn start(time: &VirtualTime, tables: Tables, mode: LeaseMode) -> Result<Fleet, StartError> {
    let mut settings = settings();
    settings.leases = Some(leases(mode, 10));
    settings.max_open = 20;
    time.run(Fleet::start(settings, tables, time.process(ProcessClock::default()), Seed::new(1)))
}

#[test]
fn a_quiet_counter_in_use_still_stops_the_other_mode() {
    let scene = Scene::new();
    let held = scene.take(10);
    for _ in 0..20 {
        scene.time.advance(seconds(53));
        let ledger = start(&scene.time, Tables::one(scene.table.clone()), LeaseMode::Ledger);
        assert!(matches!(ledger, Err(StartError::OtherMode { .. })), "two budgets");
    }
    let leases = scene.fleet.leases().unwrap();
    for lease in &held {
        scene.time.run(leases.release(lease)).unwrap();
    }
    scene.time.advance(seconds(125));
    assert!(
        start(&scene.time, Tables::one(scene.table.clone()), LeaseMode::Ledger).is_ok(),
        "nothing is held"
    );
    scene.time.shut_down();
}

#[test]
fn a_touch_does_not_hide_a_peer_that_does_not_renew() {
    let scene = Scene::new();
    let _held = scene.take(3);
    let now = i64::try_from(scene.time.wall().as_millis()).unwrap();
    let peer = Update::of(format!("dsqllease_counter#{ENDPOINT}"))
        .change(Change::plus("active", 1))
        .change(Change::set("updated_ms", now + 1));
    scene.time.run(scene.table.update(&peer)).unwrap();
    scene.time.advance(seconds(1200));
    let reconcile =
        || scene.time.run(operator::reconcile(&scene.table, &scene.time, ENDPOINT, seconds(3600)));
    assert!(matches!(reconcile(), Err(ReconcileError::PeersActive { .. })));
    scene.time.advance(seconds(2500));
    assert_eq!(reconcile().unwrap().held, 3);
    scene.time.shut_down();
}

#[test]
fn a_reset_keeps_a_counter_in_use() {
    let scene = Scene::new();
    let held = scene.take(10);
    let done = scene.time.run(operator::reset(&scene.table, &scene.time, ENDPOINT)).unwrap();
    assert_eq!(done.counter_kept, Some(10));
    scene.time.advance(seconds(600));
    assert!(scene.take(1).is_empty(), "the limit is reached");
    let leases = scene.fleet.leases().unwrap();
    for lease in &held {
        scene.time.run(leases.release(lease)).unwrap();
    }
    let done = scene.time.run(operator::reset(&scene.table, &scene.time, ENDPOINT)).unwrap();
    assert_eq!((done.counter_kept, scene.table.items().len()), (None, 0), "nobody holds any");
    scene.time.shut_down();
}

#[test]
fn leases_counted_late_do_not_look_expired() {
    let scene = Scene::new();
    assert_eq!(scene.take(5).len(), 5);
    scene.faulty.set(Faults { outage: true, ..Faults::default() });
    while scene.take(1).is_empty() {
        scene.time.advance(seconds(1));
    }
    assert_eq!(scene.take(4).len(), 4);
    scene.time.advance(seconds(600));
    scene.faulty.set(Faults::default());
    scene.time.advance(seconds(40));
    assert_eq!((scene.counter().active, scene.counter().leases), (10, 10));
    let began = scene.time.now();
    let done =
        scene.time.run(operator::reconcile(&scene.table, &scene.time, ENDPOINT, seconds(3600))).unwrap();
    assert_eq!((done.counted, done.held, done.expired), (10, 10, 0));
    assert!(scene.time.now().since(began) < seconds(1), "nothing needs watching");
    scene.time.advance(seconds(300));
    assert_eq!((scene.counter().active, scene.counter().leases), (10, 10));
    scene.time.shut_down();
}

#[test]
fn a_wrong_clock_of_the_operator_loses_no_lease() {
    for ahead in [200, 100, 3600, -200] {
        let scene = Scene::new();
        let _held = scene.take(10);
        // A lease left by a crash.
        let dead = Update::of(format!("dsqllease#{ENDPOINT}#dead"))
            .change(Change::set("ttl_epoch", i64::try_from(scene.time.wall().as_secs()).unwrap()))
            .change(Change::set("renewed_ms", 1));
        scene.time.run(scene.table.update(&dead)).unwrap();
        scene.time.advance(seconds(300));
        let clock = ProcessClock { wall_ahead: ahead * 1_000_000_000, ..ProcessClock::default() };
        let laptop = scene.time.process(clock);
        let reconciled = scene.time.run(operator::reconcile(&scene.table, &laptop, ENDPOINT, seconds(3600)));
        let done = reconciled.unwrap();
        assert_eq!((done.held, done.expired), (10, 1), "{ahead} s ahead");
        scene.time.advance(seconds(300) + Duration::from_millis(1));
        assert!(scene.take(1).is_empty(), "the limit is reached");
        scene.time.shut_down();
    }
}
