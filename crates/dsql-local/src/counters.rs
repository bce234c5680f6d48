//! What has happened so far: for code, as JSON and as Prometheus text.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// What happened, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sockets accepted, whatever became of them.
    pub sockets: u64,
    /// Sessions admitted and authenticated.
    pub accepted: u64,
    /// Refusals and failed logins, by SQLSTATE; or by what they were, where a client is not told one.
    pub refused: BTreeMap<&'static str, u64>,
    /// Of these, logins denied (28000), by reason; clients are not told it.
    pub denied: BTreeMap<&'static str, u64>,
    /// Sessions ended because their time was up.
    pub expired: u64,
    /// Sessions ended by a fault.
    pub severed: u64,
    /// Sessions that live now: the figure the cap is about.
    pub live: u64,
    /// The most that ever lived at once.
    pub live_high_water: u64,
    /// The longest that any session has lived, in the emulator's time.
    pub longest_live: Duration,
    /// TransactionState committed: explicit ones, and single statements that write.
    pub commits: u64,
    /// TransactionState that failed with 40001.
    pub conflicts: u64,
    /// Statements run.
    pub statements: u64,
    /// Statements that failed, for whatever reason.
    pub errors: u64,
}

impl Counters {
    /// All refusals.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }

    /// As one JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut object: serde_json::Map<String, Value> =
            self.totals().map(|(name, value)| (name.to_owned(), json!(value))).into_iter().collect();
        object.insert("refused".to_owned(), json!(self.refused));
        object.insert("denied".to_owned(), json!(self.denied));
        object.insert("live".to_owned(), json!(self.live));
        object.insert("live_high_water".to_owned(), json!(self.live_high_water));
        object.insert("longest_live_seconds".to_owned(), json!(self.longest_live.as_secs_f64()));
        Value::Object(object)
    }

    /// As Prometheus reads it.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        let mut line = |arguments: std::fmt::Arguments<'_>| {
            // Writing to a string cannot fail.
            let (Ok(()) | Err(_)) = writeln!(text, "{arguments}");
        };
        for (name, value) in self.totals() {
            line(format_args!("# TYPE dsql_local_{name}_total counter\ndsql_local_{name}_total {value}"));
        }
        line(format_args!("# TYPE dsql_local_refused_total counter"));
        for (code, count) in &self.refused {
            line(format_args!("dsql_local_refused_total{{code=\"{code}\"}} {count}"));
        }
        line(format_args!("# TYPE dsql_local_denied_total counter"));
        for (reason, count) in &self.denied {
            line(format_args!("dsql_local_denied_total{{reason=\"{reason}\"}} {count}"));
        }
        for (name, value) in [
            ("live", self.live.to_string()),
            ("live_high_water", self.live_high_water.to_string()),
            ("longest_live_seconds", self.longest_live.as_secs_f64().to_string()),
        ] {
            line(format_args!("# TYPE dsql_local_{name} gauge\ndsql_local_{name} {value}"));
        }
        text
    }

    fn totals(&self) -> [(&'static str, u64); 8] {
        [
            ("sockets", self.sockets),
            ("accepted", self.accepted),
            ("expired", self.expired),
            ("severed", self.severed),
            ("commits", self.commits),
            ("conflicts", self.conflicts),
            ("statements", self.statements),
            ("errors", self.errors),
        ]
    }
}

/// The counts that are kept as they happen.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sockets: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) severed: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) statements: AtomicU64,
    pub(crate) errors: AtomicU64,
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Tally {
    pub(crate) fn refused(&self, code: &'static str) {
        *self.refused.lock().entry(code).or_default() += 1;
    }

    /// What the tally knows; the rest is left at zero.
    pub(crate) fn read(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            sockets: read(&self.sockets),
            accepted: read(&self.accepted),
            refused: self.refused.lock().clone(),
            expired: read(&self.expired),
            severed: read(&self.severed),
            commits: read(&self.commits),
            conflicts: read(&self.conflicts),
            statements: read(&self.statements),
            errors: read(&self.errors),
            ..Counters::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_is_shown_in_both_forms() {
        let tally = Tally::default();
        count(&tally.commits);
        tally.refused("53400");
        tally.refused("53400");
        let counters = Counters { live: 3, denied: BTreeMap::from([("host", 4)]), ..tally.read() };
        let json = counters.json();
        assert_eq!(
            (&json["commits"], &json["refused"]["53400"], &json["live"]),
            (&json!(1), &json!(2), &json!(3))
        );
        let text = counters.prometheus();
        assert!(text.contains("dsql_local_refused_total{code=\"53400\"} 2\n"), "{text}");
        assert!(text.contains("dsql_local_denied_total{reason=\"host\"} 4\n"), "{text}");
        assert_eq!(json["denied"]["host"], 4);
        for name in
            json.as_object().unwrap().keys().filter(|name| !["refused", "denied"].contains(&name.as_str()))
        {
            assert!(text.contains(&format!("\ndsql_local_{name}")), "{name}");
        }
    }
}
