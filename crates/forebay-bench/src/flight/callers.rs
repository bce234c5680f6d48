//! Callers that repeat one statement, as tasks or as threads.

use std::sync::{Arc, Barrier as ThreadBarrier};
use std::time::Duration;

use anyhow::{anyhow, ensure};
use forebay_flight::{AsyncFlightSQLPool, FlightSQLPool};
use hdrhistogram::Histogram;
use tokio::runtime::Runtime;
use tokio::sync::Barrier;

use crate::clock::{self, Stopwatch};
use crate::race::histogram;

/// A client that runs as a task.
pub(crate) trait Query: Send + 'static {
    /// Runs a statement, and returns the number of its rows.
    fn query(&mut self, sql: &'static str) -> impl Future<Output = anyhow::Result<usize>> + Send;
}

impl Query for AsyncFlightSQLPool {
    async fn query(&mut self, sql: &'static str) -> anyhow::Result<usize> {
        Ok(Self::query(self, sql).await?.row_count())
    }
}

/// A client that runs as a thread.
pub(crate) trait BlockingQuery: Send {
    /// Runs a statement, and returns the number of its rows.
    fn query(&mut self, sql: &'static str) -> anyhow::Result<usize>;
}

impl BlockingQuery for FlightSQLPool {
    fn query(&mut self, sql: &'static str) -> anyhow::Result<usize> {
        Ok(Self::query(self, sql)?.row_count())
    }
}

/// How long the statements of one turn took, in nanoseconds.
pub(crate) type Latencies = Histogram<u64>;

/// Runs each caller as a task for `time`.
pub(crate) fn tasks<Q: Query>(
    runtime: &Runtime,
    callers: Vec<Q>,
    sql: &'static str,
    time: Duration,
) -> anyhow::Result<Latencies> {
    let start = Arc::new(Barrier::new(callers.len()));
    let callers: Vec<_> = callers
        .into_iter()
        .map(|mut caller| {
            let start = Arc::clone(&start);
            runtime.spawn(async move {
                let mut took = histogram()?;
                start.wait().await;
                let until = clock::nanos() + clock::whole_nanos(time);
                while clock::nanos() < until {
                    let watch = Stopwatch::start();
                    let rows = caller.query(sql).await?;
                    took.saturating_record(clock::whole_nanos(watch.elapsed()));
                    ensure!(rows == 1, "{rows} rows instead of one");
                }
                anyhow::Ok(took)
            })
        })
        .collect();
    let mut all = histogram()?;
    for caller in callers {
        all.add(runtime.block_on(caller)??)?;
    }
    Ok(all)
}

/// Runs each caller as a thread for `time`.
pub(crate) fn threads<Q: BlockingQuery>(
    callers: Vec<Q>,
    sql: &'static str,
    time: Duration,
) -> anyhow::Result<Latencies> {
    let start = ThreadBarrier::new(callers.len());
    let mut all = histogram()?;
    std::thread::scope(|scope| {
        let callers: Vec<_> = callers
            .into_iter()
            .map(|mut caller| {
                let start = &start;
                scope.spawn(move || {
                    let mut took = histogram()?;
                    start.wait();
                    let until = clock::nanos() + clock::whole_nanos(time);
                    while clock::nanos() < until {
                        let watch = Stopwatch::start();
                        let rows = caller.query(sql)?;
                        took.saturating_record(clock::whole_nanos(watch.elapsed()));
                        ensure!(rows == 1, "{rows} rows instead of one");
                    }
                    anyhow::Ok(took)
                })
            })
            .collect();
        for caller in callers {
            all.add(caller.join().map_err(|_| anyhow!("a caller panicked"))??)?;
        }
        anyhow::Ok(())
    })?;
    Ok(all)
}
