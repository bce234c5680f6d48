//! Test suites for implementations of [`Connect`], [`Limit`] and [`Leases`]. Call them from your own tests.
//!
//! Each suite panics with what it expected and what it found. All of them run under virtual time and on a
//! real runtime.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::connect::{Connect, ConnectionMonitor};
use crate::lease::{LeaseError, Leases};
use crate::limit::Limit;
use crate::rt::Runtime;

/// Tests a [`Connect`]: a new connection is usable and clean, remains so after a reset and a check, and
/// closes; opens do not affect each other.
///
/// # Cancel safety
/// Dropping the future drops the connections it has opened.
///
/// # Panics
/// Panics if the connector does not conform.
pub async fn connect<C: Connect>(connector: &C) {
    connector.prepare().await.unwrap_or_else(|error| panic!("prepare failed: {error}"));
    let open = || async {
        let opened = connector.open(ConnectionMonitor::unattached()).await;
        opened.unwrap_or_else(|error| panic!("open failed: {error}"))
    };
    let mut first = open().await;
    let second = open().await;
    for connection in [&first, &second] {
        assert!(connector.is_usable(connection), "a new connection is not usable");
        assert!(connector.is_clean(connection), "a new connection is not clean");
    }
    // A connector without a reset discards dirty connections. That is allowed.
    let reset = connector.reset(&mut first).await.is_ok();
    connector.check(&mut first).await.unwrap_or_else(|error| panic!("check of a live one failed: {error}"));
    assert!(connector.is_usable(&first), "a check left it unusable");
    assert!(!reset || connector.is_clean(&first), "a reset left it dirty");
    connector.close(first).await;
    assert!(connector.is_usable(&second), "closing one connection ended another");

    // An abandoned open must not prevent the next one.
    let mut abandoned = Box::pin(connector.open(ConnectionMonitor::unattached()));
    drop(poll_once(&mut abandoned));
    drop(abandoned);
    let third = open().await;
    assert!(connector.is_usable(&third), "after an abandoned open, a new connection is not usable");
    connector.close(third).await;
    connector.close(second).await;
}

/// Tests a [`Limit`] of `per_second` and `burst`: it grants the burst at once, and then the rate. Unspent
/// permits and abandoned waits leave their permits to the next caller.
///
/// # Cancel safety
/// Dropping the future leaves the limiter in its present state.
///
/// # Panics
/// Panics if the limiter does not conform.
pub async fn limit(limit: &dyn Limit, runtime: &dyn Runtime, per_second: f64, burst: u32) {
    let interval = Duration::from_secs_f64(1.0 / per_second);
    let take = || async {
        limit.acquire().await.unwrap_or_else(|error| panic!("no permit: {error}"));
    };
    let spend = || async {
        limit.acquire().await.unwrap_or_else(|error| panic!("no permit: {error}")).spend();
    };
    let pace = limit.pace();
    assert!((pace.per_second - per_second).abs() < per_second / 100.0, "the pace is {pace:?}");

    let start = runtime.now();
    take().await;
    for _ in 0..burst {
        spend().await;
    }
    let took = runtime.now().since(start);
    assert!(took < interval, "a burst of {burst}, one of which was given back, took {took:?}");

    let mut abandoned = limit.acquire();
    assert!(poll_once(&mut abandoned).is_none(), "more than the burst came at once");
    drop(abandoned);
    let rounds = 5;
    for _ in 0..rounds {
        spend().await;
    }
    let took = runtime.now().since(start);
    assert!(
        took + interval / 100 >= interval * rounds,
        "{rounds} permits beyond the burst took only {took:?}"
    );
    assert!(
        took < interval * (rounds + 1) || took < interval * rounds + Duration::from_millis(100),
        "{rounds} permits took {took:?}: the abandoned reservation was lost"
    );
}

/// Tests [`Leases`] of `limit`: it grants this many and no more, each with its own name. A release is
/// idempotent and frees one lease.
///
/// # Cancel safety
/// Dropping the future leaves the acquired leases held.
///
/// # Panics
/// Panics if the store does not conform.
pub async fn leases(leases: &dyn Leases, limit: u64) {
    let mut held = Vec::new();
    for number in 0..limit {
        let lease = leases.acquire().await;
        held.push(lease.unwrap_or_else(|error| panic!("lease {number} of {limit} was refused: {error}")));
    }
    held.sort();
    assert!(held.windows(2).all(|pair| pair[0] != pair[1]), "two leases have one name");
    for _ in 0..2 {
        match leases.acquire().await {
            Err(LeaseError::Limit { .. }) => {}
            other => panic!("beyond the limit of {limit}: {other:?}"),
        }
    }
    drop(leases.acquire());
    let release = |id| async move {
        leases.release(id).await.unwrap_or_else(|error| panic!("release failed: {error}"));
    };
    let first = held.remove(0);
    release(&first).await;
    release(&first).await;
    let again =
        leases.acquire().await.unwrap_or_else(|error| panic!("a released lease was not free: {error}"));
    assert!(leases.acquire().await.is_err(), "a repeated release made room for two");
    held.push(again);
    for id in &held {
        release(id).await;
    }
}

fn poll_once<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Option<F::Output> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::lease::LocalLeases;
    use crate::limit::LocalLimit;
    use crate::memory::{Answer, Memory};
    use crate::rt::VirtualTime;

    #[test]
    fn ours_conform() {
        let time = VirtualTime::new();
        let memory = Memory::new(time.clone());
        memory.open_time(Duration::from_millis(5));
        time.run(connect(&memory));
        assert_eq!(memory.live(), 0);
        for (rate, burst) in [(10.0, 1), (100.0, 7)] {
            let local = LocalLimit::new(rate, burst, Arc::new(time.clone()));
            time.run(limit(&local, &time, rate, burst));
        }
        let local = LocalLeases::new(5);
        time.run(leases(&local, 5));
        assert_eq!(local.held(), 0);
    }

    #[test]
    #[should_panic(expected = "more than the burst came at once")]
    fn a_limiter_that_grants_too_much_fails() {
        let time = VirtualTime::new();
        let generous = LocalLimit::new(10.0, 5, Arc::new(time.clone()));
        time.run(limit(&generous, &time, 10.0, 1));
    }

    #[test]
    #[should_panic(expected = "lease 2 of 3 was refused")]
    fn a_store_that_grants_too_few_leases_fails() {
        VirtualTime::new().run(leases(&LocalLeases::new(2), 3));
    }

    #[test]
    #[should_panic(expected = "a new connection is not usable")]
    fn a_connector_with_dead_connections_fails() {
        let time = VirtualTime::new();
        let memory = Memory::new(time.clone());
        memory.on_open(Answer::Dead);
        time.run(connect(&memory));
    }
}
