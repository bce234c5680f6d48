//! The callers of an instance: each one comes, waits for a connection, holds it for a while and returns it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay::rt::{Runtime, VirtualProcess};
use forebay::{CheckoutError, Reservoir, Rng};

use crate::events::{FailedCheckout, ServedCheckout};
use crate::latency::{exponential, fraction};
use crate::scenario::{Arrivals, Workload};
use crate::world::{ClusterConnector, World};

/// The callers of one process.
pub(crate) struct CallerPool {
    world: Arc<World>,
    instance: usize,
    pub(crate) reservoir: Reservoir<ClusterConnector>,
    stopping: AtomicBool,
    arrived: AtomicU64,
    active: AtomicU64,
}

impl CallerPool {
    pub(crate) fn new(world: Arc<World>, instance: usize, reservoir: Reservoir<ClusterConnector>) -> Self {
        Self {
            world,
            instance,
            reservoir,
            stopping: AtomicBool::new(false),
            arrived: AtomicU64::new(0),
            active: AtomicU64::new(0),
        }
    }

    /// Accepts no more callers.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// How many callers wait for a connection or hold one.
    pub(crate) fn active(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }

    fn workload(&self) -> &Workload {
        &self.world.scenario.services[self.instance].workload
    }

    /// Spawns callers until the instance stops.
    pub(crate) async fn generate(self: Arc<Self>, runtime: VirtualProcess, mut rng: Rng) {
        let world = Arc::clone(&self.world);
        let workload = self.workload().clone();
        let peak = workload.surge_times.max(1.0);
        loop {
            let (pause, batch) = match workload.arrivals {
                Arrivals::Batches { every, size } => (every, size),
                Arrivals::Poisson { per_second } => (exponential(per_second * peak, &mut rng), 1),
            };
            world.pass(pause.max(Duration::from_nanos(1))).await;
            if self.stopping.load(Ordering::Relaxed) {
                return;
            }
            let intensity = intensity(&workload, world.now().since(world.start));
            let chance = match workload.arrivals {
                Arrivals::Batches { .. } => intensity,
                // Arrivals are drawn at the peak rate, and then thinned.
                Arrivals::Poisson { .. } => intensity / peak,
            };
            for _ in 0..batch {
                if chance < 1.0 && fraction(&mut rng) >= chance {
                    continue;
                }
                if workload.max_in_use > 0 && self.active() >= workload.max_in_use as u64 {
                    break;
                }
                let hold = workload.hold_time + rng.up_to(workload.hold_jitter);
                self.active.fetch_add(1, Ordering::Relaxed);
                runtime.spawn(Box::pin(Arc::clone(&self).call(hold)));
            }
        }
    }

    async fn call(self: Arc<Self>, hold: Duration) {
        let (world, instance) = (&self.world, self.instance);
        let number = self.arrived.fetch_add(1, Ordering::Relaxed) + 1;
        let arrived = world.now();
        let came_short = world.events.lock().work_started(instance);
        let max_wait = self.workload().max_wait;
        let checkout = self.reservoir.checkout();
        let checkout = if max_wait.is_zero() { checkout } else { checkout.within(max_wait) };
        match checkout.await {
            Ok(connection) => {
                let (now, session) = (world.now(), connection.session());
                let served = ServedCheckout {
                    number,
                    session,
                    came_short,
                    waited: now.since(arrived),
                    age: connection.true_age(now),
                    remaining: connection.remaining(),
                    alive: connection.is_alive() || world.cluster.lock().is_cut_off(instance),
                };
                world.events.lock().served(instance, now, &served);
                world.pass(hold).await;
                let broken = !connection.is_alive();
                drop(connection);
                world.events.lock().returned(instance, world.now(), session, broken);
            }
            // The instance is stopping: a load balancer would send this caller elsewhere.
            Err(CheckoutError::Closed) if self.stopping.load(Ordering::Relaxed) => {}
            Err(error) => {
                let now = world.now();
                let failed = FailedCheckout { number, came_short, waited: now.since(arrived), error: &error };
                world.events.lock().checkout_failed(instance, now, &failed);
            }
        }
        self.active.fetch_sub(1, Ordering::Relaxed);
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
    // No surge at the very start, when no connection can be ready.
    if at >= workload.surge_every && into_surge < workload.surge_length.as_nanos() {
        share *= workload.surge_times;
    }
    share
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
