//! Every assertion can fail, each for its own reason.

use std::time::Duration;

use forebay_sim::Assertion;

use super::{broken, parse, scenario, simulate};

/// Exactly these assertions fail.
fn breaks(text: &str, expected: &[Assertion]) {
    let outcome = simulate(&parse(text));
    assert_eq!(broken(&outcome), expected, "{outcome}");
}

#[test]
fn a_calm_fleet_breaks_none() {
    let outcome = simulate(&scenario("local", &[]));
    assert!(outcome.passed(), "{outcome}");
    assert_eq!(outcome.time_to_converge.map(|time| time.as_secs()), Some(2), "200 at 100 per second");
}

#[test]
fn more_connects_than_allowed() {
    breaks(
        "{duration: 1m, limiterPerSec: 200, assertMaxConnectsPerSec: 100, services: [{name: a, targetReady: 300}]}",
        &[Assertion::MaxConnects],
    );
}

#[test]
fn a_limiter_per_instance_does_not_limit_the_fleet() {
    let outcome = simulate(&parse(
        "{duration: 2m, limiterPerSec: 50, limiterBurst: 50, limiterScope: instance, cluster: {burst: 100}, \
         services: [{name: a, replicas: 10, targetReady: 50}]}",
    ));
    assert!(broken(&outcome).contains(&Assertion::NoRefusals), "{outcome}");
    assert!(outcome.counts.refused > 0, "by the cluster's own count");
}

#[test]
fn the_cluster_enforces_its_connection_limit() {
    let outcome = simulate(&parse(
        "{duration: 2m, cluster: {maxConnections: 150}, services: [{name: a, replicas: 4, targetReady: 50}]}",
    ));
    let broken = broken(&outcome);
    assert!(broken.contains(&Assertion::NoRefusals) && broken.contains(&Assertion::Converges), "{outcome}");
    assert_eq!(outcome.peak_connections, 150);
}

#[test]
fn too_slow_a_start() {
    let text = "{duration: 2m, assertConvergeWithin: 1s, services: [{name: a, targetReady: 300}]}";
    breaks(text, &[Assertion::Converges]);
    breaks("{duration: 2s, services: [{name: a, targetReady: 300}]}", &[Assertion::Converges]);
}

#[test]
fn more_closes_than_allowed() {
    breaks("{duration: 20m, assertMaxClosurePerSec: 0, services: [{name: a}]}", &[Assertion::MaxClosures]);
}

#[test]
fn more_renewals_than_allowed() {
    breaks("{duration: 20m, assertMaxRenewalsPerSec: 0, services: [{name: a}]}", &[Assertion::MaxRenewals]);
}

#[test]
fn more_callers_than_connections() {
    breaks(
        "{duration: 1m, services: [{name: a, targetReady: 2, workload: {enabled: true, spawnEvery: 1s, \
         arrivalBurst: 10, holdTime: 5s, maxWait: 100ms}}]}",
        &[Assertion::NoFailedCheckouts],
    );
}

#[test]
fn an_empty_reservoir_differs_from_an_exhausted_one() {
    let outcome = simulate(&parse(
        "{duration: 3m, assertZeroEmptyEvents: true, faults: [{kind: failover, at: 1m, lasting: 20s}], \
         services: [{name: a, workload: {enabled: true, perSecond: 20, maxWait: 0}}]}",
    ));
    assert_eq!(broken(&outcome), [Assertion::ZeroEmpty], "even in a disturbance: {outcome}");
    assert!(outcome.counts.empties > 0 && outcome.counts.exhausted == 0);
    let outcome = simulate(&parse(
        "{duration: 1m, assertZeroEmptyEvents: true, services: [{name: a, targetReady: 2, workload: {enabled: true, \
         spawnEvery: 1s, arrivalBurst: 10, holdTime: 5s, maxWait: 100ms}}]}",
    ));
    assert!(outcome.counts.exhausted > 0 && outcome.counts.empties == 0, "{outcome}");
}

#[test]
fn all_callers_that_find_it_empty_are_counted() {
    let failover = |keys: &str, wait: &str| {
        simulate(&parse(&format!(
            "{{duration: 3m, assertZeroEmptyEvents: true, faults: [{{kind: failover, at: 1m, lasting: 5s}}], \
             services: [{{name: a, {keys} workload: {{enabled: true, perSecond: 20, maxWait: {wait}}}}}]}}"
        )))
    };
    let patient = failover("", "20s");
    assert_eq!(broken(&patient), [Assertion::ZeroEmpty], "{patient}");
    assert_eq!(patient.counts.failed(), 0, "all were served: {patient}");
    assert!(patient.counts.empties > 50, "{patient}");
    assert!(patient.waits.max > Duration::from_secs(4), "{patient}");
    // The same callers find it empty; here they fail.
    let hasty = failover("emptyWait: 100ms,", "0");
    assert!(hasty.counts.failed_short > 50 && hasty.counts.failed_short <= hasty.counts.empties, "{hasty}");
    assert!(hasty.waits.max < Duration::from_millis(150), "{hasty}");
    assert_eq!(broken(&hasty), [Assertion::ZeroEmpty], "{hasty}");
}

#[test]
fn a_session_held_for_longer_than_the_cluster_allows() {
    let outcome = simulate(&parse(
        "{duration: 100m, sampleEvery: 1m, services: [{name: a, targetReady: 5, workload: {enabled: true, \
         spawnEvery: 30m, arrivalBurst: 1, holdTime: 70m}}]}",
    ));
    assert!(broken(&outcome).contains(&Assertion::NoAgedSessions), "{outcome}");
}

#[test]
fn too_slow_a_recovery() {
    // The drop comes just before the slow opens end: the judge allows only the usual open time.
    let outcome = simulate(&parse(
        "{duration: 20m, assertRecoverWithin: 1.0, cluster: {openTime: 2s}, \
         faults: [{kind: slow_opens, at: 5m, factor: 5, lasting: 10m}, {kind: mass_drop, at: 14m59s, fraction: 1}], \
         services: [{name: a, targetReady: 20}]}",
    ));
    assert_eq!(broken(&outcome), [Assertion::Recovers], "{outcome}");
}

#[test]
fn a_fleet_that_does_not_stay_at_target() {
    // Callers hold connections to the end of their lives, so that no replacement can open in time.
    let outcome = simulate(&parse(
        "{duration: 40m, services: [{name: a, targetReady: 5, overlap: 0, workload: {enabled: true, spawnEvery: 10s, \
         arrivalBurst: 5, maxInUse: 5, holdTime: 12m}}]}",
    ));
    assert!(broken(&outcome).contains(&Assertion::Stable), "{outcome}");
}

#[test]
fn recovery_is_measured_against_the_limiter() {
    let outcome = simulate(&scenario("mass-drop", &[]));
    assert!(outcome.passed(), "{outcome}");
    let recovery = &outcome.recoveries[0];
    assert_eq!((recovery.deficit, recovery.limiter_time), (100, Duration::from_millis(990)));
    let took = recovery.took.expect("it recovered");
    assert!(took <= recovery.limiter_time.mul_f64(1.1), "{took:?}");
}

#[test]
fn a_fleet_with_a_starved_instance_is_not_at_target() {
    // Leases go to the first instance; the last gets none.
    let outcome = simulate(&parse(
        "{duration: 5m, leases: {limit: 60, mode: counter}, services: [{name: first, targetReady: 60}, {name: last, targetReady: 60, \
         startDelay: 10s}]}",
    ));
    assert!(broken(&outcome).contains(&Assertion::Converges), "{outcome}");
}

#[test]
fn waits_of_failed_callers_count() {
    let outcome = simulate(&parse(
        "{duration: 1m, services: [{name: a, targetReady: 1, workload: {enabled: true, spawnEvery: 10s, \
         arrivalBurst: 3, holdTime: 9s, maxWait: 2s}}]}",
    ));
    assert!(outcome.counts.exhausted > 0, "{outcome}");
    assert_eq!(outcome.waits.max.as_millis() / 10, 200, "{outcome}");
}
