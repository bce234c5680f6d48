//! Every metric of the fleet's budget, in one place.

use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Counter, Gauge, Histogram, Label, SharedString, counter, gauge, histogram};
use parking_lot::Mutex;

/// What kind of metric it is.
pub use forebay::metrics::Kind;

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name after the prefix and `_distributed_`.
    pub name: &'static str,
    /// What kind it is.
    pub kind: Kind,
    /// Its label beside `service`, if it has one.
    pub label: Option<&'static str>,
    /// What it tells.
    pub help: &'static str,
}

impl Metric {
    /// Its full name.
    #[must_use]
    pub fn full_name(&self, prefix: &str) -> String {
        format!("{prefix}_distributed_{}", self.name)
    }
}

macro_rules! metrics {
    ($($constant:ident $name:literal $kind:ident $label:expr, $help:literal;)*) => {
        $(const $constant: Metric = Metric { name: $name, kind: Kind::$kind, label: $label, help: $help };)*

        /// Every metric, in the order of the manual.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    ACTIVE "conn_lease_active" Gauge None, "Connections the fleet holds, or has slots for, as far as this process knows";
    LIMIT "conn_lease_limit" Gauge None, "Connections the fleet may hold";
    HELD "conn_lease_held" Gauge None, "Slots this process holds (ledger), or leases (counter)";
    BEATS "lease_beats_total" Counter None, "Times this process has said that it lives";
    REAPS "lease_reaps_total" Counter None, "Entries of the dead that this process has taken out";
    CONFLICTS "lease_conflicts_total" Counter None, "Writes that someone else was faster than";
    STORE_LATENCY "store_latency_milliseconds" Histogram Some("operation"), "How long calls to the table took";
    STORE_FAILURES "store_failures_total" Counter Some("operation"), "Calls to the table without a useful answer";
    WRITE_UNITS "store_write_units_total" Counter None, "Write units spent, by the size of what was returned";
    READ_UNITS "store_read_units_total" Counter None, "Read units spent";
    DEGRADED "degraded" Gauge None, "1 while the table is away and this process goes by its away policy";
    RATE_DENIED "rate_denied_total" Counter None, "Times the fleet's rate had no permit to give at once";
    RATE_WAIT "rate_wait_milliseconds" Histogram None, "How long opens waited for a permit";
}

/// The metrics of one process's part of a fleet, as one of the two sees them who share a table.
#[derive(Clone)]
pub(crate) struct Telemetry {
    prefix: String,
    service: SharedString,
    pub(crate) active: Gauge,
    pub(crate) limit: Gauge,
    pub(crate) held: Gauge,
    pub(crate) beats: Counter,
    pub(crate) reaps: Counter,
    pub(crate) conflicts: Counter,
    pub(crate) write_units: Counter,
    pub(crate) read_units: Counter,
    pub(crate) degraded: Degraded,
    pub(crate) rate_denied: Counter,
    rate_wait: Histogram,
}

impl Telemetry {
    pub(crate) fn new(prefix: &str, service: &str) -> Self {
        for metric in ALL {
            metric.kind.describe(metric.full_name(prefix), metric.help);
        }
        let service: SharedString = service.to_owned().into();
        let labels = || vec![Label::new("service", service.clone())];
        let gauge = |metric: Metric| gauge!(metric.full_name(prefix), labels());
        let counter = |metric: Metric| counter!(metric.full_name(prefix), labels());
        Self {
            active: gauge(ACTIVE),
            limit: gauge(LIMIT),
            held: gauge(HELD),
            beats: counter(BEATS),
            reaps: counter(REAPS),
            conflicts: counter(CONFLICTS),
            write_units: counter(WRITE_UNITS),
            read_units: counter(READ_UNITS),
            degraded: Degraded { gauge: gauge(DEGRADED), away: Arc::default(), part: 0 },
            rate_denied: counter(RATE_DENIED),
            rate_wait: histogram!(RATE_WAIT.full_name(prefix), labels()),
            prefix: prefix.to_owned(),
            service,
        }
    }

    /// The same for the rate, whose table may be another.
    pub(crate) fn of_rate(&self) -> Self {
        let mut rates = self.clone();
        rates.degraded.part = 1;
        rates
    }

    /// A call to the table took `took`, and there was a useful answer or not.
    pub(crate) fn called(&self, operation: &'static str, took: Duration, answered: bool) {
        let labels = || vec![Label::new("service", self.service.clone()), Label::new("operation", operation)];
        histogram!(STORE_LATENCY.full_name(&self.prefix), labels()).record(took.as_secs_f64() * 1e3);
        if !answered {
            counter!(STORE_FAILURES.full_name(&self.prefix), labels()).increment(1);
        }
    }

    pub(crate) fn waited(&self, waited: Duration) {
        self.rate_wait.record(waited.as_secs_f64() * 1e3);
    }
}

/// The gauge for tables that are away: leases and rate each know of theirs, and it shows 1 while either is.
#[derive(Clone)]
pub(crate) struct Degraded {
    gauge: Gauge,
    away: Arc<Mutex<[bool; 2]>>,
    part: usize,
}

impl Degraded {
    /// One's own table is away, or not.
    pub(crate) fn set(&self, value: f64) {
        let mut away = self.away.lock();
        away[self.part] = value > 0.0;
        self.gauge.set(if away.contains(&true) { 1.0 } else { 0.0 });
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Telemetry({}, service {})", self.prefix, self.service)
    }
}

/// A gauge's value.
#[allow(clippy::cast_precision_loss, reason = "nobody has more connections than a double can count")]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}

/// The manual's table of metrics, in Markdown, for this prefix.
#[must_use]
pub fn manual(prefix: &str) -> String {
    let rows = ALL.iter().map(|metric| {
        let label = metric.label.map(|label| format!("`{label}`")).unwrap_or_default();
        format!("| `{}` | {} | {label} | {} |\n", metric.full_name(prefix), metric.kind, metric.help)
    });
    let head = "| metric | kind | more labels | what it tells |\n|---|---|---|---|\n";
    format!("{head}{}", rows.collect::<String>())
}
