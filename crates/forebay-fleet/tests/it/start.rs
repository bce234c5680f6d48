//! Checks of tables and other instances before and after joining.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{Runtime, VirtualTime};
use forebay::{Seed, StoreFuture};
use forebay_fleet::{
    Cursor, Delete, Faults, FaultyTable, Fleet, FleetSettings, Item, LeaseMode, LeaseSettings, MemoryTable,
    Page, RateMode, StartError, Table, TableError, Tables, Update, Write,
};

use crate::logs::Logs;
use crate::support::{bucket, leases, seconds, settings};

/// A table that never answers, or does not exist.
#[derive(Clone, Copy)]
enum Useless {
    Silent,
    Absent,
}

impl Useless {
    fn answer<T: Send + 'static>(self) -> StoreFuture<'static, Result<T, TableError>> {
        match self {
            Self::Silent => Box::pin(std::future::pending()),
            Self::Absent => Box::pin(std::future::ready(Err(TableError::NoTable("rates".to_owned())))),
        }
    }
}

impl Table for Useless {
    fn update<'a>(&'a self, _: &'a Update) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        self.answer()
    }

    fn get<'a>(&'a self, _: &'a str) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        self.answer()
    }

    fn delete<'a>(&'a self, _: &'a Delete) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        self.answer()
    }

    fn transact<'a>(&'a self, _: &'a [Write], _: &'a str) -> StoreFuture<'a, Result<(), TableError>> {
        self.answer()
    }

    fn scan<'a>(&'a self, _: &'a str, _: Option<&'a Cursor>) -> StoreFuture<'a, Result<Page, TableError>> {
        self.answer()
    }
}

fn start(time: &VirtualTime, settings: FleetSettings, tables: Tables) -> Result<Fleet, StartError> {
    time.run(Fleet::start(settings, tables, time.clone(), Seed::new(3)))
}

fn both(mode: LeaseMode, rate: RateMode) -> FleetSettings {
    let mut settings = settings();
    settings.leases = Some(leases(mode, 100));
    settings.rate = Some(bucket(rate, 100, 1000));
    settings.rate.as_mut().unwrap().table = "rates".to_owned();
    settings
}

#[test]
fn a_missing_rate_table_is_an_error() {
    for mode in [RateMode::Bucket, RateMode::Window] {
        let time = VirtualTime::new();
        let tables = Tables { leases: Arc::new(MemoryTable::new()), rate: Arc::new(Useless::Absent) };
        let why = start(&time, both(LeaseMode::Ledger, mode), tables).unwrap_err().to_string();
        assert!(why.contains("rates") && why.contains("forebay limiter setup"), "{why}");
    }
}

#[test]
fn tables_that_do_not_answer_delay_a_start_by_one_call() {
    for mode in [LeaseMode::Ledger, LeaseMode::Counter] {
        let (time, began) = (VirtualTime::new(), VirtualTime::new().now());
        let fleet = start(&time, both(mode, RateMode::Bucket), Tables::one(Useless::Silent)).unwrap();
        assert!(time.now().since(began) <= seconds(5), "{:?}", time.now().since(began));
        drop(fleet);
        time.shut_down();
    }
}

#[test]
fn the_gauge_shows_an_outage_of_either_table() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let (time, table) = (VirtualTime::new(), MemoryTable::new());
        let faulty = || Arc::new(FaultyTable::new(table.clone(), time.clone(), Seed::new(1)));
        let (of_leases, of_rate) = (faulty(), faulty());
        let tables = Tables { leases: Arc::clone(&of_leases) as _, rate: Arc::clone(&of_rate) as _ };
        let fleet = start(&time, both(LeaseMode::Ledger, RateMode::Bucket), tables).unwrap();
        let away = |is: bool| Faults { outage: is, ..Faults::default() };
        for (leases_away, rate_away) in
            [(false, false), (false, true), (true, true), (true, false), (false, false)]
        {
            of_leases.set(away(leases_away));
            of_rate.set(away(rate_away));
            // More than the share has, so that the table is called.
            for _ in 0..60 {
                for _ in 0..50 {
                    let limit = fleet.limit().unwrap();
                    time.spawn(Box::pin(
                        async move { drop(limit.acquire().await.map(forebay::Permit::spend)) },
                    ));
                }
                time.advance(seconds(1));
            }
            let expected = f64::from(u8::from(leases_away || rate_away));
            let seen = format!("dsql_distributed_degraded{{service=\"history\"}} {expected}");
            assert!(handle.render().contains(&seen), "{leases_away} {rate_away}:\n{}", handle.render());
        }
        time.shut_down();
    });
}

#[test]
fn other_modes_and_limits_of_the_rate_are_logged_once() {
    let logs = Logs::default();
    logs.during(|| {
        let (time, table) = (VirtualTime::new(), MemoryTable::new());
        let open = |fleet: &Fleet| {
            for _ in 0..3 {
                time.run(fleet.limit().unwrap().acquire()).unwrap().spend();
                time.advance(Duration::from_millis(300));
            }
        };
        let start = |mode, rate| {
            let mut settings = settings();
            settings.rate = Some(bucket(mode, rate, 1000));
            let fleet = start(&time, settings, Tables::one(table.clone())).unwrap();
            open(&fleet);
            fleet
        };
        let first = start(RateMode::Bucket, 100);
        start(RateMode::Bucket, 100);
        assert_eq!((logs.count("another mode"), logs.count("a different limit")), (0, 0));
        start(RateMode::Window, 100);
        assert_eq!(logs.count("another mode"), 1, "a bucket is in use");
        start(RateMode::Bucket, 1000);
        assert_eq!((logs.count("another mode"), logs.count("a different limit")), (2, 1));
        // After a quiet time the item has its limits, and the first instance sees them.
        let other = start(RateMode::Bucket, 1000);
        time.advance(seconds(20));
        open(&other);
        let told = logs.count("a different limit");
        open(&first);
        open(&first);
        assert_eq!(logs.count("a different limit"), told + 1);
        time.shut_down();
    });
}

#[test]
fn processes_with_one_seed_have_names_and_slots_of_their_own() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let start = || {
        let fleet =
            start(&time, both(LeaseMode::Ledger, RateMode::Bucket), Tables::one(table.clone())).unwrap();
        time.advance(seconds(5));
        fleet
    };
    let fleets = [start(), start(), start()];
    let names: BTreeSet<String> = fleets.iter().map(|fleet| fleet.status().instance).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("hi") && name.len() == 8), "{names:?}");
    assert!(fleets.iter().all(|fleet| fleet.status().slots > 0));
    time.shut_down();
}

#[test]
fn an_invalid_heartbeat_or_block_is_refused_with_a_remedy() {
    let refusal = |change: fn(&mut LeaseSettings)| {
        let mut settings = both(LeaseMode::Ledger, RateMode::Bucket);
        change(settings.leases.as_mut().unwrap());
        let time = VirtualTime::new();
        start(&time, settings, Tables::one(MemoryTable::new())).err().map(|error| error.to_string())
    };
    for (change, told) in [
        (
            (|leases| leases.heartbeat = Duration::from_millis(30)) as fn(&mut LeaseSettings),
            "leases.heartbeat is 30ms, but must be at least 1s",
        ),
        (|leases| leases.block = u64::MAX, "but must be from 1 to 1000000"),
        (|leases| leases.block = 0, "leases.block is 0, but must be from 1"),
    ] {
        let why = refusal(change).unwrap_or_default();
        assert!(why.contains(told), "{why}");
    }
    assert_eq!(refusal(|leases| (leases.heartbeat, leases.block) = (seconds(1), 1_000_000)), None);
}
