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

/// Sees a run while it goes on.
pub trait Watch {
    /// How one instance stands at a sample. Called for each instance in turn.
    fn row(&mut self, row: &Row<'_>) {
        let _ = row;
    }

    /// So much of the run is over. `Break` ends it here.
    fn progress(&mut self, passed: Duration) -> ControlFlow<()> {
        let _ = passed;
        ControlFlow::Continue(())
    }
}

/// Watches nothing.
impl Watch for () {}

/// Runs a scenario with another seed than its own, or its own.
///
/// Returns nothing if `watch` broke it off.
pub fn run(scenario: &Scenario, seed: u64, watch: &mut dyn Watch) -> Option<Outcome> {
    let world = World::new(Arc::new(scenario.clone()), Seed::new(seed));
    let fleet = Fleet::new(Arc::clone(&world));
    // Whatever ends the run, tasks and what they hold of each other are let go.
    let _end = ShutDown(&world);
    let theatre = director::direct(&fleet);
    let mut passed = Duration::ZERO;
    let mut next_sample = Duration::ZERO;
    // Often enough to be interrupted, and not so often that it costs.
    let longest_step = (scenario.duration / 100_000).max(Duration::from_secs(1));
    loop {
        if passed >= next_sample || passed >= scenario.duration {
            sample(&fleet, watch);
            next_sample += scenario.sample_every;
        }
        if watch.progress(passed).is_break() {
            return None;
        }
        if passed >= scenario.duration {
            break;
        }
        let step = longest_step.min(next_sample - passed).min(scenario.duration - passed);
        world.time.advance(step);
        passed += step;
    }
    world.books.lock().finish(world.now());
    theatre.kill();
    close_down(&fleet);
    Some(Outcome::of(&world, seed))
}

struct ShutDown<'a>(&'a Arc<World>);

impl Drop for ShutDown<'_> {
    fn drop(&mut self) {
        self.0.time.shut_down();
    }
}

/// Drains every instance, and looks at what is left.
fn close_down(fleet: &Arc<Fleet>) {
    let world = &fleet.world;
    fleet.close();
    // Nothing goes wrong any more: what is left over then is left over for ever.
    world.cluster.lock().behave();
    world.credentials.lock().outages = 0;
    world.table.behave();
    // Who stands still could not close anything.
    (0..fleet.len()).for_each(|place| fleet.resume(place));
    let unfinished = Arc::new(Mutex::new(Vec::new()));
    for place in 0..fleet.len() {
        let dropped = world.cluster.lock().reconnect(place);
        world.tell(dropped);
        let (fleet, unfinished) = (Arc::clone(fleet), Arc::clone(&unfinished));
        let patient = world.scenario.services[place].workload.longest_hold() < DRAIN;
        world.time.spawn(Box::pin(async move {
            if let Some(left) = fleet.stop(place).await.filter(|_| patient) {
                unfinished.lock().push(left);
            }
        }));
    }
    let lease = world.scenario.leases.map_or(Duration::ZERO, |leases| leases.length);
    // What the dead have left is there until somebody takes it; here is nobody any more.
    let of_the_dead = world.roll.lock().of_the_dead();
    world.time.advance(DRAIN + LEAVE + lease + Duration::from_secs(60));
    let sessions = world.cluster.lock().live();
    let leases = world.roll.lock().held().saturating_sub(of_the_dead);
    let unfinished = std::mem::take(&mut *unfinished.lock());
    world.books.lock().judge.left_over(world.now(), sessions, leases, unfinished);
}

fn sample(fleet: &Arc<Fleet>, watch: &mut dyn Watch) {
    let world = &fleet.world;
    let gauges = fleet.gauges();
    world.look_for_the_dead();
    let now = world.now();
    let oldest: Vec<Duration> = {
        let books = world.books.lock();
        (0..fleet.len()).map(|place| books.judge.oldest(place)).collect()
    };
    let aged = world.cluster.lock().older_than(now, |place| oldest[place]);
    {
        let mut books = world.books.lock();
        books.judge.tick(now);
        aged.into_iter().for_each(|(place, age)| books.judge.aged(place, now, age));
        books.record.sample(now, gauges);
    }
    for (place, service) in world.scenario.services.iter().enumerate() {
        let standing = fleet.standing(place);
        let work = world.books.lock().work[place];
        watch.row(&Row { wall: world.time.wall(), service, standing: &standing, work: &work });
    }
}
