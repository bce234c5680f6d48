//! Every metric of the fleet's budget.

use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Counter, Gauge, Histogram, Label, SharedString, counter, gauge, histogram};
use parking_lot::Mutex;

use forebay::metrics::{Metric, table};

forebay::metrics! {
    "distributed":
    ACTIVE "conn_lease_active" Gauge None, "Connections (counter) or slots (ledger) in use in the fleet, as last seen by this process";
    LIMIT "conn_lease_limit" Gauge None, "The most connections of the fleet";
    HELD "conn_lease_held" Gauge None, "Slots this process holds (ledger), or leases (counter)";
    HEARTBEATS "lease_beats_total" Counter None, "Heartbeats of this process";
    REAPS "lease_reaps_total" Counter None, "Dead instances that this process has removed";
    LOSSES "lease_losses_total" Counter None, "Times that the entry of this process was removed while it lived";
    CONFLICTS "lease_conflicts_total" Counter None, "Writes that failed because another instance wrote first";
    STORE_LATENCY "store_latency_milliseconds" Histogram Some("operation"), "Duration of calls to the table";
    STORE_FAILURES "store_failures_total" Counter Some("operation"), "Calls to the table that timed out or failed";
    WRITE_UNITS "store_write_units_total" Counter None, "Write units used, by the size of the returned items";
    READ_UNITS "store_read_units_total" Counter None, "Read units used";
    DEGRADED "degraded" Gauge None, "1 while the table is unavailable and the outage policy applies";
    RATE_DENIED "rate_denied_total" Counter None, "Opens that had to wait for a permit of the fleet's rate";
    RATE_WAIT "rate_wait_milliseconds" Histogram None, "Time that opens waited for a permit";
}

/// The metrics of one process. Leases and rate each have a copy.
#[derive(Clone)]
pub(crate) struct Telemetry {
    prefix: String,
    service: SharedString,
    pub(crate) active: Gauge,
    pub(crate) limit: Gauge,
    pub(crate) held: Gauge,
    pub(crate) heartbeats: Counter,
    pub(crate) reaps: Counter,
    pub(crate) losses: Counter,
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
            heartbeats: counter(HEARTBEATS),
            reaps: counter(REAPS),
            losses: counter(LOSSES),
            conflicts: counter(CONFLICTS),
            write_units: counter(WRITE_UNITS),
            read_units: counter(READ_UNITS),
            degraded: Degraded { gauge: gauge(DEGRADED), outages: Arc::default(), part: 0 },
            rate_denied: counter(RATE_DENIED),
            rate_wait: histogram!(RATE_WAIT.full_name(prefix), labels()),
            prefix: prefix.to_owned(),
            service,
        }
    }

    /// The same for the rate, which may have another table.
    pub(crate) fn of_rate(&self) -> Self {
        let mut rates = self.clone();
        rates.degraded.part = 1;
        rates
    }

    /// Records a call to the table.
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

/// The gauge for unavailable tables: 1 while the table of the leases or that of the rate is.
#[derive(Clone)]
pub(crate) struct Degraded {
    gauge: Gauge,
    outages: Arc<Mutex<[bool; 2]>>,
    part: usize,
}

impl Degraded {
    /// Sets whether this part's table is unavailable.
    pub(crate) fn set(&self, outage: bool) {
        let mut outages = self.outages.lock();
        outages[self.part] = outage;
        self.gauge.set(if outages.contains(&true) { 1.0 } else { 0.0 });
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Telemetry({}, service {})", self.prefix, self.service)
    }
}

/// A gauge's value.
#[allow(clippy::cast_precision_loss, reason = "far fewer connections than 2^53")]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}

/// The table of metrics for the manual, in Markdown.
#[must_use]
pub fn manual(prefix: &str) -> String {
    table(ALL, prefix)
}
