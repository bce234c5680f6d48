//! The modelled world, and how reservoirs react to it.

use std::time::Duration;

use forebay::Discard;

use super::{parse, scenario, simulate};

#[test]
fn a_crash_blocks_its_leases_for_a_while() {
    let crash = |limit: u64| {
        simulate(&parse(&format!(
            "{{duration: 10m, leases: {{limit: {limit}, length: 2m}}, \
             faults: [{{kind: crash, at: 2m, service: a-0, restartAfter: 5s}}], \
             services: [{{name: a, replicas: 2, targetReady: 50}}]}}"
        )))
    };
    let tight = crash(106);
    assert!(tight.passed(), "{tight}");
    let took = tight.recoveries[0].took.expect("it recovered");
    assert!(took > Duration::from_secs(100), "the leases of the dead must expire first: {took:?}");
    let roomy = crash(200);
    let took = roomy.recoveries[0].took.expect("it recovered");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn failing_credentials_burn_no_connect_budget() {
    let outage = |lasting: &str| {
        let at = format!("faults=[{{kind: credential_outage, at: 2m, lasting: {lasting}}}]");
        simulate(&scenario("local", &["services.0.baseLifetime=4m", "services.0.jitter=1m", &at]))
    };
    let outcome = outage("10m");
    assert!(outcome.passed(), "{outcome}");
    assert!(outcome.counts.all_open_failures() > 100, "{outcome}");
    assert_eq!(outcome.counts.connects, outcome.counts.opened, "no connect was tried without a token");
}

#[test]
fn a_partitioned_instance_serves_its_connections() {
    let outcome = simulate(&parse(
        "{duration: 10m, sampleEvery: 1s, table: {}, leases: {limit: 200}, assertZeroEmptyEvents: true, \
         faults: [{kind: partition, at: 2m, instances: 1, lasting: 3m}], \
         services: [{name: a, replicas: 2, workload: {enabled: true, perSecond: 10, maxWait: 0}}]}",
    ));
    assert!(outcome.passed(), "{outcome}");
    assert!(outcome.counts.all_open_failures() > 0, "{outcome}");
}

#[test]
fn each_refusal_is_survived() {
    for with in ["53300", "53400", "waking", "denied", "unreachable", "silence"] {
        let outcome = simulate(&parse(&format!(
            "{{duration: 10m, faults: [{{kind: refuse, at: 2m, with: '{with}', lasting: 30s}}, \
             {{kind: mass_drop, at: 2m5s, fraction: 0.2}}], services: [{{name: a}}]}}"
        )));
        assert!(outcome.counts.refused_on_purpose > 0, "{with}: {outcome}");
        assert_eq!(outcome.counts.refused, 0, "{with}: the cluster's limits refused nothing");
        // After pushback the rate rises slowly, which may delay the recovery.
        let pushback = matches!(with, "53300" | "53400");
        assert!(outcome.passed() || pushback, "{with}: {outcome}");
        assert!(outcome.recoveries.iter().all(|recovery| recovery.took.is_some()), "{with}: {outcome}");
    }
}

#[test]
fn clocks_may_be_wrong() {
    let outcome = simulate(&scenario("workload-test", &["clocks={skew: 2s, driftPpm: 500}", "duration=15m"]));
    assert!(outcome.passed(), "{outcome}");
}

#[test]
fn a_failing_table_is_survived() {
    let table = "table={errorRate: 0.02, lostAnswers: 0.02}";
    for mode in ["ledger", "counter"] {
        let leases = format!("leases={{limit: 260, mode: {mode}}}");
        // A lost call costs 5 s, and a replacement has 10 s. In mode counter each lease is a call, and one
        // seed in six loses two calls for the same connection.
        let outcome = simulate(&scenario("local", &[table, &leases, "limiterBurst=300", "seed=43"]));
        assert!(outcome.passed(), "{outcome}");
    }
}

#[test]
fn a_restart_drains_and_a_crash_does_not() {
    let outcome = simulate(&scenario("rolling-restart", &[]));
    assert_eq!(outcome.counts.discards[Discard::Draining.index()], 200, "each instance once");
    let outcome = simulate(&scenario(
        "local",
        &["faults=[{kind: crash, at: 5m, instances: 1, restartAfter: 1s}]", "duration=10m"],
    ));
    assert_eq!(outcome.counts.discards[Discard::Draining.index()], 0, "{outcome}");
    assert_eq!(outcome.counts.lost_in_crashes, 50, "{outcome}");
}

#[test]
fn load_follows_its_keys() {
    let load = |workload: &str| {
        let text =
            format!("{{duration: 110s, services: [{{name: a, targetReady: 100, workload: {workload}}}]}}");
        simulate(&parse(&text)).counts.checkouts
    };
    // The first fill takes a second: 109 seconds of load.
    let batches = load("{enabled: true, spawnEvery: 100ms, arrivalBurst: 3}");
    assert!((3240..3280).contains(&batches), "{batches}");
    let poisson = load("{enabled: true, perSecond: 30}");
    assert!((3100..3450).contains(&poisson), "{poisson}");
    let limited = load("{enabled: true, spawnEvery: 100ms, arrivalBurst: 3, maxInUse: 1, holdTime: 50ms}");
    assert!((1080..1095).contains(&limited), "{limited}");
    assert_eq!(load("{enabled: false}"), 0);
}
