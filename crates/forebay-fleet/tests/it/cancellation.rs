//! Drops every public future at each of its awaits. Nothing is lost, and nothing stays behind.

use std::sync::Arc;
use std::time::Duration;

use forebay::Seed;
use forebay::rt::VirtualTime;
use forebay_fleet::{
    Faults, FaultyTable, Fleet, FleetSettings, LeaseMode, MemoryTable, RateMode, Tables, operator,
};

use crate::support::{ENDPOINT, bucket, leases, poll, seconds, settings};

struct Scene {
    time: VirtualTime,
    table: MemoryTable,
    faulty: Arc<FaultyTable>,
    settings: FleetSettings,
}

fn scene(mode: LeaseMode, limit: u64) -> Scene {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let faulty = Arc::new(FaultyTable::new(table.clone(), time.clone(), Seed::new(1)));
    let latency = (Duration::from_millis(10), Duration::from_millis(10));
    faulty.set(Faults { latency, ..Faults::default() });
    let mut settings = settings();
    settings.leases = Some(leases(mode, limit));
    settings.rate = Some(bucket(RateMode::Bucket, 10, 30));
    settings.max_open = 4;
    Scene { time, table, faulty, settings }
}

impl Scene {
    fn fleet(&self) -> Fleet {
        let tables = Tables { leases: Arc::clone(&self.faulty) as _, rate: Arc::clone(&self.faulty) as _ };
        let start = Fleet::start(self.settings.clone(), tables, self.time.clone(), Seed::new(2));
        self.time.run(start).unwrap()
    }

    /// Polls a future for `millis` and drops it. Returns whether it was done.
    fn drop_after<T>(&self, millis: u64, future: impl Future<Output = T>) -> Option<T> {
        let mut future = Box::pin(future);
        for _ in 0..=millis {
            if let std::task::Poll::Ready(output) = poll(&mut future) {
                return Some(output);
            }
            self.time.advance(Duration::from_millis(1));
        }
        None
    }
}

#[test]
fn a_lease_whose_caller_gives_up_is_not_lost() {
    for mode in [LeaseMode::Ledger, LeaseMode::Counter] {
        for millis in 0..60 {
            let scene = scene(mode, 4);
            let fleet = scene.fleet();
            let leases = fleet.leases().unwrap();
            let done = scene.drop_after(millis, leases.acquire());
            if let Some(lease) = done {
                scene.time.run(leases.release(&lease.unwrap())).unwrap();
            }
            scene.time.advance(seconds(60));
            for _ in 0..4 {
                scene
                    .time
                    .run(leases.acquire())
                    .unwrap_or_else(|error| panic!("{mode:?}, {millis} ms: {error}"));
            }
            scene.time.shut_down();
        }
    }
}

#[test]
fn a_release_whose_caller_gives_up_can_be_repeated() {
    for mode in [LeaseMode::Ledger, LeaseMode::Counter] {
        for millis in 0..30 {
            let scene = scene(mode, 4);
            let fleet = scene.fleet();
            let leases = fleet.leases().unwrap();
            let held: Vec<_> = (0..4).map(|_| scene.time.run(leases.acquire()).unwrap()).collect();
            scene.drop_after(millis, leases.release(&held[0]));
            scene.time.run(leases.release(&held[0])).unwrap();
            scene.time.advance(seconds(5));
            scene.time.run(leases.acquire()).unwrap();
            assert!(scene.time.run(leases.acquire()).is_err(), "{mode:?}, {millis} ms: released twice");
            scene.time.shut_down();
        }
    }
}

#[test]
fn a_permit_whose_caller_gives_up_is_there_for_the_next() {
    for millis in 0..60 {
        let mut scene = scene(LeaseMode::Ledger, 4);
        scene.settings.leases = None;
        let fleet = scene.fleet();
        let limit = fleet.limit().unwrap();
        // A burst of five: thirty, less the reserve.
        if let Some(permit) = scene.drop_after(millis, limit.acquire()) {
            drop(permit.unwrap());
        }
        let began = forebay::rt::Runtime::now(&scene.time);
        for _ in 0..5 {
            scene.time.run(limit.acquire()).unwrap().spend();
        }
        let took = forebay::rt::Runtime::now(&scene.time).since(began);
        assert!(took < Duration::from_millis(150), "{millis} ms: {took:?}");
        scene.time.shut_down();
    }
}

#[test]
fn joining_and_leaving_can_be_given_up() {
    for mode in [LeaseMode::Ledger, LeaseMode::Counter] {
        for millis in 0..60 {
            let scene = scene(mode, 40);
            let tables =
                Tables { leases: Arc::clone(&scene.faulty) as _, rate: Arc::clone(&scene.faulty) as _ };
            let start = Fleet::start(scene.settings.clone(), tables, scene.time.clone(), Seed::new(2));
            let started = scene.drop_after(millis, start);
            if started.is_none() {
                scene.time.advance(seconds(1));
                assert!(scene.table.items().is_empty(), "nothing is written before it has started");
            }
            drop(started);
            let fleet = scene.fleet();
            scene.drop_after(millis, fleet.node());
            scene.time.advance(seconds(5));
            scene.drop_after(millis, fleet.leave(seconds(5)));
            scene.time.advance(seconds(5));
            assert!(
                scene.time.run(fleet.leave(seconds(5))),
                "{mode:?}, {millis} ms: it went on in the background"
            );
            let survey = scene.time.run(operator::survey(&*scene.faulty, &scene.time, ENDPOINT)).unwrap();
            assert!(survey.is_exact() && survey.instances.is_empty(), "{survey:?}");
            scene.time.shut_down();
        }
    }
}

#[test]
fn operator_functions_can_be_dropped_and_run_again() {
    for millis in (0..260).step_by(7) {
        let scene = scene(LeaseMode::Ledger, 40);
        let fleet = scene.fleet();
        scene.time.advance(seconds(5));
        let (table, time, instance) = (&*scene.faulty, &scene.time, fleet.status().instance);
        scene.drop_after(millis, operator::survey(table, time, ENDPOINT));
        scene.drop_after(millis, operator::resize(table, time, ENDPOINT, 80));
        scene.drop_after(millis, operator::evict(table, time, ENDPOINT, &instance));
        scene.drop_after(millis, operator::reconcile(table, time, ENDPOINT, seconds(60)));
        scene.drop_after(millis, operator::reset(table, time, ENDPOINT));
        scene.time.advance(seconds(90));
        let survey = time.run(operator::survey(table, time, ENDPOINT)).unwrap();
        assert!(survey.is_exact() && !survey.instances.is_empty(), "{survey:?}");
        scene.time.shut_down();
    }
}
