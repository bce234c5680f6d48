//! The rate, whatever pauses: machines, single processes, calls to the table. Permits count when a caller gets them.
//!
//! `FLEET_SEEDS=10000 cargo test -p forebay-fleet --test it stalls` runs more cases, `FLEET_SEED=7` with it one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{ProcessClock, Runtime, VirtualTime};
use forebay::{Instant, Rng, Seed};
use forebay_fleet::{
    Faults, FaultyTable, Fleet, FleetSettings, LeaseMode, MemoryTable, RateMode, RateSettings,
    StoreOutagePolicy, Tables,
};
use parking_lot::Mutex;

use crate::machine::Machine;
use crate::support::{bucket, leases, seconds, settings};

const MILLI: Duration = Duration::from_millis(1);

/// Who got a permit, and when.
type Granted = Arc<Mutex<Vec<(usize, Instant)>>>;

/// The most by which these times exceed a token bucket that is full at first, in permits, rounded up. With zero, no
/// window of time has more than `rate` times its length, and `burst`.
fn excess(rate: u64, burst: u64, times: impl IntoIterator<Item = Instant>) -> i128 {
    const ONE: i128 = 1_000_000_000;
    let full = i128::from(burst) * ONE;
    let (mut tokens, mut least, mut before) = (full, 0, None);
    for at in times {
        let passed = before.map_or(0, |before| at.since(before).as_nanos());
        tokens = (tokens + i128::try_from(passed).unwrap() * i128::from(rate)).min(full) - ONE;
        (least, before) = (least.min(tokens), Some(at));
    }
    -least / ONE + i128::from(least % ONE != 0)
}

/// A process with some callers that want one permit after the other.
struct Process {
    fleet: Fleet,
    machine: Machine,
    table: Arc<FaultyTable>,
    resumes: Option<Instant>,
}

/// Some processes of a fleet.
struct Scene {
    time: VirtualTime,
    granted: Granted,
    processes: Vec<Process>,
}

impl Scene {
    fn new(settings: &FleetSettings, processes: usize, seed: u64) -> Self {
        let time = VirtualTime::with_seed(Seed::new(seed));
        let mut scene = Self { time, granted: Granted::default(), processes: Vec::new() };
        let table = MemoryTable::new();
        for number in 0..processes {
            let seed = Seed::new(seed).fork(&number.to_string());
            let machine = Machine::new(scene.time.process(ProcessClock::default()));
            let faulty = Arc::new(FaultyTable::new(table.clone(), scene.time.clone(), seed));
            let tables = Tables { leases: Arc::clone(&faulty) as _, rate: Arc::clone(&faulty) as _ };
            let fleet = Fleet::start(settings.clone(), tables, machine.clone(), seed);
            let fleet = scene.time.run(fleet).unwrap();
            scene.processes.push(Process { fleet, machine, table: faulty, resumes: None });
        }
        scene
    }

    /// Starts callers of a process. Each wants a permit after the other, after pauses of at most `pause`.
    fn callers(&self, number: usize, callers: u64, pause: Duration, seed: u64) {
        for caller in 0..callers {
            let (process, granted) = (&self.processes[number], Arc::clone(&self.granted));
            let (limit, machine, time) =
                (process.fleet.limit().unwrap(), process.machine.clone(), self.time.clone());
            let mut rng = Seed::new(seed).fork(&format!("caller {number} {caller}")).rng();
            process.machine.spawn(Box::pin(async move {
                loop {
                    let permit = limit.acquire().await;
                    match permit {
                        Ok(permit) if rng.below(20) > 0 => {
                            permit.spend();
                            granted.lock().push((number, time.now()));
                        }
                        // Given back, at once or a little later.
                        Ok(permit) => {
                            machine.sleep_until(machine.now() + rng.up_to(20 * MILLI)).await;
                            drop(permit);
                        }
                        Err(_) => machine.sleep_until(machine.now() + rng.up_to(seconds(1))).await,
                    }
                    machine.sleep_until(machine.now() + rng.up_to(pause)).await;
                }
            }));
        }
    }

    /// Lets time pass, and lets stopped processes go on when it is time.
    fn pass(&mut self, duration: Duration) {
        let until = self.time.now() + duration;
        while self.time.now() < until {
            let now = self.time.now();
            self.time.advance((20 * MILLI).min(until.since(now)));
            let now = self.time.now();
            for process in self.processes.iter_mut().filter(|one| one.resumes.is_some_and(|at| at <= now)) {
                process.resumes = None;
                process.machine.go_on();
            }
        }
    }

    /// One random event, and some time.
    fn step(&mut self, rng: &mut Rng) {
        let (now, count) = (self.time.now(), self.processes.len() as u64);
        let process = &mut self.processes[usize::try_from(rng.below(count)).unwrap()];
        let faults = process.table.faults();
        match rng.below(8) {
            0 => self.time.skip(rng.up_to(seconds(2))),
            1 => self.time.skip(rng.up_to(seconds(20))),
            2 | 3 => {
                process.machine.stop();
                process.resumes.get_or_insert(now + rng.up_to(seconds(15)));
            }
            4 => process.table.set(Faults { outage: !faults.outage, ..faults }),
            5 => {
                let latency = (rng.up_to(seconds(1)), rng.up_to(seconds(6)));
                process.table.set(Faults { latency, ..faults });
            }
            6 => process.table.set(Faults { latency: (MILLI, 40 * MILLI), ..Faults::default() }),
            _ => {}
        }
        let pause = rng.up_to(seconds(3));
        self.pass(pause);
    }

    fn times(&self, of: impl Fn(usize) -> bool) -> Vec<Instant> {
        let mut times: Vec<_> =
            self.granted.lock().iter().filter(|(number, _)| of(*number)).map(|(_, at)| *at).collect();
        times.sort_unstable();
        times
    }
}

/// The settings of a random case, and whether its burst leaves room for late permits and for clocks.
fn random_settings(rng: &mut Rng) -> (FleetSettings, bool) {
    let mut settings = settings();
    let mode = if rng.below(3) == 0 { RateMode::Window } else { RateMode::Bucket };
    let rate = 1 + rng.below(40);
    let ample = rng.below(2) == 0;
    let burst = if ample { 4 * rate + 10 + rng.below(100) } else { 1 + rng.below(3 * rate) };
    settings.rate = Some(bucket(mode, rate, burst));
    if rng.below(2) == 0 {
        settings.leases = Some(leases(LeaseMode::Ledger, 100));
    }
    settings.max_open = 20;
    if rng.below(2) == 0 {
        settings.outage_policy = StoreOutagePolicy::Closed;
    }
    settings.local_rate = f64::from(1 + u32::try_from(rng.below(20)).unwrap());
    settings.local_burst = 1 + u32::try_from(rng.below(60)).unwrap();
    (settings, ample)
}

/// A random case. Returns how many permits were granted.
fn case(seed: u64) -> usize {
    let mut rng = Seed::new(seed).fork("stalls").rng();
    let (settings, ample) = random_settings(&mut rng);
    let RateSettings { mode, per_second, burst, .. } = settings.rate.clone().unwrap();
    let count = [1, 2, 3, 10][usize::try_from(rng.below(4)).unwrap()];
    let mut scene = Scene::new(&settings, count, seed);
    for number in 0..count {
        scene.processes[number].table.set(Faults { latency: (MILLI, 40 * MILLI), ..Faults::default() });
        scene.callers(number, 1 + rng.below(40), rng.up_to(seconds(2)), seed);
    }
    for _ in 0..30 {
        scene.step(&mut rng);
    }
    // A window has the permits of one second as its burst.
    let most = if mode == RateMode::Window { per_second } else { burst };
    for number in 0..count {
        let over = excess(per_second, most, scene.times(|one| one == number));
        assert_eq!(over, 0, "too many permits for process {number} alone: {settings:?}");
    }
    // With `local`, each process has a rate of its own while the table is unavailable.
    if settings.outage_policy == StoreOutagePolicy::Closed {
        let all = scene.times(|_| true);
        if mode == RateMode::Window {
            let mut by_second = BTreeMap::<u64, u64>::new();
            for at in &all {
                *by_second.entry(at.as_nanos() / 1_000_000_000).or_default() += 1;
            }
            assert!(by_second.values().all(|count| *count <= per_second), "{by_second:?}: {settings:?}");
        } else if ample {
            assert_eq!(excess(per_second, burst, all), 0, "too many permits for the fleet: {settings:?}");
        }
    }
    let granted = scene.granted.lock().len();
    scene.time.shut_down();
    granted
}

#[test]
fn no_pause_grants_more_than_the_rate_and_the_burst() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (one, seeds) = (number("FLEET_SEED"), number("FLEET_SEEDS").unwrap_or(60));
    let mut granted = 0;
    for seed in one.map_or(0..seeds, |one| one..one + 1) {
        match std::panic::catch_unwind(|| case(seed)) {
            Ok(count) => granted += count as u64,
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(one.is_some() || granted > 20 * seeds, "only {granted}: nothing is shown");
}

/// Twenty callers wait while the process stops for ten seconds, as in the issue of the local limit.
#[test]
fn callers_that_wait_in_a_stop_get_no_more_than_the_burst_at_once() {
    for (mode, leased) in [(RateMode::Bucket, false), (RateMode::Bucket, true), (RateMode::Window, false)] {
        let mut settings = settings();
        settings.rate = Some(bucket(mode, 10, 5));
        settings.leases = leased.then(|| leases(LeaseMode::Ledger, 20));
        settings.max_open = 20;
        let mut scene = Scene::new(&settings, 1, 7);
        scene.callers(0, 20, Duration::ZERO, 7);
        scene.pass(seconds(5));
        scene.time.skip(seconds(10));
        scene.pass(seconds(5));
        let most = if mode == RateMode::Window { 10 } else { 5 };
        assert_eq!(excess(10, most, scene.times(|_| true)), 0, "{mode:?}, leased: {leased}");
        scene.time.shut_down();
    }
}

/// A table whose answers take longer than a permit lives.
#[test]
fn a_slow_table_delays_permits_and_does_not_stop_them() {
    for (mode, latency) in [(RateMode::Bucket, 1500), (RateMode::Bucket, 4000), (RateMode::Window, 1500)] {
        let mut settings = settings();
        settings.rate = Some(bucket(mode, 20, 200));
        let mut scene = Scene::new(&settings, 1, 7);
        let latency = (latency * MILLI, (latency + 200) * MILLI);
        scene.processes[0].table.set(Faults { latency, ..Faults::default() });
        scene.callers(0, 10, seconds(2), 7);
        scene.pass(seconds(120));
        let granted = scene.times(|_| true).len();
        assert!(granted > 100, "only {granted} permits: {mode:?}, {latency:?}");
        scene.time.shut_down();
    }
}
