//! The recorder of metrics, with the buckets that suit this project.

use std::sync::OnceLock;
use std::time::Duration;

use forebay::Instant;
use forebay::metrics::BUCKETS;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use parking_lot::Mutex;

/// How often the recorder is tidied up: without that, samples pile up until the next scrape.
const UPKEEP: Duration = Duration::from_secs(5);

/// The recorder of this process, if it is ours. There can be only one.
static INSTALLED: OnceLock<PrometheusHandle> = OnceLock::new();

/// The metrics could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrometheusError {
    /// The program has a recorder for the facade `metrics`. Give the page that recorder's own `render`.
    #[error(
        "the program has another metrics recorder: give StatusPage::metrics that recorder's render function"
    )]
    OtherRecorder,
    /// The recorder cannot be built.
    #[error("the metrics recorder cannot be built: {0}")]
    Build(String),
}

/// Installs a recorder for the facade `metrics`, and returns the function that renders its metrics for
/// [`StatusPage::metrics`](crate::StatusPage::metrics). A second call returns the same.
///
/// Call it before pools are started: metrics that are registered before are lost. All histograms of this
/// project get buckets. Those of your own program are summaries, as is the default of the exporter.
///
/// A page that is served tidies the recorder up. Without a page, call the function at least once a minute:
/// samples of histograms pile up otherwise.
///
/// # Errors
/// Returns an error if the program has another recorder.
pub fn prometheus() -> Result<impl Fn() -> String + Clone + Send + Sync + 'static, PrometheusError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    let handle = match INSTALLED.get() {
        Some(handle) => handle.clone(),
        None => {
            let recorder = builder()?.build_recorder();
            let handle = recorder.handle();
            metrics::set_global_recorder(recorder).map_err(|_| PrometheusError::OtherRecorder)?;
            INSTALLED.get_or_init(|| handle).clone()
        }
    };
    Ok(move || handle.render())
}

/// A recorder with buckets for every histogram.
fn builder() -> Result<PrometheusBuilder, PrometheusError> {
    BUCKETS
        .iter()
        .try_fold(PrometheusBuilder::new(), |builder, (end, buckets)| {
            builder.set_buckets_for_metric(Matcher::Suffix((*end).to_owned()), buckets)
        })
        .map_err(|error| PrometheusError::Build(error.to_string()))
}

/// Tidies the recorder up, if it is ours and if it is time.
pub(crate) fn upkeep(now: Instant) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let Some(handle) = INSTALLED.get() else { return };
    let mut last = LAST.lock();
    // Pages can have different clocks.
    if last.is_none_or(|last| now < last || now.since(last) >= UPKEEP) {
        *last = Some(now);
        drop(last);
        handle.run_upkeep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every histogram of `docs/metrics.md` and its siblings, with the prefix that Aurora DSQL uses.
    const HISTOGRAMS: [&str; 9] = [
        "dsql_reservoir_checkout_latency_milliseconds",
        "dsql_reservoir_open_latency_milliseconds",
        "dsql_reservoir_connection_age_seconds",
        "dsql_distributed_store_latency_milliseconds",
        "dsql_distributed_rate_wait_milliseconds",
        "dsql_pool_wait_duration",
        "dsql_tx_latency",
        "dsql_tx_backoff",
        "pool.acquire.wait_ms",
    ];

    #[test]
    fn every_histogram_has_buckets() {
        let recorder = builder().unwrap().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            for name in HISTOGRAMS {
                metrics::histogram!(name, "service" => "history").record(3.0);
            }
            metrics::histogram!("http_request_seconds").record(3.0);
        });
        let text = handle.render();
        for name in HISTOGRAMS {
            let name = name.replace('.', "_");
            assert!(text.contains(&format!("{name}_bucket{{service=\"history\",le=\"")), "{name} in\n{text}");
        }
        assert!(text.contains("http_request_seconds{quantile="), "other programs' stay summaries");
    }

    #[test]
    fn a_second_call_renders_the_same() {
        let (first, second) = (prometheus().unwrap(), prometheus().unwrap());
        metrics::counter!("forebay_status_test_total").increment(2);
        upkeep(Instant::from_nanos(1));
        for render in [&first as &dyn Fn() -> String, &second] {
            assert!(render().contains("forebay_status_test_total 2"));
        }
    }
}
