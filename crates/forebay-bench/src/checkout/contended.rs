//! Sixteen tasks on two threads that share one pool.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Barrier;
use tokio::task::yield_now;

use super::{Effort, times_less, times_more};
use crate::clock::{self, Stopwatch};
use crate::peers::{Bb8, Deadpool, DeadpoolUnmanaged, Forebay, Lend, Mobc, Pool, Queue, refused};
use crate::race::{Lane, histogram, race};
use crate::report::{Report, Table};
use crate::section::{self, progress};

const TASKS: u32 = 16;

/// Half as many connections as tasks, and more than enough; and the goal for our throughput over the other
/// pools'.
const SIZES: [(usize, f64); 2] = [(8, 3.5), (64, 5.0)];

const MILLIONS: &str = "million turns/s";

/// The turns of one task. Their number is fixed: a pool that never makes its callers yield would otherwise
/// let two tasks take all turns. With `YIELDS` other tasks run before the connection is returned, as they do
/// while a task waits for its database.
async fn take<P: Lend, const YIELDS: bool>(pool: P, turns: u32) -> anyhow::Result<()> {
    for _ in 0..turns {
        let lent = pool.lend().await.map_err(refused::<P>)?;
        black_box(&*lent);
        if YIELDS {
            yield_now().await;
        }
    }
    Ok(())
}

/// The same with yields and a clock, for how long each wait was. Reading the clock costs as much as a
/// checkout, so throughput is measured without it.
async fn take_timed<P: Lend>(pool: P, turns: u32) -> anyhow::Result<Histogram<u64>> {
    let mut waits = histogram()?;
    for _ in 0..turns {
        let watch = Stopwatch::start();
        let lent = pool.lend().await.map_err(refused::<P>)?;
        waits.saturating_record(clock::whole_nanos(watch.elapsed()));
        black_box(&*lent);
        yield_now().await;
    }
    Ok(waits)
}

/// The turns of all tasks: the time from the first start to the last end, and the result of each task.
async fn crowd<P, T, F>(pool: P, take: impl Fn(P) -> F) -> anyhow::Result<(Duration, Vec<T>)>
where
    P: Lend,
    T: Send + 'static,
    F: Future<Output = anyhow::Result<T>> + Send + 'static,
{
    let start = Arc::new(Barrier::new(TASKS as usize));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (turns, start) = (take(pool.clone()), Arc::clone(&start));
            Handle::current().spawn(async move {
                start.wait().await;
                let began = clock::nanos();
                let result = turns.await?;
                anyhow::Ok((began, clock::nanos(), result))
            })
        })
        .collect();
    let (mut first, mut last, mut results) = (u64::MAX, 0, Vec::new());
    for task in tasks {
        let (began, ended, result) = task.await??;
        (first, last) = (first.min(began), last.max(ended));
        results.push(result);
    }
    Ok((Duration::from_nanos(last.saturating_sub(first)), results))
}

fn throughput<P: Lend>(
    runtime: &Runtime,
    connections: usize,
    turns: u32,
    yields: bool,
) -> anyhow::Result<Lane<'_>> {
    let pool = runtime.block_on(P::filled(connections))?;
    let run = move || {
        let pool = pool.clone();
        let task = if yields {
            runtime.spawn(crowd(pool, move |pool| take::<P, true>(pool, turns)))
        } else {
            runtime.spawn(crowd(pool, move |pool| take::<P, false>(pool, turns)))
        };
        let (took, _) = runtime.block_on(task)??;
        Ok(f64::from(TASKS) * f64::from(turns) / took.as_secs_f64() / 1e6)
    };
    Ok(Lane::new(P::NAME, run))
}

fn p99_wait<P: Lend>(runtime: &Runtime, connections: usize, turns: u32) -> anyhow::Result<Lane<'_>> {
    let pool = runtime.block_on(P::filled(connections))?;
    let run = move || {
        let task = runtime.spawn(crowd(pool.clone(), move |pool| take_timed(pool, turns)));
        let mut all = histogram()?;
        for waits in runtime.block_on(task)??.1 {
            all.add(waits)?;
        }
        Ok(all.value_at_quantile(0.99) as f64 / 1e3)
    };
    Ok(Lane::new(P::NAME, run))
}

/// Tasks that return connections at once: the pool itself is what keeps them busy.
pub(super) fn returned_at_once(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    for (connections, goal) in SIZES {
        progress(&format!("{TASKS} tasks on {connections} connections, returned at once"));
        let lanes = lanes!(throughput(runtime, connections, effort.turns_each, false):
            Forebay, Deadpool, Bb8, DeadpoolUnmanaged, Mobc, Queue);
        let name =
            format!("{TASKS} tasks on {connections} connections, 2 threads, returned at once: throughput");
        let table = Table::new(&name, MILLIONS, race(effort.rounds, lanes)?);
        let times = times_more(&table, Forebay::NAME, &[Deadpool::NAME, Bb8::NAME])?;
        report.at_least(format!("{name} over the better of deadpool managed and bb8"), times, goal, "times");
        let times = table.ratio(Forebay::NAME, DeadpoolUnmanaged::NAME)?;
        report.at_least(format!("{name} over deadpool unmanaged"), times, 2.0, "times");
        report.tables.push(table);
    }
    Ok(())
}

/// Tasks that yield while they hold: the scheduler is what keeps them busy, and with few connections they
/// wait.
pub(super) fn held_across_a_yield(
    runtime: &Runtime,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let turns = effort.turns_each;
    for (connections, _) in SIZES {
        let what = format!("{TASKS} tasks on {connections} connections, 2 threads, yield while holding");
        progress(&format!("{TASKS} tasks on {connections} connections that yield: throughput"));
        let lanes = lanes!(throughput(runtime, connections, turns, true):
            Forebay, Deadpool, Bb8, DeadpoolUnmanaged, Mobc);
        let table = Table::new(format!("{what}: throughput"), MILLIONS, race(effort.rounds, lanes)?);
        let peers = [Deadpool::NAME, DeadpoolUnmanaged::NAME, Bb8::NAME];
        let times = times_more(&table, Forebay::NAME, &peers)?;
        let name =
            format!("{what}: throughput over the best of deadpool managed, deadpool unmanaged and bb8");
        report.at_least(name, times, 1.15, "times");
        report.tables.push(table);

        progress(&format!("{TASKS} tasks on {connections} connections that yield: waits"));
        let lanes = lanes!(p99_wait(runtime, connections, turns):
            Forebay, Deadpool, Bb8, DeadpoolUnmanaged, Mobc);
        let table = Table::new(format!("{what}: p99 wait"), "us", race(effort.rounds, lanes)?);
        // bb8 is left out: it serves callers out of order, and most of them soon.
        let share = 1.0 / times_less(&table, Forebay::NAME, &[Deadpool::NAME, DeadpoolUnmanaged::NAME])?;
        report.at_most(format!("{what}: p99 wait over that of the better deadpool"), share, 0.95, "times");
        report.tables.push(table);
    }
    Ok(())
}

/// For a profiler: tasks that yield while they hold, and nothing else.
pub(crate) fn spin(connections: usize, turns: u32) -> anyhow::Result<()> {
    let runtime = section::runtime()?;
    let pool = runtime.block_on(Forebay::filled(connections))?;
    let task = runtime.spawn(crowd(pool, move |pool| take::<Forebay, true>(pool, turns)));
    runtime.block_on(task)??;
    Ok(())
}
