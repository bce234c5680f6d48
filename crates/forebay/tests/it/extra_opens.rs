//! Opens with `open_one`, and handles that do not keep a reservoir open.

use std::task::Poll;

use forebay::memory::Answer;
use forebay::rt::Runtime;
use forebay::{CheckoutError, Failure};

use crate::support::{World, config, millis, poll, seconds};

#[test]
fn one_is_opened_though_nobody_waits_as_long_as_there_is_room() {
    let world = World::new();
    world.server.open_time(millis(50));
    let reservoir = world.start(config(2).on_demand(0));
    world.time.advance(seconds(60));
    assert_eq!(world.server.asked(), 0, "on demand, nothing is opened by itself");
    let first = reservoir.open_one().expect("there is room");
    let second = reservoir.open_one().expect("there is room");
    assert!(reservoir.open_one().is_none(), "both places are taken while they open");
    // It makes no difference whether the outcome is awaited.
    drop(second);
    world.time.run(first).unwrap();
    world.time.advance(millis(1));
    assert_eq!(reservoir.status().ready, 2);
    assert!(reservoir.open_one().is_none());
    world.server.kill(0);
    assert!(reservoir.open_one().is_some());
}

#[test]
fn what_is_opened_goes_to_the_first_in_the_queue_and_ends_the_pause_of_the_others() {
    let world = World::new();
    let reservoir = world.start(config(3).on_demand(0));
    world.server.on_open(Answer::Fail(Failure::Open));
    let mut callers: Vec<_> = (0..2).map(|_| Box::pin(reservoir.checkout())).collect();
    assert!(callers.iter_mut().all(|caller| poll(caller).is_pending()));
    // Long enough for pauses of several seconds.
    world.time.advance(seconds(15));
    let asked = world.server.asked();
    world.server.on_open(Answer::Well);
    let began = world.time.now();
    world.time.run(reservoir.open_one().unwrap()).unwrap();
    world.time.settle();
    assert_eq!(world.time.now(), began, "neither waits for the end of a pause");
    assert_eq!(world.server.asked() - asked, 2, "one that was asked for, one for the second caller");
    assert!(callers.iter_mut().all(|caller| matches!(poll(caller), Poll::Ready(Ok(_)))));
}

#[test]
fn its_failure_is_reported_and_starts_no_pause() {
    let world = World::new();
    let reservoir = world.start(config(1).on_demand(0));
    world.server.on_open(Answer::Fail(Failure::Throttled));
    for _ in 0..5 {
        let error = world.time.run(reservoir.open_one().unwrap()).unwrap_err();
        assert_eq!(error.failure(), Failure::Throttled);
    }
    world.time.settle();
    assert_eq!((world.heard("OpenFailed"), world.leases.held()), (5, 0));
    world.server.on_open(Answer::Well);
    let began = world.time.now();
    drop(world.time.run(reservoir.checkout()).unwrap());
    assert_eq!(world.time.now(), began);
}

#[test]
fn a_denial_is_known_to_the_next_caller() {
    let world = World::new();
    let reservoir = world.start(config(1).on_demand(0));
    world.server.on_open(Answer::Deny);
    assert!(world.time.run(reservoir.open_one().unwrap()).unwrap_err().is_permanent());
    let denied = world.time.run(reservoir.checkout());
    assert!(matches!(denied, Err(CheckoutError::Denied { .. })), "{denied:?}");
}

#[test]
fn a_close_ends_it() {
    let world = World::new();
    let reservoir = world.start(config(1).on_demand(0));
    world.server.on_open(Answer::Hang);
    let opening = reservoir.open_one().unwrap();
    world.time.advance(seconds(1));
    assert!(world.time.run(reservoir.drain(seconds(1))).is_complete());
    let error = world.time.run(opening).unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
    assert!(reservoir.open_one().is_none());
    world.assert_nothing_left();
}

#[test]
fn a_weak_handle_keeps_nothing_open() {
    let world = World::new();
    let reservoir = world.filled(config(2));
    let weak = reservoir.downgrade();
    assert_eq!(weak.upgrade().unwrap().status().ready, 2);
    drop(reservoir);
    assert!(weak.clone().upgrade().is_none());
    world.assert_nothing_left();
}
