//! Standard mode in virtual time: warm-up, keeper, lives, limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay::memory::Answer;
use forebay::rt::{Runtime, VirtualTime};
use forebay::{BoxError, CheckoutError, Connect, ConnectionMonitor, Event, Failure, OpenError};
use forebay_dsql::{Auth, Builder, ErrorKind, Options};

use super::world::{World, config, seconds};

#[test]
fn a_warm_up_fills_the_pool_at_the_pace_of_the_limiter() {
    let world = World::new();
    world.server.open_time(Duration::from_millis(50));
    let start = world.time.now();
    let pool = world.standard(config(20).rate(10.0, 5));
    assert_eq!((pool.status().open, world.server.opened()), (20, 20));
    // Five at once, one after the other; the other fifteen ten a second.
    let took = world.time.now().since(start);
    assert!(took >= Duration::from_millis(1_500) && took < Duration::from_millis(1_700), "{took:?}");
}

/// Its connections are not clean after a ping until somebody has looked after them, as one of tokio-postgres whose driver
/// is still at it on another thread.
struct Slovenly;

impl Connect for Slovenly {
    /// Whether it is clean.
    type Connection = bool;

    async fn open(&self, _: ConnectionMonitor) -> Result<bool, OpenError> {
        Ok(true)
    }

    fn is_clean(&self, clean: &bool) -> bool {
        *clean
    }

    async fn check(&self, clean: &mut bool) -> Result<(), BoxError> {
        *clean = false;
        Ok(())
    }

    async fn reset(&self, clean: &mut bool) -> Result<(), BoxError> {
        *clean = true;
        Ok(())
    }
}

#[test]
fn a_warm_pool_is_all_idle_at_once() {
    let time = VirtualTime::new();
    let options = Options::builder("abc.dsql.us-east-1.on.aws").config(config(3)).reservoir(false);
    let options = options.build().unwrap();
    let pool = time.run(Builder::over(Slovenly, options).runtime(time.clone()).connect()).unwrap();
    let status = pool.status();
    assert_eq!((status.open, status.idle, status.in_use), (3, 3, 0));
}

#[test]
fn a_staggered_warm_up_takes_its_time() {
    let world = World::new();
    let start = world.time.now();
    let pool = world.time.run(world.builder(config(20), false, Some("20s")).connect()).unwrap();
    assert_eq!(pool.status().open, 20);
    assert_eq!(world.time.now().since(start), seconds(19));
}

#[test]
fn the_warm_up_of_a_large_pool_is_staggered_by_default() {
    for (size, took) in [(100, 0), (120, 119)] {
        let world = World::new();
        let start = world.time.now();
        assert_eq!(world.standard(config(size)).status().open, size);
        assert_eq!(world.time.now().since(start), seconds(took), "{size}");
    }
    let world = World::new();
    let start = world.time.now();
    let pool = world.time.run(world.builder(config(120), false, Some("0s")).connect()).unwrap();
    assert_eq!((pool.status().open, world.time.now()), (120, start), "unless it is turned off");
}

#[test]
fn the_start_of_a_fleet_is_staggered() {
    let world = World::new();
    let start = world.time.now();
    drop(world.standard(config(1).startup_jitter(seconds(5))));
    let took = world.time.now().since(start);
    assert!(took > Duration::ZERO && took <= seconds(5), "{took:?}");
}

#[test]
fn a_warm_up_does_its_best_and_no_more() {
    let world = World::new();
    world.server.on_open(Answer::Fail(Failure::Throttled));
    let start = world.time.now();
    let pool = world.standard(config(100));
    // Once, and five more times, for each of two: by then it is clear how the others would fare.
    assert_eq!((pool.status().open, world.server.asked()), (0, 12));
    // The pauses are 200 ms to 3.2 s, from half to one and a half of each.
    let took = world.time.now().since(start);
    let full = Duration::from_millis(200 + 400 + 800 + 1_600 + 3_200) * 2;
    assert!(took >= full / 2 && took <= full * 3 / 2, "{took:?}");
    match world.time.run(pool.acquire()) {
        Err(CheckoutError::Empty { last_open_error: Some(error), .. }) => {
            assert_eq!(error.failure(), Failure::Throttled);
        }
        other => panic!("{other:?}"),
    }
    world.server.on_open(Answer::Well);
    assert!(world.time.run(pool.acquire()).is_ok());
}

#[test]
fn a_warm_up_gives_up_on_what_hangs() {
    let world = World::new();
    world.server.on_open(Answer::Hang);
    let start = world.time.now();
    let pool = world.standard(config(10));
    let took = world.time.now().since(start);
    assert!(took >= seconds(60) && took <= seconds(70), "six attempts of ten seconds: {took:?}");
    world.time.advance(Duration::from_millis(1));
    assert_eq!((pool.status().open, pool.status().opening), (0, 0));
}

#[test]
fn a_warm_up_waits_a_minute_for_a_slow_rate_limit() {
    let world = World::new();
    let began = world.time.now();
    let pool = world.standard(config(10).rate(0.001, 1));
    let took = world.time.now().since(began);
    assert!(took >= seconds(60) && took < seconds(75), "{took:?}");
    assert_eq!(pool.status().open, 1);
}

#[test]
fn a_warm_up_uses_a_connection_that_came_after_its_attempt() {
    let world = World::new();
    let began = world.time.now();
    // The second connection gets its permit after 15 s: during the second attempt.
    let pool = world.standard(config(2).rate(1.0 / 15.0, 1));
    let took = world.time.now().since(began);
    assert!(took >= seconds(15) && took < seconds(25), "{took:?}");
    assert_eq!(world.server.opened(), 2, "{:?}", pool.status());
}

#[test]
fn a_warm_up_ends_with_the_first_denial() {
    let world = World::new();
    world.server.on_open(Answer::Deny);
    let start = world.time.now();
    let error = world.time.run(world.builder(config(10), false, None).connect()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth(Auth::Denied), "{error}");
    assert_eq!((world.server.asked(), world.time.now()), (1, start));
    world.time.advance(seconds(60));
    assert_eq!(world.server.asked(), 1, "no keeper is left");
    world.assert_nothing_left();
}

#[test]
fn a_pool_that_is_denied_later_fails_callers_at_once_and_goes_on_trying() {
    let world = World::new();
    let pool = world.standard(config(10));
    world.server.on_open(Answer::Deny);
    world.server.kill_all();
    world.time.advance(seconds(1));
    let start = world.time.now();
    let denied = world.time.run(pool.acquire());
    assert!(matches!(denied, Err(CheckoutError::Denied { .. })), "{denied:?}");
    assert_eq!(world.time.now(), start);
    world.server.on_open(Answer::Well);
    world.time.advance(seconds(1));
    assert!(world.time.run(pool.acquire()).is_ok());
}

#[test]
fn a_warm_up_keeps_none_that_does_not_answer() {
    let world = World::new();
    world.server.on_check(Answer::Fail(Failure::Open));
    let pool = world.standard(config(2));
    assert_eq!((pool.status().open, world.server.live(), world.server.opened()), (0, 0, 12));
}

#[test]
fn the_keeper_counts_connections() {
    let world = World::new();
    let pool = world.standard(config(10));
    for id in [1, 4, 7] {
        world.server.kill(id);
    }
    // Seven could be borrowed all day; three are missing all the same. One for each tick.
    for expected in [8, 9, 10, 10] {
        world.time.advance(seconds(1));
        assert_eq!((pool.status().open, world.server.live()), (expected, expected));
    }
    assert_eq!(world.server.opened(), 13);
    let held: Vec<_> = (0..10).map(|_| world.time.run(pool.acquire()).unwrap()).collect();
    assert_eq!(world.server.opened(), 13, "what the keeper opened is there for callers");
    assert_eq!(world.server.peak(), 10);
    drop(held);
}

#[test]
fn the_keeper_opens_more_at_a_time_in_a_large_pool() {
    let world = World::new();
    let pool = world.standard(config(500));
    world.server.kill_all();
    world.time.advance(Duration::from_millis(1_010));
    assert_eq!(pool.status().open, 5);
    world.time.advance(seconds(9));
    assert_eq!(pool.status().open, 50);
}

#[test]
fn the_keeper_goes_by_its_variables() {
    let world = World::new();
    let options = Options::builder("abc.dsql.us-east-1.on.aws")
        .config(config(10))
        .reservoir(false)
        .variable("DSQL_POOL_KEEPER_TICK_INTERVAL", "5s")
        .variable("DSQL_POOL_KEEPER_MAX_CONNS_PER_TICK", "3");
    let builder = Builder::over(world.server.clone(), options.build().unwrap()).runtime(world.time.clone());
    let pool = world.time.run(builder.connect()).unwrap();
    world.time.settle();
    world.server.kill_all();
    world.time.advance(Duration::from_millis(4_900));
    assert_eq!(pool.status().open, 0);
    for expected in [3, 6, 9, 10] {
        world.time.advance(seconds(5));
        assert_eq!(pool.status().open, expected);
    }
}

#[test]
fn an_observer_hears_of_the_pool_as_of_a_reservoir() {
    let (world, opened) = (World::new(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&opened);
    let builder = world.builder(config(3), false, None).observer(move |event: &Event<'_>| {
        counter.fetch_add(usize::from(matches!(event, Event::Opened { .. })), Ordering::Relaxed);
    });
    let pool = world.time.run(builder.connect()).unwrap();
    assert_eq!((pool.status().open, opened.load(Ordering::Relaxed)), (3, 3));
}

#[test]
fn the_keeper_waits_for_better_times() {
    let world = World::new();
    let pool = world.standard(config(10));
    world.server.kill_all();
    world.server.on_open(Answer::Fail(Failure::Open));
    let asked = world.server.asked();
    world.time.advance(seconds(10));
    assert!(world.server.asked() - asked <= 11, "one attempt for each tick");
    world.server.on_open(Answer::Well);
    world.time.advance(seconds(11));
    assert_eq!(pool.status().open, 10);
}

#[test]
fn the_keeper_ends_with_the_pool() {
    let world = World::new();
    let pool = world.standard(config(5));
    drop(pool);
    world.time.advance(seconds(5));
    let opened = world.server.opened();
    world.time.advance(seconds(60));
    assert_eq!((world.server.opened(), world.server.live()), (opened, 0));
    world.assert_nothing_left();
}

#[test]
fn connections_live_for_55_minutes() {
    let world = World::new();
    let pool = world.standard(config(4));
    let eldest = pool.registry().list();
    world.time.advance(seconds(55 * 60 - 2));
    assert_eq!(pool.registry().list()[0].id, eldest[0].id);
    let mut lent = world.time.run(pool.acquire()).unwrap();
    lent.make_dirty();
    world.time.advance(seconds(10));
    assert!(pool.registry().list().iter().all(|listed| listed.id == lent.id() || listed.age < seconds(60)));
    // One in use goes when it comes back, clean or not.
    let id = lent.id();
    drop(lent);
    world.time.advance(seconds(2));
    assert!(pool.registry().list().iter().all(|listed| listed.id != id));
    assert_eq!((pool.status().open, world.server.live()), (4, 4));
}

#[test]
fn an_old_one_is_not_lent_even_if_the_keeper_is_late() {
    let world = World::new();
    let pool = world.standard(config(1));
    let first = pool.registry().list()[0].id;
    world.time.skip(seconds(56 * 60));
    let lent = world.time.run(pool.acquire()).unwrap();
    assert_ne!(lent.id(), first);
}

#[test]
fn one_that_was_idle_for_long_is_checked_if_so_wished() {
    let world = World::new();
    let pool = world.standard(config(1).check_after(seconds(30)));
    let first = pool.registry().list()[0].id;
    world.server.on_check(Answer::Fail(Failure::Open));
    world.time.advance(seconds(20));
    let mut lent = world.time.run(pool.acquire()).unwrap();
    lent.make_dirty();
    assert_eq!(lent.id(), first);
    drop(lent);
    world.time.advance(seconds(29));
    assert_eq!(pool.registry().list()[0].id, first, "it was used in between");
    world.time.advance(seconds(2));
    assert_ne!(world.time.run(pool.acquire()).unwrap().id(), first);
}

#[test]
fn one_that_is_idle_is_kept_whatever_the_settings_of_a_reservoir_say() {
    let world = World::new();
    let pool = world.standard(config(3).target_ready(1).idle_timeout(seconds(10)).empty_wait(seconds(1)));
    let ids: Vec<_> = pool.registry().list().iter().map(|listed| listed.id).collect();
    world.time.advance(seconds(50 * 60));
    assert_eq!(pool.registry().list().iter().map(|listed| listed.id).collect::<Vec<_>>(), ids);
    // Nor does a caller give up sooner while the pool is short.
    world.server.on_open(Answer::Hang);
    world.server.kill_all();
    let began = world.time.now();
    assert!(world.time.run(pool.acquire()).is_err());
    assert_eq!(world.time.now().since(began), seconds(30));
}

#[test]
fn opens_are_rationed_for_callers_too() {
    let world = World::new();
    let pool = world.standard(config(10).rate(1.0, 10));
    world.server.kill_all();
    let start = world.time.now();
    let held: Vec<_> = (0..4).map(|_| world.time.run(pool.acquire()).unwrap()).collect();
    let took = world.time.now().since(start);
    assert!(took >= seconds(3), "four opens at one a second took {took:?}");
    assert_eq!(held.len(), 4);
}

#[test]
fn leases_are_held_for_as_long_as_connections_live() {
    let world = World::new();
    let pool = world.standard(config(5));
    assert_eq!(world.leases.held(), 5);
    world.server.kill_all();
    world.time.advance(seconds(10));
    assert_eq!((world.leases.held(), pool.status().open), (5, 5));
    world.server.on_open(Answer::Fail(Failure::Open));
    world.server.kill_all();
    world.time.advance(seconds(10));
    assert_eq!((world.leases.held(), pool.status().open), (0, 0));
    world.server.on_open(Answer::Well);
    world.time.advance(seconds(10));
    let drained = world.time.run(pool.drain(seconds(10)));
    assert!(drained.is_complete(), "{drained:?}");
    assert_eq!((world.leases.held(), world.server.live()), (0, 0));
}

#[test]
fn a_drain_waits_for_those_in_use_and_not_for_ever() {
    let world = World::new();
    let pool = world.standard(config(3));
    let lent = world.time.run(pool.acquire()).unwrap();
    let drained = world.time.run(pool.drain(seconds(1)));
    assert_eq!((drained.in_use, drained.closing), (1, 0));
    assert_eq!(world.server.live(), 1);
    drop(lent);
    assert!(world.time.run(pool.drain(seconds(1))).is_complete());
    world.assert_nothing_left();
}

#[test]
fn one_that_does_not_close_is_dropped() {
    let world = World::new();
    let pool = world.standard(config(2));
    world.server.on_close(Answer::Hang);
    let start = world.time.now();
    assert!(world.time.run(pool.drain(seconds(60))).is_complete());
    assert_eq!(world.time.now().since(start), seconds(5));
    world.assert_nothing_left();
}

#[test]
fn one_that_cannot_be_cleaned_is_replaced() {
    for answer in [Answer::Fail(Failure::Open), Answer::Hang] {
        let world = World::new();
        let pool = world.standard(config(1));
        world.server.on_reset(answer);
        let mut lent = world.time.run(pool.acquire()).unwrap();
        let id = lent.id();
        lent.make_dirty();
        drop(lent);
        let lent = world.time.run(pool.acquire_within(seconds(20))).unwrap();
        assert_ne!(lent.id(), id);
    }
}
