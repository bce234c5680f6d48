//! All metrics: names, labels, and where the values come from.

use std::fmt;
use std::sync::Arc;

use ::metrics::{
    Counter, Gauge, Histogram, Label, SharedString, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

use crate::event::{Discard, Event, Failure, Observer};
use crate::status::{CheckoutFailure, Counts, Status};
use crate::sync::Mutex;

/// Bucket bounds for the latency histograms, in milliseconds: from 50 ns, which is longer than a checkout of
/// a ready connection, to 30 s. Pass them to the exporter, whose defaults suit web requests.
pub const LATENCY_BUCKETS: [f64; 19] = [
    0.000_05, 0.000_1, 0.000_25, 0.001, 0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0,
    1_000.0, 5_000.0, 10_000.0, 30_000.0,
];

/// Bucket bounds for the age of connections, in seconds: from 1 s to 1 h.
pub const AGE_BUCKETS: [f64; 10] = [1.0, 10.0, 60.0, 300.0, 600.0, 660.0, 720.0, 1_800.0, 3_000.0, 3_600.0];

/// Every histogram of this project, by the end of its name, with bucket bounds for it: of reservoirs and fleets, whose
/// names have a prefix, and of `forebay-dsql`, `forebay-flight` and `forebay-gateway`. An exporter that is not told exports summaries, which
/// cannot be added up over instances.
pub const BUCKETS: [(&str, &[f64]); 10] = [
    ("_reservoir_checkout_latency_milliseconds", &LATENCY_BUCKETS),
    ("_reservoir_open_latency_milliseconds", &LATENCY_BUCKETS),
    ("_reservoir_connection_age_seconds", &AGE_BUCKETS),
    ("_distributed_store_latency_milliseconds", &LATENCY_BUCKETS),
    ("_distributed_rate_wait_milliseconds", &LATENCY_BUCKETS),
    ("dsql_pool_wait_duration", &LATENCY_BUCKETS),
    ("dsql_tx_latency", &LATENCY_BUCKETS),
    ("dsql_tx_backoff", &LATENCY_BUCKETS),
    ("pool.acquire.wait_ms", &LATENCY_BUCKETS),
    ("forebay_gateway_backend_wait_duration", &LATENCY_BUCKETS),
];

/// The recorded latency of a checkout that did not wait, in milliseconds. Such checkouts are counted, not
/// timed: reading a clock twice would take longer than the checkout.
const AT_ONCE: f64 = 0.000_05;

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that grows and shrinks.
    Gauge,
    /// A distribution of values.
    Histogram,
}

impl Kind {
    /// Describes a metric of this kind to the exporter. Histograms are in milliseconds, unless the name ends
    /// with seconds.
    pub fn describe(self, name: impl Into<SharedString>, help: &'static str) {
        let name = name.into();
        match self {
            Self::Counter => describe_counter!(name, help),
            Self::Gauge => describe_gauge!(name, help),
            Self::Histogram => {
                let seconds = name.ends_with("_seconds");
                describe_histogram!(name, if seconds { Unit::Seconds } else { Unit::Milliseconds }, help);
            }
        }
    }
}

/// The name in the manual.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        })
    }
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The middle part of its name, between the prefix and [`name`](Self::name): `reservoir` here,
    /// `distributed` for a fleet.
    pub family: &'static str,
    /// The last part of its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its label besides `service` (and `pool`, for a reservoir), if it has one.
    pub label: Option<&'static str>,
    /// Its description.
    pub help: &'static str,
}

impl Metric {
    /// The full name, with `prefix`.
    #[must_use]
    pub fn full_name(&self, prefix: &str) -> String {
        format!("{prefix}_{}_{}", self.family, self.name)
    }
}

/// Defines a constant for each metric of a family, and `ALL`.
#[doc(hidden)]
#[macro_export]
macro_rules! metrics {
    ($family:literal: $($constant:ident $name:literal $kind:ident $label:expr, $help:literal;)*) => {
        $(const $constant: $crate::metrics::Metric = $crate::metrics::Metric {
            family: $family,
            name: $name,
            kind: $crate::metrics::Kind::$kind,
            label: $label,
            help: $help,
        };)*

        /// All metrics, in the order of the manual.
        pub const ALL: &[$crate::metrics::Metric] = &[$($constant),*];
    };
}

metrics! {
    "reservoir":
    SIZE "size" Gauge None, "Usable connections: ready, in use, or being reset or checked";
    TARGET "target" Gauge None, "Connections that are kept ready";
    READY "ready" Gauge None, "Connections that can be lent at once";
    IN_USE "in_use" Gauge None, "Connections that are lent";
    OPENING "opening" Gauge None, "Connections that are being opened";
    CHECKOUTS "checkouts_total" Counter None, "Connections that were lent";
    EMPTY "empty_total" Counter None, "Callers that found no connection ready while connections were missing, even if they got one later";
    EXHAUSTED "exhausted_total" Counter None, "Callers that got no connection because all were in use";
    CHECKOUT_FAILURES "checkout_failures_total" Counter Some("reason"), "Callers that got no connection, by reason";
    WAITS "waits_total" Counter None, "Callers that had to wait";
    REFILLS "refills_total" Counter None, "Connections that were opened";
    DISCARDS "discards_total" Counter Some("reason"), "Connections that were discarded, by reason";
    REFILL_FAILURES "refill_failures_total" Counter Some("reason"), "Opens that failed, by reason";
    CHECKOUT_LATENCY "checkout_latency_milliseconds" Histogram None, "How long callers waited for a connection";
    OPEN_LATENCY "open_latency_milliseconds" Histogram None, "How long opens took, without the wait for a lease and a permit";
    CONNECTION_AGE "connection_age_seconds" Histogram None, "The age of connections when they were discarded";
}

/// An observer that updates metrics through the `metrics` facade.
///
/// Install the exporter first: metrics that are registered before are lost. Values are at most one second
/// old.
///
/// ```
/// use forebay::Metrics;
///
/// let metrics = Metrics::new("dsql").service("history").pool("visibility");
/// // Reservoir::builder(connector).observer(metrics)
/// ```
pub struct Metrics {
    prefix: String,
    service: SharedString,
    pool: SharedString,
    handles: Mutex<Option<Arc<Handles>>>,
}

type ReadGauge = fn(&Status) -> usize;

/// The registered metrics of one reservoir.
struct Handles {
    gauges: [(Gauge, ReadGauge); 5],
    checkout_latency: Histogram,
    open_latency: Histogram,
    age: Histogram,
    counters: Mutex<Counters>,
}

struct Counters {
    checkouts: ReportedCounter,
    others: Vec<ReportedCounter>,
    /// Checkouts that waited, and were recorded one by one since the last report.
    waited: u64,
}

/// A counter with the value that was reported last. It adds the difference, so that it continues when a
/// reservoir is restarted.
struct ReportedCounter {
    counter: Counter,
    read: Box<dyn Fn(&Counts) -> u64 + Send>,
    reported: u64,
}

impl ReportedCounter {
    fn new(counter: Counter, read: impl Fn(&Counts) -> u64 + Send + 'static) -> Self {
        Self { counter, read: Box::new(read), reported: 0 }
    }

    /// Returns by how much the counter has grown.
    fn report(&mut self, counts: &Counts) -> u64 {
        // Reports from two tasks can arrive in the wrong order. Counters must not decrease.
        let value = (self.read)(counts).max(self.reported);
        let growth = value - self.reported;
        self.counter.increment(growth);
        self.reported = value;
        growth
    }
}

impl Metrics {
    /// Metrics whose names begin with `prefix`, with the labels `service="unknown"` and `pool="default"`.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
            service: "unknown".into(),
            pool: "default".into(),
            handles: Mutex::default(),
        }
    }

    /// Sets the label `service`. Default: `unknown`.
    #[must_use]
    pub fn service(mut self, service: impl Into<String>) -> Self {
        self.service = service.into().into();
        self
    }

    /// Sets the label `pool`. Each reservoir of a process needs its own. Default: `default`.
    #[must_use]
    pub fn pool(mut self, pool: impl Into<String>) -> Self {
        self.pool = pool.into().into();
        self
    }

    /// Registers the metrics at the first event, so that the exporter can be installed until the reservoir
    /// starts.
    fn handles(&self) -> Arc<Handles> {
        Arc::clone(self.handles.lock().get_or_insert_with(|| Arc::new(self.register())))
    }

    fn register(&self) -> Handles {
        for metric in ALL {
            metric.kind.describe(metric.full_name(&self.prefix), metric.help);
        }
        let name = |metric: Metric| metric.full_name(&self.prefix);
        let labels = |reason: Option<&'static str>| {
            let mut labels =
                vec![Label::new("service", self.service.clone()), Label::new("pool", self.pool.clone())];
            labels.extend(reason.map(|reason| Label::new("reason", reason)));
            labels
        };
        let gauge = |metric| gauge!(name(metric), labels(None));
        let histogram = |metric| histogram!(name(metric), labels(None));
        let counter = |metric, read: fn(&Counts) -> u64| {
            ReportedCounter::new(counter!(name(metric), labels(None)), read)
        };
        let by_reason = |metric, reason| counter!(name(metric), labels(Some(reason)));
        let mut others = vec![
            counter(EMPTY, |counts| counts.empty),
            counter(EXHAUSTED, |counts| counts.exhausted),
            counter(WAITS, |counts| counts.waits),
            counter(REFILLS, |counts| counts.refills),
        ];
        others.extend(CheckoutFailure::ALL.map(|reason| {
            let counter = by_reason(CHECKOUT_FAILURES, reason.label());
            ReportedCounter::new(counter, move |counts| counts.checkout_failures(reason))
        }));
        others.extend(Discard::ALL.map(|reason| {
            let counter = by_reason(DISCARDS, reason.label());
            ReportedCounter::new(counter, move |counts| counts.discards(reason))
        }));
        others.extend(Failure::ALL.map(|reason| {
            let counter = by_reason(REFILL_FAILURES, reason.label());
            ReportedCounter::new(counter, move |counts| counts.failures(reason))
        }));
        let checkouts = counter(CHECKOUTS, |counts| counts.checkouts);
        Handles {
            gauges: [
                (gauge(SIZE), Status::size),
                // A closed reservoir has no target, and an alert on the fill ratio must not fire.
                (gauge(TARGET), |status| if status.closed { 0 } else { status.target_ready }),
                (gauge(READY), |status| status.ready),
                (gauge(IN_USE), |status| status.in_use),
                (gauge(OPENING), |status| status.opening),
            ],
            checkout_latency: histogram(CHECKOUT_LATENCY),
            open_latency: histogram(OPEN_LATENCY),
            age: histogram(CONNECTION_AGE),
            counters: Mutex::new(Counters { checkouts, others, waited: 0 }),
        }
    }
}

impl Handles {
    fn report(&self, status: &Status) {
        for (gauge, read) in &self.gauges {
            #[allow(clippy::cast_precision_loss, reason = "a million connections fit")]
            gauge.set(read(status) as f64);
        }
        let mut counters = self.counters.lock();
        for counter in &mut counters.others {
            counter.report(&status.counts);
        }
        let checkouts = counters.checkouts.report(&status.counts);
        // Callers that waited were recorded one by one. All others got a connection at once.
        let at_once = checkouts.saturating_sub(counters.waited);
        if at_once > 0 {
            self.checkout_latency.record_many(AT_ONCE, usize::try_from(at_once).unwrap_or(usize::MAX));
        }
        counters.waited = counters.waited.saturating_sub(checkouts);
    }
}

impl Observer for Metrics {
    fn on(&self, event: &Event<'_>) {
        let milliseconds = |duration: std::time::Duration| duration.as_secs_f64() * 1e3;
        match event {
            Event::Report { status } => self.handles().report(status),
            Event::Waited { waited } => {
                let handles = self.handles();
                handles.counters.lock().waited += 1;
                handles.checkout_latency.record(milliseconds(*waited));
            }
            Event::Opened { took, .. } => self.handles().open_latency.record(milliseconds(*took)),
            Event::Discarded { age, .. } => self.handles().age.record(age.as_secs_f64()),
            _ => {}
        }
    }

    fn wants_reports(&self) -> bool {
        true
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Metrics({}, service {}, pool {})", self.prefix, self.service, self.pool)
    }
}

/// The table of metrics in the manual, in Markdown, with this prefix.
#[must_use]
pub fn manual(prefix: &str) -> String {
    table(ALL, prefix)
}

/// A table of metrics in Markdown, with this prefix.
#[must_use]
pub fn table(metrics: &[Metric], prefix: &str) -> String {
    let rows = metrics.iter().map(|metric| {
        let label = metric.label.map(|label| format!("`{label}`")).unwrap_or_default();
        format!("| `{}` | {} | {label} | {} |\n", metric.full_name(prefix), metric.kind, metric.help)
    });
    format!(
        "| metric | kind | more labels | what it tells |\n|---|---|---|---|\n{}",
        rows.collect::<String>()
    )
}

/// The table of reasons in the manual, in Markdown.
#[must_use]
pub fn manual_reasons() -> String {
    let row = |metric: Metric, mut reasons: Vec<&'static str>| {
        reasons.sort_unstable();
        reasons.dedup();
        format!("| `{}` | `{}` |\n", metric.name, reasons.join("`, `"))
    };
    [
        "| metric | `reason` |\n|---|---|\n".to_owned(),
        row(CHECKOUT_FAILURES, CheckoutFailure::ALL.map(CheckoutFailure::label).to_vec()),
        row(DISCARDS, Discard::ALL.map(Discard::label).to_vec()),
        row(REFILL_FAILURES, Failure::ALL.map(Failure::label).to_vec()),
    ]
    .concat()
}
