//! The values of the metrics.

use std::sync::Arc;
use std::time::Duration;

use forebay::Seed;
use forebay::rt::{ProcessClock, Runtime, VirtualTime};
use forebay_fleet::{
    Faults, FaultyTable, Fleet, FleetSettings, LeaseMode, MemoryTable, RateMode, Tables, operator,
};
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::support::{ENDPOINT, bucket, leases, seconds, settings};

/// The metrics after `run`.
fn metrics_after(run: impl FnOnce(&VirtualTime, &MemoryTable)) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    ::metrics::with_local_recorder(&recorder, || run(&time, &table));
    time.shut_down();
    recorder.handle().render()
}

fn start(time: &VirtualTime, settings: FleetSettings, tables: Tables) -> Fleet {
    time.run(Fleet::start(settings, tables, time.clone(), Seed::new(1))).unwrap()
}

fn counting(mode: LeaseMode, limit: u64) -> FleetSettings {
    let mut settings = settings();
    settings.leases = Some(leases(mode, limit));
    settings
}

#[track_caller]
fn assert_shows(text: &str, lines: &[&str]) {
    for line in lines {
        let line = format!("dsql_distributed_{}", line.replace(' ', "{service=\"history\"} "));
        assert!(text.lines().any(|shown| shown == line), "{line} is missing from:\n{text}");
    }
}

#[test]
fn a_ledger_and_a_rate() {
    let text = metrics_after(|time, table| {
        let mut settings = counting(LeaseMode::Ledger, 1000);
        settings.rate = Some(bucket(RateMode::Bucket, 100, 1000));
        let fleet = start(time, settings, Tables::one(table.clone()));
        // The share of the slots is empty at first, and the first permit comes from the bucket.
        for _ in 0..2 {
            time.advance(seconds(50));
            time.run(fleet.limit().unwrap().acquire()).unwrap().spend();
        }
    });
    assert_shows(
        &text,
        &[
            "conn_lease_limit 1000",
            "conn_lease_held 100",
            "conn_lease_active 100",
            "lease_beats_total 6",
            "degraded 0",
            "rate_wait_milliseconds_count 2",
            "rate_denied_total 1",
        ],
    );
    assert!(text.contains("operation=\"beat\"") && text.contains("dsql_distributed_store_write_units_total"));
}

#[test]
fn leases_of_mode_counter() {
    let text = metrics_after(|time, table| {
        let fleet = start(time, counting(LeaseMode::Counter, 10), Tables::one(table.clone()));
        let leases = fleet.leases().unwrap();
        let held: Vec<_> = (0..3).map(|_| time.run(leases.acquire()).unwrap()).collect();
        time.advance(seconds(31));
        time.run(leases.release(&held[0])).unwrap();
        time.advance(seconds(31));
    });
    assert_shows(&text, &["conn_lease_limit 10", "conn_lease_active 2", "conn_lease_held 2"]);
}

#[test]
fn dead_instances_that_were_removed() {
    let text = metrics_after(|time, table| {
        let fleet = start(time, counting(LeaseMode::Ledger, 1000), Tables::one(table.clone()));
        let (mut other, process) = (counting(LeaseMode::Ledger, 1000), time.process(ProcessClock::default()));
        other.service = "matching".to_owned();
        let dead = Fleet::start(other, Tables::one(table.clone()), process.clone(), Seed::new(2));
        let dead = time.run(dead).unwrap();
        time.advance(seconds(60));
        assert_eq!(fleet.status().active, 200);
        process.kill();
        drop(dead);
        time.advance(seconds(300));
    });
    assert_shows(&text, &["lease_reaps_total 1", "conn_lease_active 10", "conn_lease_held 10"]);
}

#[test]
fn entries_that_were_removed_while_their_instance_lived() {
    let text = metrics_after(|time, table| {
        let fleet = start(time, counting(LeaseMode::Ledger, 1000), Tables::one(table.clone()));
        time.advance(seconds(1));
        let name = fleet.status().instance;
        let freed = time.run(operator::evict(table, time, ENDPOINT, &name)).unwrap();
        assert!(freed > 0);
        time.advance(seconds(61));
        assert!(fleet.status().slots > 0, "it has joined again");
    });
    assert_shows(&text, &["lease_losses_total 1", "lease_reaps_total 0"]);
}

#[test]
fn joins_that_another_instance_was_faster_than() {
    let text = metrics_after(|time, table| {
        // Each shard has 20 slots, and every instance wants all of them.
        let fleets: Vec<_> = (0..16)
            .map(|number| {
                let slow = FaultyTable::new(table.clone(), time.clone(), Seed::new(number));
                let latency = (Duration::from_millis(4), Duration::from_millis(8));
                slow.set(Faults { latency, ..Faults::default() });
                let settings = counting(LeaseMode::Ledger, 160);
                Fleet::start(settings, Tables::one(slow), time.clone(), Seed::new(number))
            })
            .collect();
        let mut started = Vec::new();
        for fleet in fleets {
            started.push(time.run(fleet).unwrap());
        }
        time.advance(seconds(10));
    });
    let line = text.lines().find(|line| line.starts_with("dsql_distributed_lease_conflicts_total{")).unwrap();
    let count: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(count > 0, "{text}");
}

#[test]
fn transactions_that_conflict() {
    let text = metrics_after(|time, table| {
        let faulty = Arc::new(FaultyTable::new(table.clone(), time.clone(), Seed::new(1)));
        let tables = Tables { leases: Arc::clone(&faulty) as _, rate: Arc::clone(&faulty) as _ };
        let fleet = start(time, counting(LeaseMode::Counter, 10), tables);
        faulty.set(Faults { conflicts: 1000, ..Faults::default() });
        time.run(fleet.leases().unwrap().acquire()).unwrap_err();
    });
    assert_shows(&text, &["lease_conflicts_total 8", "conn_lease_active 0"]);
}

#[test]
fn opens_that_waited_for_a_permit() {
    let text = metrics_after(|time, table| {
        let mut settings = settings();
        settings.rate = Some(bucket(RateMode::Bucket, 1, 1));
        let fleet = start(time, settings, Tables::one(table.clone()));
        let (limit, began) = (fleet.limit().unwrap(), time.now());
        for _ in 0..3 {
            time.run(limit.acquire()).unwrap().spend();
        }
        assert!(time.now().since(began) >= seconds(2), "one a second");
    });
    assert_shows(&text, &["rate_denied_total 3", "rate_wait_milliseconds_count 3"]);
}
