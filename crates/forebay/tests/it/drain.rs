//! Closing: nothing is lost, nothing is left, and what could not finish is reported.

use forebay::memory::Answer;
use forebay::rt::Runtime;
use std::sync::Arc;

use forebay::{CheckoutError, Connect, ConnectionMonitor, Discard, OpenError, Reservoir};

use crate::support::{Store, World, config, millis, poll, seconds};

#[test]
fn a_drain_closes_everything_and_releases_every_lease() {
    let world = World::new();
    let reservoir = world.filled(config(40));
    let drained = world.time.run(reservoir.drain(seconds(10)));
    assert!(drained.is_complete(), "{drained:?}");
    assert_eq!((world.server.live(), world.leases.held()), (0, 0));
    assert_eq!(reservoir.status().counts.discards(Discard::Draining), 40);
    assert_eq!(world.heard("Closed"), 1);
    world.time.advance(seconds(600));
    assert_eq!(world.server.opened(), 40, "the refill has stopped");
}

#[test]
fn a_drain_under_load_waits_for_what_is_lent() {
    let world = World::new();
    let reservoir = world.filled(config(5));
    for worker in 0..20_u64 {
        let (reservoir, time) = (reservoir.clone(), world.time.clone());
        world.time.spawn(Box::pin(async move {
            loop {
                match reservoir.checkout().await {
                    Ok(_guard) => time.sleep_until(time.now() + millis(100 + worker)).await,
                    Err(CheckoutError::Closed) => return,
                    Err(error) => panic!("{error}"),
                }
            }
        }));
    }
    world.time.advance(seconds(10));
    assert_eq!((reservoir.status().in_use, reservoir.status().waiting), (5, 15));
    let start = world.time.now();
    let drained = world.time.run(reservoir.drain(seconds(10)));
    assert!(drained.is_complete(), "{drained:?}");
    assert!(world.time.now().since(start) <= millis(120), "as soon as the last one came back");
    drop(reservoir);
    world.assert_nothing_left();
}

#[test]
fn a_close_serves_nobody_and_waits_for_nothing() {
    let world = World::new();
    let reservoir = world.filled(config(2));
    let guard = reservoir.try_checkout().unwrap();
    let second = reservoir.try_checkout().unwrap();
    let mut waiting = Box::pin(reservoir.checkout());
    assert!(poll(&mut waiting).is_pending());
    let start = world.time.now();
    reservoir.close();
    reservoir.close();
    assert!(reservoir.status().closed && world.time.now() == start);
    assert!(matches!(reservoir.try_checkout(), Err(CheckoutError::Closed)));
    assert!(matches!(world.time.run(waiting), Err(CheckoutError::Closed)));
    drop((guard, second));
    world.assert_nothing_left();
}

#[test]
fn what_is_left_is_reported_and_a_second_drain_continues() {
    let world = World::new();
    let reservoir = world.filled(config(4));
    let guard = reservoir.try_checkout().unwrap();
    world.leases.answer(Store::Fail);
    let start = world.time.now();
    let drained = world.time.run(reservoir.drain(seconds(3)));
    assert_eq!(world.time.now().since(start), seconds(3));
    assert_eq!((drained.in_use, drained.closing, drained.is_complete()), (1, 3, false));
    drop(guard);
    world.leases.answer(Store::Well);
    let drained = world.time.run(reservoir.drain(seconds(60)));
    assert!(drained.is_complete(), "{drained:?}");
    assert_eq!(world.leases.held(), 0);
}

#[test]
fn a_connection_in_maintenance_at_the_close_is_closed_when_its_maintenance_ends() {
    let world = World::new();
    let reservoir = world.filled(config(1));
    world.server.on_reset(Answer::Hang);
    let mut guard = reservoir.try_checkout().unwrap();
    guard.make_dirty();
    drop(guard);
    world.time.settle();
    let drained = world.time.run(reservoir.drain(seconds(1)));
    assert_eq!((drained.other, drained.is_complete()), (1, false));
    assert!(world.time.run(reservoir.drain(seconds(10))).is_complete());
}

#[test]
fn dropping_the_last_handle_closes_what_is_ready_and_guards_stay_good() {
    let world = World::new();
    let reservoir = world.filled(config(3));
    let second = reservoir.clone();
    let guard = reservoir.try_checkout().unwrap().into_owned();
    drop(reservoir);
    assert_eq!(second.status().ready, 2, "a handle is left");
    drop(second);
    world.time.settle();
    assert_eq!(world.server.live(), 1);
    assert!(guard.is_alive());
    drop(guard);
    world.assert_nothing_left();
}

#[test]
fn closing_during_the_stagger_ends_the_tasks() {
    let world = World::new();
    let reservoir = world.start(config(1).startup_jitter(seconds(5)));
    world.time.settle();
    assert!(world.time.run(reservoir.drain(seconds(1))).is_complete());
    world.time.advance(seconds(60));
    assert_eq!(world.server.asked(), 0);
}

#[test]
fn waiting_for_a_fill_ends_with_the_reservoir() {
    let world = World::new();
    world.server.on_open(Answer::Hang);
    let reservoir = world.start(config(1));
    let mut filled = Box::pin(reservoir.filled(seconds(600)));
    assert!(poll(&mut filled).is_pending());
    let start = world.time.now();
    world.time.run(reservoir.drain(seconds(1)));
    assert!(!world.time.run(filled));
    assert_eq!(world.time.now().since(start), seconds(0));
}

/// A connector whose drop can be observed.
struct Counted(Arc<()>);

impl Connect for Counted {
    type Connection = Arc<()>;

    async fn open(&self, _: ConnectionMonitor) -> Result<Arc<()>, OpenError> {
        Ok(Arc::clone(&self.0))
    }
}

#[test]
fn after_the_end_the_tasks_are_gone_and_everything_is_freed() {
    let world = World::new();
    let counted = Arc::new(());
    let builder =
        Reservoir::builder(Counted(Arc::clone(&counted))).config(config(3)).runtime(world.time.clone());
    let reservoir = builder.observer(forebay::Logs::new()).start_empty().unwrap();
    world.time.advance(seconds(10));
    assert_eq!(Arc::strong_count(&counted), 5, "ours, the connector's and three connections");
    drop(reservoir);
    world.time.advance(seconds(2));
    assert_eq!(Arc::strong_count(&counted), 1);
}
