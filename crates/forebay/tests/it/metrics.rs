//! The exported metrics of a running reservoir and the manual agree.

use std::collections::{BTreeMap, BTreeSet};

use forebay::memory::Answer;
use forebay::metrics::{self, BUCKETS};
use forebay::{Failure, Metrics, Reservoir};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

use crate::support::{World, config, millis, seconds};

const MANUAL: &str = include_str!("../../../../docs/metrics.md");

/// Runs a reservoir through successes and failures, and returns the final Prometheus text.
fn scrape(scenario: impl FnOnce(&World, &Reservoir<forebay::memory::Memory>)) -> String {
    // As the manual says.
    let mut exporter = PrometheusBuilder::new();
    for (end, buckets) in BUCKETS {
        exporter = exporter.set_buckets_for_metric(Matcher::Suffix(end.into()), buckets).unwrap();
    }
    let recorder = exporter.build_recorder();
    let handle = recorder.handle();
    ::metrics::with_local_recorder(&recorder, || {
        let world = World::new();
        let reservoir = Reservoir::builder(world.server.clone())
            .config(config(5).acquire_timeout(seconds(1)))
            .runtime(world.time.clone())
            .observer(Metrics::new("dsql").service("history").pool("visibility"))
            .start_empty()
            .unwrap();
        assert!(world.time.run(reservoir.filled(seconds(5))));
        scenario(&world, &reservoir);
        // Values are at most one second old.
        world.time.advance(seconds(1));
    });
    handle.render()
}

fn mixed(world: &World, reservoir: &Reservoir<forebay::memory::Memory>) {
    let held: Vec<_> = (0..5).map(|_| reservoir.try_checkout().unwrap()).collect();
    assert!(world.time.run(reservoir.checkout()).is_err());
    let waiter = world.time.clone();
    let mut held = held;
    let last = held.pop().unwrap().into_owned();
    forebay::rt::Runtime::spawn(&world.time, {
        let at = forebay::rt::Runtime::now(&world.time) + millis(20);
        Box::pin(async move {
            forebay::rt::Runtime::sleep_until(&waiter, at).await;
            drop(last);
        })
    });
    drop(world.time.run(reservoir.checkout()).unwrap());
    held[0].mark_bad();
    drop(held);
    world.time.settle();
    world.server.on_open(Answer::Fail(Failure::Auth));
    world.server.kill_all();
    assert!(reservoir.try_checkout().is_err());
    world.time.advance(seconds(2));
}

/// Samples by name and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.into(), value.parse().unwrap()))
        .collect()
}

fn value(samples: &BTreeMap<String, f64>, name: &str, labels: &str) -> f64 {
    let key = format!("dsql_reservoir_{name}{{service=\"history\",pool=\"visibility\"{labels}}}");
    *samples.get(&key).unwrap_or_else(|| panic!("no {key} in {samples:#?}"))
}

#[test]
fn the_values_are_the_reservoirs() {
    let text = scrape(mixed);
    let samples = samples(&text);
    let of = |name: &str| value(&samples, name, "");
    let by = |name: &str, reason: &str| value(&samples, name, &format!(",reason=\"{reason}\""));
    assert_eq!(
        (of("size"), of("ready"), of("in_use"), of("opening"), of("target")),
        (0.0, 0.0, 0.0, 0.0, 5.0)
    );
    assert_eq!((of("checkouts_total"), of("waits_total")), (6.0, 2.0));
    assert_eq!((of("empty_total"), of("exhausted_total")), (1.0, 1.0));
    assert_eq!(of("refills_total"), 6.0, "five, and one for the bad one");
    assert_eq!(by("discards_total", "bad"), 1.0);
    assert_eq!(by("discards_total", "died"), 5.0);
    assert_eq!(by("discards_total", "retired"), 0.0, "a reason that has not come up is there too");
    assert!(by("refill_failures_total", "auth") >= 5.0);
    // Five were served at once and recorded in bulk. One waited for 20 ms.
    assert_eq!(of("checkout_latency_milliseconds_count"), 6.0);
    assert_eq!(value(&samples, "checkout_latency_milliseconds_bucket", ",le=\"0.00005\""), 5.0);
    assert_eq!(value(&samples, "checkout_latency_milliseconds_bucket", ",le=\"10\""), 5.0);
    assert_eq!(value(&samples, "checkout_latency_milliseconds_bucket", ",le=\"25\""), 6.0);
    assert_eq!(of("open_latency_milliseconds_count"), 6.0);
    assert_eq!(of("connection_age_seconds_count"), 6.0);
}

#[test]
fn the_manual_and_the_exporter_agree_both_ways() {
    let text = scrape(mixed);
    let exported: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    let documented: BTreeMap<&str, &str> = MANUAL
        .lines()
        .filter_map(|line| line.strip_prefix("| `dsql_"))
        .map(|line| {
            let mut cells = line.split('|').map(|cell| cell.trim().trim_matches('`'));
            (cells.next().unwrap(), cells.next().unwrap())
        })
        .collect();
    let exported: BTreeMap<&str, &str> =
        exported.into_iter().map(|(name, kind)| (name.strip_prefix("dsql_").unwrap(), kind)).collect();
    assert_eq!(exported, documented);
    assert!(MANUAL.contains(&metrics::manual("dsql")), "the table should be:\n{}", metrics::manual("dsql"));
    assert!(
        MANUAL.contains(&metrics::manual_reasons()),
        "the reasons should be:\n{}",
        metrics::manual_reasons()
    );

    let reasons: BTreeSet<&str> =
        text.split("reason=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let documented: BTreeSet<&str> = metrics::manual_reasons()
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| *word != "reason" && !word.ends_with("_total"))
        .map(|word| -> &'static str { Box::leak(word.to_owned().into_boxed_str()) })
        .collect();
    assert_eq!(reasons, documented);
}

#[test]
fn every_sample_carries_service_and_pool() {
    let text = scrape(|_, _| ());
    for (name, _) in samples(&text) {
        assert!(name.contains("{service=\"history\",pool=\"visibility\""), "{name}");
    }
}

#[test]
fn reports_in_the_wrong_order_and_late_returns_are_counted_right() {
    let text = scrape(|world, reservoir| {
        use forebay::{Event, Observer};
        let metrics = Metrics::new("dsql").service("history").pool("visibility");
        let older = reservoir.status();
        let guard = reservoir.try_checkout().unwrap().into_owned();
        let newer = reservoir.status();
        metrics.on(&Event::Report { status: &newer });
        metrics.on(&Event::Report { status: &older });
        world.time.run(reservoir.drain(millis(10)));
        world.time.advance(seconds(5));
        drop(guard);
    });
    let samples = samples(&text);
    assert_eq!(value(&samples, "checkouts_total", ""), 2.0, "one from each of two observers");
    assert_eq!((value(&samples, "in_use", ""), value(&samples, "target", "")), (0.0, 0.0));
    assert_eq!(value(&samples, "discards_total", ",reason=\"draining\""), 5.0);
}
