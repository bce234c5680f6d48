//! Shared by the tests.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay::{EnvReader, LeaseMode, LeaseSettings, RateMode, RateSettings};
use forebay_fleet::FleetSettings;

pub(crate) const ENDPOINT: &str = "abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws";

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn settings() -> FleetSettings {
    FleetSettings::new(ENDPOINT, "history")
}

/// Leases by the environment's defaults: heartbeat 30 s, lease 120 s, blocks of 10.
pub(crate) fn leases(mode: LeaseMode, limit: u64) -> LeaseSettings {
    let environment = EnvReader::new("DSQL").read([
        ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true"),
        ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "table"),
    ]);
    let mut leases = environment.unwrap().leases.unwrap();
    (leases.mode, leases.limit) = (mode, limit);
    leases
}

/// A rate by the environment's defaults: waits of 30 s.
pub(crate) fn bucket(mode: RateMode, per_second: u64, burst: u64) -> RateSettings {
    let environment = EnvReader::new("DSQL").read([
        ("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true"),
        ("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "table"),
    ]);
    let mut rate = environment.unwrap().rate.unwrap();
    (rate.mode, rate.per_second, rate.burst) = (mode, per_second, burst);
    rate
}

/// Polls a future once.
pub(crate) fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}
