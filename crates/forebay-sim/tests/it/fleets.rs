//! What instances share, and what becomes of it when they are cut off, stand still, or shrink.

use std::time::Duration;

use super::{broken, parse, simulate};

/// Four instances of twenty connections that coordinate, with load, and with these keys besides.
fn fleet(keys: &str) -> forebay_sim::Outcome {
    simulate(&parse(&format!(
        "{{duration: 12m, limiterPerSec: 20, limiterBurst: 150, leases: {{limit: 90, beat: 10s, length: 40s}}, table: {{}}, \
         clocks: {{skew: 500ms, driftPpm: 50}}, {keys}, services: [{{name: a, replicas: 4, targetReady: 20, \
         workload: {{enabled: true, perSecond: 5, holdTime: 20ms, maxWait: 0}}}}]}}"
    )))
}

#[test]
fn strict_closes_what_could_be_taken_away() {
    let partition = "faults: [{kind: partition, at: 3m, service: a-0, from: table, lasting: 3m}]";
    let strict = fleet(&format!("away: strict, {partition}"));
    assert!(broken(&strict).is_empty(), "{strict}");
    assert_eq!(strict.recoveries[0].deficit, 20, "it has closed everything: {strict}");
    for away in ["local", "closed"] {
        let kept = fleet(&format!("away: {away}, {partition}"));
        assert!(broken(&kept).is_empty(), "{away}: {kept}");
        assert_eq!(kept.recoveries[0].deficit, 0, "{away}: it serves on: {kept}");
    }
}

#[test]
fn who_stands_still_goes_on_where_it_stood() {
    let outcome = fleet("faults: [{kind: pause, at: 3m, instances: 2, lasting: 20s}]");
    assert!(outcome.passed(), "{outcome}");
    assert_eq!(outcome.recoveries[0].deficit, 0, "the cluster keeps its sessions: {outcome}");
}

#[test]
fn who_shrinks_to_one_comes_back() {
    // What replacements need besides is in another shard, often as not.
    for seed in [42, 2, 3, 16] {
        let resize = "{kind: resize, at: 3m, service: a-1, fraction: 0, lasting: 1m}";
        let outcome = fleet(&format!("seed: {seed}, faults: [{resize}]"));
        assert!(outcome.passed(), "{outcome}");
        assert_eq!(outcome.recoveries[0].deficit, 19, "{outcome}");
    }
}

#[test]
fn the_dead_are_reaped_once_somebody_can_see_to_it() {
    let outcome = fleet(
        "faults: [{kind: crash, at: 3m, instances: 3, restartAfter: 1s}, {kind: table_outage, at: 185s, lasting: 2m}]",
    );
    assert!(outcome.passed(), "{outcome}");
    let waited = outcome.recoveries.iter().filter_map(|recovery| recovery.took).max();
    assert!(waited > Some(Duration::from_secs(20)), "what they held was missing at first: {outcome}");
}
