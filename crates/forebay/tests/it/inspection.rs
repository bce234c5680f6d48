//! What operators can see of a reservoir: each connection, and what the refill waits for.

use forebay::memory::Answer;
use forebay::{ConnectionPhase, ConnectionStatus, Failure, Lifetime};

use crate::support::{World, config, millis, seconds};

fn count(connections: &[ConnectionStatus], phase: ConnectionPhase) -> usize {
    connections.iter().filter(|connection| connection.phase == phase).count()
}

#[test]
fn each_usable_connection_is_listed_with_its_age_and_its_ends() {
    let world = World::new();
    let lifetime = Lifetime::new(seconds(600)).guard_window(seconds(45));
    // More than are read under one lock.
    let reservoir = world.filled(config(700).lifetime(lifetime));
    world.time.advance(seconds(10));
    let held = [reservoir.try_checkout().unwrap(), reservoir.try_checkout().unwrap()];
    let connections = reservoir.connections();
    assert_eq!(connections.len(), reservoir.status().size());
    assert_eq!(count(&connections, ConnectionPhase::InUse), 2);
    assert_eq!(count(&connections, ConnectionPhase::Ready), reservoir.status().ready);
    for connection in &connections {
        let (age, stale_in) = (connection.age, connection.stale_in.unwrap());
        assert_eq!(age + connection.expires_in.unwrap(), seconds(600), "{connection:?}");
        assert_eq!(age + stale_in, seconds(555), "{connection:?}");
        assert!(connection.retires_in.unwrap() <= stale_in, "{connection:?}");
    }
    assert!(connections.iter().any(|connection| connection.age >= seconds(10)), "since they were opened");
    drop(held);
}

#[test]
fn without_a_lifetime_a_connection_has_no_end() {
    let world = World::new();
    let reservoir = world.filled(config(1).unlimited_lifetime());
    world.time.advance(seconds(5));
    let [connection] = reservoir.connections()[..] else { panic!("one connection") };
    let ends = [connection.retires_in, connection.stale_in, connection.expires_in];
    assert_eq!((connection.age, ends), (seconds(5), [None; 3]));
}

#[test]
fn the_refill_says_what_is_missing_and_what_it_waits_for() {
    let world = World::new();
    world.server.open_time(millis(10));
    let reservoir = world.start(config(10).rate(1.0, 1));
    world.time.advance(millis(500));
    let refill = reservoir.refill_status();
    let opening = reservoir.status().opening;
    assert_eq!(refill.missing + opening, 9, "{refill:?}");
    assert_eq!(refill.waiting_for_permit, opening);
    assert_eq!((refill.waiting_for_token, refill.waiting_for_lease), (0, 0));
    assert_eq!((refill.limiter, refill.pace.per_second), ("the local rate limit", 1.0));
    assert!(refill.paused_for.is_none() && refill.last_failure.is_none(), "{refill:?}");
    world.time.advance(seconds(20));
    assert_eq!(reservoir.refill_status().missing, 0);
}

#[test]
fn a_server_that_throttles_shows_in_the_refill_until_an_open_succeeds() {
    let world = World::new();
    let reservoir = world.start(config(4));
    world.server.on_open(Answer::Fail(Failure::Throttled));
    world.time.advance(millis(50));
    let refill = reservoir.refill_status();
    assert!(refill.paused_for.is_some() && refill.rate_share < 1.0, "{refill:?}");
    assert_eq!(refill.last_failure.unwrap().failure(), Failure::Throttled);
    world.server.on_open(Answer::Well);
    world.time.advance(seconds(60));
    assert!(reservoir.refill_status().last_failure.is_none());
    assert_eq!(reservoir.config().max_open, 4);
}
