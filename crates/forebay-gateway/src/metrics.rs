//! Every metric of the gateway, in one place. Those of its pools are forebay-dsql's.

use std::sync::Once;
use std::time::Duration;

use ::metrics::{counter, gauge, histogram};
use forebay::metrics::Kind;
use forebay_dsql::metrics::Metric;

macro_rules! metrics {
    ($($constant:ident $name:literal $kind:ident $labels:expr, $help:literal;)*) => {
        $(const $constant: Metric = Metric { name: $name, kind: Kind::$kind, labels: &$labels, help: $help };)*

        /// Every metric of the gateway, in the order of the manual.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    CLIENTS "forebay_gateway_clients" Gauge [], "Clients that are connected";
    WAITING "forebay_gateway_clients_waiting" Gauge [], "Clients that wait for a connection to the cluster now";
    LOGINS "forebay_gateway_logins_total" Counter ["outcome"], "Clients that tried to log in, by what came of it: accepted, authentication, refused, crowded, draining, stranger, timeout, tls, io";
    WAITS "forebay_gateway_backend_waits_total" Counter ["outcome"], "Statements that had to wait for a connection to the cluster: served, failed";
    WAIT_DURATION "forebay_gateway_backend_wait_duration" Histogram [], "How long they waited, in milliseconds";
    DETACHED "forebay_gateway_detached_total" Counter ["reason"], "Connections to the cluster that were taken from under a live session: due, lost, wanted, idle";
    ABANDONED "forebay_gateway_abandoned_total" Counter ["outcome"], "Connections to the cluster whose sessions ended in the middle of something, by what came of it: reused, late (not answered within a second), lost, useless; all but the first are closed";
    CANCELS "forebay_gateway_cancels_total" Counter [], "Statements that were cancelled, by their client or a timeout; each costs a connection";
    PEER_CANCELS "forebay_gateway_peer_cancels_total" Counter ["outcome"], "Cancel requests for a session of another process: passed_on, received, unknown (no such peer), failed";
    ENDS "forebay_gateway_session_ends_total" Counter ["reason"], "Sessions that ended: left, broken, dismissed";
}

/// The manual's table of these metrics, in Markdown.
#[must_use]
pub fn manual() -> String {
    let row = |metric: &Metric| {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{}` | {} | {} | {} |\n", metric.name, metric.kind, labels.join(", "), metric.help)
    };
    format!(
        "| metric | kind | labels | what it tells |\n|---|---|---|---|\n{}",
        ALL.iter().map(row).collect::<String>()
    )
}

/// Describes them, once.
fn describe() {
    static DESCRIBED: Once = Once::new();
    DESCRIBED.call_once(|| {
        for metric in ALL {
            metric.kind.describe(metric.name, metric.help);
        }
    });
}

#[allow(clippy::cast_precision_loss, reason = "a gateway has fewer than 2^52 clients")]
pub(crate) fn clients(count: usize) {
    describe();
    gauge!(CLIENTS.name).set(count as f64);
}

pub(crate) fn begins_to_wait() {
    gauge!(WAITING.name).increment(1.0);
}

pub(crate) fn waits_no_more() {
    gauge!(WAITING.name).decrement(1.0);
}

pub(crate) fn login(outcome: &'static str) {
    describe();
    counter!(LOGINS.name, "outcome" => outcome).increment(1);
}

pub(crate) fn waited(waited: Duration, served: bool) {
    let outcome = if served { "served" } else { "failed" };
    counter!(WAITS.name, "outcome" => outcome).increment(1);
    histogram!(WAIT_DURATION.name).record(waited.as_secs_f64() * 1_000.0);
}

pub(crate) fn detached(reason: &'static str) {
    counter!(DETACHED.name, "reason" => reason).increment(1);
}

pub(crate) fn abandoned(outcome: &'static str) {
    counter!(ABANDONED.name, "outcome" => outcome).increment(1);
}

pub(crate) fn cancelled() {
    counter!(CANCELS.name).increment(1);
}

pub(crate) fn peer_cancel(outcome: &'static str) {
    describe();
    counter!(PEER_CANCELS.name, "outcome" => outcome).increment(1);
}

pub(crate) fn ended(reason: &'static str) {
    counter!(ENDS.name, "reason" => reason).increment(1);
}
