//! What an instance's callers do: they come, wait, hold a connection for a while and give it back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay::rt::{Runtime, VirtualProcess};
use forebay::{CheckoutError, Reservoir, Rng};

use crate::books::{Loan, Plight};
use crate::latency::{exponential, fraction};
use crate::scenario::{Arrivals, Workload};
use crate::world::{Link, World};

/// The callers of one incarnation of an instance.
pub(crate) struct Shift {
    world: Arc<World>,
    place: usize,
    pub(crate) reservoir: Reservoir<Link>,
    stopping: AtomicBool,
    came: AtomicU64,
    at_work: AtomicU64,
}

impl Shift {
    pub(crate) fn new(world: Arc<World>, place: usize, reservoir: Reservoir<Link>) -> Self {
        Self {
            world,
            place,
            reservoir,
            stopping: AtomicBool::new(false),
            came: AtomicU64::new(0),
            at_work: AtomicU64::new(0),
        }
    }

    /// Takes no more work.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// How many callers wait or use a connection.
    pub(crate) fn at_work(&self) -> u64 {
        self.at_work.load(Ordering::Relaxed)
    }

    fn workload(&self) -> &Workload {
        &self.world.scenario.services[self.place].workload
    }
}

/// Brings work until the instance stops.
pub(crate) async fn generate(shift: Arc<Shift>, runtime: VirtualProcess, mut rng: Rng) {
    let world = Arc::clone(&shift.world);
    let workload = shift.workload().clone();
    let most = workload.surge_times.max(1.0);
    loop {
        let (pause, batch) = match workload.arrivals {
            Arrivals::Batches { every, size } => (every, size),
            Arrivals::Poisson { per_second } => (exponential(per_second * most, &mut rng), 1),
        };
        world.pass(pause.max(Duration::from_nanos(1))).await;
        if shift.stopping.load(Ordering::Relaxed) {
            return;
        }
        let share = intensity(&workload, world.now().since(world.start));
        let chance = match workload.arrivals {
            Arrivals::Batches { .. } => share,
            // Drawn at the highest rate there is, and thinned out.
            Arrivals::Poisson { .. } => share / most,
        };
        for _ in 0..batch {
            if chance < 1.0 && fraction(&mut rng) >= chance {
                continue;
            }
            if workload.max_in_use > 0 && shift.at_work.load(Ordering::Relaxed) >= workload.max_in_use as u64
            {
                break;
            }
            let hold = workload.hold_time + rng.up_to(workload.hold_jitter);
            shift.at_work.fetch_add(1, Ordering::Relaxed);
            runtime.spawn(Box::pin(work(Arc::clone(&shift), hold)));
        }
    }
}

/// The load at this time after midnight, as a share of its daily peak; above one in a surge.
fn intensity(workload: &Workload, at: Duration) -> f64 {
    let day = 24.0 * 3600.0;
    let mut share = 1.0;
    if workload.daily_low < 1.0 {
        let angle = std::f64::consts::TAU * (at.as_secs_f64() - workload.daily_peak.as_secs_f64()) / day;
        share = workload.daily_low + (1.0 - workload.daily_low) * (1.0 + libm::cos(angle)) / 2.0;
    }
    let into_surge = at.as_nanos() % workload.surge_every.as_nanos();
    // Not at the very start, when nothing could be ready.
    if at >= workload.surge_every && into_surge < workload.surge_length.as_nanos() {
        share *= workload.surge_times;
    }
    share
}

async fn work(shift: Arc<Shift>, hold: Duration) {
    let (world, place) = (&shift.world, shift.place);
    let number = shift.came.fetch_add(1, Ordering::Relaxed) + 1;
    let came = world.now();
    let came_short = world.books.lock().work_started(place);
    let max_wait = shift.workload().max_wait;
    let checkout = shift.reservoir.checkout();
    let checkout = if max_wait.is_zero() { checkout } else { checkout.within(max_wait) };
    match checkout.await {
        Ok(connection) => {
            let (now, session) = (world.now(), connection.session());
            let loan = Loan {
                number,
                session,
                came_short,
                waited: now.since(came),
                age: connection.true_age(now),
                remaining: connection.remaining(),
                alive: connection.is_alive() || world.cluster.lock().is_cut_off(place),
            };
            world.books.lock().lent(place, now, &loan);
            world.pass(hold).await;
            let broken = !connection.is_alive();
            drop(connection);
            world.books.lock().returned(place, world.now(), session, broken);
        }
        // Whoever comes too late to an instance that stops is sent elsewhere.
        Err(CheckoutError::Closed) if shift.stopping.load(Ordering::Relaxed) => {}
        Err(error) => {
            let now = world.now();
            let plight = Plight { number, came_short, waited: now.since(came), error: &error };
            world.books.lock().checkout_failed(place, now, &plight);
        }
    }
    shift.at_work.fetch_sub(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn workload(text: &str) -> Workload {
        let file = format!("services: [{{name: a, workload: {text}}}]");
        Scenario::parse("test", &file, &[]).unwrap().services[0].workload.clone()
    }

    fn hours(n: u64) -> Duration {
        Duration::from_secs(3600 * n)
    }

    #[test]
    fn the_day_has_a_peak_and_a_low() {
        let workload = workload("{daily: {low: 0.2, peakAt: 15h}}");
        assert!((intensity(&workload, hours(15)) - 1.0).abs() < 1e-9);
        assert!((intensity(&workload, hours(3)) - 0.2).abs() < 1e-9);
        assert!((intensity(&workload, hours(9)) - 0.6).abs() < 1e-9);
    }

    #[test]
    fn surges_come_and_go() {
        let workload = workload("{surge: {times: 4, every: 1h, length: 1m}}");
        assert!((intensity(&workload, Duration::ZERO) - 1.0).abs() < 1e-9, "not at the start");
        assert!((intensity(&workload, hours(2) + Duration::from_secs(59)) - 4.0).abs() < 1e-9);
        assert!((intensity(&workload, hours(2) + Duration::from_secs(60)) - 1.0).abs() < 1e-9);
    }
}
