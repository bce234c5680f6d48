//! Connections that must be checked before they are lent, and connections that the application retires.

use std::task::Poll;

use forebay::memory::{Answer, Memory};
use forebay::{Checkout, CheckoutError, Discard};

use crate::support::{World, config, millis, poll, seconds};

fn ids(guards: &[Checkout<'_, Memory>]) -> Vec<u64> {
    guards.iter().map(|guard| guard.id()).collect()
}

#[test]
fn after_one_was_found_dead_nobody_gets_another_that_was_not_checked() {
    let world = World::new();
    let reservoir = world.filled(config(40).check_after(seconds(3600)).unlimited_lifetime());
    let (used, kept) = (reservoir.try_checkout().unwrap(), reservoir.try_checkout().unwrap());
    let kept_id = kept.id();
    // A mass disconnect that nobody has noticed yet.
    (0..40).for_each(|id| world.server.kill_silently(id));
    world.server.on_check(Answer::Fail(forebay::Failure::Open));
    world.time.advance(millis(1));
    drop(used);
    let status = reservoir.status();
    assert_eq!((status.ready, status.in_use, status.in_maintenance), (0, 1, 38), "all others are suspects");
    assert!(matches!(reservoir.try_checkout(), Err(CheckoutError::Empty { .. })));
    let mut waiting = Box::pin(reservoir.checkout());
    assert!(poll(&mut waiting).is_pending());
    drop(kept);
    let Poll::Ready(Ok(guard)) = ({
        world.time.settle();
        poll(&mut waiting)
    }) else {
        panic!("{:?}", reservoir.status())
    };
    assert!(guard.id() >= 40, "a new one, and not {kept_id}");
    let counts = reservoir.status().counts;
    assert_eq!((counts.discards(Discard::Bad), counts.discards(Discard::Died)), (2, 38));
}

#[test]
fn the_living_are_checked_once_for_each_incident() {
    let world = World::new();
    let reservoir = world.filled(config(8).check_after(seconds(3600)).unlimited_lifetime());
    let lent: Vec<_> = (0..4).map(|_| reservoir.try_checkout().unwrap()).collect();
    ids(&lent).into_iter().for_each(|id| world.server.kill_silently(id));
    world.time.advance(millis(1));
    let mut lent = lent.into_iter();
    drop(lent.next());
    assert_eq!(reservoir.status().in_maintenance, 4);
    world.time.settle();
    assert_eq!(reservoir.status().in_maintenance, 0, "they have passed");
    world.time.advance(millis(1));
    // The other three died in the same incident.
    lent.for_each(drop);
    assert_eq!(reservoir.status().in_maintenance, 0, "that is no news");
    world.time.settle();
    assert_eq!((reservoir.status().ready, reservoir.status().counts.discards(Discard::Bad)), (8, 4));
    // One that was alive after that incident has died since.
    let next = reservoir.try_checkout().unwrap();
    world.server.kill_silently(next.id());
    world.time.advance(millis(1));
    drop(next);
    assert_eq!(reservoir.status().in_maintenance, 7);
}

#[test]
fn one_that_the_caller_marks_bad_makes_the_others_suspects_only_if_checks_are_wanted() {
    for (config, ready, in_maintenance) in [(config(3).check_after(seconds(3600)), 0, 2), (config(3), 2, 0)] {
        let world = World::new();
        let reservoir = world.filled(config);
        let mut guard = reservoir.try_checkout().unwrap();
        guard.mark_bad();
        world.time.advance(millis(1));
        drop(guard);
        let status = reservoir.status();
        assert_eq!((status.ready, status.in_maintenance), (ready, in_maintenance));
    }
}

#[test]
fn a_failed_reset_makes_suspects_only_if_the_connection_is_dead() {
    for (is_dead, answer, in_maintenance) in [
        (false, Answer::Fail(forebay::Failure::Open), 0),
        (true, Answer::Fail(forebay::Failure::Open), 2),
        (false, Answer::Hang, 2),
    ] {
        let world = World::new();
        let reservoir = world.filled(config(3).check_after(seconds(3600)).overlap(0).unlimited_lifetime());
        world.server.on_reset(answer);
        world.server.on_check(Answer::Hang);
        world.time.advance(millis(1));
        let mut guard = reservoir.try_checkout().unwrap();
        guard.make_dirty();
        let id = guard.id();
        drop(guard);
        if is_dead {
            world.server.kill_silently(id);
        }
        // A reset that hangs is given up after 5 s.
        world.time.advance(seconds(if answer == Answer::Hang { 5 } else { 1 }));
        let status = reservoir.status();
        assert_eq!(
            (status.in_maintenance, status.counts.discards(Discard::ResetFailed)),
            (in_maintenance, 1)
        );
    }
}

#[test]
fn one_that_was_lent_for_long_is_checked_before_the_next_caller_gets_it() {
    let world = World::new();
    let reservoir = world.filled(config(1).check_after(seconds(30)).unlimited_lifetime());
    let guard = reservoir.try_checkout().unwrap();
    world.time.advance(seconds(29));
    drop(guard);
    let guard = reservoir.try_checkout().expect("it was opened a short time ago");
    world.time.advance(seconds(1));
    drop(guard);
    assert!(matches!(reservoir.try_checkout(), Err(CheckoutError::Exhausted { .. })));
    world.time.settle();
    assert!(reservoir.try_checkout().is_ok());
    assert_eq!(world.server.opened(), 1);
}

#[test]
fn a_suspect_that_dies_is_retired_or_is_recalled_before_its_check_is_closed() {
    let world = World::new();
    let reservoir = world.filled(config(4).check_after(seconds(3600)).unlimited_lifetime());
    let used = reservoir.try_checkout().unwrap();
    let id = used.id();
    world.server.kill_silently(id);
    world.time.advance(millis(1));
    drop(used);
    // Three suspects wait for their checks. All three events come first, and then a close.
    let dead = (0..4).find(|other| *other != id).unwrap();
    world.server.kill(dead);
    world.leases.recall_all();
    assert_eq!(reservoir.status().in_maintenance, 3);
    let mut drain = Box::pin(reservoir.drain(seconds(60)));
    assert!(poll(&mut drain).is_pending());
    assert!(world.time.run(drain).is_complete());
    assert_eq!(reservoir.status().counts.discards(Discard::Draining), 3);
    drop(reservoir);
    world.assert_nothing_left();
}

#[test]
fn suspects_that_are_lost_before_their_checks_are_not_asked() {
    let world = World::new();
    let reservoir = world.filled(config(4).check_after(seconds(3600)).unlimited_lifetime());
    let used = reservoir.try_checkout().unwrap();
    world.server.kill_silently(used.id());
    world.time.advance(millis(1));
    world.server.on_check(Answer::Panic);
    drop(used);
    world.leases.recall_all();
    world.time.settle();
    assert_eq!(reservoir.status().counts.discards(Discard::Recalled), 3);
}

#[test]
fn a_retirement_by_the_application_is_no_death() {
    let world = World::new();
    let reservoir = world.filled(config(3).unlimited_lifetime());
    let lent = reservoir.try_checkout().unwrap();
    let id = lent.id();
    for _ in 0..2 {
        world.server.retire_all();
        world.server.retire_all();
        world.time.settle();
        assert!(lent.is_due());
    }
    let counts = reservoir.status().counts;
    assert_eq!((counts.discards(Discard::Retired), counts.discards(Discard::Died)), (4, 0), "{counts:?}");
    assert_eq!(world.heard("Discarded { reason: Retired"), 4);
    drop(lent);
    world.time.settle();
    assert_eq!((reservoir.status().ready, reservoir.status().counts.discards(Discard::Retired)), (3, 5));
    assert!(world.server.born_at(id).is_none());
    // A waiting caller gets the replacement of a lent one.
    let held: Vec<_> = (0..3).map(|_| reservoir.try_checkout().unwrap()).collect();
    world.server.retire_all();
    let mut waiting = Box::pin(reservoir.checkout());
    assert!(poll(&mut waiting).is_pending());
    let before = ids(&held);
    drop(held);
    world.time.settle();
    assert!(matches!(poll(&mut waiting), Poll::Ready(Ok(guard)) if !before.contains(&guard.id())));
}
