//! Sixteen tasks on two threads, who borrow from one pool.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Barrier;
use tokio::task::yield_now;

use super::{Effort, progress, runtime, times_less, times_more};
use crate::clock::{self, Stopwatch};
use crate::peers::{Bb8, Deadpool, DeadpoolUnmanaged, Forebay, Mobc, Queue};
use crate::pool::{Lend, Pool, refused};
use crate::race::{Lane, race};
use crate::report::{Bound, Report, Table};

const TASKS: u32 = 16;

/// Half as many as tasks, and more than enough; how many times the other pools' throughput is aimed for.
const SIZES: [(usize, f64); 2] = [(8, 3.5), (64, 5.0)];

/// Waits of up to a minute, to a thousandth.
fn waits() -> anyhow::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).context("making a histogram")
}

/// Who takes turns, how.
trait Turns<P: Lend>: Copy + Send + Sync + 'static {
    /// What one task found out.
    type Found: Send + 'static;

    /// What one task does. Each does a fixed number of turns: a pool that never makes its callers yield to others
    /// would otherwise let two tasks have them all.
    fn take(self, pool: P, turns: u32) -> impl Future<Output = anyhow::Result<Self::Found>> + Send;
}

/// Gives back at once.
#[derive(Clone, Copy)]
struct AtOnce;

impl<P: Lend> Turns<P> for AtOnce {
    type Found = ();

    async fn take(self, pool: P, turns: u32) -> anyhow::Result<()> {
        for _ in 0..turns {
            let lent = pool.lend().await.map_err(refused::<P>)?;
            black_box(&*lent);
        }
        Ok(())
    }
}

/// Lets other tasks run before it gives back, as a task does that waits for its database.
#[derive(Clone, Copy)]
struct OverAYield;

impl<P: Lend> Turns<P> for OverAYield {
    type Found = ();

    async fn take(self, pool: P, turns: u32) -> anyhow::Result<()> {
        for _ in 0..turns {
            let lent = pool.lend().await.map_err(refused::<P>)?;
            black_box(&*lent);
            yield_now().await;
        }
        Ok(())
    }
}

/// The same with a clock, for how long each wait was. Reading it costs as much as a checkout, so throughput is
/// measured without.
#[derive(Clone, Copy)]
struct TimedOverAYield;

impl<P: Lend> Turns<P> for TimedOverAYield {
    type Found = Histogram<u64>;

    async fn take(self, pool: P, turns: u32) -> anyhow::Result<Histogram<u64>> {
        let mut waits = waits()?;
        for _ in 0..turns {
            let watch = Stopwatch::start();
            let lent = pool.lend().await.map_err(refused::<P>)?;
            waits.saturating_record(clock::whole_nanos(watch.elapsed()));
            black_box(&*lent);
            yield_now().await;
        }
        Ok(waits)
    }
}

/// All tasks' turns: how long they took from the first one's start to the last one's end, and what each found.
async fn crowd<P: Lend, T: Turns<P>>(
    pool: P,
    kind: T,
    turns: u32,
) -> anyhow::Result<(Duration, Vec<T::Found>)> {
    let start = Arc::new(Barrier::new(TASKS as usize));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (pool, start) = (pool.clone(), Arc::clone(&start));
            Handle::current().spawn(async move {
                start.wait().await;
                let began = clock::nanos();
                let found = kind.take(pool, turns).await?;
                anyhow::Ok((began, clock::nanos(), found))
            })
        })
        .collect();
    let (mut first, mut last, mut all) = (u64::MAX, 0, Vec::new());
    for task in tasks {
        let (began, ended, found) = task.await??;
        (first, last) = (first.min(began), last.max(ended));
        all.push(found);
    }
    Ok((Duration::from_nanos(last.saturating_sub(first)), all))
}

fn throughput_lane<P: Lend, T: Turns<P>>(
    runtime: &Runtime,
    connections: usize,
    kind: T,
    turns: u32,
) -> anyhow::Result<Lane<'_>> {
    let pool = runtime.block_on(P::filled(connections))?;
    let run = move || {
        let task = runtime.spawn(crowd(pool.clone(), kind, turns));
        let (took, _) = runtime.block_on(task)??;
        Ok(f64::from(TASKS) * f64::from(turns) / took.as_secs_f64() / 1e6)
    };
    Ok(Lane::new(P::NAME, run))
}

fn p99_lane<P: Lend>(runtime: &Runtime, connections: usize, turns: u32) -> anyhow::Result<Lane<'_>> {
    let pool = runtime.block_on(P::filled(connections))?;
    let run = move || {
        let task = runtime.spawn(crowd(pool.clone(), TimedOverAYield, turns));
        let (_, found) = runtime.block_on(task)??;
        let mut all = waits()?;
        for waits in found {
            all.add(waits)?;
        }
        #[allow(clippy::cast_precision_loss, reason = "a wait of less than 100 days")]
        let microseconds = all.value_at_quantile(0.99) as f64 / 1e3;
        Ok(microseconds)
    };
    Ok(Lane::new(P::NAME, run))
}

const MILLIONS: &str = "million turns/s";

/// Tasks that give back at once: the pool itself is what they are busy with.
///
/// # Errors
/// If a pool refuses.
pub fn given_back_at_once(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    for (connections, aim) in SIZES {
        progress(&format!("{TASKS} tasks on {connections} connections, given back at once"));
        let turns = effort.turns_each;
        let lanes = vec![
            throughput_lane::<Forebay, _>(runtime, connections, AtOnce, turns)?,
            throughput_lane::<Deadpool, _>(runtime, connections, AtOnce, turns)?,
            throughput_lane::<Bb8, _>(runtime, connections, AtOnce, turns)?,
            throughput_lane::<DeadpoolUnmanaged, _>(runtime, connections, AtOnce, turns)?,
            throughput_lane::<Mobc, _>(runtime, connections, AtOnce, turns)?,
            throughput_lane::<Queue, _>(runtime, connections, AtOnce, turns)?,
        ];
        let rows = race(effort.rounds, lanes)?;
        let what = format!("{TASKS} tasks on {connections} connections, 2 threads, given back at once");
        let table = Table { name: format!("{what}: throughput"), unit: MILLIONS, rows };
        let times = times_more(&table, Forebay::NAME, &[Deadpool::NAME, Bb8::NAME])?;
        report.goal(
            format!("{what}: throughput over the better of deadpool managed and bb8"),
            times,
            Bound::AtLeast(aim),
            "times",
        );
        let times = times_more(&table, Forebay::NAME, &[DeadpoolUnmanaged::NAME])?;
        report.goal(
            format!("{what}: throughput over deadpool unmanaged"),
            times,
            Bound::AtLeast(2.0),
            "times",
        );
        report.tables.push(table);
    }
    Ok(())
}

/// Tasks that yield while they hold: the scheduler is what they are busy with, and with few connections they wait.
///
/// # Errors
/// If a pool refuses.
pub fn held_over_a_yield(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    for (connections, _) in SIZES {
        let what = format!("{TASKS} tasks on {connections} connections, 2 threads, yield while holding");
        progress(&format!("{TASKS} tasks on {connections} connections that yield: throughput"));
        let turns = effort.turns_each;
        let lanes = vec![
            throughput_lane::<Forebay, _>(runtime, connections, OverAYield, turns)?,
            throughput_lane::<Deadpool, _>(runtime, connections, OverAYield, turns)?,
            throughput_lane::<Bb8, _>(runtime, connections, OverAYield, turns)?,
            throughput_lane::<DeadpoolUnmanaged, _>(runtime, connections, OverAYield, turns)?,
            throughput_lane::<Mobc, _>(runtime, connections, OverAYield, turns)?,
        ];
        let rows = race(effort.rounds, lanes)?;
        let table = Table { name: format!("{what}: throughput"), unit: MILLIONS, rows };
        let peers = [Deadpool::NAME, DeadpoolUnmanaged::NAME, Bb8::NAME];
        let times = times_more(&table, Forebay::NAME, &peers)?;
        report.goal(
            format!("{what}: throughput over the best of deadpool managed, deadpool unmanaged and bb8"),
            times,
            Bound::AtLeast(1.15),
            "times",
        );
        report.tables.push(table);

        progress(&format!("{TASKS} tasks on {connections} connections that yield: waits"));
        let lanes = vec![
            p99_lane::<Forebay>(runtime, connections, turns)?,
            p99_lane::<Deadpool>(runtime, connections, turns)?,
            p99_lane::<Bb8>(runtime, connections, turns)?,
            p99_lane::<DeadpoolUnmanaged>(runtime, connections, turns)?,
            p99_lane::<Mobc>(runtime, connections, turns)?,
        ];
        let rows = race(effort.rounds, lanes)?;
        let table = Table { name: format!("{what}: p99 wait"), unit: "us", rows };
        // Not bb8's: it serves callers out of turn, and most of them soon.
        let share = 1.0 / times_less(&table, Forebay::NAME, &[Deadpool::NAME, DeadpoolUnmanaged::NAME])?;
        report.goal(
            format!("{what}: p99 wait over that of the better deadpool"),
            share,
            Bound::AtMost(0.95),
            "times",
        );
        report.tables.push(table);
    }
    Ok(())
}

/// What a profiler watches: tasks that yield while they hold, and nothing else.
///
/// # Errors
/// If the reservoir does not start.
pub fn spin(connections: usize, turns: u32) -> anyhow::Result<()> {
    let runtime = runtime()?;
    let pool = runtime.block_on(Forebay::filled(connections))?;
    runtime.block_on(runtime.spawn(crowd(pool, OverAYield, turns)))??;
    Ok(())
}
