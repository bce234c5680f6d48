//! An outcome as JSON, for machines.

use std::time::Duration;

use serde_json::{Value, json};

use super::Outcome;
use super::pooled::Pooled;
use super::reserved::Reserved;
use super::settings::Settings;
use super::side::Figures;

/// One object, and a line end.
pub(super) fn record(outcome: &Outcome) -> String {
    let Outcome { run, frame, ending } = outcome;
    let scenario = &run.scenario;
    let terms = &scenario.terms;
    let record = json!({
        "seed": run.seed.number(),
        "seconds": run.length.as_secs(),
        "measured_seconds": frame.elapsed.as_secs_f64(),
        "ending": ending.word(),
        "server": {
            "opens_per_second": terms.opens_per_second,
            "burst": terms.burst,
            "open_ms": [millis(terms.open_time.shortest), millis(terms.open_time.longest)],
            "session_seconds": terms.session_life.as_secs_f64(),
        },
        "load": {
            "callers_per_second": scenario.callers_per_second,
            "rush_callers_per_second": scenario.rush.callers_per_second,
            "rush_first_seconds": scenario.rush.first.as_secs_f64(),
            "rush_every_seconds": scenario.rush.every.as_secs_f64(),
            "rush_lasts_seconds": scenario.rush.lasts.as_secs_f64(),
        },
        "slow_over_ms": millis(scenario.slow),
        "acquire_timeout_ms": millis(scenario.patience),
        "deadpool": side(&frame.pooled, &Pooled::settings(scenario)),
        "reservoir": side(&frame.reserved, &Reserved::settings(scenario)),
    });
    format!("{record:#}\n")
}

fn side(figures: &Figures, settings: &Settings) -> Value {
    let Figures { callers, waits, traffic, .. } = figures;
    json!({
        "settings": settings.json(),
        "acquires": callers.acquires,
        "failed_acquires": callers.failed,
        "slow_acquires": callers.slow,
        "failed_queries": callers.failed_queries,
        "p50_ms": millis(waits.p50),
        "p99_ms": millis(waits.p99),
        "max_ms": millis(waits.max),
        "latest_start_ms": millis(waits.latest),
        "opens": traffic.opened,
        "peak_opens_per_second": traffic.peak_attempts,
        "refused_opens": traffic.refused,
    })
}

fn millis(length: Duration) -> f64 {
    (length.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::tests::outcome;

    #[test]
    fn the_record_has_both_sides() {
        let record: Value = serde_json::from_str(&record(&outcome())).unwrap();
        assert_eq!((&record["seed"], &record["seconds"]), (&json!(42), &json!(30)));
        assert_eq!(record["ending"], "complete");
        assert_eq!(
            (&record["deadpool"]["failed_acquires"], &record["deadpool"]["p99_ms"]),
            (&json!(1015), &json!(191.0))
        );
        assert_eq!(record["reservoir"]["failed_acquires"], 0);
        assert_eq!(record["deadpool"]["settings"]["refused_open"], "again in 40 to 320 ms");
    }
}
