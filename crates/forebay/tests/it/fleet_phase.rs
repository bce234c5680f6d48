//! When a reservoir of a fleet has its turn to retire connections: as the configuration says, or its leases, or by lot.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay::memory::Memory;
use forebay::rt::{Runtime, VirtualTime};
use forebay::{
    BoxError, Config, Discard, Event, LeaseError, LeaseId, Leases, LocalLeases, Reservoir, Seed, StoreFuture,
};

use super::support::{config, seconds};

/// Leases of a process that has a number, or not, or not yet.
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
/// Twelve pages in the shortest life, 10 min, less the guard window, 45 s, and what a replacement may take, 10 s.
const PAGE: Duration = Duration::from_nanos(545_000_000_000 / 12);

/// A reservoir, and where in a page, as a fraction of it, each connection was retired, by the time of day.
struct Retirements {
    time: VirtualTime,
    reservoir: Reservoir<Memory>,
    turns: Arc<Mutex<Vec<f64>>>,
}

fn start(config: Config, leases: &Arc<Numbered>) -> Retirements {
    let time = VirtualTime::new();
    let turns: Arc<Mutex<Vec<f64>>> = Arc::default();
    let (clock, heard) = (time.clone(), Arc::clone(&turns));
    let reservoir = Reservoir::builder(Memory::new(time.clone()))
        .config(config)
        .runtime(time.clone())
        .leases(Arc::clone(leases) as Arc<dyn Leases>)
        .observer(move |event: &Event<'_>| {
            if matches!(event, Event::Discarded { reason: Discard::Retired, .. }) {
                let into = clock.wall().as_nanos() % PAGE.as_nanos();
                heard.lock().unwrap().push(into as f64 / PAGE.as_nanos() as f64);
            }
        })
        .start_empty()
        .unwrap();
    assert!(time.run(reservoir.filled(seconds(60))));
    Retirements { time, reservoir, turns }
}

impl Retirements {
    /// The turns taken in the next generation, all of which are alike.
    fn turn(&self) -> f64 {
        self.turns.lock().unwrap().clear();
        self.time.advance(seconds(600));
        let turns = self.turns.lock().unwrap().clone();
        assert!(turns.len() >= CONNECTIONS - 1, "{turns:?}");
        assert!(turns.iter().all(|turn| is_near(*turn, turns[0])), "{turns:?}");
        turns[0]
    }
}

impl Drop for Retirements {
    fn drop(&mut self) {
        self.time.shut_down();
    }
}

/// The turn of number `n`: multiples of the golden ratio.
fn golden(n: u64) -> f64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) as f64 / 2f64.powi(64)
}

fn is_near(one: f64, other: f64) -> bool {
    let apart = (one - other).rem_euclid(1.0);
    apart.min(1.0 - apart) < 1e-6
}

#[test]
fn the_leases_say_whose_turn_it_is() {
    for number in [0, 1, 2, 199] {
        let turn = start(config(CONNECTIONS), &Numbered::new(Some(number))).turn();
        assert!(is_near(turn, golden(number)), "{number}: {turn}");
    }
}

#[test]
fn the_configuration_goes_before_the_leases() {
    let turn = start(config(CONNECTIONS).instance_index(4), &Numbered::new(Some(1))).turn();
    assert!(is_near(turn, golden(4)), "{turn}");
}

#[test]
fn without_a_number_turns_are_drawn_by_lot() {
    let turn = |seed| start(config(CONNECTIONS).seed(Seed::new(seed)), &Numbered::new(None)).turn();
    let turns = [turn(1), turn(2), turn(3)];
    assert!(!is_near(turns[0], turns[1]) && !is_near(turns[1], turns[2]), "{turns:?}");
    assert!(is_near(turn(1), turns[0]), "the same lot for the same seed");
}

#[test]
fn a_number_that_changes_moves_what_is_booked_from_then_on() {
    let leases = Numbered::new(Some(3));
    let retirements = start(config(CONNECTIONS), &leases);
    *leases.number.lock().unwrap() = Some(5);
    assert!(is_near(retirements.turn(), golden(3)), "what was booked stays");
    // Two pages of one reservoir may meet until those that were booked before are gone.
    retirements.time.advance(seconds(300));
    assert!(is_near(retirements.turn(), golden(5)));
    *leases.number.lock().unwrap() = None;
    assert!(is_near(retirements.turn(), golden(5)), "a number that is lost for a while changes nothing");
    let status = retirements.reservoir.status();
    assert_eq!(status.size(), CONNECTIONS, "{status:?}");
}
