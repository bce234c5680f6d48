//! Leases: acquired before a connection is opened, released once, after it is closed.

use forebay::memory::Answer;
use forebay::{CheckoutError, Failure};

use crate::support::{Store, World, config, millis, seconds};

#[test]
fn every_connection_has_a_lease_and_every_lease_goes_back() {
    let world = World::new();
    let reservoir = world.filled(config(5));
    assert_eq!(world.leases.held(), 5);
    drop(reservoir);
    world.assert_nothing_left();
    assert_eq!(world.leases.taken(), 5);
}

#[test]
fn a_release_is_tried_until_the_store_agrees() {
    for answer in [Store::Fail, Store::Hang] {
        let world = World::new();
        let reservoir = world.filled(config(1));
        let mut guard = reservoir.try_checkout().unwrap();
        guard.mark_bad();
        drop(guard);
        world.leases.answer(answer);
        world.time.advance(seconds(60));
        assert_eq!((world.server.live(), world.leases.held()), (0, 1), "closed, not yet released");
        assert_eq!(reservoir.status().closing, 1);
        let tries = world.heard("LeaseReleaseFailed");
        assert!((4..=14).contains(&tries), "{answer:?}: {tries} tries in a minute");
        world.leases.answer(Store::Well);
        world.time.advance(seconds(16));
        assert_eq!(
            (reservoir.status().closing, world.leases.held()),
            (0, 1),
            "released, and the new one taken"
        );
        drop(reservoir);
        world.assert_nothing_left();
    }
}

#[test]
fn giving_back_does_not_wait_for_the_store() {
    let world = World::new();
    let reservoir = world.filled(config(2).close_timeout(seconds(5)));
    world.leases.answer(Store::Hang);
    world.server.on_close(Answer::Hang);
    let mut guard = reservoir.try_checkout().unwrap();
    guard.mark_bad();
    // Neither the close nor the release can finish. The drop returns all the same, and the other connection
    // is ready.
    drop(guard);
    assert!(reservoir.try_checkout().is_ok());
}

#[test]
fn at_the_lease_limit_the_error_of_callers_says_so() {
    let world = World::with_lease_limit(2);
    let reservoir = world.start(config(3).low_watermark(1));
    world.time.advance(seconds(1));
    assert_eq!((reservoir.status().size(), world.server.peak()), (2, 2));
    let held = [reservoir.try_checkout().unwrap(), reservoir.try_checkout().unwrap()];
    let error = world.time.run(reservoir.checkout()).unwrap_err();
    assert!(matches!(error, CheckoutError::Empty { .. }), "{error}");
    assert!(
        error.to_string().contains("all 2 leases are held; a connection must be closed first"),
        "{error}"
    );
    assert!(reservoir.status().counts.failures(Failure::LeaseLimit) > 0);
    drop(held);
}

#[test]
fn a_lease_store_that_hangs_does_not_hold_the_refill_for_ever() {
    let world = World::new();
    world.leases.answer(Store::Hang);
    let reservoir = world.start(config(1).open_timeout(seconds(10)));
    world.time.advance(seconds(11));
    assert_eq!(reservoir.status().counts.failures(Failure::Lease), 1);
    world.leases.answer(Store::Well);
    world.time.advance(seconds(30));
    assert_eq!(reservoir.status().size(), 1);
}

#[test]
fn a_detached_connection_takes_its_lease_along() {
    let world = World::new();
    let reservoir = world.filled(config(2));
    let detached = reservoir.try_checkout().unwrap().detach();
    let owned = reservoir.try_checkout().unwrap().into_owned().detach();
    assert!(detached.lease.is_some());
    assert_eq!(reservoir.status().owned(), 0, "no longer the reservoir's");
    world.time.settle();
    let status = reservoir.status();
    assert_eq!(
        (status.ready, status.counts.detached, world.leases.held()),
        (2, 2, 4),
        "and others take their place"
    );
    drop(detached);
    world.time.settle();
    assert_eq!((world.leases.held(), world.server.live()), (3, 3));
    let lease = owned.lease.unwrap();
    let id = lease.id().clone();
    drop(owned.connection);
    world.time.run(lease.release());
    assert!(id.as_str().parse::<u64>().is_ok());
    assert_eq!(world.leases.held(), 2);
    let last = world.time.run(reservoir.checkout()).unwrap().detach();
    drop(reservoir);
    world.time.advance(millis(10));
    assert_eq!((world.leases.held(), world.server.live()), (1, 1), "it outlives the reservoir");
    drop(last);
    world.assert_nothing_left();
}

#[test]
fn an_open_that_fails_gives_its_lease_back() {
    let world = World::new();
    world.server.on_open(Answer::Fail(Failure::Open));
    let reservoir = world.start(config(3));
    world.time.settle();
    assert!(world.leases.taken() >= 3);
    assert_eq!(world.leases.held(), 0);
    drop(reservoir);
    world.assert_nothing_left();
}

#[test]
fn without_a_lease_store_there_is_nothing_to_release() {
    let world = World::new();
    let reservoir = forebay::Reservoir::builder(world.server.clone())
        .config(config(1))
        .runtime(world.time.clone())
        .start_empty()
        .unwrap();
    assert!(world.time.run(reservoir.filled(seconds(1))));
    assert!(world.time.run(reservoir.checkout()).unwrap().detach().lease.is_none());
    assert!(world.time.run(reservoir.drain(seconds(1))).is_complete());
}
