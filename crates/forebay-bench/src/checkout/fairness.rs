//! A thousand tasks on ten connections: whether all of them get as many turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio::sync::Barrier;
use tokio::task::yield_now;

use super::Effort;
use crate::clock;
use crate::peers::{Bb8, Deadpool, Forebay, Lend, Pool, refused};
use crate::race::Figures;
use crate::report::{Report, Table};
use crate::section::progress;

const TASKS: u32 = 1_000;
const CONNECTIONS: usize = 10;

/// Measures the turns of the luckiest task over those of the unluckiest.
pub(super) fn measure(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    progress(&format!("fairness among {TASKS} tasks on {CONNECTIONS} connections"));
    let rows = vec![
        repeated::<Forebay>(runtime, effort.fairness_runs, effort.fairness_time)?,
        // The peers run once: they only show what is usual.
        repeated::<Deadpool>(runtime, 1, effort.fairness_time)?,
        repeated::<Bb8>(runtime, 1, effort.fairness_time)?,
    ];
    let time = effort.fairness_time;
    let what = format!(
        "{TASKS} tasks on {CONNECTIONS} connections, barrier start, {time:?}, yield while holding: most / \
         fewest turns"
    );
    let table = Table::new(&what, "times", rows);
    report.at_most(what, table.median(Forebay::NAME)?, 1.1, "times");
    report.tables.push(table);
    Ok(())
}

fn repeated<P: Lend>(runtime: &Runtime, runs: usize, time: Duration) -> anyhow::Result<Figures> {
    let mut values = Vec::with_capacity(runs);
    for _ in 0..runs {
        let task = runtime.spawn(async move { most_over_fewest(P::filled(CONNECTIONS).await?, time).await });
        values.push(runtime.block_on(task)??);
    }
    Figures::of(P::NAME, values)
}

async fn most_over_fewest<P: Lend>(pool: P, time: Duration) -> anyhow::Result<f64> {
    let start = Arc::new(Barrier::new(TASKS as usize + 1));
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (pool, start, stop) = (pool.clone(), Arc::clone(&start), Arc::clone(&stop));
            Handle::current().spawn(async move {
                start.wait().await;
                let mut turns = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    let lent = pool.lend().await.map_err(refused::<P>)?;
                    yield_now().await;
                    drop(lent);
                    turns += 1;
                }
                anyhow::Ok(turns)
            })
        })
        .collect();
    start.wait().await;
    clock::pause(time).await;
    stop.store(true, Ordering::Relaxed);
    let (mut most, mut fewest) = (0, u32::MAX);
    for task in tasks {
        let turns = task.await??;
        (most, fewest) = (most.max(turns), fewest.min(turns));
    }
    // A task that had no turn at all counts as if it had one, so that the result is a number.
    Ok(f64::from(most) / f64::from(fewest.max(1)))
}
