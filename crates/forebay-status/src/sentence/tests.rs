//! The sentence, case by case.

use forebay::{Failure, Lifetime};

use super::*;
use crate::sample::OpenFailure;
use crate::source::FleetSnapshot;

/// A pool with 50 ready connections.
fn full() -> Sample {
    let levels = Levels { ready: 50, max_open: 50, target_ready: 50, low_watermark: 40, ..Levels::default() };
    Sample { levels, ..Sample::default() }
}

fn opens(per_second: f64) -> Rates {
    Rates { opens: per_second, ..Rates::default() }
}

fn failed(reason: Failure, text: &str) -> Option<OpenFailure> {
    Some(OpenFailure { reason, text: format!("{reason}: {text}"), permanent: false })
}

#[track_caller]
fn check(change: impl FnOnce(&mut Sample), rates: Rates, state: State, text: &str) {
    let mut sample = full();
    change(&mut sample);
    let has_filled = sample.totals.checkouts == 0;
    assert_eq!(describe(&sample, &rates, has_filled), Sentence { state, text: text.into() });
}

#[test]
fn at_rest() {
    let quiet = Rates::default();
    check(|_| {}, quiet, State::Full, "full: 50 of 50 ready, replacing about one every 13 s");
    check(
        |sample| (sample.levels.ready, sample.levels.in_use) = (38, 12),
        quiet,
        State::Full,
        "full: 38 of 50 ready, 12 in use, replacing about one every 13 s",
    );
    check(
        |sample| sample.lifecycle.lifetime = Some(Lifetime::new(Duration::from_secs(10))),
        quiet,
        State::Full,
        "full: 50 of 50 ready, replacing about 5/s",
    );
    check(|sample| sample.lifecycle.lifetime = None, quiet, State::Full, "full: 50 of 50 ready");
    check(|sample| sample.lifecycle.replace_ahead = false, quiet, State::Full, "full: 50 of 50 ready");
    // A replacement is under way: that is routine.
    check(
        |sample| (sample.levels.opening, sample.levels.retiring) = (1, 1),
        opens(0.5),
        State::Full,
        "full: 50 of 50 ready, replacing about one every 13 s",
    );
    check(
        |sample| {
            sample.lifecycle.on_demand = true;
            sample.levels =
                Levels { ready: 3, in_use: 9, max_open: 50, target_ready: 2, ..Levels::default() };
        },
        quiet,
        State::OnDemand,
        "on demand: 3 of 12 ready, 9 in use, 50 at most",
    );
}

#[test]
fn refilling() {
    let short = |sample: &mut Sample| {
        (sample.levels.ready, sample.levels.opening, sample.refill.missing) = (20, 10, 20);
    };
    check(short, opens(8.0), State::Refilling, "refilling at 8/s; 4 s to target");
    check(
        |sample| {
            sample.levels =
                Levels { ready: 8, opening: 10, max_open: 120, target_ready: 120, ..sample.levels };
            sample.refill.waiting_for_permit = 9;
            sample.refill.limiter = "the fleet's bucket";
        },
        opens(8.0),
        State::Refilling,
        "refilling at 8/s, limited by the fleet's bucket; 14 s to target",
    );
    check(
        |sample| {
            short(sample);
            sample.refill.waiting_for_permit = 9;
        },
        opens(0.5),
        State::Refilling,
        "refilling at 0.5/s, limited by the rate limiter; 3 s to target",
    );
    check(
        |sample| {
            short(sample);
            sample.refill.rate_share = 0.4;
        },
        opens(4.0),
        State::Refilling,
        "refilling at 4/s, slowed to 40 % of the rate because the server pushed back; 8 s to target",
    );
    check(
        short,
        Rates { open_failures: 2.5, ..opens(3.0) },
        State::Refilling,
        "refilling at 3/s, while 2.5/s fail; 10 s to target",
    );
    check(short, opens(0.0), State::Refilling, "opening 10 connections");
    check(
        |sample| (sample.levels.ready, sample.levels.opening) = (49, 0),
        opens(0.0),
        State::Refilling,
        "no open has started yet",
    );
    check(
        |sample| {
            (sample.levels.ready, sample.levels.opening) = (49, 0);
            sample.refill.paused_for = Some(Duration::from_secs(3));
        },
        opens(0.0),
        State::Refilling,
        "the server asked for fewer opens; next try in 3 s",
    );
    check(
        |sample| {
            short(sample);
            sample.totals.checkouts = 1;
        },
        opens(8.0),
        State::Starting,
        "starting, 20 of 50 usable: refilling at 8/s; 4 s to target",
    );
}

#[test]
fn what_opens_wait_for() {
    let all_wait = |wait: fn(&mut Sample)| {
        move |sample: &mut Sample| {
            (sample.levels.ready, sample.levels.opening) = (40, 10);
            wait(sample);
        }
    };
    let fleet = |active, outage| FleetSnapshot { active, limit: 10_000, outage, ..FleetSnapshot::default() };
    let quiet = Rates::default();
    check(
        all_wait(|sample| sample.refill.waiting_for_token = 10),
        quiet,
        State::Refilling,
        "waiting for a token",
    );
    check(
        all_wait(|sample| sample.refill.waiting_for_permit = 10),
        quiet,
        State::Refilling,
        "waiting for the rate limiter, which permits 10/s",
    );
    let lease = all_wait(|sample| sample.refill.waiting_for_lease = 10);
    check(lease, quiet, State::Refilling, "waiting for a lease");
    check(
        |sample| {
            lease(sample);
            sample.fleet = Some(fleet(10_000, None));
        },
        quiet,
        State::Refilling,
        "waiting for a lease: the fleet has 10,000 of 10,000 in use",
    );
    check(
        |sample| {
            lease(sample);
            sample.fleet = Some(fleet(0, Some(Duration::from_secs(5))));
        },
        quiet,
        State::Refilling,
        "waiting for a lease: the fleet's table does not answer",
    );
}

#[test]
fn trouble() {
    let quiet = Rates::default();
    check(
        |sample| (sample.levels.ready, sample.levels.in_use, sample.levels.waiting) = (0, 50, 12),
        quiet,
        State::Exhausted,
        "12 callers wait: all 50 connections are in use",
    );
    check(
        |sample| {
            (sample.levels.ready, sample.levels.in_use) = (0, 20);
            (sample.levels.opening, sample.levels.waiting) = (30, 1);
        },
        opens(8.0),
        State::Refilling,
        "1 caller waits: 20 of 50 usable; refilling at 8/s; 4 s to target",
    );
    check(
        |sample| {
            sample.levels.ready = 0;
            sample.refill.last_failure = failed(Failure::Auth, "access denied");
            sample.refill.paused_for = Some(Duration::from_secs(3));
        },
        quiet,
        State::Empty,
        "empty: opens fail (auth: access denied); next try in 3 s",
    );
    check(
        |sample| {
            (sample.levels.ready, sample.levels.opening) = (0, 50);
            sample.levels.waiting = 2_000;
        },
        quiet,
        State::Empty,
        "2,000 callers wait: 0 of 50 usable; opening 50 connections",
    );
    check(
        |sample| {
            (sample.levels.ready, sample.levels.opening) = (45, 2);
            sample.refill.last_failure = failed(Failure::Throttled, "too fast");
        },
        quiet,
        State::Failing,
        "45 of 50 usable: opens fail (throttled: too fast); trying again with 2",
    );
    // Before the first connection, failures are not the normal start.
    check(
        |sample| {
            sample.totals.checkouts = 1;
            sample.levels.ready = 0;
            sample.refill.last_failure = failed(Failure::Open, "connection refused");
        },
        quiet,
        State::Empty,
        "empty: opens fail (connection_open: connection refused); trying again",
    );
}

#[test]
fn the_end() {
    let quiet = Rates::default();
    check(
        |sample| {
            sample.levels = Levels { in_use: 3, closed: true, ..Levels::default() };
        },
        quiet,
        State::Draining,
        "draining: 3 still in use",
    );
    check(
        |sample| {
            sample.levels = Levels { in_use: 3, closing: 7, opening: 1, closed: true, ..Levels::default() };
        },
        quiet,
        State::Draining,
        "draining: 3 still in use, 1 to be closed, 7 closing",
    );
    check(
        |sample| sample.levels = Levels { closed: true, ..Levels::default() },
        quiet,
        State::Closed,
        "closed: all connections are closed",
    );
    assert_eq!(gone().text, "closed: the pool is gone");
}

#[test]
fn an_estimate_is_never_absurd() {
    check(|sample| sample.levels.ready = 0, opens(1e-9), State::Empty, "empty: refilling at 0/s");
}

#[test]
fn failing_opens_show_while_nothing_is_missing_yet() {
    let refused = || failed(Failure::Open, "connection refused");
    check(
        |sample| {
            (sample.levels.opening, sample.levels.retiring) = (1, 1);
            sample.refill.last_failure = refused();
        },
        Rates::default(),
        State::Failing,
        &format!("full: 50 of 50 ready, but opens fail ({}); trying again with 1", refused().unwrap().text),
    );
    let on_demand = |sample: &mut Sample| {
        sample.lifecycle.on_demand = true;
        sample.levels = Levels { max_open: 50, ..Levels::default() };
        sample.refill.last_failure = refused();
    };
    check(
        |sample| {
            on_demand(sample);
            sample.refill.paused_for = Some(Duration::from_secs(2));
        },
        Rates { open_failures: 0.5, ..Rates::default() },
        State::Failing,
        &format!(
            "on demand: 0 of 0 ready, 50 at most, but opens fail ({}); next try in 2 s",
            refused().unwrap().text
        ),
    );
    // It failed a while ago, and nobody has needed a connection since.
    check(on_demand, Rates::default(), State::OnDemand, "on demand: 0 of 0 ready, 50 at most");
}

#[test]
fn opens_that_wait_for_different_things_are_not_told_as_opening() {
    let waiting = |lease, permit| {
        move |sample: &mut Sample| {
            (sample.levels.ready, sample.levels.opening) = (45, 5);
            (sample.refill.waiting_for_lease, sample.refill.waiting_for_permit) = (lease, permit);
            sample.refill.per_second = f64::INFINITY;
        }
    };
    let quiet = Rates::default();
    check(waiting(3, 2), quiet, State::Refilling, "waiting for a lease");
    check(waiting(2, 3), quiet, State::Refilling, "waiting for the rate limiter");
    check(waiting(2, 2), quiet, State::Refilling, "opening 5 connections");
}
