//! Every socket is cut at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use forebay::Config;
use forebay_dsql::Dsql;
use sqlx::postgres::PgPoolOptions;
use tokio::runtime::Handle;

use super::callers::{Found, Habit, serve};
use super::cluster::Cluster;
use super::contestants::{Pool, deadpool, official, options};
use crate::checkout::progress;
use crate::clock;
use crate::report::{Bound, Report};

const SIZE: usize = 200;
const RATE: u32 = 100;
/// How long after the start the sockets are cut, and how long the callers go on.
const CUT_AFTER: Duration = Duration::from_secs(1);
const TIME: Duration = Duration::from_secs(6);
/// Short statements, so that hardly any connection is in use when it is cut.
const HABIT: Habit = Habit { holds: Duration::ZERO, pauses: Duration::from_millis(10) };
/// A cut that has not come yet.
const NEVER: u64 = u64::MAX;

/// When the server had cut all sockets. One contestant at a time is cut.
static CUT: AtomicU64 = AtomicU64::new(NEVER);

fn moment() -> u64 {
    CUT.load(Ordering::Acquire)
}

pub(super) async fn measure(cluster: &Cluster, report: &mut Report) -> anyhow::Result<()> {
    let config = Config::default()
        .max_open(SIZE)
        .low_watermark(SIZE)
        .rate(f64::from(RATE), 1)
        .fill_timeout(Duration::from_secs(20));
    progress("a mass disconnect: reservoir");
    let pool = Dsql::connect(options(cluster, true, config)?, cluster.clone()).await?;
    let (found, watched) = cut(cluster, &pool, Some(pool.clone())).await?;
    tell(report, &found, &watched)?;
    pool.drain(Duration::from_secs(5)).await;

    progress("a mass disconnect: peers");
    cluster.as_new().await?;
    let settings = PgPoolOptions::new().max_connections(u32::try_from(SIZE)?);
    let aws = official(cluster, settings).await?;
    fill(&aws).await?;
    let (found, _) = cut(cluster, &aws, None).await?;
    aws.close().await;
    note(report, "AWS's connector", &found);
    cluster.as_new().await?;
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

/// When what happened, in nanoseconds.
#[derive(Default)]
struct Watched {
    /// The server was told to cut all sockets; it cuts one after the other.
    told: u64,
    /// None of the connections was left.
    discarded: Option<u64>,
    /// There were as many as before.
    full: Option<u64>,
}

/// Cuts all sockets while callers are served, and watches `ours`.
async fn cut<P: Pool>(cluster: &Cluster, pool: &P, ours: Option<Dsql>) -> anyhow::Result<(Found, Watched)> {
    cluster.ration(RATE).await?;
    CUT.store(NEVER, Ordering::Release);
    let watcher = Handle::current().spawn({
        let cluster = cluster.clone();
        async move {
            clock::pause(CUT_AFTER).await;
            let old: Vec<_> = ours.iter().flat_map(|pool| pool.registry().list()).map(|one| one.id).collect();
            let severed = cluster.count("severed").await?;
            let mut watched = Watched { told: clock::nanos(), ..Watched::default() };
            cluster.inject("sever:fraction=1").await?;
            while cluster.count("severed").await? < severed + SIZE as u64 {
                clock::pause(Duration::from_millis(1)).await;
            }
            CUT.store(clock::nanos(), Ordering::Release);
            let Some(pool) = ours else { return anyhow::Ok(watched) };
            while watched.full.is_none() && clock::nanos() < watched.told + clock::whole_nanos(TIME) {
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
    let found = serve(pool, HABIT, TIME, moment).await?;
    let watched = watcher.await??;
    ensure!(moment() != NEVER, "not all sockets were cut");
    Ok((found, watched))
}

#[allow(clippy::cast_precision_loss, reason = "small counts")]
fn tell(report: &mut Report, found: &Found, watched: &Watched) -> anyhow::Result<()> {
    let since =
        |at: Option<u64>| at.map(|at| Duration::from_nanos(at.saturating_sub(watched.told)).as_secs_f64());
    let discarded = since(watched.discarded).map(|seconds| seconds * 1e3);
    report.goal(
        format!("mass disconnect of {SIZE}: until all are discarded"),
        discarded,
        Bound::AtMost(100.0),
        "ms",
    );
    let first = since(found.first_after).context("nobody was served after the cut")?;
    report.goal("the same: until a caller is served again", first * 1e3, Bound::AtMost(100.0), "ms");
    let bucket = f64::from(u32::try_from(SIZE)? - 1) / f64::from(RATE);
    report.goal(
        "the same: until it is full again, over what the bucket allows",
        since(watched.full).map(|full| full / bucket),
        Bound::AtMost(1.1),
        "times",
    );
    report.goal(
        "the same: statements on a dead connection that was lent after all were cut",
        found.failed_after as f64,
        Bound::AtMost(0.0),
        "statements",
    );
    note(report, "reservoir", found);
    Ok(())
}

fn note(report: &mut Report, name: &str, found: &Found) {
    report.note(format!(
        "mass disconnect, {name}: {} acquires, {} failed; the longest took {:.1} ms; {} statements failed on a \
         connection that was lent before the last was cut, {} on one that was lent after",
        found.waits.len(),
        found.refused,
        found.wait(1.0),
        found.failed_before,
        found.failed_after,
    ));
}
