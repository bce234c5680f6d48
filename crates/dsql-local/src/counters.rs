//! Counters: in code, as JSON and in the text format of Prometheus.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// Declares the totals once: as fields of [`Counters`], as atomic counters of [`Tally`], and by name.
macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters, at one moment.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
            /// Refusals and failed logins, by SQLSTATE; by what happened, where the client gets no SQLSTATE.
            pub refused: BTreeMap<&'static str, u64>,
            /// Of these, logins denied (28000), by reason. Clients do not learn the reason.
            pub denied: BTreeMap<&'static str, u64>,
            /// Sessions that live now: the cap limits these.
            pub live: u64,
            /// The most sessions that ever lived at once.
            pub live_high_water: u64,
            /// The longest that any session has lived, in the emulator's time.
            pub longest_live: Duration,
        }

        impl Counters {
            fn totals(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }

        #[derive(Debug, Default)]
        pub(crate) struct Tally {
            $(pub(crate) $name: AtomicU64,)*
            refused: Mutex<BTreeMap<&'static str, u64>>,
        }

        impl Tally {
            /// The counters of this struct; the others are zero.
            pub(crate) fn read(&self) -> Counters {
                Counters {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    refused: self.refused.lock().clone(),
                    ..Counters::default()
                }
            }
        }
    };
}

totals! {
    /// Sockets accepted.
    sockets,
    /// Sessions admitted and authenticated.
    accepted,
    /// Sessions ended because their lifetime was over.
    expired,
    /// Sessions ended by a fault.
    severed,
    /// Transactions committed: explicit ones, and single statements that write.
    commits,
    /// Transactions that failed with 40001.
    conflicts,
    /// Statements run.
    statements,
    /// Statements that failed.
    errors,
}

impl Counters {
    /// The sum of all refusals.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }

    /// As one JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut json = json!({
            "refused": self.refused,
            "denied": self.denied,
            "live": self.live,
            "live_high_water": self.live_high_water,
            "longest_live_seconds": self.longest_live.as_secs_f64(),
        });
        self.totals().into_iter().for_each(|(name, value)| json[name] = value.into());
        json
    }

    /// In the text format of Prometheus.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.totals() {
            text += &format!("# TYPE dsql_local_{name}_total counter\ndsql_local_{name}_total {value}\n");
        }
        for (name, label, counts) in [("refused", "code", &self.refused), ("denied", "reason", &self.denied)]
        {
            text += &format!("# TYPE dsql_local_{name}_total counter\n");
            for (value, count) in counts {
                text += &format!("dsql_local_{name}_total{{{label}=\"{value}\"}} {count}\n");
            }
        }
        for (name, value) in [
            ("live", self.live.to_string()),
            ("live_high_water", self.live_high_water.to_string()),
            ("longest_live_seconds", self.longest_live.as_secs_f64().to_string()),
        ] {
            text += &format!("# TYPE dsql_local_{name} gauge\ndsql_local_{name} {value}\n");
        }
        text
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Tally {
    pub(crate) fn refused(&self, code: &'static str) {
        *self.refused.lock().entry(code).or_default() += 1;
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
