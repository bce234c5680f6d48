//! Callers who ask the same question again and again, as tasks or as threads.

use std::sync::{Arc, Barrier as ThreadBarrier};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use forebay_flight::{AsyncFlightSQLPool, FlightSQLPool};
use hdrhistogram::Histogram;
use tokio::runtime::Runtime;
use tokio::sync::Barrier;

use crate::clock::{self, Stopwatch};

/// Somebody who asks, as a task.
pub(crate) trait Ask: Send + 'static {
    /// Asks, and returns how many rows were the answer.
    fn ask(&mut self, sql: &'static str) -> impl Future<Output = anyhow::Result<usize>> + Send;
}

impl Ask for AsyncFlightSQLPool {
    async fn ask(&mut self, sql: &'static str) -> anyhow::Result<usize> {
        Ok(self.query(sql).await?.row_count())
    }
}

/// Somebody who asks, as a thread.
pub(crate) trait AskAndWait: Send {
    /// Asks, and returns how many rows were the answer.
    fn ask(&mut self, sql: &'static str) -> anyhow::Result<usize>;
}

impl AskAndWait for FlightSQLPool {
    fn ask(&mut self, sql: &'static str) -> anyhow::Result<usize> {
        Ok(self.query(sql)?.row_count())
    }
}

/// How long the questions of one turn took, in nanoseconds.
pub(crate) type Answers = Histogram<u64>;

fn answers() -> anyhow::Result<Answers> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).context("making a histogram")
}

/// Lets each of the tasks ask for `time`.
pub(crate) fn tasks<A: Ask>(
    runtime: &Runtime,
    callers: Vec<A>,
    sql: &'static str,
    time: Duration,
) -> anyhow::Result<Answers> {
    let start = Arc::new(Barrier::new(callers.len()));
    let callers: Vec<_> = callers
        .into_iter()
        .map(|mut caller| {
            let start = Arc::clone(&start);
            runtime.spawn(async move {
                let mut took = answers()?;
                start.wait().await;
                let until = clock::nanos() + clock::whole_nanos(time);
                while clock::nanos() < until {
                    let watch = Stopwatch::start();
                    let rows = caller.ask(sql).await?;
                    took.saturating_record(clock::whole_nanos(watch.elapsed()));
                    ensure!(rows == 1, "{rows} rows instead of one");
                }
                anyhow::Ok(took)
            })
        })
        .collect();
    let mut all = answers()?;
    for caller in callers {
        all.add(runtime.block_on(caller)??)?;
    }
    Ok(all)
}

/// Lets each of the threads ask for `time`.
pub(crate) fn threads<A: AskAndWait>(
    callers: Vec<A>,
    sql: &'static str,
    time: Duration,
) -> anyhow::Result<Answers> {
    let start = ThreadBarrier::new(callers.len());
    let mut all = answers()?;
    std::thread::scope(|scope| {
        let callers: Vec<_> = callers
            .into_iter()
            .map(|mut caller| {
                let start = &start;
                scope.spawn(move || {
                    let mut took = answers()?;
                    start.wait();
                    let until = clock::nanos() + clock::whole_nanos(time);
                    while clock::nanos() < until {
                        let watch = Stopwatch::start();
                        let rows = caller.ask(sql)?;
                        took.saturating_record(clock::whole_nanos(watch.elapsed()));
                        ensure!(rows == 1, "{rows} rows instead of one");
                    }
                    anyhow::Ok(took)
                })
            })
            .collect();
        for caller in callers {
            all.add(caller.join().map_err(|_| anyhow!("a caller has panicked"))??)?;
        }
        anyhow::Ok(())
    })?;
    Ok(all)
}
