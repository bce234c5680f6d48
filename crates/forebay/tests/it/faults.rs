//! Faults of connectors and servers, and what callers notice.

use std::panic::AssertUnwindSafe;

use forebay::memory::Answer;
use forebay::{CheckoutError, Discard, Failure};

use crate::support::{World, config, millis, seconds};

#[test]
fn opens_that_hang_are_given_up_and_tried_again() {
    let world = World::new();
    world.server.on_open(Answer::Hang);
    let reservoir = world.start(config(2).open_timeout(seconds(10)));
    world.time.advance(seconds(9));
    assert_eq!(reservoir.status().opening, 2);
    world.time.advance(seconds(2));
    assert_eq!(reservoir.status().counts.failures(Failure::Timeout), 2);
    let error = world.time.run(reservoir.checkout()).unwrap_err();
    assert!(error.to_string().contains("connect_timeout: the open took longer than 10s"), "{error}");
    world.server.on_open(Answer::Well);
    world.time.advance(seconds(30));
    assert_eq!(reservoir.status().size(), 2);
    drop(reservoir);
    world.assert_nothing_left();
}

#[test]
fn a_preparation_that_hangs_is_given_up_too() {
    let world = World::new();
    world.server.on_prepare(Answer::Hang);
    let reservoir = world.start(config(1).open_timeout(seconds(10)));
    // A provider that hangs is asked again within a second, like one that fails: it uses nothing scarce.
    for attempt in 1..=5 {
        world.time.advance(seconds(11));
        let counts = reservoir.status().counts;
        assert_eq!((counts.failures(Failure::Token), counts.failures(Failure::Timeout)), (attempt, 0));
    }
    assert_eq!(world.leases.taken(), 0);
}

#[test]
fn a_check_that_panics_is_a_death_and_a_reset_that_panics_a_failed_reset() {
    let world = World::new();
    let reservoir = world.filled(config(1).check_after(seconds(30)));
    world.server.on_check(Answer::Panic);
    assert!(std::panic::catch_unwind(AssertUnwindSafe(|| world.time.advance(seconds(31)))).is_err());
    let counts = reservoir.status().counts;
    assert_eq!((counts.discards(Discard::Died), counts.discards(Discard::ResetFailed)), (1, 0));
    world.server.on_check(Answer::Well);
    world.server.on_reset(Answer::Panic);
    let mut guard = world.time.run(reservoir.checkout()).unwrap();
    guard.make_dirty();
    drop(guard);
    assert!(std::panic::catch_unwind(AssertUnwindSafe(|| world.time.settle())).is_err());
    let counts = reservoir.status().counts;
    assert_eq!((counts.discards(Discard::Died), counts.discards(Discard::ResetFailed)), (1, 1));
}

#[test]
fn opens_that_fail_every_other_time_still_fill() {
    let world = World::new();
    world.server.on_open(Answer::FailEveryOther(Failure::Open));
    let reservoir = world.start(config(10));
    world.time.advance(seconds(60));
    let status = reservoir.status();
    assert_eq!(status.size(), 10);
    assert!(status.counts.failures(Failure::Open) >= 9, "{status:?}");
    drop(reservoir);
    world.assert_nothing_left();
}

#[test]
fn a_connection_that_is_dead_on_arrival_is_never_handed_out() {
    let world = World::new();
    world.server.on_open(Answer::Dead);
    let reservoir = world.start(config(2).rate(10.0, 1));
    world.time.advance(seconds(10));
    assert!(matches!(reservoir.try_checkout(), Err(CheckoutError::Empty { .. })));
    let counts = reservoir.status().counts;
    assert!(counts.refills > 0 && counts.discards(Discard::Died) == counts.refills, "{counts:?}");
    assert!(counts.refills <= 101, "{} opens: the limiter holds for the stillborn too", counts.refills);
}

#[test]
fn a_mass_disconnect_is_noticed_at_once_and_refilled_at_the_limiters_rate() {
    let world = World::new();
    let reservoir = world.filled(config(100).rate(100.0, 100).unlimited_lifetime());
    world.time.advance(seconds(10));
    let lent = reservoir.try_checkout().unwrap();
    world.server.kill_all();
    assert_eq!(
        reservoir.status().counts.discards(Discard::Died),
        99,
        "all that were ready, before anyone asked"
    );
    world.time.advance(millis(10));
    assert_eq!(reservoir.status().ready, 99);
    drop(lent);
    world.time.advance(millis(10));
    assert_eq!((reservoir.status().ready, reservoir.status().counts.discards(Discard::Died)), (100, 100));
    drop(reservoir);
    world.assert_nothing_left();
}

#[test]
fn a_connection_marked_bad_is_replaced() {
    let world = World::new();
    let reservoir = world.filled(config(1));
    let mut guard = reservoir.try_checkout().unwrap();
    let id = guard.id();
    guard.mark_bad();
    drop(guard);
    let mut guard = world.time.run(reservoir.checkout()).unwrap().into_owned();
    assert_ne!(guard.id(), id);
    guard.mark_bad();
    drop(guard);
    world.time.settle();
    assert_eq!(reservoir.status().counts.discards(Discard::Bad), 2);
}

#[test]
fn a_connection_the_connector_calls_unusable_is_replaced() {
    let world = World::new();
    let reservoir = world.filled(config(1));
    let guard = reservoir.try_checkout().unwrap();
    world.server.kill_silently(guard.id());
    drop(guard);
    world.time.settle();
    assert_eq!(reservoir.status().counts.discards(Discard::Bad), 1);
    assert_eq!(reservoir.status().ready, 1);
}

#[test]
fn a_dirty_connection_is_reset_before_the_next_user_comes() {
    let world = World::new();
    let reservoir = world.filled(config(1));
    let mut guard = reservoir.try_checkout().unwrap();
    let id = guard.id();
    guard.make_dirty();
    drop(guard);
    assert_eq!((reservoir.status().ready, reservoir.status().in_maintenance), (0, 1));
    assert_eq!(reservoir.status().size(), 1, "it is still ours");
    let guard = world.time.run(reservoir.checkout()).unwrap();
    assert_eq!(guard.id(), id);
    assert_eq!(world.server.opened(), 1);
}

#[test]
fn a_reset_that_fails_hangs_or_panics_costs_the_connection_and_nothing_else() {
    for answer in [Answer::Fail(Failure::Open), Answer::Hang, Answer::Panic] {
        let world = World::new();
        world.server.on_reset(answer);
        let reservoir = world.filled(config(1));
        let mut guard = reservoir.try_checkout().unwrap();
        guard.make_dirty();
        drop(guard);
        let settled = std::panic::catch_unwind(AssertUnwindSafe(|| world.time.settle()));
        assert_eq!(settled.is_err(), answer == Answer::Panic);
        world.time.advance(seconds(6));
        let status = reservoir.status();
        assert_eq!(
            (status.ready, status.counts.discards(Discard::ResetFailed)),
            (1, 1),
            "{answer:?}: {status:?}"
        );
        drop(reservoir);
        world.assert_nothing_left();
    }
}

#[test]
fn a_connector_that_panics_while_opening_is_a_failure_like_any_other() {
    let world = World::new();
    world.server.on_open(Answer::Panic);
    let reservoir = world.start(config(1));
    assert!(std::panic::catch_unwind(AssertUnwindSafe(|| world.time.settle())).is_err());
    assert_eq!(reservoir.status().counts.failures(Failure::Open), 1);
    assert_eq!(reservoir.status().opening, 0);
    world.server.on_open(Answer::Well);
    world.time.advance(seconds(1));
    assert_eq!(reservoir.status().size(), 1);
    drop(reservoir);
    world.assert_nothing_left();
}

#[test]
fn a_close_that_hangs_does_not_keep_the_lease_for_ever() {
    let world = World::new();
    let reservoir = world.filled(config(2).close_timeout(seconds(5)));
    world.server.on_close(Answer::Hang);
    let mut guard = reservoir.try_checkout().unwrap();
    guard.mark_bad();
    drop(guard);
    world.time.settle();
    let status = reservoir.status();
    assert_eq!(
        (status.ready, status.closing, world.leases.held()),
        (2, 1, 3),
        "replaced at once, still counted"
    );
    world.time.advance(seconds(6));
    assert_eq!((reservoir.status().closing, world.leases.held(), world.heard("CloseTimedOut")), (0, 2, 1));
    drop(reservoir);
    world.assert_nothing_left();
}

#[test]
fn a_close_that_panics_releases_the_lease_too() {
    let world = World::new();
    let reservoir = world.filled(config(1));
    world.server.on_close(Answer::Panic);
    let mut guard = reservoir.try_checkout().unwrap();
    guard.mark_bad();
    drop(guard);
    assert!(std::panic::catch_unwind(AssertUnwindSafe(|| world.time.settle())).is_err());
    world.time.settle();
    assert_eq!((reservoir.status().closing, world.leases.held()), (0, 1));
    world.server.on_close(Answer::Well);
    drop(reservoir);
    world.assert_nothing_left();
}

#[test]
fn a_panic_in_user_code_gives_the_connection_back() {
    let world = World::new();
    let reservoir = world.filled(config(1));
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let _guard = reservoir.try_checkout().unwrap();
        panic!("the caller fell over");
    }));
    assert!(panicked.is_err());
    assert_eq!((reservoir.status().ready, reservoir.status().in_use), (1, 0));
}

#[test]
fn a_late_report_of_a_death_does_not_affect_the_next_connection() {
    let world = World::new();
    let reservoir = world.filled(config(1));
    let mut guard = reservoir.try_checkout().unwrap();
    let id = guard.id();
    guard.mark_bad();
    world.server.on_close(Answer::Hang);
    drop(guard);
    world.time.settle();
    // The first connection is still closing, and the next one in its slot is ready. Now the death of the
    // first is reported.
    world.server.kill(id);
    assert_eq!((reservoir.status().ready, reservoir.status().counts.all_discards()), (1, 1));
}

/// A connector whose connections are dirty, and which has no reset.
struct NoReset;

impl forebay::Connect for NoReset {
    type Connection = u32;

    async fn open(&self, _: forebay::ConnectionMonitor) -> Result<u32, forebay::OpenError> {
        Ok(0)
    }

    fn is_clean(&self, uses: &u32) -> bool {
        *uses == 0
    }
}

#[test]
fn without_a_reset_a_dirty_connection_goes_to_nobody() {
    let world = World::new();
    let builder = forebay::Reservoir::builder(NoReset).config(config(1)).runtime(world.time.clone());
    let reservoir = builder.start_empty().unwrap();
    for _ in 0..3 {
        let mut uses = world.time.run(reservoir.checkout()).unwrap();
        assert_eq!(*uses, 0, "a stranger's");
        *uses += 1;
    }
    world.time.settle();
    assert_eq!(reservoir.status().counts.discards(Discard::ResetFailed), 3);
}

/// A connector that panics when it inspects a returned connection.
struct Squeamish;

impl forebay::Connect for Squeamish {
    type Connection = ();

    async fn open(&self, _: forebay::ConnectionMonitor) -> Result<(), forebay::OpenError> {
        Ok(())
    }

    fn is_usable(&self, (): &()) -> bool {
        panic!("the connector fell over");
    }
}

#[test]
fn a_connector_that_panics_at_a_return_costs_the_connection_and_not_its_place() {
    let world = World::new();
    let builder = forebay::Reservoir::builder(Squeamish).config(config(1)).runtime(world.time.clone());
    let reservoir = builder.leases(std::sync::Arc::clone(&world.leases) as _).start_empty().unwrap();
    for _ in 0..3 {
        let guard = world.time.run(reservoir.checkout()).unwrap();
        assert!(std::panic::catch_unwind(AssertUnwindSafe(move || drop(guard))).is_err());
    }
    world.time.settle();
    let status = reservoir.status();
    assert_eq!((status.ready, status.in_use, status.counts.discards(Discard::Bad)), (1, 0, 3));
    assert_eq!(world.leases.held(), 1);
}

#[test]
fn after_a_close_that_panics_a_drain_still_waits_for_the_lease() {
    let world = World::new();
    let reservoir = world.filled(config(1));
    world.server.on_close(Answer::Panic);
    world.leases.answer(crate::support::Store::Fail);
    drop(std::panic::catch_unwind(AssertUnwindSafe(|| world.time.run(reservoir.drain(seconds(1))))));
    let drained = world.time.run(reservoir.drain(seconds(1)));
    assert_eq!((drained.closing, drained.is_complete(), world.leases.held()), (1, false, 1));
    world.leases.answer(crate::support::Store::Well);
    assert!(world.time.run(reservoir.drain(seconds(60))).is_complete());
    assert_eq!(world.leases.held(), 0);
}

#[test]
fn an_observer_that_panics_does_no_harm() {
    let world = World::new();
    let builder =
        forebay::Reservoir::builder(world.server.clone()).config(config(2)).runtime(world.time.clone());
    let reservoir =
        builder.observer(|_: &forebay::Event<'_>| panic!("the observer fell over")).start_empty().unwrap();
    assert!(world.time.run(reservoir.filled(seconds(5))));
    world.server.kill_all();
    world.time.advance(seconds(1));
    assert_eq!((reservoir.status().ready, reservoir.status().closing), (2, 0));
    assert!(world.time.run(reservoir.drain(seconds(5))).is_complete());
}
