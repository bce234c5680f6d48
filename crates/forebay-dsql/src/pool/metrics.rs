//! Every metric of the pool, in one place: the same in both modes, as far as they make sense there.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::metrics::{Counter, Gauge, Histogram, Label, SharedString, counter, gauge, histogram};
use forebay::metrics::Kind;
use forebay::{Discard, Event, Observer};

use crate::metrics::Metric;

macro_rules! metrics {
    ($($constant:ident $name:literal $kind:ident, $help:literal;)*) => {
        $(const $constant: Metric = Metric { name: $name, kind: Kind::$kind, labels: &["pool"], help: $help };)*

        /// Every metric of the pool, in the order of the manual.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    MAX_OPEN "dsql_pool_max_open" Gauge, "Connections the pool may own";
    OPEN "dsql_pool_open" Gauge, "Connections the pool owns";
    IN_USE "dsql_pool_in_use" Gauge, "Connections with callers";
    IDLE "dsql_pool_idle" Gauge, "Connections nobody uses";
    WAITS "dsql_pool_wait_total" Counter, "Callers who had to wait for a connection";
    WAIT_DURATION "dsql_pool_wait_duration" Histogram, "How long they waited, in milliseconds";
    CLOSED_LIFETIME "dsql_db_closed_max_lifetime_total" Counter, "Connections closed because of their age";
    CLOSED_IDLE_TIME "dsql_db_closed_max_idle_time_total" Counter, "Connections closed because nobody used them";
    CLOSED_IDLE "dsql_db_closed_max_idle_total" Counter, "Connections closed because there were more than wanted";
    TOPUPS "dsql_pool_keeper_topup_total" Counter, "Connections the keeper opened, in standard mode";
    TOPUP_FAILURES "dsql_pool_keeper_topup_failures_total" Counter, "Connections the keeper failed to open";
    KEEPER_SIZE "dsql_pool_keeper_current_size" Gauge, "Connections the keeper counted last";
}

/// The manual's table of these metrics, in Markdown.
#[must_use]
pub fn manual() -> String {
    let row = |metric: &Metric| format!("| `{}` | {} | {} |\n", metric.name, metric.kind, metric.help);
    format!("| metric | kind | what it tells |\n|---|---|---|\n{}", ALL.iter().map(row).collect::<String>())
}

/// The metrics of one pool. Registered with the first value, so that an exporter can be installed until then.
#[derive(Clone)]
pub(crate) struct PoolMetrics(Arc<Inner>);

struct Inner {
    service: SharedString,
    pool: SharedString,
    handles: OnceLock<Handles>,
}

struct Handles {
    max_open: Gauge,
    open: Gauge,
    in_use: Gauge,
    idle: Gauge,
    waits: Counter,
    wait_duration: Histogram,
    closed_lifetime: Counter,
    closed_idle_time: Counter,
    closed_idle: Counter,
    topups: Counter,
    topup_failures: Counter,
    keeper_size: Gauge,
}

impl PoolMetrics {
    pub(crate) fn new(service: &str, pool: &str) -> Self {
        let (service, pool) = (service.to_owned().into(), pool.to_owned().into());
        Self(Arc::new(Inner { service, pool, handles: OnceLock::new() }))
    }

    fn handles(&self) -> &Handles {
        self.0.handles.get_or_init(|| self.register())
    }

    fn register(&self) -> Handles {
        for metric in ALL {
            metric.kind.describe(metric.name, metric.help);
        }
        let labels =
            vec![Label::new("service", self.0.service.clone()), Label::new("pool", self.0.pool.clone())];
        let gauge = |metric: Metric| gauge!(metric.name, labels.clone());
        let counter = |metric: Metric| counter!(metric.name, labels.clone());
        Handles {
            max_open: gauge(MAX_OPEN),
            open: gauge(OPEN),
            in_use: gauge(IN_USE),
            idle: gauge(IDLE),
            waits: counter(WAITS),
            wait_duration: histogram!(WAIT_DURATION.name, labels.clone()),
            closed_lifetime: counter(CLOSED_LIFETIME),
            closed_idle_time: counter(CLOSED_IDLE_TIME),
            closed_idle: counter(CLOSED_IDLE),
            topups: counter(TOPUPS),
            topup_failures: counter(TOPUP_FAILURES),
            keeper_size: gauge(KEEPER_SIZE),
        }
    }

    pub(crate) fn waited(&self, waited: Duration) {
        let handles = self.handles();
        handles.waits.increment(1);
        handles.wait_duration.record(waited.as_secs_f64() * 1_000.0);
    }

    pub(crate) fn topped_up(&self, well: bool) {
        let handles = self.handles();
        if well { &handles.topups } else { &handles.topup_failures }.increment(1);
    }

    #[allow(clippy::cast_precision_loss, reason = "a pool has fewer than 2^52 connections")]
    pub(crate) fn kept(&self, size: usize) {
        self.handles().keeper_size.set(size as f64);
    }
}

/// Hears what the reservoir tells.
impl Observer for PoolMetrics {
    #[allow(clippy::cast_precision_loss, reason = "a pool has fewer than 2^52 connections")]
    fn on(&self, event: &Event<'_>) {
        let handles = self.handles();
        match event {
            Event::Report { status } => {
                handles.max_open.set(status.max_open as f64);
                handles.open.set(status.size() as f64);
                handles.in_use.set((status.in_use + status.in_maintenance) as f64);
                handles.idle.set(status.ready as f64);
            }
            Event::Discarded { reason, .. } => match reason {
                Discard::GuardWindow
                | Discard::ExpiredOnCheckout
                | Discard::ExpiredOnReturn
                | Discard::ExpiredOnScan
                | Discard::ExpiringOnScan
                | Discard::Retired => handles.closed_lifetime.increment(1),
                Discard::Idle => handles.closed_idle_time.increment(1),
                Discard::Full => handles.closed_idle.increment(1),
                _ => {}
            },
            _ => {}
        }
    }

    fn wants_reports(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn each_reason_counts_where_it_belongs() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        ::metrics::with_local_recorder(&recorder, || {
            let metrics = PoolMetrics::new("service", "pool");
            for reason in Discard::ALL {
                metrics.on(&Event::Discarded { reason, age: Duration::ZERO, remaining: None });
            }
        });
        let text = handle.render();
        for (metric, expected) in [(CLOSED_LIFETIME, 6), (CLOSED_IDLE_TIME, 1), (CLOSED_IDLE, 1)] {
            let line = format!("{}{{service=\"service\",pool=\"pool\"}} {expected}", metric.name);
            assert!(text.contains(&line), "no {line} in\n{text}");
        }
    }
}
