//! Waiting: how long, in which order, and with which errors.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use forebay::memory::{Answer, Memory};
use forebay::rt::Runtime;
use forebay::{Acquire, CheckoutError, CheckoutFailure, Discard, Failure, Lifetime, Reservoir};

use crate::support::{World, config, millis, poll, seconds};

#[test]
fn an_empty_reservoir_gives_up_after_its_limit_and_says_why() {
    let world = World::new();
    world.server.on_open(Answer::Fail(Failure::Open));
    let reservoir = world.start(config(2));
    let checkout = || reservoir.checkout();
    for (acquire, limit) in [
        (checkout(), seconds(30)),
        (checkout().empty_wait(millis(100)), millis(100)),
        (checkout().within(seconds(4)), seconds(4)),
        (checkout().within(seconds(4)).empty_wait(seconds(5)), seconds(4)),
        (checkout().within(seconds(4)).empty_wait(seconds(3)), seconds(3)),
        (checkout().empty_wait(Duration::MAX), seconds(30)),
    ] {
        let start = world.time.now();
        let error = world.time.run(acquire).unwrap_err();
        assert_eq!(world.time.now().since(start), limit);
        let CheckoutError::Empty { waited, last_open_error: Some(cause) } = error else { panic!("{error}") };
        assert_eq!((waited, cause.failure()), (limit, Failure::Open));
    }
    let counts = reservoir.status().counts;
    assert_eq!((counts.empty, counts.checkout_failures(CheckoutFailure::Empty)), (6, 6));
}

#[test]
fn the_configuration_can_make_callers_fail_fast() {
    let world = World::new();
    let reservoir = world.start(config(1).rate(0.1, 1).empty_wait(millis(250)));
    let held = world.time.run(reservoir.checkout()).unwrap();
    drop(held.detach());
    let start = world.time.now();
    let error = world.time.run(reservoir.checkout().within(seconds(2))).unwrap_err();
    assert_eq!(world.time.now().since(start), seconds(2), "unless a call says otherwise");
    assert!(
        matches!(&error, CheckoutError::Empty { last_open_error: Some(cause), .. } if cause.is_pending())
    );
    let start = world.time.now();
    let error = world.time.run(reservoir.checkout()).unwrap_err();
    assert_eq!(world.time.now().since(start), millis(250));
    assert_eq!(
        error.to_string(),
        "no connection became ready within 250ms; rate_limit: 1 open waits for a permit: 0.1 per second are allowed"
    );
}

#[test]
fn finding_nothing_is_counted_once_and_failing_apart() {
    let world = World::new();
    world.server.open_time(seconds(5));
    let reservoir = world.start(config(2));
    let served = world.time.run(reservoir.checkout()).unwrap();
    let counts = reservoir.status().counts;
    assert_eq!((counts.empty, counts.all_checkout_failures()), (1, 0), "found nothing, and was served later");
    world.server.kill_all();
    drop(served);
    assert!(matches!(reservoir.try_checkout(), Err(CheckoutError::Empty { .. })));
    let counts = reservoir.status().counts;
    assert_eq!((counts.empty, counts.checkout_failures(CheckoutFailure::Empty)), (2, 1));
    assert!(world.time.run(reservoir.filled(seconds(60))));
    let _held = [reservoir.try_checkout().unwrap(), reservoir.try_checkout().unwrap()];
    assert!(matches!(reservoir.try_checkout(), Err(CheckoutError::Exhausted { .. })));
    let counts = reservoir.status().counts;
    assert_eq!((counts.empty, counts.checkout_failures(CheckoutFailure::Exhausted)), (2, 1));
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
    let reservoir = world.filled(config(1).empty_wait(millis(100)));
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
    let error = world.time.run(reservoir.checkout().within(seconds(9))).unwrap_err();
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
            // The exact instant at which it becomes stale.
            world.time.skip(seconds(50));
        }
        assert!(poll(&mut waiters[0]).is_pending(), "back to the head of the line");
        world.time.settle();
        assert!(poll(&mut waiters[1]).is_pending(), "it is not overtaken by the one behind");
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
    // The old connection is on top now.
    world.time.skip(seconds(20));
    assert_eq!(reservoir.try_checkout().unwrap().id(), young_id);
    let counts = reservoir.status().counts;
    assert_eq!((counts.discards(Discard::ExpiredOnCheckout), counts.empty), (1, 0));
}

#[test]
fn after_a_close_every_caller_gets_closed() {
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

#[test]
fn a_waiter_whose_connection_died_before_a_close_gets_closed() {
    // Served, dead before it was polled, closed: in this order, and with the close first.
    for (dies_first, polled_between) in [(true, false), (true, true), (false, false), (false, true)] {
        let world = World::new();
        let reservoir = world.filled(config(1));
        let guard = reservoir.try_checkout().unwrap();
        let id = guard.id();
        let mut waiters: Vec<_> = (0..2).map(|_| Box::pin(reservoir.checkout())).collect();
        assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_pending()));
        drop(guard);
        if dies_first {
            world.server.kill(id);
        }
        if polled_between && dies_first {
            assert!(poll(&mut waiters[0]).is_pending(), "what it was served is dead");
        }
        assert!(poll(&mut Box::pin(reservoir.drain(seconds(1)))).is_pending());
        world.server.kill(id);
        assert_eq!(reservoir.status().waiting, 0);
        for waiter in &mut waiters {
            assert!(matches!(poll(waiter), Poll::Ready(Err(CheckoutError::Closed))));
        }
        world.time.advance(seconds(1));
        assert_eq!((reservoir.status().in_use, reservoir.status().owned(), world.server.live()), (0, 0, 0));
    }
}

#[test]
fn a_close_takes_back_what_nobody_has_picked_up() {
    let world = World::new();
    let reservoir = world.filled(config(1));
    let guard = reservoir.try_checkout().unwrap();
    let mut waiter = Box::pin(reservoir.checkout());
    assert!(poll(&mut waiter).is_pending());
    drop(guard);
    let drained = world.time.run(reservoir.drain(seconds(1)));
    assert!(drained.is_complete(), "it does not depend on a caller that is not polled: {drained:?}");
    assert_eq!(reservoir.status().counts.checkouts, 1, "the guard's own");
    assert!(matches!(poll(&mut waiter), Poll::Ready(Err(CheckoutError::Closed))));
}

#[test]
fn two_waiters_that_lose_what_they_were_served_keep_their_order() {
    // The callers are polled in either order, or not at all, before another connection is returned. It goes
    // to the older caller. It does not matter whose connection dies first.
    let polled = [&[0, 1][..], &[1, 0], &[1], &[0], &[]];
    for (polled, elder_first) in polled.iter().flat_map(|polled| [(*polled, true), (*polled, false)]) {
        let world = World::new();
        let reservoir = world.filled(config(2).rate(1.0, 2).acquire_timeout(seconds(60)));
        let held = [reservoir.try_checkout().unwrap(), reservoir.try_checkout().unwrap()];
        let mut waiters: Vec<_> = (0..3).map(|_| Box::pin(reservoir.checkout())).collect();
        assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_pending()));
        let mut ids = held.each_ref().map(|guard| guard.id());
        drop(held);
        if !elder_first {
            ids.reverse();
        }
        ids.into_iter().for_each(|id| world.server.kill(id));
        for place in polled {
            assert!(poll(&mut waiters[*place]).is_pending(), "what it was served is dead");
        }
        assert_eq!(reservoir.status().waiting, 3);
        let mut guards = Vec::new();
        for served in 0..2 {
            for _ in 0..50 {
                if reservoir.status().in_use == guards.len() {
                    world.time.advance(millis(100));
                }
            }
            for place in (served + 1..3).rev() {
                assert!(
                    poll(&mut waiters[place]).is_pending(),
                    "waiter {place} overtook {served}: {polled:?}"
                );
            }
            let Poll::Ready(Ok(guard)) = poll(&mut waiters[served]) else { panic!("{served} is not served") };
            guards.push(guard);
        }
        drop(guards.pop());
        assert!(matches!(poll(&mut waiters[2]), Poll::Ready(Ok(_))));
    }
}

#[test]
fn one_that_returns_to_the_queue_gives_up_at_its_own_deadline() {
    let world = World::new();
    let reservoir = world.filled(config(2).acquire_timeout(seconds(10)));
    world.server.on_open(Answer::Fail(Failure::Open));
    let held = [reservoir.try_checkout().unwrap(), reservoir.try_checkout().unwrap()];
    let mut waiters: Vec<_> = (0..2)
        .map(|_| {
            let mut waiter = Box::pin(reservoir.checkout());
            assert!(poll(&mut waiter).is_pending());
            world.time.advance(seconds(3));
            waiter
        })
        .collect();
    drop(held);
    world.server.kill_all();
    assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_pending()));
    let start = world.time.now();
    let first = waited(&world, async { waiters.remove(0).await.map(|guard| guard.id()) });
    assert_eq!(first.1, seconds(4), "ten in all: {}", first.0);
    let second = waited(&world, async { waiters.remove(0).await.map(|guard| guard.id()) });
    assert_eq!(world.time.now().since(start), seconds(7), "ten in all: {}", second.0);
}

/// A waiter without its own limit, and how long it waited.
fn waited(world: &World, future: impl Future<Output = Result<u64, CheckoutError>>) -> (String, Duration) {
    let start = world.time.now();
    let outcome = world.time.run(forebay::rt::within(&world.time, seconds(3600), future));
    let outcome = outcome.map_or_else(|| "hangs".to_owned(), |outcome| format!("{outcome:?}"));
    (outcome, world.time.now().since(start))
}

#[test]
fn a_wait_whose_reason_changes_as_it_ends_is_not_forgotten() {
    // The wait ends and the open completes at the same instant. When the woken caller looks, it waits for
    // another reason.
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
fn a_caller_that_rejoins_the_queue_still_times_out() {
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

/// A waker that panics.
struct Panicking;

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        panic!("this waker panics");
    }
}

#[test]
fn a_waker_that_panics_keeps_nobody_else_from_being_woken() {
    let world = World::new();
    let reservoir = world.filled(config(1).acquire_timeout(seconds(1)));
    let guard = reservoir.try_checkout().unwrap();
    let panicking = Waker::from(Arc::new(Panicking));
    let start = || {
        let mut first = Box::pin(reservoir.checkout());
        assert!(first.as_mut().poll(&mut Context::from_waker(&panicking)).is_pending());
        first
    };
    let first = start();
    let (outcome, time) = waited(&world, async { reservoir.checkout().await.map(|guard| guard.id()) });
    assert!(outcome.contains("Exhausted") && time == seconds(1), "{outcome} after {time:?}");
    drop(first);
    let first = start();
    let second = waited(&world, async {
        let second = reservoir.checkout();
        let (second, _) = (second, poll(&mut Box::pin(reservoir.drain(seconds(1)))));
        second.await.map(|guard| guard.id())
    });
    assert!(second.0.contains("Closed"), "{}", second.0);
    drop((first, guard));
}

/// A waker that holds a connection, like a task that is dropped with its last waker.
struct Holder(
    #[allow(dead_code, reason = "held to be dropped")] Mutex<forebay::OwnedCheckout<forebay::memory::Memory>>,
);

impl Wake for Holder {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_that_panics_does_not_reach_the_code_of_others() {
    let world = World::new();
    world.server.open_time(millis(5));
    let reservoir = world.start(config(1).on_demand(0));
    let opening = reservoir.open_one().unwrap();
    let panicking = Waker::from(Arc::new(Panicking));
    let wait = |checkout: &mut Pin<Box<Acquire<'_, Memory>>>| {
        assert!(checkout.as_mut().poll(&mut Context::from_waker(&panicking)).is_pending());
    };
    let mut first = Box::pin(reservoir.checkout());
    wait(&mut first);
    assert!(world.time.run(opening).is_ok(), "the open succeeded");
    let lent = world.time.run(first).unwrap();
    let mut second = Box::pin(reservoir.checkout());
    wait(&mut second);
    drop(lent);
    assert!(world.time.run(second).is_ok(), "the return succeeded");
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

/// A limit whose `pace` panics while the flag is set.
#[derive(Clone, Default)]
struct PanickingLimit(Arc<AtomicBool>);

impl forebay::Limit for PanickingLimit {
    fn acquire(&self) -> forebay::StoreFuture<'_, Result<forebay::Permit, forebay::LimitError>> {
        Box::pin(async { Ok(forebay::Permit::unlimited()) })
    }

    fn pace(&self) -> forebay::Pace {
        assert!(!self.0.load(Ordering::Relaxed), "pace panics");
        forebay::Pace { per_second: 1e6, at_once: 1000 }
    }
}

#[test]
fn a_panic_while_a_wait_ends_does_not_give_two_callers_one_waiter() {
    let world = World::new();
    let limit = PanickingLimit::default();
    let builder = Reservoir::builder(world.server.clone()).config(config(2)).runtime(world.time.clone());
    let reservoir = builder.limit(Arc::new(limit.clone())).start_empty().unwrap();
    assert!(world.time.run(reservoir.filled(seconds(60))));
    world.time.settle();
    let lent = reservoir.try_checkout().unwrap();
    world.server.on_open(Answer::Hang);
    let other = reservoir.try_checkout().unwrap();
    world.server.kill(other.id());
    drop(other);
    world.time.settle();
    let mut first = Box::pin(reservoir.checkout().within(millis(5)));
    assert!(poll(&mut first).is_pending());
    world.time.advance(millis(6));
    limit.0.store(true, Ordering::Relaxed);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| poll(&mut first).is_ready()));
    assert!(panicked.is_err());
    drop(first);
    limit.0.store(false, Ordering::Relaxed);
    let (mut second, mut third) = (Box::pin(reservoir.checkout()), Box::pin(reservoir.checkout()));
    assert!(poll(&mut second).is_pending() && poll(&mut third).is_pending());
    drop(lent);
    assert!(poll(&mut third).is_pending(), "the connection is the second caller's");
    assert!(poll(&mut second).is_ready());
}
