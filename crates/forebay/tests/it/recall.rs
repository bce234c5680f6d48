//! Recalled leases: their connections are closed, even while callers use them.

use forebay::memory::Answer;
use forebay::{CheckoutError, Discard, Failure};

use crate::support::{Store, World, config, millis, poll, seconds};

#[test]
fn a_recall_discards_ready_connections_and_closes_lent_ones_at_once() {
    let world = World::new();
    let reservoir = world.filled(config(5));
    let (one, other) = (reservoir.try_checkout().unwrap(), reservoir.try_checkout().unwrap().into_owned());
    // No new lease is granted, as when the store is unreachable.
    world.leases.answer(Store::Fail);
    world.server.on_close(Answer::Hang);
    world.leases.recall_all();
    assert!(!one.is_alive() && !other.is_alive(), "closed under their callers");
    assert!(one.is_due());
    world.time.settle();
    assert_eq!((world.server.live(), reservoir.status().ready), (3, 0), "those that were ready say good-bye");
    assert!(matches!(reservoir.try_checkout(), Err(CheckoutError::Empty { .. })));
    world.time.advance(seconds(6));
    assert_eq!(world.server.live(), 0);
    drop((one, other));
    world.time.advance(seconds(6));
    let counts = reservoir.status().counts;
    assert_eq!((counts.discards(Discard::Recalled), counts.all_discards()), (5, 5), "{counts:?}");

    world.server.on_close(Answer::Well);
    world.leases.answer(Store::Well);
    world.time.advance(seconds(30));
    assert_eq!((reservoir.status().ready, world.server.live(), world.leases.held()), (5, 5, 5));
    drop(reservoir);
    world.assert_nothing_left();
}

#[test]
fn a_connection_on_its_way_is_given_up() {
    let world = World::new();
    world.server.open_time(seconds(3));
    let reservoir = world.start(config(2));
    world.time.advance(seconds(1));
    assert_eq!((reservoir.status().opening, world.leases.held()), (2, 2));
    world.leases.answer(Store::Fail);
    world.leases.recall_all();
    world.time.settle();
    assert_eq!(reservoir.status().opening, 0);
    assert_eq!(reservoir.status().counts.failures(Failure::Lease), 2);
    world.leases.answer(Store::Well);
    world.time.advance(seconds(20));
    assert_eq!((reservoir.status().ready, world.leases.held()), (2, 2));
    drop(reservoir);
    world.assert_nothing_left();
}

#[test]
fn one_that_was_not_picked_up_or_is_in_maintenance_is_not_lent_again() {
    let world = World::new();
    let reservoir = world.filled(config(2));
    let mut dirty = reservoir.try_checkout().unwrap();
    let held = reservoir.try_checkout().unwrap();
    let mut waiting = Box::pin(reservoir.checkout().within(seconds(60)));
    assert!(poll(&mut waiting).is_pending());
    drop(held);
    dirty.make_dirty();
    world.server.on_reset(Answer::Hang);
    drop(dirty);
    assert_eq!(reservoir.status().in_maintenance, 1);
    world.leases.recall_all();
    // The waiter was served, and the connection is useless.
    assert!(poll(&mut waiting).is_pending());
    world.time.advance(seconds(6));
    assert_eq!(reservoir.status().counts.discards(Discard::Recalled), 2);
    let got = world.time.run(waiting).unwrap();
    assert!(got.is_alive() && got.id() >= 2, "a new one");
    drop(got);
    drop(reservoir);
    world.assert_nothing_left();
}

#[test]
fn a_detached_connection_is_recalled_too() {
    let world = World::new();
    let reservoir = world.filled(config(1));
    let detached = reservoir.try_checkout().unwrap().detach();
    drop(reservoir);
    world.time.advance(millis(10));
    assert!(detached.connection.is_alive());
    world.leases.recall_all();
    assert!(!detached.connection.is_alive());
    drop(detached);
    world.assert_nothing_left();
}

#[test]
fn a_recall_that_comes_late_or_twice_changes_nothing() {
    let world = World::new();
    let reservoir = world.filled(config(1));
    let mut guard = reservoir.try_checkout().unwrap();
    guard.mark_bad();
    world.server.on_close(Answer::Hang);
    drop(guard);
    world.leases.recall_all();
    world.leases.recall_all();
    world.time.settle();
    assert_eq!(reservoir.status().counts.discards(Discard::Bad), 1);
    assert_eq!(reservoir.status().counts.discards(Discard::Recalled), 0);
    world.server.on_close(Answer::Well);
    world.time.advance(seconds(10));
    assert_eq!((reservoir.status().ready, world.leases.held()), (1, 1));
    drop(reservoir);
    world.assert_nothing_left();
}
