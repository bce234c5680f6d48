//! The distribution of slots when there are too few.

use std::time::Duration;

use forebay::Seed;
use forebay::rt::{ProcessClock, Runtime, VirtualTime};
use forebay_fleet::{Faults, FaultyTable, Fleet, FleetSettings, LeaseMode, MemoryTable, Tables};

use crate::support::{leases, seconds, settings};

fn start(time: &VirtualTime, table: &MemoryTable, settings: &FleetSettings, seed: u64) -> Fleet {
    let seed = Seed::new(seed);
    let table = FaultyTable::new(table.clone(), time.clone(), seed);
    table.set(Faults { latency: (Duration::from_millis(4), Duration::from_millis(8)), ..Faults::default() });
    let runtime = time.process(ProcessClock::default());
    time.run(Fleet::start(settings.clone(), Tables::one(table), runtime, seed)).unwrap()
}

/// Connections of a process. Each lives for `life` and is then opened again; after a refusal, ten seconds later.
fn use_leases(time: &VirtualTime, fleet: &Fleet, lives: impl Iterator<Item = Duration>) {
    for life in lives {
        let (leases, time) = (fleet.leases().unwrap(), time.clone());
        time.clone().spawn(Box::pin(async move {
            loop {
                match leases.acquire().await {
                    Ok(lease) => {
                        time.sleep_until(time.now() + life).await;
                        leases.release(&lease).await.unwrap();
                    }
                    Err(_) => time.sleep_until(time.now() + seconds(10)).await,
                }
            }
        }));
    }
}

#[test]
fn an_instance_without_slots_gets_its_share_as_connections_end() {
    for seed in [0, 2000] {
        let (time, table) = (VirtualTime::new(), MemoryTable::new());
        let mut settings = settings();
        settings.leases = Some(leases(LeaseMode::Ledger, 1_000));
        settings.max_open = 100;
        // Ten instances take all slots.
        let fleets: Vec<Fleet> =
            (0..30).map(|number| start(&time, &table, &settings, seed + number)).collect();
        for fleet in &fleets {
            use_leases(&time, fleet, (60..160).map(seconds));
        }
        let held = || {
            let mut held: Vec<u64> = fleets.iter().map(|fleet| fleet.status().leases).collect();
            held.sort_unstable();
            held
        };
        time.advance(seconds(270));
        let then = held();
        assert!(then[0] > 0 && then[29] < 50, "{then:?}: within five minutes everybody has some");
        time.advance(seconds(210));
        let then = held();
        assert!(then[0] >= 25 && then[29] <= 40, "{then:?}: a third of a hundred is fair");
        assert!(then.iter().sum::<u64>() >= 980, "{then:?}: hardly any is left unused");
        time.shut_down();
    }
}

#[test]
fn freed_slots_are_used_before_the_next_heartbeat() {
    for seed in 0..5 {
        let (time, table) = (VirtualTime::new(), MemoryTable::new());
        let mut settings = settings();
        let mut leases = leases(LeaseMode::Ledger, 10);
        leases.block = 1;
        settings.leases = Some(leases);
        settings.max_open = 7;
        let (first, second) =
            (start(&time, &table, &settings, seed), start(&time, &table, &settings, seed + 10));
        let held = first.leases().unwrap();
        let held: Vec<_> = (0..7).map(|_| time.run(held.acquire()).unwrap()).collect();
        use_leases(&time, &second, (0..7).map(|_| seconds(100_000)));
        // Long enough for the second to compute a share of five.
        time.advance(seconds(70) + seconds(seed));
        assert_eq!((first.status().leases, second.status().leases), (7, 3));
        for lease in held {
            time.run(first.leases().unwrap().release(&lease)).unwrap();
        }
        assert!(time.run(first.leave(seconds(5))));
        time.advance(seconds(27));
        assert_eq!(second.status().leases, 7, "seed {seed}");
        time.shut_down();
    }
}
