//! The reservoirs of the demo in the simulator: what they promise does not depend on the machine there.

use std::time::Duration;

use forebay::duration::show;
use forebay_sim::{Outcome, Scenario, run};

use super::fleet::{FLEET_BURST, GUARD, HEARTBEAT, JITTER, LEASE, LIFE, TABLE_LATENCY};
use super::incident::{Script, Step};
use super::scenario::{
    ACQUIRE_TIMEOUT, BURST, CALLERS_PER_SECOND, CAP, CONNECTIONS_EACH, HOLD, INSTANCES, OPEN_DELAY,
    OPENS_PER_SECOND, RUSH_CALLERS_PER_SECOND, SESSION_LIFE,
};

/// By then, the instances are full, and their fleet knows all of them.
const BEGIN: Duration = Duration::from_secs(60);

/// The demo with these faults: the same cluster, fleet and callers. `rush` is how often a rush comes, and how long it lasts.
fn simulate(seed: u64, length: Duration, faults: &[String], rush: Option<(Duration, Duration)>) -> Outcome {
    let each = CALLERS_PER_SECOND / u32::try_from(INSTANCES).unwrap();
    let surge = rush.map_or(String::new(), |(every, length)| {
        let times = RUSH_CALLERS_PER_SECOND / CALLERS_PER_SECOND;
        format!(", surge: {{times: {times}, every: {}, length: {}}}", show(every), show(length))
    });
    let text = format!(
        "{{seed: {seed}, duration: {}, limiterPerSec: {OPENS_PER_SECOND}, limiterBurst: {FLEET_BURST}, limiter: {{mode: bucket}}, \
         leases: {{limit: {CAP}, beat: {}, length: {}}}, table: {{latency: {}}}, assertMaxConnectsPerSec: 1000, \
         cluster: {{ratePerSec: {OPENS_PER_SECOND}, burst: {BURST}, maxConnections: {CAP}, sessionLength: {}, openTime: {}}}, \
         faults: [{}], services: [{{name: a, replicas: {INSTANCES}, targetReady: {CONNECTIONS_EACH}, baseLifetime: {}, \
         jitter: {}, guardWindow: {}, workload: {{enabled: true, perSecond: {each}, maxWait: {}, holdTime: {}, \
         holdJitter: {}{surge}}}}}]}}",
        show(BEGIN + length),
        show(HEARTBEAT),
        show(LEASE),
        show(TABLE_LATENCY),
        show(SESSION_LIFE),
        show(OPEN_DELAY),
        faults.join(", "),
        show(LIFE),
        show(JITTER),
        show(GUARD),
        show(ACQUIRE_TIMEOUT),
        show(HOLD.start),
        show(HOLD.end - HOLD.start),
    );
    let scenario =
        Scenario::parse("demo.yaml", &text, &[]).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    run(&scenario, seed, &mut ()).expect("nobody interrupts it")
}

/// The incidents as faults of the simulator, and how often and how long the rush comes.
fn incidents(length: Duration) -> (Vec<String>, (Duration, Duration)) {
    let script = Script::new(length);
    let share = script.periods()[1].to - script.periods()[1].from;
    // A surge comes at each multiple of its period, and the rush of an incident at three quarters of its share.
    let offset = BEGIN.as_nanos().div_ceil(share.as_nanos());
    let offset = share * u32::try_from(offset).unwrap() + share / 4 - script.periods()[1].from;
    let steps = script.steps();
    let until = |from: usize, step: Step| {
        let (end, _) = steps[from..].iter().find(|(_, one)| *one == step).unwrap();
        show(*end - steps[from].0)
    };
    let faults = steps.iter().enumerate().filter_map(|(index, (at, step))| {
        let fault = match step {
            Step::Expire => "kind: mass_drop, fraction: 1".to_owned(),
            Step::Cut(fraction) => format!("kind: mass_drop, fraction: {fraction}"),
            Step::Kill => format!("kind: crash, service: a-1, restartAfter: {}", until(index, Step::Restart)),
            Step::TableDown => format!("kind: table_outage, lasting: {}", until(index, Step::TableUp)),
            Step::Restart | Step::TableUp => return None,
        };
        Some(format!("{{at: {}, {fault}}}", show(offset + *at)))
    });
    (faults.collect(), (share, script.rush_lasts()))
}

#[test]
fn the_reservoirs_fail_no_acquire_in_any_incident() {
    let length = Duration::from_secs(40);
    let (faults, rush) = incidents(length);
    for seed in 1..=5 {
        let outcome = simulate(seed, length + 2 * rush.0, &faults, Some(rush));
        assert_eq!(outcome.recoveries.len(), 5, "{outcome}");
        assert_eq!(outcome.counts.failed(), 0, "{outcome}");
        assert!(outcome.counts.checkouts > 5_000, "{outcome}");
    }
}

/// As fast as a pool that opens when a caller comes: the reservoirs have no more permits than the cluster admits, and each
/// instance has some of them at once.
#[test]
fn after_a_loss_of_all_connections_few_callers_wait_and_not_for_long() {
    for seed in 1..=5 {
        let outcome = simulate(
            seed,
            Duration::from_secs(8),
            &[format!("{{at: {}, kind: mass_drop, fraction: 1}}", show(BEGIN))],
            None,
        );
        assert_eq!(outcome.recoveries[0].deficit, INSTANCES * CONNECTIONS_EACH, "{outcome}");
        // With deadpool, 14 waited, at most 32 ms: it opens as many as callers need, and each open takes 30 ms.
        assert!(outcome.counts.waits <= 20, "{outcome}");
        assert!(outcome.waits.max <= 2 * OPEN_DELAY, "{outcome}");
        assert!(outcome.passed(), "{outcome}");
    }
}
