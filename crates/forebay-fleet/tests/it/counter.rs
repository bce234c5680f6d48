//! Mode counter, also with other implementations.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{self, ProcessClock, Runtime, VirtualTime};
use forebay::{LeaseError, LeaseId, Seed};
use forebay_fleet::operator::{self, ReconcileError};
use forebay_fleet::{
    Change, Condition, Delete, Faults, FaultyTable, Fleet, Item, LeaseMode, MemoryTable, StoreOutagePolicy,
    Table, Tables, Update, Write,
};

use crate::support::{ENDPOINT, leases, seconds, settings};
use crate::world::{Actor, World};

fn world(limit: u64) -> World {
    let mut settings = settings();
    settings.leases = Some(leases(LeaseMode::Counter, limit));
    settings.max_open = 20;
    World::new(settings, 17)
}

fn active(table: &MemoryTable) -> i64 {
    let counter = table.item(&format!("dsqllease_counter#{ENDPOINT}"));
    counter.and_then(|item| item.number("active")).unwrap_or(0)
}

fn items(table: &MemoryTable) -> usize {
    let prefix = format!("dsqllease#{ENDPOINT}#");
    table.items().keys().filter(|key| key.starts_with(&prefix)).count()
}

/// Another implementation, as specified.
async fn foreign_acquire(table: &MemoryTable, time: &VirtualTime, id: &str, limit: i64) -> bool {
    let now = i64::try_from(time.wall().as_millis()).unwrap();
    let room = vec![Condition::Missing("active".into()), Condition::Below("active".into(), limit)];
    let count = Update::of(format!("dsqllease_counter#{ENDPOINT}"))
        .when(Condition::Any(room))
        .change(Change::Add("active".into(), 1))
        .change(Change::set("updated_ms", now));
    let item =
        Item::new().with("ttl_epoch", now / 1000 + 180).with("service_name", "go").with("created_ms", now);
    let put = Write::Put { key: format!("dsqllease#{ENDPOINT}#{id}"), item, when: Vec::new() };
    table.transact(&[Write::Update(count), put], &format!("go{id}")).await.is_ok()
}

async fn foreign_release(table: &MemoryTable, time: &VirtualTime, id: &str) {
    let now = i64::try_from(time.wall().as_millis()).unwrap();
    let delete = Delete { key: format!("dsqllease#{ENDPOINT}#{id}"), when: Vec::new() };
    let count = Update::of(format!("dsqllease_counter#{ENDPOINT}"))
        .when(Condition::AtLeast("active".into(), 1))
        .change(Change::plus("active", -1))
        .change(Change::set("updated_ms", now));
    table.transact(&[Write::Delete(delete), Write::Update(count)], &format!("gone{id}")).await.unwrap();
}

#[test]
fn the_items_are_as_specified() {
    let (world, wall) = (world(30), 1_767_225_600);
    let _actor = world.start(0, 1, seconds(100_000_000), ProcessClock::default());
    world.time.advance(Duration::from_millis(500));
    let (key, lease) =
        world.table.items().into_iter().find(|(key, _)| key.starts_with("dsqllease#")).unwrap();
    let id = key.rsplit('#').next().unwrap();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    assert_eq!(lease.number("ttl_epoch"), Some(wall + 180));
    assert_eq!(lease.text("service_name"), Some("history"));
    assert_eq!(lease.number("created_ms"), Some(wall * 1000));
    assert_eq!(active(&world.table), 1);
    world.time.advance(seconds(300));
    let renewed = world.table.item(&key).unwrap().number("ttl_epoch").unwrap();
    assert!(renewed >= wall + 300 + 90, "renewed while its connection lives: {renewed}");
}

#[test]
fn a_mixed_fleet_counts_correctly_and_is_exact_after_reconcile() {
    let world = world(30);
    let actors: Vec<Actor> =
        (0..2).map(|number| world.start(number, 10, seconds(60), ProcessClock::default())).collect();
    for round in 0..40 {
        world.time.advance(seconds(3));
        let id = format!("{round:032x}");
        if world.time.run(foreign_acquire(&world.table, &world.time, &id, 30)) {
            world.time.advance(seconds(7));
            world.time.run(foreign_release(&world.table, &world.time, &id));
        }
        assert!(active(&world.table) <= 30);
    }
    actors.iter().for_each(|actor| actor.want(10));
    let stray = "f".repeat(32);
    assert!(world.time.run(foreign_acquire(&world.table, &world.time, &stray, 30)));
    let hour = seconds(3600);
    let reconcile = || world.time.run(operator::reconcile(&world.table, &world.time, ENDPOINT, hour));
    assert!(
        matches!(reconcile(), Err(ReconcileError::PeersActive { .. })),
        "a peer that does not renew is active"
    );
    world.time.run(foreign_release(&world.table, &world.time, &stray));

    // A crash leaves the counter too high.
    let before = active(&world.table);
    actors[1].crash();
    world.time.advance(seconds(600));
    let held = i64::try_from(actors[0].status().unwrap().leases).unwrap();
    assert!(active(&world.table) > held && before > held, "drift is there to be mended");
    world.time.advance(hour);
    let survey = || world.time.run(operator::survey(&world.table, &world.time, ENDPOINT)).unwrap();
    // A time-to-live removes it, and the counter stays.
    let wall = i64::try_from(world.time.wall().as_secs()).unwrap();
    for (key, item) in world.table.items() {
        if item.number("ttl_epoch").is_some_and(|end| end + 60 < wall) {
            world.table.expire(&key);
        }
    }
    let seen = survey().counter.unwrap();
    assert_eq!(
        (seen.active, seen.drift()),
        (active(&world.table), seen.active - i64::try_from(seen.leases).unwrap())
    );
    assert!(seen.leases > 0 && seen.drift() > 0 && !survey().is_exact(), "{seen:?}");
    let reconciled = reconcile().unwrap();
    assert!(reconciled.counted > reconciled.held, "{reconciled:?}");
    assert!(survey().is_exact(), "{:?}", survey().counter);
    world.time.advance(seconds(30));
    let held = i64::try_from(actors[0].status().unwrap().leases).unwrap();
    assert!((active(&world.table) - held).abs() <= 1, "{} counted, {held} held", active(&world.table));
    world.time.shut_down();
}

#[test]
fn lost_answers_and_conflicts_are_counted_once() {
    for seed in 0..10 {
        let (time, table) = (VirtualTime::new(), MemoryTable::new());
        let mut settings = settings();
        settings.leases = Some(leases(LeaseMode::Counter, 50));
        settings.outage_policy = StoreOutagePolicy::Closed;
        let faulty = Arc::new(FaultyTable::new(table.clone(), time.clone(), Seed::new(seed)));
        let latency = (Duration::from_millis(2), Duration::from_millis(20));
        faulty.set(Faults { latency, lost_answers: 80, conflicts: 300, throttled: 50, ..Faults::default() });
        let tables = Tables { leases: Arc::clone(&faulty) as _, rate: Arc::clone(&faulty) as _ };
        let fleet = time.run(Fleet::start(settings, tables, time.clone(), Seed::new(seed))).unwrap();
        let leases = fleet.leases().unwrap();
        let mut held = Vec::new();
        for _ in 0..30 {
            match time.run(leases.acquire()) {
                Ok(lease) => held.push(lease),
                Err(LeaseError::Limit { .. }) => panic!("a conflict was taken for the limit"),
                Err(_) => time.advance(seconds(15)),
            }
        }
        assert!(held.len() > 20, "only {}", held.len());
        for lease in &held {
            while time.run(leases.release(lease)).is_err() {
                time.advance(seconds(1));
            }
        }
        faulty.set(Faults { latency, ..Faults::default() });
        time.advance(seconds(120));
        assert_eq!((active(&table), items(&table)), (0, 0), "seed {seed}");
        time.shut_down();
    }
}

#[test]
fn leases_granted_in_an_outage_are_counted_after_it() {
    let world = world(30);
    let actor = world.start(0, 5, seconds(100_000_000), ProcessClock::default());
    world.time.advance(seconds(10));
    actor.cut_off(true);
    actor.want(12);
    world.time.advance(seconds(120));
    assert_eq!((world.live(), active(&world.table)), (12, 5), "local: up to what the process may hold");
    actor.cut_off(false);
    world.time.advance(seconds(60));
    assert_eq!((world.live(), active(&world.table), items(&world.table)), (12, 12, 12));
    world.time.shut_down();
}

/// One instance, and the network to the table.
struct Instance {
    fleet: Fleet,
    faults: Arc<FaultyTable>,
    held: Vec<LeaseId>,
}

impl Instance {
    fn start(time: &VirtualTime, table: &MemoryTable, seed: Seed) -> Self {
        let mut settings = settings();
        settings.leases = Some(leases(LeaseMode::Counter, 30));
        settings.max_open = 20;
        let faults = Arc::new(FaultyTable::new(table.clone(), time.clone(), seed));
        let tables = Tables { leases: Arc::clone(&faults) as _, rate: Arc::clone(&faults) as _ };
        let runtime = time.process(ProcessClock::default());
        let fleet = time.run(Fleet::start(settings, tables, runtime, seed)).unwrap();
        Self { fleet, faults, held: Vec::new() }
    }

    fn acquire(&mut self, time: &VirtualTime, patience: Duration) {
        let leases = self.fleet.leases().unwrap();
        if let Some(Ok(lease)) = time.run(rt::within(time, patience, leases.acquire())) {
            self.held.push(lease);
        }
    }

    /// Releases in the background with retries, as reservoirs do.
    fn release(&mut self, time: &VirtualTime) {
        let Some(lease) = self.held.pop() else { return };
        let (leases, clock) = (self.fleet.leases().unwrap(), time.clone());
        time.spawn(Box::pin(async move {
            while !matches!(rt::within(&clock, seconds(5), leases.release(&lease)).await, Some(Ok(()))) {
                clock.sleep_until(clock.now() + seconds(1)).await;
            }
        }));
    }
}

#[test]
fn a_lease_counted_by_an_unanswered_write_is_subtracted_on_release() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let mut instance = Instance::start(&time, &table, Seed::new(1));
    instance.faults.set(Faults { outage: true, ..Faults::default() });
    time.advance(seconds(60));
    (0..5).for_each(|_| instance.acquire(&time, seconds(5)));
    assert_eq!((instance.held.len(), active(&table)), (5, 0), "local");
    // The table makes the calls, but all answers are lost.
    instance.faults.set(Faults { lost_answers: 1000, ..Faults::default() });
    time.advance(seconds(60));
    assert!(active(&table) > 0);
    (0..5).for_each(|_| instance.release(&time));
    time.advance(seconds(1));
    assert_eq!(instance.fleet.status().leases, 0, "nobody waits for it");
    instance.faults.set(Faults::default());
    time.advance(seconds(60));
    assert_eq!((active(&table), items(&table)), (0, 0));
    assert!(time.run(instance.fleet.leave(seconds(1))));
    time.shut_down();
}

/// Two instances that open, close and give up, with outages, lost calls and delays. Returns the leases they hold at the
/// end, and the counter.
fn history(seed: u64) -> (usize, i64, usize) {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let mut rng = Seed::new(seed).fork("history").rng();
    let mut instances = [0, 1].map(|n| Instance::start(&time, &table, Seed::new(seed * 10 + n)));
    let trouble = Faults {
        latency: (Duration::from_millis(5), Duration::from_millis(200)),
        lost_answers: 200,
        lost_requests: 100,
        late_requests: 50,
        conflicts: 200,
        throttled: 100,
        ..Faults::default()
    };
    for _ in 0..120 {
        let instance = &mut instances[usize::try_from(rng.below(2)).unwrap()];
        match rng.below(10) {
            0 => instance.faults.set(Faults { outage: true, ..Faults::default() }),
            1 | 2 => instance.faults.set(trouble),
            3 => instance.faults.set(Faults::default()),
            4..=6 => instance.acquire(&time, Duration::from_millis(rng.below(20_000))),
            7 | 8 => instance.release(&time),
            _ => time.advance(Duration::from_millis(rng.below(100_000))),
        }
    }
    instances.iter().for_each(|instance| instance.faults.set(Faults::default()));
    time.advance(seconds(360));
    let held = instances.iter().map(|instance| instance.held.len()).sum();
    let seen = (held, active(&table), items(&table));
    time.shut_down();
    seen
}

#[test]
fn random_histories_end_with_a_correct_count() {
    for seed in 1..=100 {
        let (held, counted, items) = history(seed);
        assert_eq!((i64::try_from(held).unwrap(), held), (counted, items), "seed {seed}");
    }
}
