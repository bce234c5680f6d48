//! The cost of the budget, measured at the table, and how well it is used.

use std::time::Duration;

use forebay::Lifetime;
use forebay::rt::{ProcessClock, Runtime};
use forebay_fleet::{Faults, LeaseMode, RateMode};

use crate::support::{bucket, leases, seconds, settings};
use crate::world::{Actor, World};

/// Two hundred instances that want fifty connections each.
fn two_hundred(seed: u64) -> (World, Vec<Actor>) {
    let mut settings = settings();
    settings.leases = Some(leases(LeaseMode::Ledger, 10_000));
    settings.rate = Some(bucket(RateMode::Bucket, 100, 1000));
    settings.max_open = 50;
    let world = World::new(settings, seed);
    let mut rng = world.seed.fork("clocks").rng();
    let lifetime = Lifetime::new(seconds(55 * 60)).jitter(seconds(120)).guard_window(seconds(45));
    let actors = (0..200).map(|number| {
        let wall_ahead = i64::try_from(rng.below(900_000_000)).unwrap() - 450_000_000;
        let clock = ProcessClock { wall_ahead, ..ProcessClock::default() };
        let actor = world.start_reservoir(number, lifetime, clock);
        let latency = (Duration::from_millis(2), Duration::from_millis(20));
        actor.table.set(Faults { latency, ..Faults::default() });
        actor
    });
    let actors = actors.collect();
    (world, actors)
}

#[test]
fn a_cold_start_of_200_uses_the_bucket_and_no_more() {
    let (world, _actors) = two_hundred(5);
    let start = world.time.now();
    let mut writes = vec![0];
    // The last hundredth searches for slots first: the limit is exactly the total demand.
    while world.live() < 9_900 && world.time.now().since(start) < seconds(300) {
        world.time.advance(seconds(1));
        writes.push(world.bucket_bill().writes);
    }
    let took = world.time.now().since(start);
    assert!(world.live() >= 9_900, "{} after {took:?}", world.live());
    let cluster = world.cluster.lock();
    let filled = cluster.opens.len() as u64;
    let budget = 1000 + took.as_secs() * 100;
    let used = filled * 100 / budget;
    // Including failed writes, over any five seconds: the startup jitter of the reservoirs.
    let most_writes = writes.windows(6).map(|window| (window[5] - window[0]).div_ceil(5)).max().unwrap_or(0);
    let peak = writes.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    println!(
        "cold start: {took:?}, {used} % of the bucket; {most_writes} writes a second at most, {peak} in one"
    );
    assert!(cluster.least_tokens >= 0, "the server would have refused");
    assert!(most_writes <= 40, "{most_writes} writes a second on the shared item");
    assert!(used >= 90, "only {used} % of the bucket in {took:?}");
    drop(cluster);
    world.time.shut_down();
}

#[test]
fn the_steady_state_of_200_costs_what_it_should() {
    let (world, _actors) = two_hundred(6);
    world.time.advance(seconds(600));
    assert!(world.live() >= 9_800, "{} connections", world.live());
    let (before, opens) = (world.table.bill(), world.cluster.lock().opens.len());
    let minutes = 2;
    world.time.advance(seconds(60 * minutes));
    let after = world.table.bill();
    #[allow(clippy::cast_precision_loss, reason = "small")]
    let each_second = |count: u64| count as f64 / (60 * minutes) as f64;
    let written = each_second(after.write_units - before.write_units);
    let read = each_second(after.read_units - before.read_units);
    let opened = world.cluster.lock().opens.len() - opens;
    println!("steady state: {written:.2} write units, {read:.2} read units a second; {opened} opens");
    assert!(opened > 100, "{opened} opens: nothing is shown");
    assert!(written <= 8.0, "{written:.2} write units a second");
    assert!(read <= 14.0, "{read:.2} read units a second");
    world.time.shut_down();
}
