//! One run of a scenario, from the first start to the last close.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use forebay::Seed;
use forebay::rt::Runtime;

use crate::director;
use crate::fleet::{DRAIN, Fleet};
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
    director::direct(&fleet);
    let mut passed = Duration::ZERO;
    loop {
        sample(&fleet, watch);
        if watch.progress(passed).is_break() {
            return None;
        }
        if passed >= scenario.duration {
            break;
        }
        let step = scenario.sample_every.min(scenario.duration - passed);
        world.time.advance(step);
        passed += step;
    }
    world.books.lock().finish(world.now());
    close_down(&fleet);
    Some(Outcome::of(&world, seed))
}

struct ShutDown<'a>(&'a Arc<World>);

impl Drop for ShutDown<'_> {
    fn drop(&mut self) {
        self.0.time.shut_down();
    }
}

/// Drains every instance, waits until leases of the dead have run out, and looks at what is left.
fn close_down(fleet: &Arc<Fleet>) {
    let world = &fleet.world;
    for place in 0..fleet.len() {
        // Who cannot reach anybody cannot close anything either.
        world.cluster.lock().reconnect(place);
        let fleet = Arc::clone(fleet);
        world.time.spawn(Box::pin(async move { fleet.stop(place).await }));
    }
    let lease = world.scenario.leases.map_or(Duration::ZERO, |leases| leases.length);
    world.time.advance(DRAIN + lease + Duration::from_secs(60));
    let sessions = world.cluster.lock().reachable();
    let leases = fleet.ledger.as_ref().map_or(0, |ledger| ledger.held());
    world.books.lock().judge.left_over(world.now(), sessions, leases);
}

fn sample(fleet: &Arc<Fleet>, watch: &mut dyn Watch) {
    let world = &fleet.world;
    let gauges = fleet.gauges();
    let now = world.now();
    {
        let mut books = world.books.lock();
        books.judge.tick(now);
        books.record.sample(now, gauges);
    }
    for (place, service) in world.scenario.services.iter().enumerate() {
        let standing = fleet.standing(place);
        let work = world.books.lock().work[place];
        watch.row(&Row { wall: world.time.wall(), service, standing: &standing, work: &work });
    }
}
