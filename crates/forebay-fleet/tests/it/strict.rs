//! The policy `strict`, with reservoirs: connections close before their slots can be taken away.

use std::sync::Arc;
use std::time::Duration;

use forebay::memory::Memory;
use forebay::rt::{Runtime, VirtualTime};
use forebay::{Config, Discard, Reservoir, Seed};
use forebay_fleet::{
    Faults, FaultyTable, Fleet, LeaseMode, MemoryTable, StoreOutagePolicy, Tables, operator,
};

use crate::support::{ENDPOINT, leases, seconds, settings};

struct World {
    time: VirtualTime,
    memory: MemoryTable,
    table: Arc<FaultyTable>,
    server: Memory,
    fleet: Fleet,
}

impl World {
    fn new(policy: StoreOutagePolicy) -> Self {
        let time = VirtualTime::new();
        let memory = MemoryTable::new();
        let table = Arc::new(FaultyTable::new(memory.clone(), time.clone(), Seed::new(3)));
        let mut settings = settings();
        settings.leases = Some(leases(LeaseMode::Ledger, 100));
        (settings.max_open, settings.outage_policy) = (20, policy);
        let tables = Tables { leases: Arc::clone(&table) as _, rate: Arc::clone(&table) as _ };
        let fleet = time.run(Fleet::start(settings, tables, time.clone(), Seed::new(3))).unwrap();
        let server = Memory::new(time.clone());
        Self { time, memory, table, server, fleet }
    }

    fn pool(&self, size: usize) -> Reservoir<Memory> {
        let config = Config::default()
            .max_open(size)
            .unlimited_lifetime()
            .startup_jitter(Duration::ZERO)
            .rate(1e6, 1_000);
        let reservoir = Reservoir::builder(self.server.clone())
            .config(config.seed(Seed::new(7)))
            .runtime(self.time.clone())
            .leases(self.fleet.leases().unwrap())
            .start_empty()
            .unwrap();
        assert!(self.time.run(reservoir.filled(seconds(60))), "{:?}", reservoir.status());
        reservoir
    }

    fn away(&self, away: bool) {
        self.table.set(Faults { outage: away, ..Faults::default() });
    }

    /// Waits until all connections are closed. Returns how long that took.
    fn closed_after(&self, most: Duration) -> Duration {
        let began = self.time.now();
        while self.server.live() > 0 {
            self.time.advance(Duration::from_millis(100));
            assert!(self.time.now().since(began) <= most, "{} still open", self.server.live());
        }
        self.time.now().since(began)
    }
}

#[test]
fn all_pools_close_ready_and_lent_connections_before_the_lease_ends() {
    let world = World::new(StoreOutagePolicy::Strict);
    let (pool, other) = (world.pool(12), world.pool(6));
    let lent: Vec<_> = (0..5).map(|_| pool.try_checkout().unwrap()).collect();
    let detached = other.try_checkout().unwrap().detach();
    world.time.advance(seconds(300));
    assert_eq!(world.server.live(), 19, "with the one that took the detached one's place");
    world.away(true);
    let took = world.closed_after(seconds(120));
    assert!(took >= seconds(70), "closed after {took:?}, though it had most of a lease left");
    assert!(lent.iter().all(|connection| !connection.is_alive()) && !detached.connection.is_alive());
    let slots: u64 = world.survey().instances.iter().map(|instance| instance.slots).sum();
    assert!(slots >= 19, "nobody could have taken them yet: {slots}");
    drop((lent, detached));
    world.time.advance(seconds(60));
    assert_eq!(world.server.live(), 0, "nothing is opened meanwhile");
    let recalled = |pool: &Reservoir<Memory>| pool.status().counts.discards(Discard::Recalled);
    assert_eq!((recalled(&pool), recalled(&other)), (12, 6));

    world.away(false);
    world.time.advance(seconds(60));
    assert_eq!((pool.status().ready, other.status().ready, world.server.live()), (12, 6, 18));
    assert!(world.survey().is_exact());
}

#[test]
fn short_outages_and_the_other_policies_close_nothing() {
    for (policy, away) in
        [(StoreOutagePolicy::Strict, 60), (StoreOutagePolicy::Closed, 600), (StoreOutagePolicy::Local, 600)]
    {
        let world = World::new(policy);
        let pool = world.pool(12);
        world.time.advance(seconds(300));
        world.away(true);
        world.time.advance(seconds(away));
        assert_eq!(world.server.live(), 12, "{policy:?}");
        world.away(false);
        world.time.advance(seconds(60));
        assert_eq!((pool.status().ready, pool.status().counts.all_discards()), (12, 0), "{policy:?}");
    }
}

#[test]
fn only_local_opens_in_an_outage() {
    for policy in [StoreOutagePolicy::Strict, StoreOutagePolicy::Closed, StoreOutagePolicy::Local] {
        let world = World::new(policy);
        world.time.advance(seconds(30));
        world.away(true);
        while world.fleet.status().lease_outage.is_none() {
            world.time.advance(seconds(1));
        }
        assert!(world.fleet.status().slots > 0 && *world.fleet.ceiling().borrow() > 0, "its lease holds");
        let taken = world.time.run(world.fleet.leases().unwrap().acquire());
        assert_eq!(taken.is_ok(), policy == StoreOutagePolicy::Local, "{policy:?}: {taken:?}");
        world.away(false);
        world.time.advance(seconds(30));
        assert!(world.time.run(world.fleet.leases().unwrap().acquire()).is_ok(), "{policy:?}");
    }
}

impl World {
    fn survey(&self) -> operator::Survey {
        self.time.run(operator::survey(&self.memory, &self.time, ENDPOINT)).unwrap()
    }
}
