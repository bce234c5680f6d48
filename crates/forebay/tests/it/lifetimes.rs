//! Lifetimes: connections are replaced in time, never all at once, and never lent when too old.

use std::time::Duration;

use forebay::memory::Answer;
use forebay::rt::Runtime;
use forebay::{Discard, Failure, Lifetime};

use crate::support::{World, config, millis, seconds};

fn minutes(n: u64) -> Duration {
    seconds(60 * n)
}

/// Advances the time in small steps, and returns the smallest and the largest number of usable connections.
fn watch(
    world: &World,
    reservoir: &forebay::Reservoir<forebay::memory::Memory>,
    time: Duration,
) -> (usize, usize) {
    let (mut least, mut most) = (usize::MAX, 0);
    let end = world.time.now() + time;
    while world.time.now() < end {
        world.time.advance(millis(100));
        let status = reservoir.status();
        least = least.min(status.size());
        most = most.max(status.size());
    }
    (least, most)
}

#[test]
fn a_replacement_is_there_before_the_old_one_goes() {
    let world = World::new();
    world.server.open_time(millis(80));
    let reservoir = world.filled(config(20).rate(10.0, 20));
    let (least, most) = watch(&world, &reservoir, minutes(60));
    assert_eq!(least, 20, "never fewer than the target");
    assert!(
        most <= 21 && world.server.peak() <= 21,
        "one over at most, which is 5 %: {}",
        world.server.peak()
    );
    let counts = reservoir.status().counts;
    assert!(counts.discards(Discard::Retired) >= 90, "{counts:?}");
    assert_eq!(counts.all_discards(), counts.discards(Discard::Retired), "all by retirement: {counts:?}");
}

#[test]
fn without_an_overlap_one_at_a_time_is_closed_first() {
    let world = World::new();
    world.server.open_time(millis(80));
    let reservoir = world.filled(config(20).overlap(0).rate(100.0, 20));
    let (least, most) = watch(&world, &reservoir, minutes(60));
    assert_eq!((least, most, world.server.peak()), (19, 20, 20));
    let counts = reservoir.status().counts;
    assert_eq!(
        counts.all_discards(),
        counts.discards(Discard::Retired),
        "ahead of the guard window: {counts:?}"
    );
}

#[test]
fn what_is_not_replaced_ahead_lives_to_its_end() {
    let world = World::new();
    let life = Lifetime::new(minutes(55));
    let reservoir = world.filled(config(4).lifetime(life).overlap(0).replace_ahead(false));
    let lent = reservoir.try_checkout().unwrap();
    world.time.advance(minutes(55) - millis(1));
    assert_eq!((world.server.opened(), reservoir.status().retiring), (4, 0));
    world.time.advance(millis(1));
    let counts = reservoir.status().counts;
    assert_eq!((counts.discards(Discard::ExpiredOnScan), counts.all_discards()), (3, 3), "together");
    assert_eq!((world.server.opened(), reservoir.status().retiring), (7, 0));
    drop(lent);
    world.time.advance(millis(1));
    assert_eq!(reservoir.status().counts.discards(Discard::ExpiredOnReturn), 1);
    assert_eq!((world.server.opened(), world.server.peak(), reservoir.status().ready), (8, 4, 4));
    // A resize and a number in the fleet create no schedule, either.
    reservoir.resize(5).unwrap();
    world.time.advance(minutes(54));
    assert_eq!((world.server.opened(), reservoir.status().retiring), (9, 0));
}

#[test]
fn where_the_fleets_limit_leaves_no_overlap_one_at_a_time_is_closed_first() {
    let world = World::with_lease_limit(20);
    world.server.open_time(millis(80));
    let reservoir = world.filled(config(20).rate(100.0, 20));
    let (least, most) = watch(&world, &reservoir, minutes(60));
    assert_eq!((least, most, world.server.peak()), (19, 20, 20));
    let counts = reservoir.status().counts;
    assert!(counts.discards(Discard::Retired) >= 90, "{counts:?}");
    assert_eq!(counts.all_discards(), counts.discards(Discard::Retired), "{counts:?}");
    assert!(counts.failures(Failure::LeaseLimit) > 0);
    drop(reservoir);
    world.assert_nothing_left();
}

#[test]
fn opens_are_spread_however_they_began() {
    let world = World::new();
    let life = Lifetime::new(minutes(55)).jitter(minutes(2)).guard_window(seconds(45));
    let reservoir = world.filled(config(1000).lifetime(life));
    let mut busiest = 0;
    for _ in 0..3 * 3600 {
        let before = world.server.opened();
        world.time.advance(seconds(1));
        busiest = busiest.max(world.server.opened() - before);
    }
    assert!(busiest <= 2, "{busiest} in one second; the mean is 0.34");
    world.server.kill_all();
    world.time.advance(seconds(1));
    assert_eq!(reservoir.status().size(), 1000);
    let mut busiest = 0;
    for _ in 0..2 * 3600 {
        let before = world.server.opened();
        world.time.advance(seconds(1));
        busiest = busiest.max(world.server.opened() - before);
    }
    assert!(busiest <= 2, "{busiest} in one second after a mass disconnect");
}

#[test]
fn lent_ones_are_held_to_their_life_too() {
    let life = Lifetime::new(seconds(60)).guard_window(seconds(10));
    for (held_for, reason) in [(51, Discard::GuardWindow), (61, Discard::ExpiredOnReturn)] {
        let world = World::new();
        let reservoir = world.filled(config(1).lifetime(life).overlap(0));
        let guard = reservoir.try_checkout().unwrap();
        world.time.advance(seconds(held_for));
        drop(guard);
        world.time.settle();
        assert_eq!(reservoir.status().counts.discards(reason), 1, "{:?}", reservoir.status().counts);
    }
}

#[test]
fn a_guard_tells_its_age_and_what_is_left() {
    let world = World::new();
    let reservoir = world.filled(config(1).lifetime(Lifetime::new(seconds(60))));
    let guard = reservoir.try_checkout().unwrap();
    world.time.advance(seconds(20));
    assert_eq!((guard.age(), guard.remaining()), (seconds(20), Some(seconds(40))));
    let guard = guard.into_owned();
    world.time.advance(seconds(50));
    assert_eq!((guard.age(), guard.remaining()), (seconds(70), Some(Duration::ZERO)));
    drop(guard);
    let forever = world.filled(config(1).unlimited_lifetime());
    assert_eq!(forever.try_checkout().unwrap().remaining(), None);
}

#[test]
fn idle_ones_that_cannot_be_replaced_go_when_they_must() {
    let world = World::new();
    let life = Lifetime::new(seconds(60)).guard_window(seconds(10));
    let reservoir = world.filled(config(3).lifetime(life));
    world.server.on_open(Answer::Fail(Failure::Open));
    world.time.advance(seconds(49));
    assert_eq!(reservoir.status().size(), 3, "past their retirement, they still serve");
    assert!(reservoir.status().retiring > 0);
    world.time.advance(seconds(2));
    assert_eq!(reservoir.status().size(), 0);
    assert_eq!(reservoir.status().counts.discards(Discard::ExpiringOnScan), 3);
}

#[test]
fn a_clock_that_jumps_hands_out_nothing_stale() {
    let world = World::new();
    let reservoir = world.filled(config(5));
    let lent = reservoir.try_checkout().unwrap();
    world.time.skip(minutes(24 * 60));
    assert!(reservoir.try_checkout().is_err(), "all are a day old");
    drop(lent);
    assert!(world.time.run(reservoir.filled(seconds(60))));
    world.time.settle();
    assert!(reservoir.try_checkout().unwrap().age() < seconds(1));
    world.time.advance(seconds(1));
    let counts = reservoir.status().counts;
    assert_eq!(counts.discards(Discard::ExpiredOnCheckout), 4);
    assert_eq!(counts.all_discards(), 5);
}

#[test]
fn expired_ones_found_by_the_scan_are_told_apart() {
    let world = World::new();
    let reservoir = world.filled(config(2));
    world.time.skip(minutes(60));
    world.time.advance(seconds(1));
    assert_eq!(reservoir.status().counts.discards(Discard::ExpiredOnScan), 2);
    assert_eq!(reservoir.status().size(), 2);
}

#[test]
fn idle_ones_are_checked_and_the_dead_replaced() {
    let world = World::new();
    let reservoir = world.filled(config(2).check_after(seconds(30)).unlimited_lifetime());
    let id = reservoir.try_checkout().unwrap().id();
    world.server.kill_silently(id);
    world.time.advance(seconds(29));
    assert_eq!(world.server.opened(), 2);
    world.time.advance(seconds(2));
    assert_eq!(reservoir.status().counts.discards(Discard::Died), 1, "{:?}", reservoir.status());
    assert_eq!((reservoir.status().ready, world.server.opened()), (2, 3));
    world.time.advance(seconds(300));
    assert_eq!(world.server.opened(), 3, "the living pass every check");
    world.server.on_check(Answer::Hang);
    world.time.advance(seconds(40));
    assert!(reservoir.status().counts.discards(Discard::Died) >= 3, "no answer is an answer");
    assert!(world.heard("no answer within 5s") >= 2);
}

#[test]
fn a_check_does_not_count_as_use() {
    let world = World::new();
    let reservoir = world.filled(
        config(2).on_demand(0).check_after(seconds(10)).idle_timeout(seconds(60)).unlimited_lifetime(),
    );
    drop(world.time.run(reservoir.checkout()).unwrap());
    world.time.advance(seconds(59));
    assert_eq!(reservoir.status().size(), 1);
    world.time.advance(seconds(11));
    assert_eq!(reservoir.status().counts.discards(Discard::Idle), 1, "{:?}", reservoir.status());
}

#[test]
fn lives_are_drawn_from_both_sides_of_the_base() {
    let world = World::new();
    let life = Lifetime::new(seconds(600)).jitter(seconds(120));
    let reservoir = world.filled(config(200).lifetime(life));
    let held: Vec<_> = (0..200).map(|_| reservoir.try_checkout().unwrap()).collect();
    let lives: Vec<u64> =
        held.iter().map(|guard| (guard.age() + guard.remaining().unwrap()).as_secs()).collect();
    let (shortest, longest) = (*lives.iter().min().unwrap(), *lives.iter().max().unwrap());
    assert!((540..550).contains(&shortest) && (650..=660).contains(&longest), "{shortest} s to {longest} s");
}

#[test]
fn on_demand_what_is_due_goes_when_it_comes_back_and_nothing_takes_its_place() {
    let world = World::new();
    let life = Lifetime::new(seconds(60)).guard_window(seconds(10));
    let reservoir = world.start(config(5).on_demand(0).lifetime(life));
    let guard = world.time.run(reservoir.checkout()).unwrap();
    world.time.advance(seconds(46));
    assert!(guard.is_due());
    drop(guard);
    world.time.settle();
    let status = reservoir.status();
    assert_eq!((status.size(), status.counts.discards(Discard::Retired), world.server.opened()), (0, 1, 1));
}

#[test]
fn a_replacement_fills_a_gap_before_it_lets_a_retiring_one_go() {
    let world = World::new();
    let life = Lifetime::new(seconds(600)).guard_window(seconds(10));
    // Three at once, and then one every 100 s.
    let reservoir = world.filled(config(3).lifetime(life).rate(0.01, 3));
    world.server.on_open(Answer::Hang);
    world.time.advance(seconds(400));
    assert!(reservoir.status().retiring > 0 && reservoir.status().size() == 3, "{:?}", reservoir.status());
    let other = reservoir.try_checkout().unwrap();
    world.server.kill(other.id());
    drop(other);
    world.server.on_open(Answer::Well);
    let opened = world.server.opened();
    while world.server.opened() == opened {
        assert_eq!(reservoir.status().counts.discards(Discard::Retired), 0);
        world.time.advance(seconds(1));
    }
    assert_eq!(reservoir.status().counts.discards(Discard::Retired), 0, "the first one fills the gap");
    assert_eq!(reservoir.status().size(), 3);
}
