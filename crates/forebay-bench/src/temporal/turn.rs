//! One turn of one contestant: workers that run workflows for some time, and what they and the server counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use forebay::rt::TokioRuntime;
use forebay_dsql::{Ids, Node, RetryPolicy, Transactions};
use forebay_temporal::Persistence;
use hdrhistogram::Histogram;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::Value;
use tokio::runtime::Handle;

use super::contestants::{Contestant, Pool, Source, Supply, WORKER, connect};
use super::history_host::HistoryHost;
use super::latencies::Latencies;
use super::verify;
use crate::clock::{self, Stopwatch};
use crate::cluster::Cluster;

/// What a contestant has to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) contestant: Contestant,
    pub(super) shards: i32,
    /// Each worker runs one workflow at a time. There are as many workers as connections.
    pub(super) supply: Supply,
    /// Workflows that are offered per second. If there are none, a worker starts the next at once.
    pub(super) offered: Option<f64>,
    /// How long workflows are started, and for how long before that they are started without being counted.
    pub(super) lasting: Duration,
    pub(super) ramp: Duration,
    /// The share of commits that the server fails with a conflict.
    pub(super) injected: f64,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Turn {
    /// Workflows completed per second, without those of the ramp.
    pub(super) completed: f64,
    pub(super) workflows: usize,
    /// Workflows that failed, and the first error.
    pub(super) failed: u64,
    pub(super) error: Option<String>,
    pub(super) latencies: Latencies,
    /// How long callers waited for a connection, and how often they got none.
    pub(super) waits: Histogram<u64>,
    pub(super) failed_checkouts: u64,
    pub(super) empties: Option<u64>,
    /// Connections that were opened while it served.
    pub(super) replaced: u64,
    pub(super) commits: u64,
    pub(super) conflicts: u64,
    pub(super) injected_conflicts: u64,
    /// By operation, from the metrics of the retries.
    pub(super) conflicts_of: BTreeMap<String, u64>,
    pub(super) retries_of: BTreeMap<String, u64>,
    /// Rows that are not as acknowledged.
    pub(super) differences: usize,
}

/// What all turns share.
pub(super) struct Arena {
    pub(super) cluster: Cluster,
    pub(super) metrics: PrometheusHandle,
    pub(super) turns: AtomicU64,
}

impl Arena {
    pub(super) async fn run(&self, plan: &Plan) -> anyhow::Result<Turn> {
        let number = self.turns.fetch_add(1, Ordering::Relaxed) + 1;
        self.cluster.reset().await?;
        let pool = Pool::open(plan.contestant, &self.cluster, plan.supply).await?;
        let source = Source::new(pool)?;
        let label = format!("turn-{number}");
        let transactions =
            Transactions::new(RetryPolicy::default(), TokioRuntime::current()?, "bench", &label);
        let ids = Ids::new(Node::new(1).context("a node")?, TokioRuntime::current()?);
        let store = Persistence::over(source.clone(), transactions, ids);
        let host = HistoryHost::start(store, number, plan.shards);
        let host = Arc::new(WORKER.scope(0, host).await?);

        if plan.injected > 0.0 {
            self.cluster.inject(&format!("conflict:p={}", plan.injected)).await?;
        }
        source.waits.times.lock().reset();
        let before = self.count().await?;
        let work = work(&host, plan).await?;
        let after = self.count().await?;
        let waits = source.waits.times.lock().clone();
        let empties = source.pool.empties();
        self.cluster.control("DELETE", "/faults", "").await?;

        let client = connect(&self.cluster).await?;
        let differences = verify::differences(&host, &client).await?;
        drop(client);
        source.pool.close().await;
        let [accepted, commits, conflicts, injected] =
            std::array::from_fn(|counter| after[counter] - before[counter]);
        let metrics = self.metrics.render();
        Ok(Turn {
            completed: work.counted as f64 / plan.lasting.as_secs_f64(),
            workflows: work.workflows,
            failed: work.failed,
            error: work.error,
            latencies: work.latencies,
            waits,
            failed_checkouts: source.waits.failed.load(Ordering::Relaxed),
            empties,
            replaced: accepted,
            commits,
            conflicts,
            injected_conflicts: injected,
            conflicts_of: by_operation(&metrics, "dsql_tx_conflict_total", &label),
            retries_of: by_operation(&metrics, "dsql_tx_retry_total", &label),
            differences,
        })
    }

    /// Sessions, commits, conflicts and injected conflicts so far.
    async fn count(&self) -> anyhow::Result<[u64; 4]> {
        let faults: Value = serde_json::from_str(&self.cluster.control("GET", "/faults", "").await?)?;
        let hits = faults.as_array().into_iter().flatten().filter_map(|fault| fault["hits"].as_u64()).sum();
        let count = async |counter| self.cluster.count(counter).await;
        Ok([count("accepted").await?, count("commits").await?, count("conflicts").await?, hits])
    }
}

/// What the workers of a turn have done.
#[derive(Default)]
struct Work {
    /// Workflows that were completed after the ramp and before the end; and all of them.
    counted: usize,
    workflows: usize,
    failed: u64,
    error: Option<String>,
    latencies: Latencies,
}

async fn work(host: &Arc<HistoryHost>, plan: &Plan) -> anyhow::Result<Work> {
    let (began, next) = (Stopwatch::start(), Arc::new(AtomicU64::new(0)));
    let worker = |worker: usize| {
        let work = work_alone(Arc::clone(host), *plan, began, Arc::clone(&next));
        Handle::current().spawn(WORKER.scope(worker, work))
    };
    let workers: Vec<_> = (0..plan.supply.connections).map(worker).collect();
    let mut all = Work::default();
    for worker in workers {
        let work = worker.await?;
        all.counted += work.counted;
        all.workflows += work.workflows;
        all.failed += work.failed;
        all.error = all.error.or(work.error);
        all.latencies.add(work.latencies)?;
    }
    Ok(all)
}

async fn work_alone(host: Arc<HistoryHost>, plan: Plan, began: Stopwatch, next: Arc<AtomicU64>) -> Work {
    let (mut work, end) = (Work::default(), plan.ramp + plan.lasting);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let due = plan.offered.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(number as f64 / rate));
        if due.max(began.elapsed()) >= end {
            return work;
        }
        clock::pause(due.saturating_sub(began.elapsed())).await;
        let watch = Stopwatch::start();
        match host.run_workflow(number, &mut work.latencies).await {
            Ok(()) => {
                work.latencies.record("workflow", watch.elapsed());
                work.workflows += 1;
                work.counted += usize::from((plan.ramp..end).contains(&began.elapsed()));
            }
            Err(error) => {
                work.failed += 1;
                work.error.get_or_insert_with(|| format!("{error:#}"));
            }
        }
    }
}

/// The values of a counter by operation, of the transactions with this label. `metrics` is in the text format of Prometheus.
fn by_operation(metrics: &str, counter: &str, pool: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let pool = format!("pool=\"{pool}\"");
    for line in metrics.lines().filter(|line| line.starts_with(counter) && line.contains(&pool)) {
        let operation = line.split("operation=\"").nth(1).and_then(|rest| rest.split('"').next());
        let value = line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok());
        if let (Some(operation), Some(value)) = (operation, value) {
            *counts.entry(operation.to_owned()).or_default() += value;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_by_operation_and_pool() {
        let text = "dsql_tx_retry_total{service=\"b\",pool=\"turn-1\",operation=\"signal\",attempt=\"1\"} 3\n\
                    dsql_tx_retry_total{service=\"b\",pool=\"turn-1\",operation=\"signal\",attempt=\"2\"} 1\n\
                    dsql_tx_retry_total{service=\"b\",pool=\"turn-12\",operation=\"signal\",attempt=\"1\"} 9\n";
        let counts = by_operation(text, "dsql_tx_retry_total", "turn-1");
        assert_eq!(counts, BTreeMap::from([("signal".to_owned(), 4)]));
    }
}
