//! One task that checks out and returns, with no other task.

use std::hint::black_box;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::{Effort, times_less};
use crate::clock::Stopwatch;
use crate::peers::{
    Bb8, Deadpool, DeadpoolUnmanaged, Forebay, ForebayWithMetrics, Lend, Mobc, Pool, Queue, R2d2, TryLend,
    refused,
};
use crate::race::{Lane, race};
use crate::report::{Report, Table};
use crate::section::progress;

/// How many connections there are. One would do, but a pool of one may have short cuts that no real pool has.
pub(crate) const CONNECTIONS: usize = 8;

const UNIT: &str = "ns/turn";

/// Checks out and returns `turns` times, without waiting.
pub(crate) fn try_turns<P: TryLend>(pool: &P, turns: u32) -> anyhow::Result<Duration> {
    let watch = Stopwatch::start();
    for _ in 0..turns {
        let lent = pool.try_lend().map_err(refused::<P>)?;
        black_box(&*lent);
    }
    Ok(watch.elapsed())
}

/// Checks out and returns `turns` times, by calls that may wait.
pub(crate) async fn turns<P: Lend>(pool: P, turns: u32) -> anyhow::Result<Duration> {
    let watch = Stopwatch::start();
    for _ in 0..turns {
        let lent = pool.lend().await.map_err(refused::<P>)?;
        black_box(&*lent);
    }
    Ok(watch.elapsed())
}

/// Calls that never wait. They run on the main thread, while the runtime's threads are idle.
pub(super) fn never_waiting(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    fn lane<P: TryLend>(runtime: &Runtime, turns: u32) -> anyhow::Result<Lane<'static>> {
        let pool = runtime.block_on(P::filled(CONNECTIONS))?;
        Ok(Lane::new(P::NAME, move || Ok(per_turn(try_turns(&pool, turns)?, turns))))
    }
    progress("uncontended calls that never wait");
    let lanes = lanes!(lane(runtime, effort.turns_alone):
        Forebay, ForebayWithMetrics, DeadpoolUnmanaged, R2d2, Queue);
    let rows = race(effort.rounds, lanes)?;
    let table = Table::new("uncontended, a call that never waits, and return", UNIT, rows);
    let faster = times_less(&table, Forebay::NAME, &[DeadpoolUnmanaged::NAME, R2d2::NAME])?;
    let name = "uncontended try_checkout + return: faster than the fastest peer's try call";
    report.at_least(name, faster, 2.5, "times");
    report.tables.push(table);
    Ok(())
}

/// Calls that may wait, though none has to. They run inside a task on a worker thread.
pub(super) fn awaited(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    fn lane<P: Lend>(runtime: &Runtime, count: u32) -> anyhow::Result<Lane<'_>> {
        let pool = runtime.block_on(P::filled(CONNECTIONS))?;
        let run = move || {
            let task = runtime.spawn(turns(pool.clone(), count));
            Ok(per_turn(runtime.block_on(task)??, count))
        };
        Ok(Lane::new(P::NAME, run))
    }
    progress("uncontended calls that may wait");
    let lanes = lanes!(lane(runtime, effort.turns_alone):
        Forebay, ForebayWithMetrics, Deadpool, Bb8, DeadpoolUnmanaged, Mobc, Queue);
    let rows = race(effort.rounds, lanes)?;
    let table = Table::new("uncontended, a call that may wait, and return", UNIT, rows);
    let faster = times_less(&table, Forebay::NAME, &[Deadpool::NAME, Bb8::NAME])?;
    let name = "uncontended checkout().await + return: faster than the faster of bb8 and deadpool managed";
    report.at_least(name, faster, 4.5, "times");
    report.tables.push(table);
    Ok(())
}

fn per_turn(elapsed: Duration, turns: u32) -> f64 {
    elapsed.as_secs_f64() * 1e9 / f64::from(turns)
}
