//! The fleet's rate with wrong clocks, extreme limits and short waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay::Seed;
use forebay::rt::{ProcessClock, Runtime, VirtualTime};
use forebay_fleet::{Fleet, LeaseMode, MemoryTable, RateMode, RateSettings, Tables, operator};

use crate::support::{ENDPOINT, bucket, seconds, settings};

fn start(time: &VirtualTime, table: &MemoryTable, rate: RateSettings, clock: ProcessClock) -> Fleet {
    let mut settings = settings();
    settings.rate = Some(rate);
    let started = Fleet::start(settings, Tables::one(table.clone()), time.process(clock), Seed::new(7));
    time.run(started).unwrap()
}

fn ahead(by: Duration) -> ProcessClock {
    ProcessClock { wall_ahead: i64::try_from(by.as_nanos()).unwrap(), ..ProcessClock::default() }
}

/// The wait of each of several simultaneous callers, and how many got a permit.
fn crowd(time: &VirtualTime, fleet: &Fleet, callers: u64) -> (Arc<AtomicU64>, Arc<AtomicU64>) {
    let (longest, had) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for _ in 0..callers {
        let (limit, clock) = (fleet.limit().unwrap(), time.clone());
        let (longest, had) = (Arc::clone(&longest), Arc::clone(&had));
        time.spawn(Box::pin(async move {
            let began = clock.now();
            if let Ok(permit) = limit.acquire().await {
                permit.spend();
                had.fetch_add(1, Ordering::Relaxed);
            }
            let waited = u64::try_from(clock.now().since(began).as_millis()).unwrap();
            longest.fetch_max(waited, Ordering::Relaxed);
        }));
    }
    (longest, had)
}

#[test]
fn a_clock_an_hour_ahead_does_not_block_the_fleet() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let rate = || bucket(RateMode::Bucket, 100, 1000);
    let good = start(&time, &table, rate(), ProcessClock::default());
    time.run(good.limit().unwrap().acquire()).unwrap().spend();
    let wrong = start(&time, &table, rate(), ahead(seconds(3600)));
    time.run(wrong.limit().unwrap().acquire()).unwrap().spend();
    let began = time.now();
    time.run(good.limit().unwrap().acquire()).unwrap().spend();
    assert!(time.now().since(began) < seconds(1), "{:?}", time.now().since(began));
    // An instance that has seen no other value may be wrong itself, so it waits.
    time.run(wrong.limit().unwrap().acquire()).unwrap().spend();
    let fresh = start(&time, &table, rate(), ProcessClock::default());
    let began = time.now();
    while time.run(fresh.limit().unwrap().acquire()).map(forebay::Permit::spend).is_err() {}
    assert!(time.now().since(began) < seconds(60), "{:?}", time.now().since(began));
    time.shut_down();
}

#[test]
fn a_reset_is_noticed_while_a_caller_waits() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let rate = || bucket(RateMode::Bucket, 100, 1000);
    let wrong = start(&time, &table, rate(), ahead(seconds(3600)));
    time.run(wrong.limit().unwrap().acquire()).unwrap().spend();
    let fresh = start(&time, &table, rate(), ProcessClock::default());
    let (_, had) = crowd(&time, &fresh, 1);
    time.advance(seconds(1));
    time.run(operator::reset(&table, &time, ENDPOINT)).unwrap();
    time.advance(seconds(28));
    assert_eq!(had.load(Ordering::Relaxed), 1);
    time.shut_down();
}

#[test]
fn no_caller_waits_longer_than_max_wait() {
    for (rate, callers) in [(1, 64), (1, 20), (2, 200), (100, 5000)] {
        let (time, table) = (VirtualTime::new(), MemoryTable::new());
        let fleet = start(&time, &table, bucket(RateMode::Bucket, rate, 1), ProcessClock::default());
        let (longest, had) = crowd(&time, &fleet, callers);
        time.advance(seconds(300));
        let (longest, had) = (longest.load(Ordering::Relaxed), had.load(Ordering::Relaxed));
        assert!(longest <= 30_000, "{longest} ms at {rate} a second");
        assert!(had >= callers.min(rate * 20), "{had} of {callers} at {rate} a second");
        time.shut_down();
    }
}

#[test]
fn a_window_gives_no_more_than_its_limit_in_a_second() {
    for rate in [1, 10] {
        let (time, table) = (VirtualTime::new(), MemoryTable::new());
        let fleet = start(&time, &table, bucket(RateMode::Window, rate, 1), ProcessClock::default());
        let (_, had) = crowd(&time, &fleet, 64);
        time.advance(seconds(20));
        let seconds = table.items().values().filter_map(|item| item.number("count")).collect::<Vec<_>>();
        let most = i64::try_from(rate).unwrap();
        assert!(seconds.iter().all(|count| *count <= most), "{seconds:?} at {rate} a second");
        assert!(had.load(Ordering::Relaxed) >= 60.min(rate * 15), "{seconds:?}");
        time.shut_down();
    }
}

#[test]
fn an_extreme_limit_does_no_harm() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let rate =
        bucket(RateMode::Bucket, i64::MAX.unsigned_abs(), u64::MAX).max_wait(seconds(2_562_047 * 3600));
    let all = settings().rate(rate).leases(crate::support::leases(LeaseMode::Ledger, 1000));
    let started = Fleet::start(all, Tables::one(table.clone()), time.clone(), Seed::new(7));
    let fleet = time.run(started).unwrap();
    time.advance(seconds(100));
    for _ in 0..100 {
        time.run(fleet.limit().unwrap().acquire()).unwrap().spend();
    }
    time.shut_down();
}
