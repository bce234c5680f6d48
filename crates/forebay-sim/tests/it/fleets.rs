//! What instances share, and what becomes of it when they are cut off, stand still, or shrink.

use std::time::Duration;

use forebay_sim::{Assertion, Scenario, run, shipped};

use super::{broken, parse, simulate};

/// Four coordinated instances of twenty connections, with load, and with these additional keys.
fn fleet(keys: &str) -> forebay_sim::Outcome {
    simulate(&parse(&format!(
        "{{duration: 12m, limiterPerSec: 20, limiterBurst: 150, leases: {{limit: 90, beat: 10s, length: 40s}}, table: {{}}, \
         clocks: {{skew: 500ms, driftPpm: 50}}, {keys}, services: [{{name: a, replicas: 4, targetReady: 20, \
         workload: {{enabled: true, perSecond: 5, holdTime: 20ms, maxWait: 0}}}}]}}"
    )))
}

#[test]
fn strict_closes_connections_whose_slots_may_be_taken() {
    let partition = "faults: [{kind: partition, at: 3m, service: a-0, from: table, lasting: 3m}]";
    let strict = fleet(&format!("away: strict, {partition}"));
    assert!(broken(&strict).is_empty(), "{strict}");
    assert_eq!(strict.recoveries[0].deficit, 20, "all connections were closed: {strict}");
    for away in ["local", "closed"] {
        let kept = fleet(&format!("away: {away}, {partition}"));
        assert!(broken(&kept).is_empty(), "{away}: {kept}");
        assert_eq!(kept.recoveries[0].deficit, 0, "{away}: it keeps its connections: {kept}");
    }
}

#[test]
fn a_fleet_that_shares_a_window_stays_within_it() {
    let window = shipped().iter().find(|shipped| shipped.name == "window").expect("a shipped scenario");
    let parsed = |settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Scenario::parse(window.name, window.text, &settings).expect("a valid scenario")
    };
    let outcome = simulate(&parsed(&[]));
    assert!(outcome.passed(), "{outcome}");
    // Clocks that are many seconds apart use the items of different seconds.
    let outcome = simulate(&parsed(&["clocks={skew: 60s}"]));
    assert!(broken(&outcome).contains(&Assertion::WithinWindow), "{outcome}");
}

#[test]
fn a_paused_instance_continues() {
    let outcome = fleet("faults: [{kind: pause, at: 3m, instances: 2, lasting: 20s}]");
    assert!(outcome.passed(), "{outcome}");
    assert_eq!(outcome.recoveries[0].deficit, 0, "the cluster keeps the sessions: {outcome}");
}

/// The run ends while instances are paused: they resume to close, and are not judged.
#[test]
fn a_pause_at_the_end_is_not_judged() {
    let pause = "faults: [{kind: pause, at: 11m, instances: 2, lasting: 5m}]";
    let workload = "workload: {enabled: true, perSecond: 5, holdTime: 20ms, maxWait: 0}";
    let alone = format!("{{duration: 12m, {pause}, services: [{{name: a, replicas: 4, {workload}}}]}}");
    for outcome in [fleet(pause), simulate(&parse(&alone))] {
        assert!(outcome.passed(), "{outcome}");
        assert_eq!(outcome.recoveries[0].over, None, "{outcome}");
    }
}

#[test]
fn an_instance_resized_to_one_recovers() {
    // The slots it needs are often in another shard.
    for seed in [42, 2, 3, 16] {
        let resize = "{kind: resize, at: 3m, service: a-1, fraction: 0, lasting: 1m}";
        let outcome = fleet(&format!("seed: {seed}, faults: [{resize}]"));
        assert!(outcome.passed(), "{outcome}");
        assert_eq!(outcome.recoveries[0].deficit, 19, "{outcome}");
    }
}

#[test]
fn the_dead_are_reaped_after_a_table_outage() {
    let outcome = fleet(
        "faults: [{kind: crash, at: 3m, instances: 3, restartAfter: 1s}, {kind: table_outage, at: 185s, lasting: 2m}]",
    );
    assert!(outcome.passed(), "{outcome}");
    let waited = outcome.recoveries.iter().filter_map(|recovery| recovery.took).max();
    assert!(waited > Some(Duration::from_secs(20)), "their slots were missing at first: {outcome}");
}

/// With any seed, 200 instances that start within five seconds use the cluster's rate, and do not overload
/// the item that they share it through.
#[test]
fn a_cold_start_uses_the_bucket_and_spares_the_shared_item() {
    let region = shipped().iter().find(|shipped| shipped.name == "region-10k").expect("a shipped scenario");
    let settings = ["faults=[]", "duration=2m", "sampleEvery=1s", "services.0.startStep=25ms"];
    let scenario =
        Scenario::parse(region.name, region.text, &settings.map(str::to_owned)).expect("a valid scenario");
    for seed in [scenario.seed, 6, 12] {
        let outcome = run(&scenario, seed, &mut ()).expect("not interrupted");
        let writes =
            outcome.samples.windows(2).map(|pair| pair[1].table.rate_writes - pair[0].table.rate_writes);
        let most = writes.max().expect("samples");
        assert!(most <= 50, "{most} writes in one second with seed {seed}");
        let took = outcome.time_to_converge.expect("it converges").as_secs_f64();
        let admitted = 1000.0 + 100.0 * took;
        assert!(10_000.0 >= 0.9 * admitted, "{took} s with seed {seed}");
        assert_eq!(outcome.counts.refused, 0, "seed {seed}");
    }
}
