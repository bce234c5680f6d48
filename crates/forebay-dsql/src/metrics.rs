//! Every metric of tokens and transactions, in one place: its name, its labels, and who counts it.

use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use ::metrics::{Counter, Label, SharedString, counter, histogram};
use forebay::metrics::Kind;

use crate::error::ErrorKind;

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What kind it is.
    pub kind: Kind,
    /// Its labels beside `service` (and `pool`, unless it is of tokens, which pools share).
    pub labels: &'static [&'static str],
    /// What it tells.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($constant:ident $name:literal $kind:ident $labels:expr, $help:literal;)*) => {
        $(const $constant: Metric = Metric { name: $name, kind: Kind::$kind, labels: &$labels, help: $help };)*

        /// Every metric of tokens and transactions, in the order of the manual.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    TOKEN_HITS "dsql_token_cache_hits" Counter [], "Callers who got a token at once";
    TOKEN_MISSES "dsql_token_cache_misses" Counter [], "Callers who had to wait for one";
    TOKEN_REFRESHES "dsql_token_refreshes" Counter [], "Tokens signed";
    TOKEN_FAILURES "dsql_token_refresh_failures" Counter [], "Signings that failed";
    TX_LATENCY "dsql_tx_latency" Histogram ["operation", "outcome"], "Milliseconds a transaction took, with its retries and pauses";
    TX_BACKOFF "dsql_tx_backoff" Histogram ["operation"], "Milliseconds paused before a retry";
    TX_ERROR_CLASS "dsql_tx_error_class_total" Counter ["operation", "error_class"], "Attempts that failed, by kind of the error";
    TX_CONFLICT "dsql_tx_conflict_total" Counter ["operation"], "Attempts that lost against another transaction";
    TX_RETRY "dsql_tx_retry_total" Counter ["operation", "attempt"], "Retries, by their number";
    TX_EXHAUSTED "dsql_tx_exhausted_total" Counter ["operation"], "Transactions given up after retries, deadline or budget ran out";
    TX_COMMIT_UNKNOWN "dsql_tx_commit_unknown_total" Counter ["operation"], "Transactions of which nobody knows whether they were committed";
}

/// The counters of a token cache. Registered when first used, so that an exporter can be installed until then.
pub(crate) struct TokenCounters {
    service: SharedString,
    handles: OnceLock<[Counter; 4]>,
}

impl TokenCounters {
    pub(crate) fn new(service: &str) -> Self {
        Self { service: service.to_owned().into(), handles: OnceLock::new() }
    }

    pub(crate) fn asked(&self, hit: bool) {
        self.handles()[usize::from(!hit)].increment(1);
    }

    pub(crate) fn signed(&self, well: bool) {
        self.handles()[2 + usize::from(!well)].increment(1);
    }

    fn handles(&self) -> &[Counter; 4] {
        self.handles.get_or_init(|| {
            [TOKEN_HITS, TOKEN_MISSES, TOKEN_REFRESHES, TOKEN_FAILURES].map(|metric| {
                metric.kind.describe(metric.name, metric.help);
                counter!(metric.name, "service" => self.service.clone())
            })
        })
    }
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Committed,
    Failed,
    Exhausted,
    CommitUnknown,
    /// Its future was dropped.
    Dropped,
}

impl Outcome {
    pub(crate) fn of(kind: ErrorKind) -> Self {
        if kind == ErrorKind::CommitUnknown { Self::CommitUnknown } else { Self::Failed }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Failed => "failed",
            Self::Exhausted => "exhausted",
            Self::CommitUnknown => "commit_unknown",
            Self::Dropped => "dropped",
        }
    }
}

/// What is counted of the transactions of one pool.
#[derive(Clone)]
pub(crate) struct TransactionMeter {
    service: SharedString,
    pool: SharedString,
    described: Arc<Once>,
}

impl TransactionMeter {
    pub(crate) fn new(service: &str, pool: &str) -> Self {
        let (service, pool) = (service.to_owned().into(), pool.to_owned().into());
        Self { service, pool, described: Arc::new(Once::new()) }
    }

    pub(crate) fn failed(&self, operation: &'static str, kind: ErrorKind) {
        self.count(TX_ERROR_CLASS, operation, &[kind.label().into()]);
        match kind {
            ErrorKind::Conflict(_) => self.count(TX_CONFLICT, operation, &[]),
            ErrorKind::CommitUnknown => self.count(TX_COMMIT_UNKNOWN, operation, &[]),
            _ => {}
        }
    }

    pub(crate) fn retried(&self, operation: &'static str, retry: u32, pause: Duration) {
        self.count(TX_RETRY, operation, &[retry.to_string().into()]);
        self.time(TX_BACKOFF, operation, &[], pause);
    }

    pub(crate) fn exhausted(&self, operation: &'static str) {
        self.count(TX_EXHAUSTED, operation, &[]);
    }

    pub(crate) fn ended(&self, operation: &'static str, outcome: Outcome, took: Duration) {
        self.time(TX_LATENCY, operation, &[outcome.label().into()], took);
    }

    fn count(&self, metric: Metric, operation: &'static str, values: &[SharedString]) {
        counter!(metric.name, self.labels(metric, operation, values)).increment(1);
    }

    fn time(&self, metric: Metric, operation: &'static str, values: &[SharedString], took: Duration) {
        histogram!(metric.name, self.labels(metric, operation, values)).record(took.as_secs_f64() * 1e3);
    }

    /// The labels: those of every metric, the operation, and `values` for what else the metric has.
    fn labels(&self, metric: Metric, operation: &'static str, values: &[SharedString]) -> Vec<Label> {
        self.described.call_once(describe);
        let mut labels = vec![
            Label::new("service", self.service.clone()),
            Label::new("pool", self.pool.clone()),
            Label::new("operation", operation),
        ];
        let more = metric.labels.iter().skip(1).zip(values);
        labels.extend(more.map(|(name, value)| Label::new(*name, value.clone())));
        labels
    }
}

fn describe() {
    for metric in ALL.iter().filter(|metric| metric.name.starts_with("dsql_tx_")) {
        metric.kind.describe(metric.name, metric.help);
    }
}

/// The manual's table of these metrics, in Markdown.
#[must_use]
pub fn manual() -> String {
    let rows = ALL.iter().map(|metric| {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{}` | {} | {} | {} |\n", metric.name, metric.kind, labels.join(", "), metric.help)
    });
    format!(
        "| metric | kind | more labels | what it tells |\n|---|---|---|---|\n{}",
        rows.collect::<String>()
    )
}
