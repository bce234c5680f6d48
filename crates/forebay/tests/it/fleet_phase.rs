//! The phase of a reservoir in its fleet: it follows the configured number, or the number from the lease
//! store, or is random.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay::memory::Memory;
use forebay::rt::{Runtime, VirtualTime};
use forebay::{
    BoxError, Config, Discard, Event, LeaseError, LeaseId, Leases, LocalLeases, Reservoir, Seed, StoreFuture,
};

use super::support::{config, seconds};

/// Leases of a process whose number may be missing or may change.
struct Numbered {
    leases: LocalLeases,
    number: Mutex<Option<u64>>,
}

impl Numbered {
    fn new(number: Option<u64>) -> Arc<Self> {
        Arc::new(Self { leases: LocalLeases::new(1000), number: Mutex::new(number) })
    }
}

impl Leases for Numbered {
    fn acquire(&self) -> StoreFuture<'_, Result<LeaseId, LeaseError>> {
        self.leases.acquire()
    }

    fn release<'a>(&'a self, id: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>> {
        self.leases.release(id)
    }

    fn instance_index(&self) -> Option<u64> {
        *self.number.lock().unwrap()
    }
}

const CONNECTIONS: usize = 10;
/// There are twelve periods in the shortest life: 10 min, less the guard window of 45 s, less 10 s to open
/// the replacement.
const PERIOD: Duration = Duration::from_nanos(545_000_000_000 / 12);

/// A reservoir, and when each connection was retired by the time of day, as a fraction of a period.
struct Retirements {
    time: VirtualTime,
    reservoir: Reservoir<Memory>,
    phases: Arc<Mutex<Vec<f64>>>,
}

fn start(config: Config, leases: &Arc<Numbered>) -> Retirements {
    let time = VirtualTime::new();
    let phases: Arc<Mutex<Vec<f64>>> = Arc::default();
    let (clock, heard) = (time.clone(), Arc::clone(&phases));
    let reservoir = Reservoir::builder(Memory::new(time.clone()))
        .config(config)
        .runtime(time.clone())
        .leases(Arc::clone(leases) as Arc<dyn Leases>)
        .observer(move |event: &Event<'_>| {
            if matches!(event, Event::Discarded { reason: Discard::Retired, .. }) {
                let into = clock.wall().as_nanos() % PERIOD.as_nanos();
                heard.lock().unwrap().push(into as f64 / PERIOD.as_nanos() as f64);
            }
        })
        .start_empty()
        .unwrap();
    assert!(time.run(reservoir.filled(seconds(60))));
    Retirements { time, reservoir, phases }
}

impl Retirements {
    /// The phase of the retirements in the next generation, which is the same for all.
    fn phase(&self) -> f64 {
        self.phases.lock().unwrap().clear();
        self.time.advance(seconds(600));
        let phases = self.phases.lock().unwrap().clone();
        assert!(phases.len() >= CONNECTIONS - 1, "{phases:?}");
        assert!(phases.iter().all(|phase| is_near(*phase, phases[0])), "{phases:?}");
        phases[0]
    }
}

impl Drop for Retirements {
    fn drop(&mut self) {
        self.time.shut_down();
    }
}

/// The phase of number `n`: multiples of the golden ratio.
fn golden(n: u64) -> f64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) as f64 / 2f64.powi(64)
}

fn is_near(one: f64, other: f64) -> bool {
    let apart = (one - other).rem_euclid(1.0);
    apart.min(1.0 - apart) < 1e-6
}

#[test]
fn the_lease_store_provides_the_number() {
    for number in [0, 1, 2, 199] {
        let phase = start(config(CONNECTIONS), &Numbered::new(Some(number))).phase();
        assert!(is_near(phase, golden(number)), "{number}: {phase}");
    }
}

#[test]
fn the_configured_number_overrides_the_lease_store() {
    let phase = start(config(CONNECTIONS).instance_index(4), &Numbered::new(Some(1))).phase();
    assert!(is_near(phase, golden(4)), "{phase}");
}

#[test]
fn without_a_number_the_phase_is_random() {
    let phase = |seed| start(config(CONNECTIONS).seed(Seed::new(seed)), &Numbered::new(None)).phase();
    let phases = [phase(1), phase(2), phase(3)];
    assert!(!is_near(phases[0], phases[1]) && !is_near(phases[1], phases[2]), "{phases:?}");
    assert!(is_near(phase(1), phases[0]), "the same phase for the same seed");
}

#[test]
fn a_number_that_changes_moves_what_is_booked_from_then_on() {
    let leases = Numbered::new(Some(3));
    let retirements = start(config(CONNECTIONS), &leases);
    *leases.number.lock().unwrap() = Some(5);
    assert!(is_near(retirements.phase(), golden(3)), "what was booked stays");
    // Periods of the old and the new phase can overlap until the old bookings are gone.
    retirements.time.advance(seconds(300));
    assert!(is_near(retirements.phase(), golden(5)));
    *leases.number.lock().unwrap() = None;
    assert!(is_near(retirements.phase(), golden(5)), "a number that is lost for a while changes nothing");
    let status = retirements.reservoir.status();
    assert_eq!(status.size(), CONNECTIONS, "{status:?}");
}
