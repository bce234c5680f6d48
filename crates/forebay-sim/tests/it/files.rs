//! Scenario files: keys with their defaults, and error messages.

use std::time::Duration;

use forebay_sim::Scenario;
use forebay_sim::scenario::{Arrivals, FaultKind};

use super::parse;

#[test]
fn the_specifications_defaults_hold() {
    let scenario = parse("services: [{name: a}]");
    let minutes = |n: u64| Duration::from_secs(60 * n);
    assert_eq!(
        (scenario.seed, scenario.duration, scenario.sample_every),
        (42, minutes(20), Duration::from_secs(1))
    );
    assert_eq!((scenario.limiter.per_second, scenario.limiter.burst), (100.0, 1), "no burst");
    let asserts = scenario.asserts;
    assert_eq!((asserts.max_connects_per_sec, asserts.max_closures_per_sec), (100, 200));
    assert_eq!((asserts.converge_within, asserts.stable_for), (minutes(1), Duration::from_secs(5)));
    assert!(!asserts.zero_empty_events && scenario.faults.is_empty());
    let service = &scenario.services[0];
    assert_eq!((service.target_ready, service.max_open, service.start_delay), (50, 50, Duration::ZERO));
    assert_eq!(
        (service.guard_window, service.base_lifetime, service.jitter),
        (Duration::from_secs(45), minutes(11), minutes(2))
    );
    let workload = &service.workload;
    assert!(!workload.enabled);
    assert_eq!(
        (workload.max_in_use, workload.hold_time, workload.hold_jitter),
        (0, Duration::from_millis(10), Duration::ZERO)
    );
    assert_eq!(workload.arrivals, Arrivals::Batches { every: Duration::from_millis(200), size: 5 });
    assert_eq!(workload.max_wait, Duration::from_secs(10));
    let limit = parse("{limiterPerSec: 7, services: [{name: a}]}").asserts.max_connects_per_sec;
    assert_eq!(limit, 7, "as many connects as the limiter admits");
}

#[test]
fn a_file_of_the_specification_is_read() {
    let scenario = parse(
        "seed: 7\nendpoint: x.dsql.eu-west-1.on.aws\nduration: 5m\nsampleEvery: 2s\nlimiterPerSec: 50\n\
         assertMaxConnectsPerSec: 60\nassertConvergeWithin: 30s\nassertStableFor: 3s\nassertMaxClosurePerSec: 99\n\
         assertZeroEmptyEvents: true\nscenario:\n  kind: mass_drop\n  rollEvery: 30s\n  dropAt: 1m\n  dropFraction: 0.4\n\
         services:\n  - name: a\n    targetReady: 5\n    guardWindow: 30s\n    baseLifetime: 5m\n    jitter: 1m\n    \
         startDelay: 1s\n    workload:\n      enabled: true\n      maxInUse: 3\n      holdTime: 5ms\n      holdJitter: 2ms\n      \
         spawnEvery: 50ms\n      arrivalBurst: 2\n      maxWait: 1s\n",
    );
    assert_eq!((scenario.seed, scenario.asserts.max_connects_per_sec), (7, 60));
    assert_eq!(scenario.faults[0].kind, FaultKind::MassDrop { fraction: 0.4 });
    assert_eq!(scenario.faults[0].at, Duration::from_secs(60));
    assert_eq!(scenario.services[0].workload.max_in_use, 3);
    let defaults = parse("{scenario: {kind: mass_drop}, services: [{name: a}]}").faults;
    assert_eq!(
        (defaults[0].at, &defaults[0].kind),
        (Duration::from_secs(300), &FaultKind::MassDrop { fraction: 0.3 })
    );
    let rolling = parse("{scenario: {kind: rolling_restart}, services: [{name: a}]}").faults;
    assert_eq!((&rolling[0].kind, rolling[0].lasting), (&FaultKind::RollingRestart, Duration::from_secs(60)));
    assert!(parse("{scenario: {kind: cold_start}, services: [{name: a}]}").faults.is_empty());
}

#[test]
fn each_replica_is_an_instance() {
    let scenario = parse("services: [{name: a, replicas: 3, startDelay: 1s, startStep: 100ms}, {name: b}]");
    let names: Vec<&str> = scenario.services.iter().map(|service| service.name.as_str()).collect();
    assert_eq!(names, ["a-0", "a-1", "a-2", "b"]);
    assert_eq!(scenario.services[2].start_delay, Duration::from_millis(1200));
}

/// The problems of this file.
fn problems(text: &str) -> String {
    Scenario::parse("fleet.yaml", text, &[]).expect_err(text).to_string()
}

#[test]
fn problems_have_their_line_and_key() {
    for (text, expected) in [
        ("sevices: []", "fleet.yaml:1: sevices: unknown key; did you mean services?"),
        ("seed: 1", "services: at least one service is required"),
        ("services: 3", "fleet.yaml:1: services: expected a list"),
        ("- a", "fleet.yaml:1: a scenario must be a map of keys"),
        ("services:\n  - targetReady: 5", "fleet.yaml:2: services[0].name: a service needs a name"),
        (
            "services:\n  - name: a\n    color: red",
            "fleet.yaml:3: services[0].color: unknown key; known here:",
        ),
        (
            "duration: soon\nservices: [{name: a}]",
            "fleet.yaml:1: duration: 'soon' is not a duration above zero",
        ),
        ("seed: -1\nservices: [{name: a}]", "fleet.yaml:1: seed: '-1' is not a whole number, at least 0"),
        ("duration: 0s\nservices: [{name: a}]", "duration: '0s' is not a duration above zero"),
        (
            "services:\n  - name: a\n    baseLifetime: 1m\n    jitter: 0s\n    guardWindow: 1m",
            "fleet.yaml:5: services[0].guardWindow: 1m0s is not below the shortest life (baseLifetime - jitter/2), which is 1m0s",
        ),
        (
            "services:\n  - name: a\n    baseLifetime: 1m",
            "fleet.yaml:2: services[0].guardWindow: 45s is not below the shortest life (baseLifetime - jitter/2), which is 0s",
        ),
        ("services: [{name: a, baseLifetime: 2h}]", "is not below cluster.sessionLength, which is 1h0m0s"),
        ("services: [{name: a}, {name: a}]", "two instances have the name 'a'"),
        (
            "services: [{name: a}]\nscenario: {kind: meteor}",
            "fleet.yaml:2: scenario.kind: 'meteor' is not one of cold_start",
        ),
        (
            "services: [{name: a}]\nfaults: [{at: 1m}]",
            "fleet.yaml:2: faults[0].kind: missing; every fault needs a kind",
        ),
        (
            "services: [{name: a}]\nfaults:\n  - {kind: crash, fraction: 1}",
            "fleet.yaml:3: faults[0].fraction: unknown key",
        ),
        (
            "services: [{name: a}]\nfaults:\n  - {kind: crash, service: b}",
            "faults[0].service: there is no service 'b'",
        ),
        (
            "services: [{name: a}]\nfaults:\n  - {kind: failover, at: 20m}",
            "faults[0].at: 20m0s is after the end of the run, which lasts 20m0s",
        ),
        (
            "services: [{name: a, workload: {perSecond: 3, spawnEvery: 1s}}]",
            "give either perSecond, or spawnEvery",
        ),
        (
            "services: [{name: a}]\ncluster: {openTime: {p50: 2s, p99: 1s}}",
            "cluster.openTime.p99: must not be below p50",
        ),
        ("services: [{name: a, targetReady: 5, maxOpen: 4}]", "services[0].maxOpen: 4 is below targetReady"),
        (
            "services: [{name: a}]\nfaults:\n  - {kind: table_outage}",
            "faults[0].kind: the scenario has no table",
        ),
        (
            "services: [{name: a}]\nleases: {beat: 30ms}",
            "leases.beat: 30ms is below 1s; each heartbeat is a write",
        ),
        ("services: [{name: a}]\nsampleEvery: 1ns", "sampleEvery: this makes 1200000000000 samples"),
        (
            "services: [{name: a, workload: {daily: {peakAt: 25h}}}]",
            "services[0].workload.daily.peakAt: a time of day",
        ),
        ("services: [{name: a, targetReady: [5]}]", "services[0].targetReady: expected a whole number"),
    ] {
        let problems = problems(text);
        assert!(problems.contains(expected), "{text}\n{problems}");
    }
}

#[test]
fn all_problems_are_reported_in_the_order_of_the_file() {
    let problems = problems("seed: x\nlimiterPerSec: y\nservices:\n  - name: a\n    targetReady: z\n");
    let lines: Vec<&str> = problems.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(lines, ["fleet.yaml:1", "fleet.yaml:2", "fleet.yaml:5"], "{problems}");
}

/// The known keys of the section in which `text` has an unknown one.
fn known_keys(text: &str) -> Vec<String> {
    let problems = problems(text);
    let known = problems.split("known here: ").nth(1).unwrap_or_else(|| panic!("{text}: {problems}"));
    known.lines().next().unwrap_or_default().split(", ").map(str::to_owned).collect()
}

#[test]
fn the_manual_has_every_key() {
    // Read at run time: a package must not include files from outside its folder.
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/simulator.md");
    let manual = std::fs::read_to_string(manual).expect("this test runs in the workspace");
    let mut keys = known_keys("{zzzzzzzzzzzz: 1, services: [{name: a}]}");
    for section in ["cluster", "limiter", "leases", "table", "credentials", "clocks", "scenario"] {
        keys.extend(known_keys(&format!("{{{section}: {{zzzzzzzzzzzz: 1}}, services: [{{name: a}}]}}")));
    }
    for below in ["", "workload", "workload.daily", "workload.surge"] {
        let setting = format!("services.0{}{below}.zzzzzzzzzzzz=1", if below.is_empty() { "" } else { "." });
        let problems =
            Scenario::parse("a", "services: [{name: a}]", &[setting]).expect_err(below).to_string();
        let known = problems.split("known here: ").nth(1).expect("a list").to_owned();
        keys.extend(known.lines().next().unwrap_or_default().split(", ").map(str::to_owned));
    }
    for kind in [
        "mass_drop",
        "refuse",
        "failover",
        "slow_opens",
        "credential_outage",
        "table_outage",
        "crash",
        "partition",
        "pause",
        "resize",
        "rolling_restart",
    ] {
        assert!(manual.contains(&format!("`{kind}`")), "{kind} is not in the manual");
        let fault = format!("{{kind: {kind}, zzzzzzzzzzzz: 1}}");
        keys.extend(known_keys(&format!("{{faults: [{fault}], services: [{{name: a}}]}}")));
    }
    assert!(keys.len() > 80, "{keys:?}");
    for key in keys {
        assert!(manual.contains(&format!("`{key}`")) || key.starts_with("p50"), "{key} is not in the manual");
    }
}

#[test]
fn doubtful_settings_are_noted() {
    for (text, expected) in [
        ("services: [{name: a, workload: {perSecond: 5}}]", "the workload of a is not enabled"),
        (
            "{leases: {limit: 40}, services: [{name: a}]}",
            "leases.limit, 40, is below the sum of all targets, 50",
        ),
        (
            "{leases: {limit: 51}, services: [{name: a}]}",
            "no room to replace connections before they close; that takes 53",
        ),
        ("{leases: {limit: 20000}, services: [{name: a}]}", "is above cluster.maxConnections"),
        (
            "{scenario: {kind: mass_drop, dropAt: 21m}, services: [{name: a}]}",
            "mass_drop at 21m0s is after the end of the run",
        ),
        (
            "{scenario: {kind: rolling_restart, rollEvery: 11m}, services: [{name: a, replicas: 2}]}",
            "does not reach all instances",
        ),
        ("services: [{name: a, startDelay: 1h}]", "a never starts"),
    ] {
        let notes = parse(text).notes;
        assert!(notes.iter().any(|note| note.contains(expected)), "{text}: {notes:?}");
    }
    assert!(parse("services: [{name: a, workload: {enabled: true}}]").notes.is_empty());
}
