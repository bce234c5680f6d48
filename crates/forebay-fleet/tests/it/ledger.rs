//! Mode ledger: crashes, limits, outages, leaving.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay::LeaseError;
use forebay::rt::{ProcessClock, Runtime};
use forebay_fleet::{Faults, Item, LeaseMode, StartError, StoreOutagePolicy, Tables, operator};

use crate::support::{ENDPOINT, leases, seconds, settings};
use crate::world::{Actor, World};

fn world(limit: u64, max_open: u64, policy: StoreOutagePolicy) -> World {
    let mut settings = settings();
    settings.leases = Some(leases(LeaseMode::Ledger, limit));
    settings.max_open = max_open;
    settings.outage_policy = policy;
    World::new(settings, 11)
}

fn start(world: &World, number: usize, target: u64) -> Actor {
    let actor = world.start(number, target, seconds(100_000_000), ProcessClock::default());
    let latency = (Duration::from_millis(2), Duration::from_millis(20));
    actor.table.set(Faults { latency, ..Faults::default() });
    actor
}

#[test]
fn slots_of_dead_instances_are_freed_once_within_a_lease_and_two_heartbeats() {
    // With one survivor, most of the dead were alone in their shard.
    for (count, survivors) in [(2, 1), (4, 1), (9, 2), (40, 20)] {
        let world = world(1000, 10, StoreOutagePolicy::Local);
        let actors: Vec<Actor> = (0..count).map(|number| start(&world, number, 10)).collect();
        world.time.advance(seconds(120));
        assert_eq!(world.entries().len(), count);
        actors[survivors..].iter().for_each(Actor::crash);
        let alive: BTreeSet<String> =
            actors[..survivors].iter().map(|actor| actor.status().unwrap().instance).collect();
        world.time.advance(seconds(89));
        assert_eq!(
            world.entries().len(),
            count,
            "nobody is dead before a lease has passed since its last beat"
        );
        world.time.advance(seconds(31 + 2 * 30));
        let left: BTreeSet<String> = world.entries().into_keys().collect();
        assert_eq!(left, alive, "{survivors} of {count} survive");
        // The witness has checked the sum of every write, so each slot was freed exactly once.
        world.time.shut_down();
    }
}

#[test]
fn node_numbers_are_unique() {
    let world = world(10_000, 10, StoreOutagePolicy::Local);
    let actors: Vec<Actor> = (0..100).map(|number| start(&world, number, 1)).collect();
    world.time.advance(seconds(60));
    let nodes: BTreeSet<u16> = actors.iter().map(|actor| actor.status().unwrap().node.unwrap()).collect();
    assert_eq!(nodes.len(), 100);
    assert!(nodes.iter().all(|node| *node < 1024));
    let first = actors[0].fleet();
    let number = world.time.run(first.node()).unwrap().at(actors[0].machine.now());
    assert!(number.is_some_and(|number| nodes.contains(&number)));
    world.time.shut_down();
}

#[test]
fn unused_slots_go_to_instances_that_need_them() {
    let world = world(80, 80, StoreOutagePolicy::Local);
    let (greedy, modest) = (start(&world, 0, 80), start(&world, 1, 5));
    // After one lease, the second gives unused slots back.
    world.time.advance(seconds(240));
    assert_eq!(world.live(), 80, "all slots are used, spread over all shards");
    greedy.want(10);
    modest.want(60);
    world.time.advance(seconds(240));
    let (greedy, modest) = (greedy.status().unwrap(), modest.status().unwrap());
    assert_eq!((greedy.leases, modest.leases), (10, 60), "{greedy:?} {modest:?}");
    world.time.shut_down();
}

#[test]
fn a_full_fleet_refuses_at_once() {
    let world = world(8, 8, StoreOutagePolicy::Local);
    let first = start(&world, 0, 8);
    world.time.advance(seconds(30));
    assert_eq!(first.status().unwrap().leases, 8);
    let second = start(&world, 1, 0);
    world.time.advance(seconds(30));
    let leases = second.fleet().leases().unwrap();
    let began = world.time.now();
    let refused = world.time.run(leases.acquire());
    assert!(matches!(refused, Err(LeaseError::Limit { limit: 8 })), "{refused:?}");
    assert!(world.time.now().since(began) < seconds(2));
    world.time.shut_down();
}

#[test]
fn open_connections_survive_ten_minutes_without_a_table() {
    for policy in [StoreOutagePolicy::Local, StoreOutagePolicy::Closed, StoreOutagePolicy::Strict] {
        let world = world(400, 40, policy);
        let actors: Vec<Actor> = (0..10).map(|number| start(&world, number, 40)).collect();
        world.time.advance(seconds(120));
        assert_eq!(world.live(), 400);
        actors.iter().for_each(|actor| actor.cut_off(true));
        world.time.advance(seconds(75));
        assert_eq!(world.live(), 400, "{policy:?}: nothing is closed while the lease holds");
        world.time.advance(seconds(525));
        let expected = if policy == StoreOutagePolicy::Strict { 0 } else { 400 };
        assert_eq!(world.live(), expected, "{policy:?}");
        let status = actors[0].status().unwrap();
        assert!(status.lease_outage.is_some_and(|away| away > seconds(500)), "{status:?}");
        actors.iter().for_each(|actor| actor.cut_off(false));
        let before = world.table.bill().writes;
        world.time.advance(seconds(10));
        let rush = world.table.bill().writes - before;
        assert!(rush <= 80, "{policy:?}: {rush} writes of ten instances in ten seconds");
        world.time.advance(seconds(110));
        let entries = world.entries();
        assert_eq!(entries.values().sum::<i64>(), 400, "{policy:?}: exact again within a lease");
        assert_eq!((entries.len(), world.live()), (10, 400), "{policy:?}");
        world.time.shut_down();
    }
}

#[test]
fn before_joining_only_local_opens_connections() {
    for (policy, expected) in
        [(StoreOutagePolicy::Local, 40), (StoreOutagePolicy::Closed, 0), (StoreOutagePolicy::Strict, 0)]
    {
        let world = world(400, 40, policy);
        let actor = start(&world, 0, 40);
        actor.cut_off(true);
        world.time.advance(seconds(60));
        assert_eq!(world.live(), expected, "{policy:?}");
        actor.cut_off(false);
        world.time.advance(seconds(60));
        assert_eq!(world.live(), 40, "{policy:?}");
        assert!(world.entries().values().sum::<i64>() >= 40, "{policy:?}: it has joined with its true count");
        world.time.shut_down();
    }
}

#[test]
fn an_instance_that_leaves_gives_everything_back() {
    let world = world(400, 40, StoreOutagePolicy::Local);
    let (actor, other) = (start(&world, 0, 30), start(&world, 1, 30));
    world.time.advance(seconds(60));
    let fleet = actor.fleet();
    assert!(!world.time.run(fleet.leave(seconds(5))), "its connections are open");
    assert!(world.entries().contains_key(&fleet.status().instance));
    actor.want(0);
    world.time.advance(seconds(40));
    assert!(world.time.run(fleet.leave(seconds(5))));
    assert_eq!(world.entries().into_keys().collect::<Vec<_>>(), [other.status().unwrap().instance]);
    let refused = world.time.run(fleet.leases().unwrap().acquire());
    assert!(matches!(refused, Err(LeaseError::Unavailable(_))), "{refused:?}");
    world.time.shut_down();
}

#[test]
fn a_fleet_that_is_dropped_leaves() {
    let world = world(400, 40, StoreOutagePolicy::Local);
    let start = || {
        let tables = Tables::one(world.table.clone());
        forebay_fleet::Fleet::start(world.settings.clone(), tables, world.time.clone(), world.seed)
    };
    let fleet = world.time.run(start()).unwrap();
    world.time.advance(seconds(1));
    assert_eq!(world.entries().len(), 1);
    drop(fleet);
    world.time.advance(seconds(1));
    assert_eq!(world.entries().len(), 0);
}

fn refusal(mode: LeaseMode, prepare: impl Fn(&World)) -> Option<StartError> {
    let world = world(400, 40, StoreOutagePolicy::Local);
    prepare(&world);
    let mut settings = world.settings.clone();
    settings.leases = Some(leases(mode, 400));
    let tables = Tables::one(world.table.clone());
    world.time.run(forebay_fleet::Fleet::start(settings, tables, world.time.clone(), world.seed)).err()
}

#[test]
fn a_live_counter_stops_a_ledger_and_the_other_way_round() {
    let counter = |world: &World, age: Duration| {
        let at = i64::try_from((world.time.wall() - age).as_millis()).unwrap();
        let item = Item::new().with("active", 7).with("updated_ms", at);
        world.table.put(&format!("dsqllease_counter#{ENDPOINT}"), item);
    };
    let error = refusal(LeaseMode::Ledger, |world| counter(world, seconds(60))).unwrap().to_string();
    assert!(error.contains("DSQL_DISTRIBUTED_CONN_LEASE_MODE to counter"), "{error}");
    assert!(refusal(LeaseMode::Ledger, |world| counter(world, seconds(121))).is_none());
    let ledger = |world: &World| {
        let actor = start(world, 0, 1);
        world.time.advance(seconds(30));
        actor.crash();
    };
    let error = refusal(LeaseMode::Counter, ledger).unwrap().to_string();
    assert!(error.contains("DSQL_DISTRIBUTED_CONN_LEASE_MODE to ledger"), "{error}");
    let long_gone = |world: &World| {
        ledger(world);
        world.time.advance(seconds(121));
    };
    assert!(refusal(LeaseMode::Counter, long_gone).is_none());
}

#[test]
fn operators_can_inspect_and_repair_the_ledger() {
    let world = world(400, 40, StoreOutagePolicy::Local);
    let actors: Vec<Actor> = (0..3).map(|number| start(&world, number, 20)).collect();
    world.time.advance(seconds(200));
    let survey = || world.time.run(operator::survey(&world.table, &world.time, ENDPOINT)).unwrap();
    let seen = survey();
    assert!(seen.is_exact());
    let names = |seen: &operator::Survey| {
        seen.instances.iter().map(|instance| instance.instance.clone()).collect::<BTreeSet<_>>().len()
    };
    assert_eq!(names(&seen), 3, "{seen:?}");
    assert!(seen.instances.iter().all(|instance| instance.heartbeat_age <= seconds(32)), "{seen:?}");
    assert!(seen.totals().0 >= 60 && seen.counter.is_none(), "{seen:?}");
    let first = actors[0].status().unwrap();
    let freed =
        world.time.run(operator::evict(&world.table, &world.time, ENDPOINT, &first.instance)).unwrap();
    assert_eq!(freed, first.slots);
    assert_eq!(names(&survey()), 2);
    world.time.advance(seconds(60));
    assert_eq!(names(&survey()), 3, "it lives, and has joined again");
    assert_eq!(world.live(), 60);
    let limit = world.time.run(operator::resize(&world.table, &world.time, ENDPOINT, 1000)).unwrap();
    assert!((875..=1000).contains(&limit), "shards that are not there yet have their part: {limit}");
    let smaller = world.time.run(operator::resize(&world.table, &world.time, ENDPOINT, 8)).unwrap();
    assert!(smaller >= 60, "{smaller}: what is held is kept");
    assert!(survey().is_exact());
    world.time.run(operator::reset(&world.table, &world.time, ENDPOINT)).unwrap();
    world.time.advance(seconds(60));
    let seen = survey();
    assert!(seen.is_exact() && names(&seen) == 3 && seen.totals().0 >= 60, "{seen:?}");
    assert_eq!(world.live(), 60);
    world.time.shut_down();
}
