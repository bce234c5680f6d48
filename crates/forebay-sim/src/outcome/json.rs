//! The outcome as JSON.

use std::time::Duration;

use forebay::{Discard, Failure};
use serde_json::{Map, Value, json};

use super::Outcome;
use super::format::cause;
use crate::judge::{Recovery, Verdict};

impl Outcome {
    /// The outcome without its samples, as one JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        let counts = &self.counts;
        let discards: Map<String, Value> = Discard::ALL
            .iter()
            .map(|reason| (reason.label().to_owned(), counts.discards[reason.index()].into()))
            .collect();
        let failures: Map<String, Value> = Failure::ALL
            .iter()
            .map(|reason| (cause(*reason).to_owned(), counts.open_failures[reason.index()].into()))
            .collect();
        json!({
            "scenario": self.scenario,
            "endpoint": self.endpoint,
            "notes": self.notes,
            "seed": self.seed,
            "passed": self.passed(),
            "trace_hash": self.trace_hash,
            "events": self.events,
            "virtual_seconds": seconds(self.virtual_time),
            "instances": self.instances,
            "target": self.target,
            "limiter_per_sec": self.limiter_per_sec,
            "max_connects_per_sec": self.max_connects_per_sec,
            "max_renewals_per_sec": self.max_renewals_per_sec,
            "max_closures_per_sec": self.max_closures_per_sec,
            "peak_connections": self.peak_connections,
            "time_to_converge": self.time_to_converge.map(seconds),
            "time_to_recover": self.time_to_recover().map(seconds),
            "recoveries": self.recoveries.iter().map(recovery).collect::<Value>(),
            "connects": counts.connects,
            "refused": counts.refused,
            "refused_on_purpose": counts.refused_on_purpose,
            "opened": counts.opened,
            "open_failures": counts.all_open_failures(),
            "open_failures_by_reason": failures,
            "checkouts": counts.checkouts,
            "waits": counts.waits,
            "empties": counts.empties,
            "failed_short": counts.failed_short,
            "exhausted": counts.exhausted,
            "broken_work": counts.broken_work,
            "lost_in_crashes": counts.lost_in_crashes,
            "discards": discards,
            "wait_ms": {
                "p50": millis(self.waits.p50),
                "p99": millis(self.waits.p99),
                "p999": millis(self.waits.p999),
                "max": millis(self.waits.max),
            },
            "assertions": self.verdicts.iter().map(verdict).collect::<Value>(),
            "replay": self.replay(),
        })
    }
}

fn recovery(recovery: &Recovery) -> Value {
    json!({
        "disturbance": recovery.disturbance,
        "began": seconds(recovery.began),
        "over": recovery.over.map(seconds),
        "deficit": recovery.deficit,
        "bucket_seconds": seconds(recovery.limiter_time),
        "allowed_seconds": recovery.allowed.map(seconds),
        "took_seconds": recovery.took.map(seconds),
        "late": recovery.late,
    })
}

fn verdict(verdict: &Verdict) -> Value {
    json!({
        "name": verdict.assertion.name(),
        "holds": verdict.holds(),
        "broken": verdict.broken,
        "findings": verdict.findings,
    })
}

/// Seconds, rounded to the millisecond.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

/// Milliseconds, rounded to the microsecond.
fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1000.0
}
