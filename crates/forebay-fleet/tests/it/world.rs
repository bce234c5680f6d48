//! A cluster that counts connections and refuses none, a table, and processes that open connections through a fleet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use forebay::rt::{self, ProcessClock, Runtime, VirtualTime};
use forebay::{Config, Connect, ConnectionMonitor, Instant, Lifetime, OpenError, Reservoir, Rng, Seed};
use forebay_fleet::{
    Faults, FaultyTable, Fleet, FleetSettings, FleetStatus, Item, MemoryTable, Tables, Value,
};
use parking_lot::Mutex;

use crate::machine::Machine;
use crate::support::{ENDPOINT, NumberWatch, seconds};

/// The view of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// Connections of each process, by its number.
    pub(crate) live: BTreeMap<usize, u64>,
    pub(crate) most: u64,
    pub(crate) opens: Vec<Instant>,
    /// The token bucket of the server, in billionths of a permit. Below zero, a real server would refuse.
    tokens: i128,
    filled: Option<Instant>,
    pub(crate) least_tokens: i128,
    /// By how much the limit was exceeded, without instances that are cut off, and when first.
    pub(crate) over: u64,
    /// Processes that are cut off, or have not joined again since.
    pub(crate) cut_off: BTreeMap<usize, bool>,
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) time: VirtualTime,
    pub(crate) table: MemoryTable,
    pub(crate) cluster: Arc<Mutex<Cluster>>,
    pub(crate) settings: FleetSettings,
    pub(crate) seed: Seed,
    numbers: NumberWatch,
}

/// One connection, as the cluster counts it.
pub(crate) struct Connection(Arc<Mutex<Cluster>>, usize);

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(live) = self.0.lock().live.get_mut(&self.1) {
            *live -= 1;
        }
    }
}

/// Free and held slots of a shard add up to its capacity.
pub(crate) fn assert_adds_up(key: &str, item: Option<&Item>) {
    let Some(item) = item.filter(|_| key.starts_with("forebay_ledger#")) else { return };
    let slots = |entry: &Value| entry.as_map().unwrap()["s"].as_number().unwrap();
    let held: i64 = item.map("inst").unwrap().values().map(slots).sum();
    let free = item.number("free").unwrap();
    assert!(free >= 0, "{key} has {free} free slots");
    assert_eq!(free + held, item.number("capacity").unwrap(), "{key} does not add up: {item:?}");
}

impl World {
    pub(crate) fn new(settings: FleetSettings, seed: u64) -> Self {
        let table = MemoryTable::new();
        table.witness(assert_adds_up);
        let seed = Seed::new(seed);
        let (time, numbers) = (VirtualTime::with_seed(seed), NumberWatch::default());
        Self { time, table, cluster: Arc::default(), settings, seed, numbers }
    }

    /// Checks from now on that no number is freed while its instance has it. An operator may do that.
    pub(crate) fn watch_numbers(&self) {
        let numbers = self.numbers.clone();
        self.table.witness(move |key, item| {
            assert_adds_up(key, item);
            numbers.saw(key, item);
        });
    }

    fn open(&self, number: usize) -> Connection {
        let now = self.time.now();
        let mut cluster = self.cluster.lock();
        *cluster.live.entry(number).or_default() += 1;
        cluster.opens.push(now);
        let all: u64 = cluster.live.values().sum();
        cluster.most = cluster.most.max(all);
        if let Some(leases) = &self.settings.leases {
            let excused = |number: &usize| cluster.cut_off.get(number) == Some(&true);
            let cut_off: u64 =
                cluster.live.iter().filter(|(number, _)| excused(number)).map(|(_, live)| live).sum();
            cluster.over = cluster.over.max((all - cut_off).saturating_sub(leases.limit));
        }
        if let Some(rate) = &self.settings.rate {
            let full = i128::from(rate.burst) * 1_000_000_000;
            let passed = cluster.filled.map_or(0, |at| now.since(at).as_nanos());
            let before = if cluster.filled.is_none() { full } else { cluster.tokens };
            let gained = i128::try_from(passed).unwrap() * i128::from(rate.per_second);
            cluster.tokens = (before + gained).min(full) - 1_000_000_000;
            cluster.least_tokens = cluster.least_tokens.min(cluster.tokens);
            cluster.filled = Some(now);
        }
        Connection(Arc::clone(&self.cluster), number)
    }

    /// Starts a process that wants `target` connections, each for about `life`.
    pub(crate) fn start(&self, number: usize, target: u64, life: Duration, clock: ProcessClock) -> Actor {
        let machine = Machine::new(self.time.process(clock));
        let seed = self.seed.fork("actor").fork(&number.to_string());
        let table = Arc::new(FaultyTable::new(self.table.clone(), self.time.clone(), seed));
        let shared = Arc::new(Shared {
            number,
            world: self.clone(),
            machine: machine.clone(),
            target: AtomicU64::new(target),
            fleet: Mutex::default(),
            life,
        });
        let workers = self.settings.max_open;
        let actor =
            Actor { shared: Arc::clone(&shared), machine: machine.clone(), table: Arc::clone(&table) };
        let settings = self.settings.clone();
        machine.clone().spawn(Box::pin(async move {
            let tables = Tables { leases: Arc::clone(&table) as _, rate: table };
            let fleet = Fleet::start(settings, tables, machine.clone(), seed).await;
            let fleet = Arc::new(fleet.expect("nothing keeps it from starting"));
            shared.world.numbers.add(&fleet);
            *shared.fleet.lock() = Some(fleet);
            for worker in 0..workers {
                let rng = seed.fork("worker").fork(&worker.to_string()).rng();
                machine.spawn(Box::pin(Arc::clone(&shared).work(worker, rng)));
            }
        }));
        actor
    }

    /// Starts a process with a reservoir of its own: the code that ships, on both sides of the traits.
    pub(crate) fn start_reservoir(&self, number: usize, lifetime: Lifetime, clock: ProcessClock) -> Actor {
        let actor = self.start(number, 0, Duration::ZERO, clock);
        let (shared, machine) = (Arc::clone(&actor.shared), actor.machine.clone());
        let seed = self.seed.fork("reservoir").fork(&number.to_string());
        machine.clone().spawn(Box::pin(async move {
            let world = &shared.world;
            while shared.fleet.lock().is_none() {
                shared.pause(Duration::from_millis(100)).await;
            }
            let fleet = shared.fleet();
            let max_open = usize::try_from(world.settings.max_open).unwrap();
            let config = Config::default().max_open(max_open).lifetime(lifetime).seed(seed);
            let rng = Mutex::new(seed.fork("latency").rng());
            let opener = Opener { shared: Arc::clone(&shared), rng };
            let builder = Reservoir::builder(opener).config(config).runtime(machine);
            let reservoir = builder.leases(fleet.leases().unwrap()).limit(fleet.limit().unwrap());
            let reservoir = reservoir.start_empty().expect("the settings are fine");
            std::future::pending::<()>().await;
            drop(reservoir);
        }));
        actor
    }

    /// The instances in the ledger, with their slots.
    pub(crate) fn entries(&self) -> BTreeMap<String, i64> {
        let mut entries = BTreeMap::new();
        for (key, item) in self.table.items() {
            if key.starts_with("forebay_ledger#") {
                for (id, entry) in item.map("inst").unwrap() {
                    *entries.entry(id.clone()).or_default() +=
                        entry.as_map().unwrap()["s"].as_number().unwrap();
                }
            }
        }
        entries
    }

    pub(crate) fn live(&self) -> u64 {
        self.cluster.lock().live.values().sum()
    }

    pub(crate) fn bucket_bill(&self) -> forebay_fleet::Bill {
        self.table.bill_of(&format!("forebay_bucket#{ENDPOINT}"))
    }
}

/// The connector of a reservoir.
struct Opener {
    shared: Arc<Shared>,
    rng: Mutex<Rng>,
}

impl Connect for Opener {
    type Connection = Connection;

    async fn open(&self, _monitor: ConnectionMonitor) -> Result<Connection, OpenError> {
        let latency = self.rng.lock().up_to(Duration::from_millis(120));
        self.shared.pause(latency).await;
        Ok(self.shared.world.open(self.shared.number))
    }
}

/// One process.
pub(crate) struct Actor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) machine: Machine,
    pub(crate) table: Arc<FaultyTable>,
}

pub(crate) struct Shared {
    number: usize,
    world: World,
    machine: Machine,
    target: AtomicU64,
    fleet: Mutex<Option<Arc<Fleet>>>,
    life: Duration,
}

impl Shared {
    fn fleet(&self) -> Arc<Fleet> {
        Arc::clone(self.fleet.lock().as_ref().expect("it has started"))
    }

    /// One connection slot: open, hold, close, repeat.
    async fn work(self: Arc<Self>, place: u64, mut rng: Rng) {
        let fleet = self.fleet();
        let (leases, limit, mut ceiling) = (fleet.leases(), fleet.limit(), fleet.ceiling());
        let machine = &self.machine;
        // Lifetimes are spread from the start.
        let mut life = rng.up_to(self.life);
        loop {
            if place >= self.target.load(Relaxed) {
                self.pause(seconds(4) + rng.up_to(seconds(4))).await;
                continue;
            }
            let lease = match &leases {
                None => None,
                Some(leases) => match rt::within(machine, seconds(10), leases.acquire()).await {
                    Some(Ok(lease)) => Some(lease),
                    _ => {
                        self.pause(seconds(1) + rng.up_to(seconds(4))).await;
                        continue;
                    }
                },
            };
            let permitted = match &limit {
                None => true,
                Some(limit) => match limit.acquire().await {
                    Ok(permit) => {
                        permit.spend();
                        true
                    }
                    Err(_) => false,
                },
            };
            if permitted && place < *ceiling.borrow_and_update() {
                // The open reaches the server a little later.
                self.pause(rng.up_to(Duration::from_millis(200))).await;
                if place < *ceiling.borrow() {
                    let connection = self.world.open(self.number);
                    self.hold(place, &mut ceiling, life).await;
                    drop(connection);
                    life = self.life / 2 + rng.up_to(self.life);
                }
            } else {
                self.pause(seconds(1) + rng.up_to(seconds(2))).await;
            }
            if let (Some(leases), Some(lease)) = (&leases, &lease) {
                while leases.release(lease).await.is_err() {
                    self.pause(seconds(1)).await;
                }
            }
        }
    }

    async fn hold(&self, place: u64, ceiling: &mut tokio::sync::watch::Receiver<u64>, life: Duration) {
        let end = self.machine.now() + life;
        while self.machine.now() < end
            && place < self.target.load(Relaxed)
            && place < *ceiling.borrow_and_update()
        {
            let longest = end.since(self.machine.now()).min(seconds(30));
            let _ = rt::within(&self.machine, longest, ceiling.changed()).await;
        }
    }

    async fn pause(&self, duration: Duration) {
        self.machine.sleep_until(self.machine.now() + duration).await;
    }
}

impl Actor {
    pub(crate) fn want(&self, target: u64) {
        self.shared.target.store(target, Relaxed);
    }

    pub(crate) fn status(&self) -> Option<FleetStatus> {
        self.shared.fleet.lock().as_ref().map(|fleet| fleet.status())
    }

    pub(crate) fn fleet(&self) -> Arc<Fleet> {
        self.shared.fleet()
    }

    pub(crate) fn number(&self) -> usize {
        self.shared.number
    }

    pub(crate) fn crash(&self) {
        // Kill the process first, so that dropping the fleet does not leave.
        self.machine.kill();
        drop(self.shared.fleet.lock().take());
    }

    pub(crate) fn cut_off(&self, cut_off: bool) {
        let faults = self.table.faults();
        self.table.set(Faults { outage: cut_off, ..faults });
        if cut_off {
            self.shared.world.cluster.lock().cut_off.insert(self.number(), true);
        }
    }
}
