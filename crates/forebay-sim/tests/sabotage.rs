//! The simulator runs the code that ships: if that code is broken, the matching assertion fails.
//!
//! Needs `RUSTFLAGS="--cfg forebay_sabotage"`, which compiles the faults into the core.
#![cfg(forebay_sabotage)]
#![cfg(forebay_sabotage)]

use forebay::sabotage::{Sabotage, during};
use forebay_sim::{Assertion, Scenario, run};

/// The scenario passes with sound code, and fails the expected assertion with this part broken.
fn notices(what: Sabotage, expected: Assertion, text: &str) {
    let scenario = Scenario::parse("test.yaml", text, &[]).expect("a valid scenario");
    let simulate = || run(&scenario, scenario.seed, &mut ()).expect("not interrupted");
    let sound = simulate();
    assert!(sound.passed(), "sound code: {sound}");
    let broken = during(what, simulate);
    let verdict = broken.verdicts.iter().find(|verdict| verdict.assertion == expected);
    assert!(verdict.is_some_and(|verdict| !verdict.holds()), "with {what:?} broken: {broken}");
}

#[test]
fn a_broken_guard_window() {
    notices(
        Sabotage::GuardWindow,
        Assertion::Lives,
        "{duration: 25m, services: [{name: a, targetReady: 20, workload: {enabled: true, spawnEvery: 1s, \
         arrivalBurst: 20, holdTime: 100ms}}]}",
    );
}

#[test]
fn a_broken_bound() {
    notices(
        Sabotage::Bound,
        Assertion::Bound,
        "{duration: 2m, services: [{name: a, targetReady: 20, workload: {enabled: true, spawnEvery: 1s, \
         arrivalBurst: 20, holdTime: 900ms}}]}",
    );
}

#[test]
fn a_broken_queue() {
    notices(
        Sabotage::FirstComeFirstServed,
        Assertion::FirstComeFirstServed,
        "{duration: 1m, services: [{name: a, targetReady: 3, workload: {enabled: true, spawnEvery: 1s, \
         arrivalBurst: 9, holdTime: 50ms, holdJitter: 50ms}}]}",
    );
}

#[test]
fn a_broken_retirement_schedule() {
    notices(
        Sabotage::RetirementSchedule,
        Assertion::MaxRenewals,
        "{duration: 40m, assertMaxRenewalsPerSec: 5, services: [{name: a, targetReady: 1000}]}",
    );
}

#[test]
fn leases_that_are_not_released() {
    notices(
        Sabotage::LeaseRelease,
        Assertion::NoLeaks,
        "{duration: 5m, leases: {limit: 1000}, services: [{name: a, targetReady: 50}]}",
    );
}
