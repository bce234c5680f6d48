//! One run of a scenario, from the first start to the last close.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use forebay::Seed;
use forebay::rt::Runtime;
use parking_lot::Mutex;

use crate::director;
use crate::fleet::{DRAIN, Fleet, LEAVE};
use crate::outcome::Outcome;
use crate::row::Row;
use crate::scenario::Scenario;
use crate::world::World;

/// Receives samples and progress during a run, and can stop it.
pub trait RunObserver {
    /// Called once per instance at each sample.
    fn row(&mut self, row: &Row<'_>) {
        let _ = row;
    }

    /// Called after each step with the virtual time that has passed. `Break` stops the run.
    fn progress(&mut self, passed: Duration) -> ControlFlow<()> {
        let _ = passed;
        ControlFlow::Continue(())
    }
}

/// Ignores everything.
impl RunObserver for () {}

/// Runs a scenario with the given seed, which may differ from the scenario's own.
///
/// Returns `None` if `observer` stopped the run.
pub fn run(scenario: &Scenario, seed: u64, observer: &mut dyn RunObserver) -> Option<Outcome> {
    let world = World::new(Arc::new(scenario.clone()), Seed::new(seed));
    let fleet = Fleet::new(Arc::clone(&world));
    // Tasks hold references to each other: shut down on every exit, panics included.
    let _shutdown = ShutDown(&world);
    let director = director::start(&fleet);
    let mut passed = Duration::ZERO;
    let mut next_sample = Duration::ZERO;
    // Short enough for a prompt interrupt, long enough to cost nothing.
    let longest_step = (scenario.duration / 100_000).max(Duration::from_secs(1));
    loop {
        if passed >= next_sample || passed >= scenario.duration {
            sample(&fleet, observer);
            next_sample += scenario.sample_every;
        }
        if observer.progress(passed).is_break() {
            return None;
        }
        if passed >= scenario.duration {
            break;
        }
        let step = longest_step.min(next_sample - passed).min(scenario.duration - passed);
        world.time.advance(step);
        passed += step;
    }
    world.events.lock().finish(world.now());
    director.kill();
    close_down(&fleet);
    Some(Outcome::of(&world, seed))
}

struct ShutDown<'a>(&'a Arc<World>);

impl Drop for ShutDown<'_> {
    fn drop(&mut self) {
        self.0.time.shut_down();
    }
}

/// Drains every instance without any fault, and reports leaks to the judge.
fn close_down(fleet: &Arc<Fleet>) {
    let world = &fleet.world;
    fleet.close();
    world.cluster.lock().clear_faults();
    world.credentials.lock().outages = 0;
    world.table.clear_faults();
    // A paused instance could not close anything.
    (0..fleet.len()).for_each(|instance| fleet.resume(instance));
    let unfinished = Arc::new(Mutex::new(Vec::new()));
    for instance in 0..fleet.len() {
        let dropped = world.cluster.lock().reconnect(instance);
        world.notify_clients(dropped);
        let (fleet, unfinished) = (Arc::clone(fleet), Arc::clone(&unfinished));
        let can_drain = world.scenario.services[instance].workload.longest_hold() < DRAIN;
        world.time.spawn(Box::pin(async move {
            if let Some(left) = fleet.stop(instance).await.filter(|_| can_drain) {
                unfinished.lock().push(left);
            }
        }));
    }
    let lease = world.scenario.leases.map_or(Duration::ZERO, |leases| leases.length);
    // Slots of crashed instances stay: nobody is left to reap them.
    let held_by_dead = world.lease_audit.lock().held_by_dead();
    world.time.advance(DRAIN + LEAVE + lease + Duration::from_secs(60));
    let sessions = world.cluster.lock().live();
    let leases = world.lease_audit.lock().held().saturating_sub(held_by_dead);
    let unfinished = std::mem::take(&mut *unfinished.lock());
    world.events.lock().judge.left_over(world.now(), sessions, leases, unfinished);
}

fn sample(fleet: &Arc<Fleet>, observer: &mut dyn RunObserver) {
    let world = &fleet.world;
    let gauges = fleet.gauges();
    world.check_dead_holders();
    let now = world.now();
    let oldest: Vec<Duration> = {
        let events = world.events.lock();
        (0..fleet.len()).map(|instance| events.judge.oldest(instance)).collect()
    };
    let aged = world.cluster.lock().older_than(now, |instance| oldest[instance]);
    {
        let mut events = world.events.lock();
        events.judge.tick(now);
        aged.into_iter().for_each(|(instance, age)| events.judge.aged(instance, now, age));
        events.sampler.sample(now, gauges);
    }
    for (instance, service) in world.scenario.services.iter().enumerate() {
        let status = fleet.instance_status(instance);
        let work = world.events.lock().work[instance];
        observer.row(&Row { wall: world.time.wall(), service, status: &status, work: &work });
    }
}
