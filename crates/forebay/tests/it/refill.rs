//! Opens: at the limiter's rate, and slower while they fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay::memory::{Answer, Memory};
use forebay::rt::Runtime;
use forebay::{
    Config, Discard, Failure, Limit, LimitError, LocalLimit, Pace, Permit, Reservoir, Seed, StoreFuture,
};

use crate::support::{World, config, millis, seconds};

/// The number of opens in the ten seconds after the first, at 100 per second without a burst.
fn opens_in_ten_seconds(open_time: u64) -> u64 {
    let world = World::new();
    world.server.open_time(millis(open_time));
    let reservoir = world.start(config(5000).rate(100.0, 1));
    world.time.advance(millis(2000));
    let before = reservoir.status().counts.refills;
    world.time.advance(seconds(10));
    reservoir.status().counts.refills - before
}

#[test]
fn the_limiter_is_the_only_throttle() {
    for open_time in [1, 50, 330] {
        let opens = opens_in_ten_seconds(open_time);
        assert!((990..=1000).contains(&opens), "{opens} opens in 10 s at {open_time} ms each");
    }
}

#[test]
fn a_burst_is_used_at_once() {
    let world = World::new();
    world.server.open_time(millis(50));
    let reservoir = world.start(config(60).rate(10.0, 60));
    world.time.advance(millis(50));
    assert_eq!(reservoir.status().size(), 60);
}

#[test]
fn no_more_are_in_flight_than_allowed() {
    let world = World::new();
    world.server.open_time(seconds(1));
    let reservoir = world.start(config(100).inflight_limit(7));
    world.time.advance(millis(500));
    assert_eq!(reservoir.status().opening, 7);
    world.time.advance(seconds(1));
    assert_eq!((reservoir.status().opening, reservoir.status().size()), (7, 7));
}

#[test]
fn never_more_than_max_open_and_no_polling_when_full() {
    let world = World::new();
    let reservoir = world.filled(config(10).unlimited_lifetime());
    world.time.advance(seconds(3600));
    assert_eq!((world.server.opened(), world.server.peak()), (10, 10));
    assert_eq!(reservoir.status().owned(), 10);
}

#[test]
fn a_target_below_the_bound_follows_what_is_lent() {
    let world = World::new();
    let reservoir = world.filled(config(10).target_ready(3).unlimited_lifetime());
    assert_eq!(reservoir.status().ready, 3);
    let mut held = Vec::new();
    for lent in 1..=10 {
        held.push(reservoir.try_checkout().unwrap());
        world.time.settle();
        let status = reservoir.status();
        assert_eq!(status.ready, 3.min(10 - lent), "{status:?}");
    }
    drop(held);
    world.time.advance(seconds(1));
    assert_eq!(world.server.opened(), 10, "and what comes back is kept, not thrown away");
    assert_eq!(reservoir.status().ready, 10);
}

#[test]
fn on_demand_opens_for_callers_and_lets_idle_ones_go() {
    let world = World::new();
    world.server.open_time(millis(10));
    let reservoir = world.filled(config(5).on_demand(1).idle_timeout(seconds(30)).unlimited_lifetime());
    world.time.advance(seconds(60));
    assert_eq!((reservoir.status().ready, world.server.opened()), (1, 1), "one is kept, however idle");
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(world.time.run(reservoir.checkout()).unwrap());
    }
    assert_eq!(world.server.opened(), 5);
    world.time.advance(seconds(100));
    drop(held);
    world.time.advance(seconds(29));
    assert_eq!(reservoir.status().ready, 5, "idle since they came back, not since they were lent");
    world.time.advance(seconds(32));
    assert_eq!(reservoir.status().ready, 1);
    assert_eq!(reservoir.status().counts.discards(Discard::Idle), 4);
}

#[test]
fn failures_are_paced_and_the_first_success_ends_the_pause() {
    let world = World::new();
    world.server.on_open(Answer::Fail(Failure::Open));
    let reservoir = world.start(config(10));
    world.time.advance(seconds(60));
    let asked = world.server.asked();
    assert!(
        (17..=30).contains(&asked),
        "{asked}: ten at once, then one after each pause, doubled up to 10 s"
    );
    assert_eq!(reservoir.status().counts.failures(Failure::Open), asked);
    world.server.on_open(Answer::Well);
    world.time.advance(seconds(31));
    assert_eq!(reservoir.status().size(), 10, "all of them as soon as one succeeds");
}

#[test]
fn failing_credentials_burn_no_budget() {
    let world = World::new();
    world.server.on_prepare(Answer::Fail(Failure::Token));
    let limit = Arc::new(CountingLimit::default());
    let reservoir = Reservoir::builder(world.server.clone())
        .config(config(10))
        .runtime(world.time.clone())
        .leases(Arc::clone(&world.leases) as _)
        .limit(Arc::clone(&limit) as _)
        .start_empty()
        .unwrap();
    world.time.advance(seconds(60));
    assert!(reservoir.status().counts.failures(Failure::Token) > 3);
    assert_eq!((limit.taken(), world.leases.taken(), world.server.asked()), (0, 0, 0));
    world.server.on_prepare(Answer::Well);
    world.leases.answer(crate::support::Store::Fail);
    world.time.advance(seconds(60));
    assert!(reservoir.status().counts.failures(Failure::Lease) > 1);
    assert_eq!((limit.taken(), world.server.asked()), (0, 0), "no lease, no permit");
    limit.fail.store(1, Ordering::Relaxed);
    world.leases.answer(crate::support::Store::Well);
    world.time.advance(seconds(60));
    assert!(reservoir.status().counts.failures(Failure::RateLimit) > 1);
    assert_eq!(
        (world.leases.held(), world.server.asked()),
        (0, 0),
        "no permit, no open; the lease went back"
    );
}

#[derive(Default)]
struct CountingLimit {
    taken: AtomicU64,
    fail: AtomicU64,
}

impl CountingLimit {
    fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Limit for CountingLimit {
    fn acquire(&self) -> StoreFuture<'_, Result<Permit, LimitError>> {
        Box::pin(async {
            if self.fail.load(Ordering::Relaxed) == 1 {
                return Err(LimitError::Timeout { waited: seconds(30) });
            }
            self.taken.fetch_add(1, Ordering::Relaxed);
            Ok(Permit::unlimited())
        })
    }

    fn pace(&self) -> Pace {
        Pace { per_second: 100.0, at_once: 10 }
    }
}

#[test]
fn a_server_that_pushes_back_is_given_time() {
    let opens_after = |failure: Failure| {
        let world = World::new();
        let reservoir = world.start(config(100_000).rate(100.0, 1));
        world.time.advance(seconds(5));
        world.server.on_open(Answer::Fail(failure));
        world.time.advance(millis(20));
        world.server.on_open(Answer::Well);
        world.time.advance(seconds(1));
        let before = reservoir.status().counts.refills;
        world.time.advance(seconds(1));
        let soon = reservoir.status().counts.refills - before;
        world.time.advance(seconds(20));
        let before = reservoir.status().counts.refills;
        world.time.advance(seconds(1));
        (soon, reservoir.status().counts.refills - before)
    };
    let (soon, later) = opens_after(Failure::Throttled);
    assert!((40..70).contains(&soon), "{soon} a second: about half the rate");
    assert!((98..=101).contains(&later), "{later} a second: all of it again");
    let (soon, _) = opens_after(Failure::Open);
    assert!(soon >= 98, "{soon}: other failures do not lower the rate");
}

#[test]
fn pools_of_a_process_share_one_limit() {
    let world = World::new();
    let limit = Arc::new(LocalLimit::new(10.0, 1, Arc::new(world.time.clone())));
    let pools: Vec<Reservoir<Memory>> = (0..2)
        .map(|_| {
            Reservoir::builder(world.server.clone())
                .config(config(1000))
                .runtime(world.time.clone())
                .limit(Arc::clone(&limit) as _)
                .start_empty()
                .unwrap()
        })
        .collect();
    world.time.advance(seconds(10));
    let opened = world.server.opened();
    assert!((100..=101).contains(&opened), "{opened}");
    assert!(pools.iter().all(|pool| pool.status().size() >= 40), "both get a share");
}

#[test]
fn the_first_fill_waits_for_the_watermark_and_no_longer_than_told() {
    let world = World::new();
    let start = |rate: f64| {
        let began = world.time.now();
        let config = config(20).low_watermark(10).rate(rate, 1).fill_timeout(seconds(35));
        let builder = Reservoir::builder(world.server.clone()).config(config).runtime(world.time.clone());
        let log = Arc::clone(&world.log);
        let builder = builder
            .observer(move |event: &forebay::Event<'_>| log.lock().unwrap().push(format!("{event:?}")));
        let reservoir = world.time.run(builder.start()).unwrap();
        (reservoir, world.time.now().since(began))
    };
    let (reservoir, took) = start(10.0);
    assert_eq!((reservoir.status().size(), took), (10, millis(900)));
    assert_eq!(world.heard("Filled { size: 10,"), 1);
    let (reservoir, took) = start(0.1);
    assert_eq!((reservoir.status().size(), took), (4, seconds(35)));
    assert_eq!(world.heard("FillTimedOut { size: 4, low_watermark: 10,"), 1);
    assert!(reservoir.try_checkout().is_ok(), "it serves with what it has");
}

#[test]
fn the_startup_delay_is_random_and_depends_on_the_seed() {
    let first_open = |seed: u64| {
        let world = World::new();
        let reservoir = world.start(config(1).startup_jitter(seconds(5)).seed(Seed::new(seed)));
        let start = world.time.now();
        assert!(world.time.run(reservoir.filled(seconds(60))));
        world.time.now().since(start)
    };
    let delays: std::collections::BTreeSet<_> = (0..20).map(first_open).collect();
    assert!(delays.len() > 15 && delays.iter().all(|delay| *delay <= seconds(5)), "{delays:?}");
    assert!(delays.last().unwrap().as_secs() >= 3, "{delays:?}");
    assert_eq!(first_open(3), first_open(3));
}

#[test]
fn a_caller_who_gives_up_does_not_waste_the_open() {
    let world = World::new();
    world.server.open_time(seconds(1));
    let reservoir = world.start(config(5).on_demand(0).unlimited_lifetime());
    assert!(world.time.run(reservoir.checkout().within(millis(10))).is_err());
    world.time.advance(seconds(2));
    assert_eq!((world.server.opened(), reservoir.status().ready), (1, 1));
}

#[test]
fn crossing_the_watermark_is_logged_once_each_way() {
    let world = World::new();
    let reservoir = world.filled(config(4).low_watermark(3).unlimited_lifetime());
    world.log.lock().unwrap().clear();
    world.server.on_open(Answer::Fail(Failure::Open));
    world.server.kill_all();
    world.time.advance(seconds(10));
    assert_eq!((world.heard("BelowWatermark"), world.heard("AboveWatermark")), (1, 0));
    world.server.on_open(Answer::Well);
    world.time.advance(seconds(60));
    assert_eq!((world.heard("BelowWatermark"), world.heard("AboveWatermark { size: 3 }")), (1, 1));
    assert_eq!(reservoir.status().size(), 4);
}

#[test]
fn a_smaller_reservoir_sheds_and_a_larger_one_fills() {
    let world = World::new();
    let reservoir = world.filled(config(10).unlimited_lifetime());
    let held: Vec<_> = (0..6).map(|_| reservoir.try_checkout().unwrap()).collect();
    reservoir.resize(3).unwrap();
    world.time.settle();
    let status = reservoir.status();
    assert_eq!((status.ready, status.in_use, status.max_open), (0, 6, 3));
    drop(held);
    world.time.settle();
    let status = reservoir.status();
    assert_eq!((status.ready, status.counts.discards(Discard::Full)), (3, 7));
    reservoir.resize(8).unwrap();
    world.time.settle();
    assert_eq!(reservoir.status().ready, 8);
    let error = reservoir.resize(0).unwrap_err();
    assert!(error.to_string().contains("max_open is 0, but must be at least 1"), "{error}");
    assert_eq!(reservoir.status().max_open, 8, "a mistake changes nothing");
}

#[test]
fn an_invalid_configuration_does_not_start() {
    let world = World::new();
    let builder = Reservoir::builder(world.server.clone()).runtime(world.time.clone());
    let error = builder.config(Config::default().max_open(0)).start_empty().unwrap_err();
    assert!(error.to_string().contains("max_open"), "{error}");
    let error = Reservoir::builder(world.server.clone()).start_empty().unwrap_err();
    assert!(error.to_string().contains("no tokio runtime here"), "{error}");
}

#[test]
fn an_observer_may_resize() {
    let world = World::new();
    let handle: Arc<std::sync::OnceLock<Reservoir<Memory>>> = Arc::default();
    let seen = Arc::clone(&handle);
    let builder = Reservoir::builder(world.server.clone()).config(config(2)).runtime(world.time.clone());
    let builder = builder.observer(move |event: &forebay::Event<'_>| {
        if let (forebay::Event::BelowWatermark { .. }, Some(reservoir)) = (event, seen.get()) {
            reservoir.resize(3).unwrap();
        }
    });
    let reservoir = handle.get_or_init(|| builder.start_empty().unwrap());
    world.time.settle();
    reservoir.resize(4).unwrap();
    world.time.settle();
    assert_eq!(reservoir.status().max_open, 3);
}

#[test]
fn extreme_settings_neither_panic_nor_hang() {
    let minute = seconds(60);
    let almost = |base: std::time::Duration| base - std::time::Duration::from_nanos(1);
    for config in [
        config(1000).lifetime(forebay::Lifetime::new(minute).guard_window(almost(minute))),
        config(100)
            .lifetime(forebay::Lifetime::new(minute).jitter(2 * minute - std::time::Duration::from_nanos(2))),
        config(3).target_ready(usize::MAX),
        config(100).check_after(millis(1)).idle_timeout(millis(1)),
        config(1).open_timeout(std::time::Duration::MAX).acquire_timeout(std::time::Duration::MAX),
        config(2).rate(1e12, u32::MAX),
    ] {
        let world = World::new();
        world.server.open_time(millis(10));
        let reservoir = world.start(config.clone());
        world.time.advance(millis(100));
        assert!(world.server.opened() > 0, "{config:?}");
        drop(reservoir);
    }
    for config in [config(1).overlap(usize::MAX), config(1).check_after(std::time::Duration::from_nanos(1))] {
        assert!(config.validate().is_err());
    }
}
