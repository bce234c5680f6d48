//! All sockets are cut at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use forebay_dsql::Dsql;
use sqlx::postgres::PgPoolOptions;
use tokio::runtime::Handle;

use super::callers::{Habit, Observations, serve};
use super::contestants::{Pool, RATE, SIZE, aws_connector, deadpool, full_reservoir, options};
use crate::clock;
use crate::cluster::Cluster;
use crate::report::Report;
use crate::section::progress;

/// When the sockets are cut after the start, and how long the callers run.
const CUT_AFTER: Duration = Duration::from_secs(1);
const TIME: Duration = Duration::from_secs(6);
/// Short statements, so that few connections are in use when they are cut.
const HABIT: Habit = Habit { holds: Duration::ZERO, pauses: Duration::from_millis(10) };
/// The time of a cut that is still to come.
const NEVER: u64 = u64::MAX;

/// When the server had cut all sockets. Only one contestant runs at a time.
static CUT: AtomicU64 = AtomicU64::new(NEVER);

fn cut_at() -> u64 {
    CUT.load(Ordering::Acquire)
}

pub(super) async fn measure(cluster: &Cluster, report: &mut Report) -> anyhow::Result<()> {
    progress("a mass disconnect: reservoir");
    let pool = Dsql::connect(options(cluster, true, full_reservoir())?, cluster.clone()).await?;
    let (found, watched) = cut(cluster, &pool, Some(pool.clone())).await?;
    add_goals(report, &found, &watched)?;
    pool.drain(Duration::from_secs(5)).await;

    progress("a mass disconnect: peers");
    cluster.reset().await?;
    let settings = PgPoolOptions::new().max_connections(u32::try_from(SIZE)?);
    let aws = aws_connector(cluster, settings).await?;
    fill(&aws).await?;
    let (found, _) = cut(cluster, &aws, None).await?;
    aws.close().await;
    note(report, "AWS's connector", &found);
    cluster.reset().await?;
    let dead = deadpool(cluster, SIZE, None)?;
    fill(&dead).await?;
    let (found, _) = cut(cluster, &dead, None).await?;
    dead.close();
    note(report, "deadpool-postgres", &found);
    Ok(())
}

async fn fill<P: Pool>(pool: &P) -> anyhow::Result<()> {
    let mut held = Vec::with_capacity(SIZE);
    while held.len() < SIZE {
        held.push(pool.acquire().await?);
    }
    Ok(())
}

/// When the steps of a cut happened, in nanoseconds.
#[derive(Default)]
struct Watched {
    /// The server began to cut the sockets, one after the other.
    began: u64,
    /// The pool had discarded all of the old connections.
    discarded: Option<u64>,
    /// The pool had as many connections as before.
    full: Option<u64>,
}

/// Cuts all sockets while callers run, and watches the pool `ours`.
async fn cut<P: Pool>(
    cluster: &Cluster,
    pool: &P,
    ours: Option<Dsql>,
) -> anyhow::Result<(Observations, Watched)> {
    cluster.limit_rate(RATE).await?;
    CUT.store(NEVER, Ordering::Release);
    let watcher = Handle::current().spawn({
        let cluster = cluster.clone();
        async move {
            clock::pause(CUT_AFTER).await;
            let old: Vec<_> = ours.iter().flat_map(|pool| pool.registry().list()).map(|one| one.id).collect();
            let severed = cluster.count("severed").await?;
            let mut watched = Watched { began: clock::nanos(), ..Watched::default() };
            cluster.inject("sever:fraction=1").await?;
            while cluster.count("severed").await? < severed + SIZE as u64 {
                clock::pause(Duration::from_millis(1)).await;
            }
            CUT.store(clock::nanos(), Ordering::Release);
            let Some(pool) = ours else { return anyhow::Ok(watched) };
            while watched.full.is_none() && clock::nanos() < watched.began + clock::whole_nanos(TIME) {
                let gone = pool.registry().list().iter().all(|one| !old.contains(&one.id));
                if gone {
                    watched.discarded = watched.discarded.or_else(|| Some(clock::nanos()));
                }
                if gone && pool.status().open == SIZE {
                    watched.full = Some(clock::nanos());
                }
                clock::pause(Duration::from_millis(1)).await;
            }
            Ok(watched)
        }
    });
    let found = serve(pool, HABIT, TIME, cut_at).await?;
    let watched = watcher.await??;
    ensure!(cut_at() != NEVER, "not all sockets were cut");
    Ok((found, watched))
}

fn add_goals(report: &mut Report, found: &Observations, watched: &Watched) -> anyhow::Result<()> {
    let since =
        |at: Option<u64>| at.map(|at| Duration::from_nanos(at.saturating_sub(watched.began)).as_secs_f64());
    let discarded = since(watched.discarded).map(|seconds| seconds * 1e3);
    report.at_most(format!("mass disconnect of {SIZE}: until all are discarded"), discarded, 100.0, "ms");
    let first = since(found.first_after).context("no caller was served after the cut")?;
    report.at_most("the same: until a caller is served again", first * 1e3, 100.0, "ms");
    let bucket = f64::from(u32::try_from(SIZE)? - 1) / f64::from(RATE);
    let goal = "the same: until the pool is full again, over what the bucket allows";
    report.at_most(goal, since(watched.full).map(|full| full / bucket), 1.1, "times");
    let goal = "the same: statements on a dead connection that was lent after all were cut";
    report.at_most(goal, found.failed_after, 0.0, "statements");
    note(report, "reservoir", found);
    Ok(())
}

fn note(report: &mut Report, name: &str, found: &Observations) {
    report.note(format!(
        "mass disconnect, {name}: {} acquires, {} failed; the longest took {:.1} ms; {} statements failed on \
         a connection that was lent before the last was cut, {} on one that was lent after",
        found.waits.len(),
        found.refused,
        found.wait(1.0),
        found.failed_before,
        found.failed_after,
    ));
}
