//! What is told, and what is not.

use std::time::Duration;

use super::*;
use crate::sample::{Levels, OpenFailure};
use crate::source::{FleetSnapshot, TokenSnapshot};

/// A pool that is followed, half a second at a time.
struct Pool {
    tracker: Tracker,
    sample: Sample,
}

impl Pool {
    /// 50 connections, all ready, with a low watermark of 40.
    fn full() -> Self {
        let levels =
            Levels { ready: 50, max_open: 50, target_ready: 50, low_watermark: 40, ..Levels::default() };
        let sample = Sample { levels, ..Sample::default() };
        let mut pool = Self { tracker: Tracker::default(), sample };
        assert_eq!(pool.next(|_| {}), [""; 0], "nothing is told about a first sample");
        pool
    }

    fn next(&mut self, change: impl FnOnce(&mut Sample)) -> Vec<String> {
        self.sample.at = self.sample.at + Duration::from_millis(500);
        change(&mut self.sample);
        self.tracker.next(self.sample.clone()).iter().map(Change::text).collect()
    }

    fn discard(&mut self, reason: Discard) -> Vec<String> {
        self.next(|sample| sample.totals.discards[reason.index()] += 2)
    }
}

#[test]
fn an_incident_is_told_from_the_deaths_to_the_refill() {
    let mut pool = Pool::full();
    let died = pool.next(|sample| {
        sample.totals.discards[Discard::Died.index()] += 30;
        (sample.levels.ready, sample.levels.opening) = (20, 30);
    });
    assert_eq!(died, ["30 connections died", "below the low watermark of 40: 20 of 50 usable"]);
    let opened = pool.next(|sample| {
        sample.totals.opened += 25;
        (sample.levels.ready, sample.levels.opening) = (45, 5);
    });
    assert_eq!(opened, ["opened 25 connections", "above the low watermark after 0.5 s: 45 usable"]);
    assert_eq!(pool.next(|_| {}), [""; 0]);
    let refilled = pool.next(|sample| {
        sample.totals.opened += 5;
        (sample.levels.ready, sample.levels.opening) = (50, 0);
    });
    assert_eq!(refilled, ["opened 5 connections", "refilled after 1.5 s"]);
    assert_eq!(pool.next(|_| {}), [""; 0], "it is told once");
}

#[test]
fn a_first_fill_is_not_an_incident() {
    let mut pool = Pool { tracker: Tracker::default(), sample: Sample::default() };
    let levels =
        Levels { opening: 50, max_open: 50, target_ready: 50, low_watermark: 50, ..Levels::default() };
    assert_eq!(pool.next(|sample| sample.levels = levels), [""; 0]);
    assert!(!pool.tracker.has_filled());
    let filled = pool.next(|sample| {
        sample.totals.opened = 50;
        (sample.levels.ready, sample.levels.opening) = (50, 0);
    });
    assert_eq!(filled, ["opened 50 connections", "filled: 50 of 50 usable"]);
    assert!(pool.tracker.has_filled());
}

#[test]
fn replacements_are_routine() {
    let mut pool = Pool::full();
    let replaced = pool.next(|sample| {
        sample.totals.opened += 1;
        sample.totals.discards[Discard::Retired.index()] += 1;
    });
    assert_eq!(replaced, [""; 0]);
    assert_eq!(pool.discard(Discard::Draining), [""; 0]);
}

#[test]
fn every_other_discard_is_told() {
    let mut pool = Pool::full();
    let told: Vec<_> = Discard::ALL
        .into_iter()
        .filter(|reason| !matches!(reason, Discard::Retired | Discard::Draining))
        .map(|reason| pool.discard(reason).join(", "))
        .collect();
    let expired = "2 connections expired before a replacement was there";
    assert_eq!(
        told,
        [
            expired,
            expired,
            expired,
            expired,
            expired,
            "closed 2 connections too many",
            "2 connections found unusable",
            "2 connections could not be reset",
            "2 connections died",
            "closed 2 connections after idle time",
            "2 connections closed: the lease was recalled",
        ]
    );
}

#[test]
fn failures_say_what_the_server_said() {
    let mut pool = Pool::full();
    let failed = pool.next(|sample| {
        sample.totals.open_failures[Failure::Throttled.index()] += 12;
        sample.totals.open_failures[Failure::Timeout.index()] += 1;
        let text = "throttled: the server says 57P03".to_owned();
        sample.refill.last_failure = Some(OpenFailure { reason: Failure::Throttled, text, permanent: false });
    });
    assert_eq!(
        failed,
        ["1 open failed: connect_timeout", "12 opens failed: throttled: the server says 57P03"]
    );
}

#[test]
fn callers_that_wait_and_give_up() {
    let mut pool = Pool::full();
    assert_eq!(
        pool.next(|sample| {
            (sample.levels.ready, sample.levels.in_use) = (0, 50);
            sample.totals.waits += 3;
        }),
        ["3 callers waited: all connections were in use"]
    );
    assert_eq!(
        pool.next(|sample| {
            (sample.levels.ready, sample.levels.in_use) = (0, 45);
            sample.totals.waits += 1;
            sample.totals.checkout_failures[CheckoutFailure::Empty.index()] += 3;
        }),
        ["1 caller waited: connections were missing", "3 callers gave up: empty"]
    );
}

#[test]
fn limits_tables_and_tokens() {
    let mut pool = Pool::full();
    assert_eq!(
        pool.next(|sample| sample.refill.rate_share = 0.5),
        ["the server asked for fewer opens: 50 % of the rate is used"]
    );
    assert_eq!(pool.next(|sample| sample.refill.rate_share = 0.25), [""; 0]);
    assert_eq!(pool.next(|sample| sample.refill.rate_share = 1.0), ["opens use the whole rate again"]);
    assert_eq!(pool.next(|sample| sample.levels.max_open = 80), ["max_open changed from 50 to 80"]);
    let outage = Some(Duration::from_secs(1));
    assert_eq!(
        pool.next(|sample| sample.fleet = Some(FleetSnapshot { outage, ..FleetSnapshot::default() })),
        ["the fleet's table does not answer"]
    );
    assert_eq!(
        pool.next(|sample| sample.fleet = Some(FleetSnapshot::default())),
        ["the fleet's table answers again after 0.5 s"]
    );
    assert_eq!(
        pool.next(|sample| sample.token = Some(TokenSnapshot { failures: 1, ..TokenSnapshot::default() })),
        ["the next token could not be signed"]
    );
    assert_eq!(
        pool.next(|sample| sample.token = Some(TokenSnapshot::default())),
        ["tokens are signed again"]
    );
    assert_eq!(pool.next(|sample| sample.totals.detached = 1), ["1 connection taken out by callers"]);
}

#[test]
fn the_end_is_told_once() {
    let mut pool = Pool::full();
    let draining = pool.next(|sample| {
        sample.levels = Levels { ready: 0, in_use: 3, closing: 7, closed: true, ..sample.levels };
    });
    assert_eq!(draining, ["draining: 3 still in use"]);
    let closed = pool.next(|sample| (sample.levels.in_use, sample.levels.closing) = (0, 0));
    assert_eq!(closed, ["closed"]);
    assert_eq!(pool.next(|_| {}), [""; 0]);
    assert_eq!(pool.tracker.gone(), []);

    let mut dropped = Pool::full();
    assert_eq!(dropped.tracker.gone(), [Change::Closed]);
    assert_eq!(dropped.tracker.gone(), []);
}
