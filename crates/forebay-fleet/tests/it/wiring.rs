//! Reservoirs of a fleet, wired as in a service.

use std::time::Duration;

use forebay::memory::Memory;
use forebay::rt::{ProcessClock, Runtime, VirtualTime};
use forebay::{Config, Reservoir, Seed};
use forebay_fleet::{Fleet, LeaseMode, LeaseSettings, MemoryTable, RateMode, Tables};

use crate::support::{bucket, leases, seconds, settings};

struct World {
    time: VirtualTime,
    table: MemoryTable,
    server: Memory,
}

impl World {
    fn new() -> Self {
        let time = VirtualTime::new();
        Self { table: MemoryTable::new(), server: Memory::new(time.clone()), time }
    }

    /// A process of the fleet with one reservoir.
    fn start(&self, config: Config, leases: &LeaseSettings, number: u64) -> (Fleet, Reservoir<Memory>) {
        let mut settings = settings().for_pools([&config]);
        settings.leases = Some(leases.clone());
        settings.rate = Some(bucket(RateMode::Bucket, 100, 1000));
        let process = self.time.process(ProcessClock::default());
        let tables = Tables::one(self.table.clone());
        let fleet = Fleet::start(settings, tables, process.clone(), Seed::new(number));
        let fleet = self.time.run(fleet).unwrap();
        let reservoir = Reservoir::builder(self.server.clone()).config(config).runtime(process);
        let reservoir = fleet.wire(reservoir).start_empty().unwrap();
        (fleet, reservoir)
    }

    /// Waits for a condition. Returns how long that took.
    fn until(&self, holds: impl Fn() -> bool) -> Duration {
        let began = self.time.now();
        while !holds() {
            self.time.advance(Duration::from_millis(100));
            assert!(self.time.now().since(began) < seconds(600), "it takes too long");
        }
        self.time.now().since(began)
    }
}

fn config(max_open: usize) -> Config {
    Config::default().max_open(max_open).startup_jitter(Duration::ZERO).seed(Seed::new(3))
}

#[test]
fn a_process_has_slots_for_its_replacements_and_an_index_once_it_is_filled() {
    let world = World::new();
    let (fleet, reservoir) = world.start(config(40), &leases(LeaseMode::Ledger, 1000), 1);
    world.until(|| reservoir.status().size() == 40);
    assert_eq!(fleet.status().slots, 42);
    assert!(fleet.instance_index().is_some());
    // Every connection is replaced several times, and none is missing in between.
    for _ in 0..1800 {
        world.time.advance(seconds(1));
        assert!(reservoir.status().size() >= 40, "{:?}", reservoir.status());
    }
    assert!(reservoir.status().counts.refills > 100);
    assert_eq!(world.server.live() as u64, fleet.status().leases);
    assert!(world.time.run(reservoir.drain(seconds(5))).is_complete());
    assert!(world.time.run(fleet.leave(seconds(5))));
    world.time.shut_down();
}

#[test]
fn slots_for_replacements_do_not_starve_another_instance() {
    let world = World::new();
    let mut leases = leases(LeaseMode::Ledger, 10);
    (leases.block, leases.heartbeat, leases.length) = (1, seconds(2), seconds(20));
    let (_one, first) = world.start(config(7), &leases, 1);
    world.until(|| first.status().size() == 7);
    let (_other, second) = world.start(config(7), &leases, 2);
    let took = world.until(|| second.status().size() >= 3);
    assert!(took < seconds(30), "{took:?}");
    assert!(world.server.live() <= 10);
    world.time.shut_down();
}
