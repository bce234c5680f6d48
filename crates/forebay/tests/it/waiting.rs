//! How long callers wait, in which order, and what they are told.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use forebay::memory::Answer;
use forebay::rt::Runtime;
use forebay::{CheckoutError, Discard, Failure, Lifetime};

use crate::support::{World, config, millis, poll, seconds};

#[test]
fn an_empty_reservoir_gives_up_after_empty_wait_and_says_why() {
    let world = World::new();
    world.server.on_open(Answer::Fail(Failure::Auth));
    let reservoir = world.start(config(2));
    let start = world.time.now();
    let error = world.time.run(reservoir.checkout()).unwrap_err();
    assert_eq!(world.time.now().since(start), millis(100));
    let CheckoutError::Empty { waited, last_open_error: Some(cause) } = error else { panic!("{error}") };
    assert_eq!((waited, cause.failure()), (millis(100), Failure::Auth));
    assert_eq!(reservoir.status().counts.empty, 1);
}

#[test]
fn an_exhausted_reservoir_gives_up_after_acquire_timeout() {
    let world = World::new();
    let reservoir = world.filled(config(2).acquire_timeout(seconds(30)));
    let held = [reservoir.try_checkout().unwrap(), reservoir.try_checkout().unwrap()];
    let start = world.time.now();
    let error = world.time.run(reservoir.checkout()).unwrap_err();
    assert_eq!(world.time.now().since(start), seconds(30));
    assert!(matches!(error, CheckoutError::Exhausted { max_open: 2, .. }), "{error}");
    assert!(matches!(reservoir.try_checkout(), Err(CheckoutError::Exhausted { .. })));
    assert_eq!(reservoir.status().counts.exhausted, 2);
    drop(held);
}

#[test]
fn a_callers_own_limit_overrides_both() {
    let world = World::new();
    world.server.open_time(seconds(5));
    let reservoir = world.start(config(1));
    let start = world.time.now();
    // Longer than the empty wait: the open is done by then.
    let guard = world.time.run(reservoir.checkout().within(seconds(8))).unwrap();
    assert_eq!(world.time.now().since(start), seconds(5));
    let error = world.time.run(reservoir.checkout().within(millis(7))).unwrap_err();
    assert!(matches!(error, CheckoutError::Exhausted { .. }), "{error}");
    assert_eq!(world.time.now().since(start), seconds(5) + millis(7));
    drop(guard);
}

#[test]
fn a_wait_for_others_becomes_short_when_they_die() {
    let world = World::new();
    let reservoir = world.filled(config(1));
    let guard = reservoir.try_checkout().unwrap();
    let mut waiter = Box::pin(reservoir.checkout());
    assert!(poll(&mut waiter).is_pending());
    world.time.advance(seconds(3));
    assert!(poll(&mut waiter).is_pending(), "all are in use: it waits");
    world.server.on_open(Answer::Fail(Failure::Open));
    world.server.kill_all();
    drop(guard);
    let start = world.time.now();
    let error = world.time.run(waiter).unwrap_err();
    assert!(matches!(error, CheckoutError::Empty { .. }), "{error}");
    assert_eq!(world.time.now().since(start), millis(100), "counted from when it became short");
}

#[test]
fn the_last_open_error_is_forgotten_once_one_succeeds() {
    let world = World::new();
    world.server.on_open(Answer::Fail(Failure::Auth));
    let reservoir = world.start(config(1));
    assert!(world.time.run(reservoir.checkout()).is_err());
    world.server.on_open(Answer::Well);
    assert!(world.time.run(reservoir.filled(seconds(60))));
    world.server.open_time(seconds(60));
    world.server.kill_all();
    let error = world.time.run(reservoir.checkout()).unwrap_err();
    assert!(matches!(error, CheckoutError::Empty { last_open_error: None, .. }), "{error}");
}

#[test]
fn waiters_are_served_in_the_order_they_came() {
    let world = World::new();
    let reservoir = world.filled(config(2));
    let mut held = vec![reservoir.try_checkout().unwrap(), reservoir.try_checkout().unwrap()];
    let mut waiters: Vec<_> = (0..4).map(|_| Box::pin(reservoir.checkout())).collect();
    assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_pending()));
    drop(waiters.remove(1));
    drop(held.pop());
    assert!(poll(&mut waiters[2]).is_pending());
    assert!(poll(&mut waiters[1]).is_pending());
    let Poll::Ready(Ok(first)) = poll(&mut waiters[0]) else { panic!("the first is not served") };
    drop(held.pop());
    assert!(poll(&mut waiters[2]).is_pending());
    assert!(
        matches!(poll(&mut waiters[1]), Poll::Ready(Ok(_))),
        "the next is the one behind the one that left"
    );
    drop(first);
}

#[test]
fn a_newcomer_does_not_overtake_one_who_was_served_but_has_not_looked() {
    let world = World::new();
    let reservoir = world.filled(config(1));
    let guard = reservoir.try_checkout().unwrap();
    let mut waiter = Box::pin(reservoir.checkout());
    assert!(poll(&mut waiter).is_pending());
    drop(guard);
    assert!(matches!(reservoir.try_checkout(), Err(CheckoutError::Exhausted { .. })));
    assert!(matches!(poll(&mut waiter), Poll::Ready(Ok(_))));
}

#[test]
fn what_a_cancelled_waiter_was_given_goes_to_the_next() {
    let world = World::new();
    let reservoir = world.filled(config(1));
    let guard = reservoir.try_checkout().unwrap();
    let mut waiters: Vec<_> = (0..2).map(|_| Box::pin(reservoir.checkout())).collect();
    assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_pending()));
    drop(guard);
    drop(waiters.remove(0));
    assert!(matches!(poll(&mut waiters[0]), Poll::Ready(Ok(_))));
    drop(waiters);
    assert!(reservoir.try_checkout().is_ok(), "and to the ready ones when nobody is left");
}

#[test]
fn a_connection_that_goes_stale_or_dies_before_it_is_picked_up_is_not_handed_out() {
    for death in [false, true] {
        let world = World::new();
        let life = Lifetime::new(seconds(60)).guard_window(seconds(10));
        let reservoir = world.filled(config(1).lifetime(life).overlap(0).acquire_timeout(seconds(300)));
        let guard = reservoir.try_checkout().unwrap();
        let id = guard.id();
        let mut waiters: Vec<_> = (0..2).map(|_| Box::pin(reservoir.checkout())).collect();
        assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_pending()));
        drop(guard);
        if death {
            world.server.kill(id);
        } else {
            // To the very instant at which it is too old.
            world.time.skip(seconds(50));
        }
        assert!(poll(&mut waiters[0]).is_pending(), "back to the head of the line");
        world.time.settle();
        assert!(poll(&mut waiters[1]).is_pending(), "its turn is not lost to the one behind");
        let guard = world.time.run(&mut waiters[0]).unwrap();
        assert_ne!(guard.id(), id);
        let reason = if death { Discard::Died } else { Discard::GuardWindow };
        assert_eq!(reservoir.status().counts.discards(reason), 1);
    }
}

#[test]
fn stale_ones_are_skipped_until_a_good_one_is_found() {
    let world = World::new();
    let life = Lifetime::new(seconds(60)).guard_window(seconds(10));
    let reservoir = world.start(config(3).lifetime(life).rate(0.025, 1));
    // One every 40 s: when the clock jumps, the first two are stale and the third is not.
    world.time.advance(seconds(41));
    let young = reservoir.try_checkout().unwrap();
    let young_id = young.id();
    drop(young);
    let old_first = [reservoir.try_checkout().unwrap(), reservoir.try_checkout().unwrap()];
    let [young, old] = old_first;
    assert_eq!(young.id(), young_id);
    drop(young);
    drop(old);
    // The old one is on top now.
    world.time.skip(seconds(20));
    assert_eq!(reservoir.try_checkout().unwrap().id(), young_id);
    let counts = reservoir.status().counts;
    assert_eq!((counts.discards(Discard::ExpiredOnCheckout), counts.empty), (1, 0));
}

#[test]
fn after_the_end_every_caller_is_told() {
    let world = World::new();
    let reservoir = world.filled(config(1));
    let guard = reservoir.try_checkout().unwrap();
    let mut waiter = Box::pin(reservoir.checkout());
    assert!(poll(&mut waiter).is_pending());
    let drained = world.time.run(reservoir.drain(seconds(1)));
    assert_eq!(drained.in_use, 1);
    assert!(matches!(poll(&mut waiter), Poll::Ready(Err(CheckoutError::Closed))));
    assert!(matches!(reservoir.try_checkout(), Err(CheckoutError::Closed)));
    assert!(matches!(world.time.run(reservoir.checkout()), Err(CheckoutError::Closed)));
    drop(guard);
}

/// A waiter without a limit of its own, and how long it waited.
fn waited(world: &World, future: impl Future<Output = Result<u64, CheckoutError>>) -> (String, Duration) {
    let start = world.time.now();
    let outcome = world.time.run(forebay::rt::within(&world.time, seconds(3600), future));
    let outcome = outcome.map_or_else(|| "hangs".to_owned(), |outcome| format!("{outcome:?}"));
    (outcome, world.time.now().since(start))
}

#[test]
fn a_wait_whose_reason_changes_as_it_ends_is_not_forgotten() {
    // Patience ends and the open is done at one instant: by the time the woken one looks, it waits for another reason.
    let world = World::new();
    world.server.open_time(millis(100));
    let config = config(1).empty_wait(millis(100)).acquire_timeout(seconds(1)).unlimited_lifetime();
    let reservoir = world.start(config);
    let mut first = Box::pin(reservoir.checkout().within(seconds(3600)));
    let mut second = Box::pin(reservoir.checkout());
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    world.time.advance(millis(100));
    let Poll::Ready(Ok(held)) = poll(&mut first) else { panic!("the first is not served") };
    let (outcome, time) = waited(&world, async { second.await.map(|guard| guard.id()) });
    assert!(outcome.contains("Exhausted"), "{outcome} after {time:?}");
    assert_eq!(time, millis(900), "a second in all");
    drop(held);
}

#[test]
fn patience_gets_shorter_when_what_was_short_is_all_in_use() {
    let world = World::new();
    world.server.open_time(millis(100));
    let reservoir = world.start(config(1).empty_wait(seconds(60)).acquire_timeout(seconds(1)));
    let mut first = Box::pin(reservoir.checkout());
    assert!(poll(&mut first).is_pending());
    let waiting = waited(&world, async {
        let second = reservoir.checkout();
        let held = first.await;
        let second = second.await.map(|guard| guard.id());
        drop(held);
        second
    });
    assert!(waiting.0.contains("Exhausted") && waiting.1 <= millis(1100), "{waiting:?}");
}

#[test]
fn one_who_rejoins_the_line_is_watched_again() {
    let world = World::new();
    let reservoir = world.filled(config(2).empty_wait(millis(100)).unlimited_lifetime());
    world.server.on_open(Answer::Fail(Failure::Open));
    let lent = reservoir.try_checkout().unwrap();
    let mut bad = reservoir.try_checkout().unwrap();
    bad.mark_bad();
    drop(bad);
    let mut gone = Box::pin(reservoir.checkout());
    assert!(poll(&mut gone).is_pending());
    world.time.advance(millis(50));
    let mut waiter = Box::pin(reservoir.checkout());
    assert!(poll(&mut waiter).is_pending());
    drop(gone);
    let id = lent.id();
    drop(lent);
    world.time.advance(millis(60));
    world.server.kill(id);
    let (outcome, time) = waited(&world, async { waiter.await.map(|guard| guard.id()) });
    assert!(outcome.contains("Empty") && time <= millis(100), "{outcome} after {time:?}");
}

/// A waker with a connection in it, as a task that is dropped with its last waker has.
struct Holder(
    #[allow(dead_code, reason = "held to be dropped")] Mutex<forebay::OwnedCheckout<forebay::memory::Memory>>,
);

impl Wake for Holder {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_whose_drop_gives_a_connection_back_does_not_lock_up() {
    for polled_again in [false, true] {
        let world = World::new();
        let reservoir = world.filled(config(1));
        let guard = reservoir.try_checkout().unwrap().into_owned();
        let mut waiter = Box::pin(reservoir.checkout());
        let waker = Waker::from(Arc::new(Holder(Mutex::new(guard))));
        assert!(waiter.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker); // the line has the last one
        if polled_again {
            assert!(poll(&mut waiter).is_pending());
            assert!(matches!(poll(&mut waiter), Poll::Ready(Ok(_))), "what was given back is its own");
        }
        drop(waiter);
        assert_eq!((reservoir.status().ready, reservoir.status().in_use), (1, 0));
    }
}

#[test]
fn a_waker_replaced_by_the_very_look_that_gives_up_does_not_lock_up() {
    let world = World::new();
    let reservoir = world.filled(config(1).acquire_timeout(seconds(1)));
    let guard = reservoir.try_checkout().unwrap().into_owned();
    let mut waiter = Box::pin(reservoir.checkout());
    let waker = Waker::from(Arc::new(Holder(Mutex::new(guard))));
    assert!(waiter.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    world.time.skip(seconds(2));
    assert!(matches!(poll(&mut waiter), Poll::Ready(Err(CheckoutError::Exhausted { .. }))));
    assert_eq!((reservoir.status().ready, reservoir.status().in_use), (1, 0));
}
