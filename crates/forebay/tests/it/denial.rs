//! A server that denies access: callers and starts fail at once, and recover once access is granted.

use std::sync::Arc;
use std::task::Poll;

use forebay::memory::Answer;
use forebay::rt::Runtime;
use forebay::{CheckoutError, CheckoutFailure, Failure, Leases, Reservoir};

use crate::support::{Store, World, config, millis, poll, seconds};

#[test]
fn a_start_waits_no_longer_once_access_is_denied() {
    let world = World::new();
    world.server.on_open(Answer::Deny);
    world.server.open_time(seconds(1));
    let start = world.time.now();
    let config = config(2).low_watermark(1).fill_timeout(seconds(30));
    let builder = Reservoir::builder(world.server.clone()).config(config).runtime(world.time.clone());
    let reservoir = world.time.run(builder.start()).unwrap();
    assert_eq!(world.time.now().since(start), seconds(1));
    assert!(reservoir.denial().is_some_and(|denial| denial.failure() == Failure::Auth));
    // The role is granted.
    world.server.on_open(Answer::Well);
    assert!(world.time.run(reservoir.filled(seconds(60))), "it goes on trying");
    assert!(reservoir.denial().is_none());
}

#[test]
fn a_permanent_failure_fails_callers_at_once() {
    let world = World::new();
    world.server.on_open(Answer::Deny);
    world.server.open_time(seconds(1));
    let reservoir = world.start(config(2));
    let start = world.time.now();
    let error = world.time.run(reservoir.checkout()).unwrap_err();
    assert_eq!(world.time.now().since(start), seconds(1), "as soon as the server has said so");
    let CheckoutError::Denied { waited, last_open_error } = &error else { panic!("{error}") };
    assert_eq!((*waited, last_open_error.failure()), (seconds(1), Failure::Auth));
    assert!(!error.is_transient());
    let start = world.time.now();
    assert!(matches!(world.time.run(reservoir.checkout()), Err(CheckoutError::Denied { .. })));
    assert!(matches!(reservoir.try_checkout(), Err(CheckoutError::Denied { .. })));
    assert_eq!(world.time.now(), start, "without a wait");
    // The role is granted. The reservoir has kept trying.
    world.server.on_open(Answer::Well);
    assert!(world.time.run(reservoir.filled(seconds(60))));
    // Access is denied again, but one connection is left. It can be returned, so waiting may help.
    world.server.on_open(Answer::Deny);
    let (kept, lost) = (reservoir.try_checkout().unwrap(), reservoir.try_checkout().unwrap());
    world.server.kill(lost.id());
    drop(lost);
    world.time.advance(seconds(5));
    let mut waiters: Vec<_> = (0..2).map(|_| Box::pin(reservoir.checkout())).collect();
    assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_pending()));
    // The last connection dies, after it was served to the first waiter and before it was picked up. Waiting
    // does not help any more.
    let id = kept.id();
    drop(kept);
    world.server.kill(id);
    world.time.settle();
    for waiter in &mut waiters {
        assert!(matches!(poll(waiter), Poll::Ready(Err(CheckoutError::Denied { .. }))));
    }
    assert_eq!(reservoir.status().waiting, 0);
    assert_eq!(reservoir.status().counts.checkout_failures(CheckoutFailure::Denied), 5);
}

#[test]
fn one_that_is_denied_is_served_once_access_is_granted_also_where_nothing_is_kept_ready() {
    for config in [config(2).on_demand(0), config(2).target_ready(0)] {
        let world = World::new();
        world.server.on_open(Answer::Deny);
        let reservoir = world.start(config);
        assert!(matches!(world.time.run(reservoir.checkout()), Err(CheckoutError::Denied { .. })));
        assert!(matches!(reservoir.try_checkout(), Err(CheckoutError::Denied { .. })));
        world.server.on_open(Answer::Well);
        // That caller justified another attempt, after a pause.
        world.time.advance(seconds(11));
        assert!(reservoir.try_checkout().is_ok(), "{:?}", reservoir.status());
    }
}

#[test]
fn a_start_that_is_denied_does_not_wait_for_the_lease_store() {
    let world = World::new();
    world.server.open_time(seconds(1));
    world.server.on_open(Answer::Deny);
    let builder = Reservoir::builder(world.server.clone())
        .config(config(1).fill_timeout(seconds(300)))
        .runtime(world.time.clone())
        .leases(Arc::clone(&world.leases) as Arc<dyn Leases>);
    let began = world.time.now();
    let mut start = Box::pin(builder.start());
    assert!(poll(&mut start).is_pending());
    world.time.advance(millis(500));
    world.leases.answer(Store::Hang);
    let reservoir = world.time.run(start).unwrap();
    assert_eq!(world.time.now().since(began), seconds(1));
    assert!(reservoir.denial().is_some());
}
