//! Pools that take their connections from a reservoir.

use std::sync::Arc;

use bb8::ManageConnection;
use forebay::memory::Answer;
use forebay::rt::Runtime;
use forebay::{CheckoutError, Discard, Failure, Lifetime, ReservoirManager};

use crate::support::{World, config, millis, poll, seconds};

fn short_lives() -> Lifetime {
    Lifetime::new(seconds(60)).guard_window(seconds(10))
}

#[test]
fn a_deadpool_reuses_what_is_good_and_refuses_what_is_due() {
    let world = World::new();
    let reservoir = world.filled(config(1).lifetime(short_lives()).overlap(0));
    let pool: deadpool::managed::Pool<_> =
        deadpool::managed::Pool::builder(ReservoirManager::new(reservoir.clone()))
            .max_size(1)
            .build()
            .unwrap();
    let id = world.time.run(pool.get()).unwrap().id();
    assert_eq!(world.time.run(pool.get()).unwrap().id(), id, "kept by the pool");
    assert_eq!(reservoir.status().in_use, 1, "which is lent, for the reservoir");
    world.time.advance(seconds(51));
    let fresh = world.time.run(pool.get()).unwrap();
    assert_ne!(fresh.id(), id);
    assert!(fresh.remaining().unwrap() > seconds(10));
    assert_eq!(reservoir.status().counts.all_discards(), 1);
    drop(fresh);
    pool.close();
    drop((pool, reservoir));
    world.assert_nothing_left();
}

#[test]
fn a_bb8_pool_reuses_what_is_good_and_refuses_what_is_due() {
    let world = World::new();
    let reservoir = world.filled(config(1).lifetime(short_lives()).overlap(0));
    // bb8 spawns on tokio. No spawned task has to run, since a connection is ready.
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _context = tokio.enter();
    let pool = world
        .time
        .run(bb8::Pool::builder().max_size(1).build(ReservoirManager::new(reservoir.clone())))
        .unwrap();
    let get = || tokio.block_on(async { pool.get().await.unwrap().id() });
    let id = get();
    assert_eq!(get(), id, "kept by the pool");
    world.time.advance(seconds(51));
    assert_eq!(reservoir.status().in_use, 1);
    let mut pooled = Box::pin(async { pool.get().await.map(|connection| connection.id()) });
    assert!(tokio.block_on(async { poll(&mut pooled) }).is_pending(), "the old one is refused");
    world.time.advance(millis(10));
    let fresh = tokio.block_on(pooled).unwrap();
    assert_ne!(fresh, id);
    assert_eq!(reservoir.status().counts.discards(Discard::GuardWindow), 1);
}

#[test]
fn a_connection_due_for_retirement_goes_back_ahead_of_its_guard_window() {
    let world = World::new();
    let reservoir = world.filled(config(1).lifetime(short_lives()));
    let guard = reservoir.try_checkout().unwrap();
    assert!(!guard.is_due());
    world.time.advance(seconds(46));
    assert!(guard.is_due(), "its retirement is booked ahead of the guard window");
    assert!(guard.remaining().unwrap() > seconds(10));
    let owned = guard.into_owned();
    assert!(owned.is_due());
}

#[test]
fn dead_and_dirty_ones_are_refused_too() {
    let world = World::new();
    let reservoir = world.filled(config(2).unlimited_lifetime());
    let pool: deadpool::managed::Pool<_> =
        deadpool::managed::Pool::builder(ReservoirManager::new(reservoir.clone()))
            .max_size(1)
            .build()
            .unwrap();
    let first = world.time.run(pool.get()).unwrap().id();
    world.server.kill(first);
    let mut second = world.time.run(pool.get()).unwrap();
    assert_ne!(second.id(), first);
    world.time.settle();
    second.make_dirty();
    let dirty = second.id();
    drop(second);
    let third = world.time.run(pool.get()).unwrap();
    assert_ne!(third.id(), dirty, "one that is dirty is reset by the reservoir meanwhile");
    world.time.settle();
    assert_eq!(reservoir.status().counts.discards(Discard::Died), 1);
    assert_eq!(reservoir.status().size(), 2);
}

#[test]
fn an_empty_reservoir_is_the_pools_error() {
    let world = World::new();
    world.server.on_open(Answer::Fail(Failure::Auth));
    let reservoir = world.start(config(1));
    let manager = ReservoirManager::new(reservoir);
    assert_eq!(manager.clone().reservoir().status().size(), 0);
    let pool: deadpool::managed::Pool<_> =
        deadpool::managed::Pool::builder(manager).max_size(1).build().unwrap();
    let error = world.time.run(pool.get()).unwrap_err();
    assert!(error.to_string().contains("auth: told to fail"), "{error}");
    let shared = Arc::new(pool);
    assert_eq!(shared.status().size, 0);
}

/// The `Open()` of the specification: bb8 retries until its own timeout.
#[test]
fn a_bb8_pool_hears_of_an_empty_reservoir_after_100_ms() {
    for (config, limit) in [(config(1), millis(100)), (config(1).empty_wait(millis(300)), millis(300))] {
        let world = World::new();
        world.server.on_open(Answer::Fail(Failure::Open));
        let manager = ReservoirManager::new(world.start(config));
        let began = world.time.now();
        let error = world.time.run(manager.connect()).unwrap_err();
        assert!(matches!(error, CheckoutError::Empty { waited, .. } if waited == limit), "{error:?}");
        assert!(error.is_transient());
        assert_eq!(world.time.now().since(began), limit);
        world.server.on_open(Answer::Well);
        world.time.advance(seconds(20));
        assert!(world.time.run(manager.connect()).is_ok());
    }
}

/// deadpool returns the first error to its caller.
#[test]
fn a_deadpool_waits_for_an_empty_reservoir_for_the_acquire_timeout() {
    let world = World::new();
    world.server.on_open(Answer::Fail(Failure::Open));
    let manager = ReservoirManager::new(world.start(config(1).acquire_timeout(seconds(7))));
    let pool: deadpool::managed::Pool<_> =
        deadpool::managed::Pool::builder(manager).max_size(1).build().unwrap();
    let began = world.time.now();
    let error = world.time.run(pool.get()).unwrap_err();
    assert!(error.to_string().contains("connection_open: told to fail"), "{error}");
    assert_eq!(world.time.now().since(began), seconds(7));
}
