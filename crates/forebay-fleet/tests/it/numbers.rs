//! Node numbers: there are 1,024, and a live instance keeps its number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay::Seed;
use forebay::rt::{ProcessClock, VirtualTime};
use forebay_fleet::{
    Faults, FaultyTable, Fleet, FleetSettings, Item, LeaseMode, MemoryTable, StoreOutagePolicy, Tables,
    Value, operator,
};

use crate::support::{ENDPOINT, NumberWatch, leases, seconds, settings};

fn rules(limit: u64, max_open: u64) -> FleetSettings {
    let mut settings = settings();
    settings.leases = Some(leases(LeaseMode::Ledger, limit));
    settings.max_open = max_open;
    settings
}

fn start(time: &VirtualTime, table: &MemoryTable, settings: &FleetSettings, number: u64) -> Fleet {
    let seed = Seed::new(number);
    let table = FaultyTable::new(table.clone(), time.clone(), seed);
    let latency = (Duration::from_millis(4), Duration::from_millis(8));
    table.set(Faults { latency, ..Faults::default() });
    let runtime = time.process(ProcessClock::default());
    time.run(Fleet::start(settings.clone(), Tables::one(table), runtime, seed)).unwrap()
}

fn entry_of(fields: [(&str, i64); 4]) -> Value {
    Value::Map(fields.map(|(name, value)| (name.to_owned(), Value::Number(value))).into())
}

/// A shard with this many entries that have a node number.
fn crowd(k: i64, numbers: i64) -> Item {
    let entry = |number: i64| {
        let fields = [("s", 1), ("b", 1), ("e", number + 1), ("n", k * 128 + number)];
        (format!("x{k}{number}"), entry_of(fields))
    };
    Item::new()
        .with("capacity", 1250)
        .with("free", 1250 - numbers)
        .with("joins", numbers)
        .with("lease", 120)
        .with("inst", Value::Map((0..numbers).map(entry).collect()))
}

#[test]
fn the_1025th_instance_has_slots_and_no_number() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    for k in 0..8 {
        table.put(&format!("forebay_ledger#{ENDPOINT}#{k}"), crowd(k, 128));
    }
    let fleet = start(&time, &table, &rules(10_000, 5), 1);
    time.advance(seconds(60));
    let status = fleet.status();
    assert!(status.slots >= 5 && status.node.is_none(), "{status:?}");
    assert_eq!(time.run(fleet.node()), None, "it waits for none");
    assert!(table.bill().writes < 20, "{:?}", table.bill());
    time.shut_down();
}

#[test]
fn the_last_numbers_are_found() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    for k in 0..8 {
        table.put(&format!("forebay_ledger#{ENDPOINT}#{k}"), crowd(k, if k == 5 { 126 } else { 128 }));
    }
    let fleets: Vec<Fleet> = (0..3).map(|number| start(&time, &table, &rules(10_000, 5), number)).collect();
    time.advance(seconds(60));
    let nodes: BTreeSet<Option<u16>> = fleets.iter().map(|fleet| fleet.status().node).collect();
    assert_eq!(nodes, [None, Some(5 * 128 + 126), Some(5 * 128 + 127)].into());
    assert!(fleets.iter().all(|fleet| fleet.status().slots >= 5));
    assert!(table.bill().writes < 60, "{:?}", table.bill());
    time.shut_down();
}

#[test]
fn live_instances_keep_their_number_after_reset_and_evict() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let settings = rules(10_000, 20);
    let fleets: Vec<Fleet> = (0..60).map(|number| start(&time, &table, &settings, number)).collect();
    time.advance(seconds(60));
    let numbers = || fleets.iter().map(|fleet| fleet.status().node.unwrap()).collect::<Vec<u16>>();
    let before = numbers();
    time.run(operator::reset(&table, &time, ENDPOINT)).unwrap();
    time.advance(seconds(60));
    assert_eq!(numbers(), before);
    let evicted = fleets[0].status().instance;
    time.run(operator::evict(&table, &time, ENDPOINT, &evicted)).unwrap();
    time.advance(seconds(60));
    assert_eq!(numbers(), before);
    let newcomers = (100..120).map(|number| start(&time, &table, &settings, number));
    let newcomers: Vec<Fleet> = newcomers.collect();
    time.advance(seconds(10));
    assert!(newcomers.iter().all(|fleet| !before.contains(&fleet.status().node.unwrap())));
    time.shut_down();
}

/// An instance is cut off, taken for dead and replaced, and joins again. Its clock and those of its observers run at different
/// speeds.
#[test]
fn a_number_ends_with_its_lease_before_another_instance_can_have_it() {
    let speeds = [(-30_000, 30_000), (30_000, -30_000), (-500, 500), (0, 0)];
    // Observers look at other moments than the instance writes.
    for ((own, others), shift) in
        speeds.into_iter().flat_map(|speed| (0..10).map(move |shift| (speed, shift)))
    {
        let (time, table, numbers) = (VirtualTime::new(), MemoryTable::new(), NumberWatch::default());
        let watch = numbers.clone();
        table.witness(move |key, item| watch.saw(key, item));
        let start = |number: u64, drift_ppm| {
            let seed = Seed::new(number);
            let faulty = Arc::new(FaultyTable::new(table.clone(), time.clone(), seed));
            let latency = (Duration::from_millis(1), Duration::from_millis(900));
            faulty.set(Faults { latency, ..Faults::default() });
            let tables = Tables { leases: Arc::clone(&faulty) as _, rate: Arc::clone(&faulty) as _ };
            let runtime = time.process(ProcessClock { drift_ppm, ..ProcessClock::default() });
            let fleet = Fleet::start(rules(1000, 5), tables, runtime, seed);
            let fleet = Arc::new(time.run(fleet).unwrap());
            numbers.add(&fleet);
            (fleet, faulty)
        };
        let (fleet, faulty) = start(1, own);
        time.advance(seconds(3 * shift));
        let observers: Vec<_> = (2..6).map(|number| start(number, others)).collect();
        time.advance(seconds(100));
        let node = fleet.status().node;
        assert!(node.is_some() && observers.iter().all(|(other, _)| other.status().node.is_some()));
        faulty.set(Faults { outage: true, ..Faults::default() });
        time.advance(seconds(60));
        assert_eq!(fleet.status().node, node, "its lease has not ended");
        time.advance(seconds(240));
        assert_eq!(fleet.status().node, None, "{own} and {others} ppm: another may have it");
        let entries = time.run(operator::survey(&table, &time, ENDPOINT)).unwrap().instances;
        assert!(entries.iter().all(|entry| entry.node != node), "its observers have removed it");
        // A newcomer has got the number.
        let shard = format!("forebay_ledger#{ENDPOINT}#{}", node.unwrap() / 128);
        let item = table.item(&shard).unwrap();
        let mut entries = item.map("inst").unwrap().clone();
        let entry = [("s", 0), ("b", 1), ("e", 1_000_000), ("n", i64::from(node.unwrap()))];
        entries.insert("newcomer".to_owned(), entry_of(entry));
        table.put(&shard, item.with("inst", Value::Map(entries)));
        faulty.set(Faults::default());
        time.advance(seconds(60));
        let renumbered = fleet.status().node;
        assert!(renumbered.is_some() && renumbered != node, "{renumbered:?}, and before {node:?}");
        time.shut_down();
    }
}

#[test]
fn a_number_ends_before_its_instance_leaves() {
    for millis in 0..40 {
        let (time, table, numbers) = (VirtualTime::new(), MemoryTable::new(), NumberWatch::default());
        let watch = numbers.clone();
        table.witness(move |key, item| watch.saw(key, item));
        let fleet = Arc::new(start(&time, &table, &rules(100, 5), 1));
        numbers.add(&fleet);
        time.advance(seconds(5) + Duration::from_millis(millis));
        assert!(fleet.status().node.is_some());
        let updates = fleet.node_updates().unwrap();
        assert!(time.run(fleet.leave(seconds(10))));
        assert_eq!((fleet.status().node, *updates.borrow()), (None, None));
        time.shut_down();
    }
}

#[test]
fn an_instance_with_entries_in_several_shards_has_one_number() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let fleet = start(&time, &table, &rules(80, 60), 3);
    let leases = fleet.leases().unwrap();
    let held: Vec<_> = (0..60).map(|_| time.run(leases.acquire()).unwrap()).collect();
    time.advance(seconds(60));
    let survey = || time.run(operator::survey(&table, &time, ENDPOINT)).unwrap();
    let numbers = || survey().instances.iter().filter_map(|entry| entry.node).collect::<Vec<u16>>();
    let before = fleet.status();
    assert!(survey().instances.len() >= 6, "{:?}", survey().instances);
    assert_eq!(numbers(), [before.node.unwrap()]);
    // Only its home entry is lost.
    let home = survey().instances.iter().find(|entry| entry.node.is_some()).unwrap().shard;
    let item = table.item(&format!("forebay_ledger#{ENDPOINT}#{home}")).unwrap();
    let capacity = item.number("capacity").unwrap();
    table.put(
        &format!("forebay_ledger#{ENDPOINT}#{home}"),
        item.with("free", capacity).with("inst", Value::Map(BTreeMap::new())),
    );
    time.advance(seconds(60));
    let after = fleet.status();
    assert_eq!((after.node, after.leases), (before.node, 60));
    assert!(after.slots >= 60 && numbers() == [before.node.unwrap()], "{after:?}");
    assert!(survey().is_exact());
    drop(held);
    time.shut_down();
}

/// The indexes of instances that have joined.
fn indexes(fleets: &[Fleet]) -> BTreeSet<u64> {
    fleets.iter().map(|fleet| fleet.instance_index().unwrap()).collect()
}

#[test]
fn indexes_are_unique_and_dense_even_for_simultaneous_starts() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let settings = rules(10_000, 50);
    let mut fleets: Vec<Fleet> = (0..200).map(|number| start(&time, &table, &settings, number)).collect();
    time.advance(seconds(60));
    let first = indexes(&fleets);
    assert_eq!(first.len(), 200);
    assert!(first.last().is_some_and(|last| *last < 300), "{first:?}");
    // Instances are replaced one by one, as in a deployment.
    for (place, fleet) in fleets.iter_mut().enumerate() {
        assert!(time.run(fleet.leave(seconds(10))));
        *fleet = start(&time, &table, &settings, 1000 + place as u64);
        time.advance(seconds(1));
    }
    time.advance(seconds(60));
    let second = indexes(&fleets);
    assert_eq!(second.len(), 200);
    assert!(second.is_disjoint(&first), "nobody is given what another had");
    let (least, most) = (second.first().unwrap(), second.last().unwrap());
    assert!(most - least < 400, "still about as many as there are: {least} to {most}");
    time.shut_down();
}

#[test]
fn live_instances_keep_their_index_under_every_policy() {
    for away in [StoreOutagePolicy::Local, StoreOutagePolicy::Closed, StoreOutagePolicy::Strict] {
        let (time, table) = (VirtualTime::new(), MemoryTable::new());
        let mut settings = rules(10_000, 20);
        settings.outage_policy = away;
        let fleet = start(&time, &table, &settings, 1);
        assert_eq!(fleet.instance_index(), None, "it has not joined");
        time.advance(seconds(10));
        let index = fleet.instance_index();
        assert!(index.is_some() && fleet.status().index == index);
        assert_eq!(fleet.wiring().leases.unwrap().instance_index(), index);
        time.run(operator::evict(&table, &time, ENDPOINT, &fleet.status().instance)).unwrap();
        let newcomer = start(&time, &table, &settings, 2);
        time.advance(seconds(60));
        assert!(fleet.status().node.is_some(), "it has joined again");
        assert_eq!(fleet.instance_index(), index);
        assert_ne!(newcomer.instance_index(), index);
        time.shut_down();
    }
}

#[test]
fn without_a_ledger_there_is_no_index() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let mut settings = rules(100, 20);
    settings.leases = Some(leases(LeaseMode::Counter, 100));
    let fleet = start(&time, &table, &settings, 1);
    time.run(fleet.leases().unwrap().acquire()).unwrap();
    assert_eq!((fleet.instance_index(), fleet.status().index), (None, None));
    time.shut_down();
}
