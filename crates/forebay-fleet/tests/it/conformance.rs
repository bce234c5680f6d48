//! Conformance tests of tables, leases and limits.

use std::sync::Arc;
use std::time::Duration;

use forebay::Seed;
use forebay::rt::VirtualTime;
use forebay_fleet::{Faults, FaultyTable, Fleet, LeaseMode, MemoryTable, RateMode, Tables, conformance};

use crate::support::{bucket, leases, settings};

#[test]
fn the_table_in_memory_conforms() {
    VirtualTime::new().run(conformance::table(&MemoryTable::new(), "conformance-"));
}

#[test]
fn a_slow_table_conforms() {
    let time = VirtualTime::new();
    let table = FaultyTable::new(MemoryTable::new(), time.clone(), Seed::new(1));
    let latency = (Duration::from_millis(2), Duration::from_millis(40));
    table.set(Faults { latency, ..Faults::default() });
    time.run(conformance::table(&table, "conformance-"));
}

#[test]
fn leases_of_both_modes_conform() {
    for mode in [LeaseMode::Ledger, LeaseMode::Counter] {
        // Thirty slots are spread over all eight shards, so instances have several entries.
        let (time, mut settings) = (VirtualTime::new(), settings());
        settings.leases = Some(leases(mode, 30));
        let table = MemoryTable::new();
        let fleet = Fleet::start(settings, Tables::one(table.clone()), time.clone(), Seed::new(3));
        let fleet = time.run(fleet).unwrap();
        let leases = fleet.leases().unwrap();
        time.run(forebay::conformance::leases(&*leases, 30));
        assert!(time.run(fleet.leave(Duration::from_secs(30))), "{mode:?}");
        for (key, item) in table.items() {
            if let Some(free) = item.number("free") {
                assert_eq!(item.number("capacity"), Some(free), "{key}");
            }
            assert!(item.number("active").is_none_or(|active| active == 0), "{key}: {item:?}");
            assert!(!key.starts_with("dsqllease#"), "{key} is left");
        }
    }
}

#[test]
fn limits_of_both_modes_conform() {
    // The reserve for skewed clocks and slow opens is 2.5 s of the rate. A window has no burst but the permits of a second. The
    // suite takes five permits beyond the burst, and a window grants them in its next second: five intervals of a rate of five.
    let bucket_at_once = |rate, burst| burst - rate * 5 / 2;
    for (mode, rate, burst, at_once) in [
        (RateMode::Bucket, 100, 1000, bucket_at_once(100, 1000)),
        (RateMode::Bucket, 10, 30, bucket_at_once(10, 30)),
        (RateMode::Window, 5, 1000, 5),
    ] {
        let (time, mut settings) = (VirtualTime::new(), settings());
        settings.rate = Some(bucket(mode, rate, burst));
        let tables = Tables::one(MemoryTable::new());
        let fleet = time.run(Fleet::start(settings, tables, time.clone(), Seed::new(3))).unwrap();
        let limit = fleet.limit().unwrap();
        let at_once = u32::try_from(at_once).unwrap();
        #[allow(clippy::cast_precision_loss, reason = "small")]
        time.run(forebay::conformance::limit(&*limit, &time, rate as f64, at_once));
        drop(Arc::clone(&limit));
    }
}
