//! One task that borrows and gives back, with nobody else about.

use std::hint::black_box;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::{Effort, progress, times_less};
use crate::clock::Stopwatch;
use crate::peers::{Bb8, Deadpool, DeadpoolUnmanaged, Forebay, ForebayWithMetrics, Mobc, Queue, R2d2};
use crate::pool::{Lend, Pool, TryLend, refused};
use crate::race::{Lane, race};
use crate::report::{Bound, Report, Table};

/// How many connections there are. One would do; a pool of one may have short cuts that no real one has.
pub const CONNECTIONS: usize = 8;

const NANOSECONDS: &str = "ns/turn";

/// Borrows and gives back `turns` times, without waiting.
///
/// # Errors
/// If the pool refuses.
pub fn try_turns<P: TryLend>(pool: &P, turns: u32) -> anyhow::Result<Duration> {
    let watch = Stopwatch::start();
    for _ in 0..turns {
        let lent = pool.try_lend().map_err(refused::<P>)?;
        black_box(&*lent);
    }
    Ok(watch.elapsed())
}

/// Borrows and gives back `turns` times, waiting if need be.
///
/// # Errors
/// If the pool refuses.
pub async fn turns<P: Lend>(pool: P, turns: u32) -> anyhow::Result<Duration> {
    let watch = Stopwatch::start();
    for _ in 0..turns {
        let lent = pool.lend().await.map_err(refused::<P>)?;
        black_box(&*lent);
    }
    Ok(watch.elapsed())
}

/// The calls that never wait. They run on the main thread, while the runtime's own are idle.
///
/// # Errors
/// If a pool refuses.
pub fn at_once(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    fn lane<P: TryLend>(runtime: &Runtime, turns: u32) -> anyhow::Result<Lane<'static>> {
        let pool = runtime.block_on(P::filled(CONNECTIONS))?;
        Ok(Lane::new(P::NAME, move || Ok(per_turn(try_turns(&pool, turns)?, turns))))
    }
    progress("uncontended calls that never wait");
    let turns = effort.turns_alone;
    let lanes = vec![
        lane::<Forebay>(runtime, turns)?,
        lane::<ForebayWithMetrics>(runtime, turns)?,
        lane::<DeadpoolUnmanaged>(runtime, turns)?,
        lane::<R2d2>(runtime, turns)?,
        lane::<Queue>(runtime, turns)?,
    ];
    let table = Table {
        name: "uncontended, a call that never waits, and return".to_owned(),
        unit: NANOSECONDS,
        rows: race(effort.rounds, lanes)?,
    };
    let faster = times_less(&table, Forebay::NAME, &[DeadpoolUnmanaged::NAME, R2d2::NAME])?;
    report.goal(
        "uncontended try_checkout + return: faster than the fastest peer's try call",
        faster,
        Bound::AtLeast(2.5),
        "times",
    );
    report.tables.push(table);
    Ok(())
}

/// The calls that may wait, though nobody has to. They run inside a task on a worker thread.
///
/// # Errors
/// If a pool refuses.
pub fn awaited(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    fn lane<P: Lend>(runtime: &Runtime, count: u32) -> anyhow::Result<Lane<'_>> {
        let pool = runtime.block_on(P::filled(CONNECTIONS))?;
        let run = move || {
            let task = runtime.spawn(turns(pool.clone(), count));
            Ok(per_turn(runtime.block_on(task)??, count))
        };
        Ok(Lane::new(P::NAME, run))
    }
    progress("uncontended calls that may wait");
    let turns = effort.turns_alone;
    let lanes = vec![
        lane::<Forebay>(runtime, turns)?,
        lane::<ForebayWithMetrics>(runtime, turns)?,
        lane::<Deadpool>(runtime, turns)?,
        lane::<Bb8>(runtime, turns)?,
        lane::<DeadpoolUnmanaged>(runtime, turns)?,
        lane::<Mobc>(runtime, turns)?,
        lane::<Queue>(runtime, turns)?,
    ];
    let table = Table {
        name: "uncontended, a call that may wait, and return".to_owned(),
        unit: NANOSECONDS,
        rows: race(effort.rounds, lanes)?,
    };
    let faster = times_less(&table, Forebay::NAME, &[Deadpool::NAME, Bb8::NAME])?;
    report.goal(
        "uncontended checkout().await + return: faster than the faster of bb8 and deadpool managed",
        faster,
        Bound::AtLeast(4.5),
        "times",
    );
    report.tables.push(table);
    Ok(())
}

fn per_turn(elapsed: Duration, turns: u32) -> f64 {
    elapsed.as_secs_f64() * 1e9 / f64::from(turns)
}
