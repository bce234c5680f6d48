//! The HTML report in a real browser: light and dark, on a phone and on a desktop.

#[path = "html_report/browser.rs"]
mod browser;

use std::time::Duration;

use browser::{Browser, Scheme, Seen};
use forebay_sim::{Outcome, Scenario, html_report, run, shipped};

/// Eight instances with faults for a quarter of an hour, and a ninth whose callers have to wait.
const FAULTS: &str = "
duration: 15m
sampleEvery: 5s
assertConvergeWithin: 15s
# With a burst of one, each instance may have a permit of its share beyond it.
assertMaxConnectsPerSec: 109
leases: {limit: 450}
cluster: {maxConnections: 450}
table: {errorRate: 0.001}
faults:
  - {kind: mass_drop, at: 2m, fraction: 0.5}
  - {kind: crash, at: 4m, instances: 2, restartAfter: 15s}
  - {kind: failover, at: 8m, lasting: 30s}
  - {kind: rolling_restart, at: 11m, each: 20s}
services:
  - name: api
    replicas: 8
    targetReady: 50
    startStep: 50ms
    workload: {enabled: true, perSecond: 2, holdTime: 10ms, holdJitter: 10ms, maxWait: 0}
  - name: batch
    targetReady: 5
    workload: {enabled: true, perSecond: 30, holdTime: 100ms, maxWait: 5s}
";

const HOSTILE_NAME: &str =
    "</title></style><script>window.hostile=1</script>\"'&amp;\u{202e}<img src=x onerror=alert(1)>";

/// A service with a hostile name. It crashes, so that the name is in the list of disturbances.
const HOSTILE: &str = r#"
duration: 3m
faults:
  - {kind: crash, at: 1m, instances: 1, restartAfter: 5s}
services:
  - name: "</title></svg></script><script>window.hostile=2</script><img src=x onerror='window.hostile=3'>"
    targetReady: 5
    workload: {enabled: true, perSecond: 2}
"#;

fn outcome(name: &str, text: &str, settings: &[&str]) -> Outcome {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    let scenario = Scenario::parse(name, text, &settings).expect("a scenario");
    run(&scenario, scenario.seed, &mut ()).expect("not interrupted")
}

fn local(settings: &[&str]) -> Outcome {
    let local = shipped().iter().find(|shipped| shipped.name == "local").expect("shipped");
    outcome(local.name, local.text, settings)
}

/// Opens the report in every way. Returns what was seen.
fn look(outcome: &Outcome, folder: &str) -> Vec<Seen> {
    let browser = Browser::new(folder);
    let html = html_report(outcome);
    let mut all = Vec::new();
    for scheme in [Scheme::Light, Scheme::Dark] {
        for width in [360, 1280] {
            let seen = browser.look(&html, scheme, width);
            expect_sound(&seen, outcome);
            all.push(seen);
        }
    }
    all
}

/// Checks that hold for every report.
fn expect_sound(seen: &Seen, outcome: &Outcome) {
    let how = format!("{} {:?} at {}", outcome.scenario, seen.scheme, seen.width);
    let report = &seen.report;
    assert_eq!(report["dark"], seen.scheme == Scheme::Dark, "{how}: the scheme was not applied");
    assert_eq!(report["width"], seen.width, "{how}: the width was not applied");
    assert_eq!(report["errors"], serde_json::json!([]), "{how}");
    assert_eq!(seen.console, [""; 0], "{how}");
    assert_eq!(seen.requests, [""; 0], "{how}: loaded something");
    assert_eq!(report["resources"], serde_json::json!([]), "{how}");
    assert_eq!(report["scripts"], 3, "{how}: the report's own script, and two of this test");
    assert_eq!(report["hostile"], serde_json::Value::Null, "{how}");
    assert!(report["scroll_width"].as_u64() <= Some(seen.width), "{how}: {report:#}");
    assert_eq!(report["sticking_out"], serde_json::json!([]), "{how}");
    assert_eq!(report["low_contrast"], serde_json::json!([]), "{how}");
    assert!(report["texts"].as_u64() > Some(40), "{how}: hardly any text was checked");
    assert_eq!(report["headless_tables"], 0, "{how}");

    for pointed in
        report["pointed"].as_array().expect("three places").iter().filter(|pointed| !pointed.is_null())
    {
        assert_eq!(pointed["put_back"], true, "{how}: {pointed:#}");
        assert!(pointed["scroll_width"].as_u64() <= Some(seen.width), "{how}: {pointed:#}");
    }

    let text = report["text"].as_str().expect("text");
    for part in [&outcome.trace_hash, &format!("--seed {}", outcome.seed)] {
        assert!(text.contains(part), "{how}: no {part} in {text}");
    }
    let verdict = if outcome.passed() { " assertions hold" } else { " assertions failed" };
    assert!(text.contains(verdict), "{how}: {text}");
}

/// The ids of the charts with a drawing. Checks each.
fn drawn(seen: &Seen) -> Vec<&str> {
    let mut ids = Vec::new();
    for chart in seen.report["charts"].as_array().expect("charts") {
        let id = chart["id"].as_str().expect("an id");
        if chart["instead"].is_string() {
            continue;
        }
        assert_eq!(chart["role"], "img", "{id}");
        assert!(chart["label"].as_str().is_some_and(|label| label.len() > 20), "{chart:#}");
        let paths = chart["paths"].as_array().expect("paths");
        assert!(!paths.is_empty(), "{chart:#}");
        let empty = paths.iter().filter(|path| path["length"].as_f64() <= Some(0.0)).count();
        // The median wait is often zero.
        assert!(empty == 0 || (id == "waits" && empty < paths.len()), "{chart:#}");
        for path in paths {
            assert_eq!(path["inside"], true, "{id} leaves its box: {path:#}");
            assert_eq!(path["visible"], true, "{id}: {path:#}");
        }
        ids.push(id);
    }
    ids
}

/// The checks find every defect of a bad page.
#[test]
fn a_page_with_every_defect() {
    let away = "http://127.0.0.1:9/away.png";
    let html = format!(
        "<!doctype html><html><head></head><body style='background:#fff'><p style='color:#999;width:500px'>pale</p>\
         <img src='{away}'><table><tbody><tr><td>1</td></tr></tbody></table>\
         <figure class='chart'><svg viewBox='0 0 9 9' width='90' height='90'><g>\
         <path data-series='0' class='line' stroke='#fff' fill='none' d='M0 0L20 20'/></g></svg></figure>\
         <script>window.hostile = 1; console.error('no'); nothing.at.all;</script></body></html>"
    );
    let seen = Browser::new("wrong").look(&html, Scheme::Light, 360);
    let report = &seen.report;
    assert_eq!(seen.requests, [away]);
    assert_eq!(report["errors"].as_array().map(|errors| errors.len() >= 2), Some(true), "{report:#}");
    assert!(seen.console.iter().any(|line| line.contains("nothing is not defined")), "{:?}", seen.console);
    assert!(report["scroll_width"].as_u64() >= Some(500), "{report:#}");
    assert_eq!(report["sticking_out"].as_array().map(Vec::len), Some(1), "{report:#}");
    assert_eq!(report["low_contrast"], serde_json::json!(["P.: pale 2.85"]));
    assert_eq!((&report["headless_tables"], &report["hostile"]), (&1.into(), &1.into()));
    let path = &report["charts"][0]["paths"][0];
    assert_eq!((&path["inside"], &path["visible"]), (&false.into(), &false.into()), "{report:#}");
}

#[test]
fn a_quiet_run() {
    for seen in look(&local(&["duration=5m"]), "quiet") {
        assert_eq!(drawn(&seen), ["connections", "connects", "discards"]);
        assert!(seen.text().contains("All 14 assertions hold"), "{}", seen.text());
        assert!(seen.text().contains("No callers."), "{}", seen.text());
        let pointed = &seen.report["pointed"][1];
        assert_eq!(pointed["hairs"], 3, "{pointed:#}");
        assert_eq!(pointed["values"]["connections-0"], "200", "{pointed:#}");
        assert_eq!(pointed["values"]["connections-1"], "0", "{pointed:#}");
        assert_eq!(pointed["label"], "2:45", "{pointed:#}");
    }
}

#[test]
fn a_disturbed_run() {
    let outcome = outcome("faults", FAULTS, &[]);
    assert!(outcome.passed() && outcome.recoveries.len() >= 12, "{outcome}");
    for seen in look(&outcome, "disturbed") {
        assert_eq!(
            drawn(&seen),
            ["connections", "connects", "discards", "waits", "checkouts", "failures"],
            "{}",
            seen.text()
        );
        for chart in seen.report["charts"].as_array().expect("charts") {
            let bands = chart["bands"].as_array().expect("bands");
            assert!(bands.iter().any(|band| band == "mass_drop") && bands.len() >= 4, "{chart:#}");
        }
        let pointed = &seen.report["pointed"][1];
        assert_eq!(pointed["label"], "8:15 failover", "{pointed:#}");
        assert_eq!(pointed["values"]["connections-0"], "0", "{pointed:#}");
        for recovery in &outcome.recoveries {
            assert!(seen.text().contains(&recovery.disturbance), "{}", recovery.disturbance);
        }
    }
}

#[test]
fn a_failed_run() {
    let outcome = local(&["duration=3m", "assertConvergeWithin=1s"]);
    for seen in look(&outcome, "failed") {
        assert!(seen.text().contains("1 of 14 assertions failed"), "{}", seen.text());
        let finding = &outcome.verdicts.iter().find(|verdict| !verdict.holds()).expect("failed").findings[0];
        assert_eq!(
            seen.text().matches(finding.as_str()).count(),
            2,
            "at the top and in the table: {}",
            seen.text()
        );
    }
}

#[test]
fn a_run_with_hostile_names() {
    let outcome = outcome(HOSTILE_NAME, HOSTILE, &[]);
    assert!(outcome.recoveries[0].disturbance.contains("<script>"), "{:?}", outcome.recoveries);
    for seen in look(&outcome, "hostile") {
        let shown = HOSTILE_NAME.replace('\u{202e}', "\u{fffd}");
        assert!(seen.text().contains(&shown), "{}", seen.text());
        assert!(seen.text().contains(&outcome.recoveries[0].disturbance), "{}", seen.text());
        assert!(drawn(&seen).contains(&"connections"));
    }
}

/// A day with a sample per second, more than any shipped scenario has.
#[test]
fn the_report_of_a_long_run_is_small_and_has_its_peaks() {
    let mut outcome = outcome("faults", FAULTS, &[]);
    let pattern = std::mem::take(&mut outcome.samples);
    for second in 0..=86_400 {
        let mut sample = pattern[usize::try_from(second).expect("small") % pattern.len()].clone();
        sample.at = Duration::from_secs(second);
        outcome.samples.push(sample);
    }
    outcome.virtual_time = Duration::from_secs(86_400);
    outcome.samples[40_001].ready = 987;
    outcome.samples[50_001].peak_connects = 789;
    let html = html_report(&outcome);
    assert!(html.len() < 200_000, "{} bytes", html.len());
    assert!(html.contains("40001 987"), "the peak of a line is there");
    assert!(html.contains("V789H"), "the peak of a column is there");
    let seen = Browser::new("long").look(&html, Scheme::Light, 1280);
    expect_sound(&seen, &outcome);
    assert_eq!(drawn(&seen).len(), 6);
}

#[test]
fn a_run_of_few_samples() {
    let mut outcome = outcome("faults", FAULTS, &[]);
    outcome.samples.truncate(2);
    assert!(html_report(&outcome).contains("<svg"));
    outcome.samples.truncate(1);
    let seen = Browser::new("one").look(&html_report(&outcome), Scheme::Light, 360);
    expect_sound(&seen, &outcome);
    // Long numbers must fit on a phone.
    outcome.target = 123_456_789;
    expect_sound(&Browser::new("large").look(&html_report(&outcome), Scheme::Light, 360), &outcome);
    outcome.samples.clear();
    outcome.recoveries.clear();
    outcome.virtual_time = Duration::ZERO;
    let seen = Browser::new("none").look(&html_report(&outcome), Scheme::Dark, 360);
    expect_sound(&seen, &outcome);
    assert_eq!(drawn(&seen), [""; 0]);
    assert!(seen.text().contains("No samples were taken."), "{}", seen.text());
}
