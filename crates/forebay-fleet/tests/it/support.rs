//! Shared by the tests.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay_fleet::{FleetSettings, LeaseMode, LeaseSettings, RateMode, RateSettings};

pub(crate) const ENDPOINT: &str = "abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws";

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn settings() -> FleetSettings {
    FleetSettings::new(ENDPOINT, "history")
}

/// Leases with the defaults: heartbeat 30 s, lease 120 s, blocks of 10.
pub(crate) fn leases(mode: LeaseMode, limit: u64) -> LeaseSettings {
    LeaseSettings::new("table").mode(mode).limit(limit)
}

/// A rate with the defaults: waits of 30 s.
pub(crate) fn bucket(mode: RateMode, per_second: u64, burst: u64) -> RateSettings {
    RateSettings::new("table").mode(mode).rate(per_second, burst)
}

/// Polls a future once.
pub(crate) fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}
