//! The shipped scenarios: each passes, and two runs are equal. Whole runs need an optimised build.

use std::time::Duration;

use forebay_sim::scenario::{Arrivals, FaultKind};
use forebay_sim::{Scenario, run, shipped};

fn parse(name: &str) -> Scenario {
    let shipped = shipped().iter().find(|shipped| shipped.name == name).expect("a shipped scenario");
    Scenario::parse(name, shipped.text, &[]).expect("a valid scenario")
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "a simulated day takes minutes without optimisation; ./test uses a release build"
)]
fn all_pass_and_repeat() {
    for shipped in shipped() {
        let scenario = Scenario::parse(shipped.name, shipped.text, &[]).expect("a valid scenario");
        let simulate = || run(&scenario, scenario.seed, &mut ()).expect("not interrupted");
        let (first, second) = (simulate(), simulate());
        assert!(first.passed(), "{first}");
        assert_eq!(first.trace_hash, second.trace_hash, "{}", shipped.name);
        assert_eq!(first.events, second.events, "{}", shipped.name);
    }
}

#[test]
fn each_has_a_description() {
    for shipped in shipped() {
        assert!(shipped.about().ends_with('.') && shipped.about().len() > 20, "{}", shipped.name);
    }
}

#[test]
fn the_region_has_200_instances_for_a_day() {
    let scenario = parse("region-10k");
    assert_eq!((scenario.services.len(), scenario.target()), (200, 10_000));
    assert_eq!(scenario.duration.as_secs(), 24 * 3600);
}

/// The five scenarios of the specification have its sizes and settings.
#[test]
fn the_specified_scenarios_are_as_specified() {
    let (minutes, seconds, millis) =
        (|n: u64| Duration::from_secs(60 * n), Duration::from_secs, Duration::from_millis);
    let ecs_150: &[(&str, usize)] = &[("history", 8), ("matching", 6), ("frontend", 4), ("worker", 2)];
    let ecs_400: &[(&str, usize)] = &[("history", 16), ("matching", 16), ("frontend", 9), ("worker", 3)];
    let each: &[(&str, usize)] = &[("history", 1), ("matching", 1), ("frontend", 1), ("worker", 1)];
    // Name, replicas of each service, target of each replica, start step, duration, convergence, zero empty
    // events.
    for (name, replicas, target, step, duration, converge, zero_empty) in [
        ("local", &[("service", 4)][..], 50, millis(100), minutes(20), seconds(60), true),
        ("ecs-150wps", ecs_150, 100, millis(50), minutes(30), seconds(60), true),
        ("ecs-400wps", ecs_400, 500, millis(50), minutes(30), seconds(300), false),
        ("mass-drop", &[("service", 4)], 50, millis(100), minutes(15), seconds(60), true),
        ("workload-test", each, 50, millis(100), minutes(5), seconds(10), false),
    ] {
        let scenario = parse(name);
        assert_eq!(
            (scenario.seed, scenario.limiter.per_second, scenario.limiter.burst),
            (42, 100.0, 1),
            "{name}"
        );
        assert_eq!((scenario.duration, scenario.asserts.converge_within), (duration, converge), "{name}");
        assert_eq!(
            (scenario.asserts.stable_for, scenario.asserts.max_connects_per_sec),
            (seconds(5), 100),
            "{name}"
        );
        assert_eq!(scenario.asserts.zero_empty_events, zero_empty, "{name}");
        let mut delay = Duration::ZERO;
        let mut services = scenario.services.iter();
        for (service, replicas) in replicas {
            for instance in services.by_ref().take(*replicas) {
                assert!(instance.name.starts_with(service), "{name}: {}", instance.name);
                assert_eq!(
                    (instance.target_ready, instance.start_delay),
                    (target, delay),
                    "{name}: {}",
                    instance.name
                );
                assert_eq!(
                    (instance.guard_window, instance.base_lifetime, instance.jitter),
                    (seconds(45), minutes(11), minutes(2))
                );
                assert_eq!(instance.workload.enabled, name == "workload-test", "{name}");
                delay += step;
            }
        }
        assert!(services.next().is_none(), "{name} has more instances than specified");
    }
    let faults = parse("mass-drop").faults;
    assert_eq!(
        (faults.len(), faults[0].at, &faults[0].kind),
        (1, minutes(5), &FaultKind::MassDrop { fraction: 0.5 })
    );
    let workloads = [(30, 10, 10, 10), (20, 5, 5, 10), (15, 5, 5, 5), (10, 20, 10, 5)];
    for (service, (most, hold, jitter, size)) in parse("workload-test").services.iter().zip(workloads) {
        let workload = &service.workload;
        assert_eq!(
            (workload.max_in_use, workload.hold_time, workload.hold_jitter),
            (most, millis(hold), millis(jitter))
        );
        assert_eq!(workload.arrivals, Arrivals::Batches { every: millis(100), size });
    }
}
