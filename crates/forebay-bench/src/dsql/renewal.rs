//! A server that ends sessions, and lets new ones in slowly.

use std::time::Duration;

use anyhow::Context;
use forebay::{Config, Lifetime};
use forebay_dsql::Dsql;
use sqlx::postgres::PgPoolOptions;

use super::Effort;
use super::callers::{CALLERS, Found, Habit, serve};
use super::cluster::Cluster;
use super::contestants::{Pool, deadpool, official, options};
use crate::checkout::progress;
use crate::clock;
use crate::race::Figures;
use crate::report::{Bound, Report, Table};

/// How many connections everybody may have.
const SIZE: usize = 200;
/// One transaction after the other, so that every caller needs a connection all the time. With short statements and pauses
/// hardly more than one is in use, and a pool that opens only what is asked for opens next to nothing.
const HABIT: Habit = Habit { holds: Duration::from_millis(100), pauses: Duration::ZERO };
/// How many may be opened a second.
const RATE: u32 = 100;

pub(super) async fn measure(cluster: &Cluster, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let Effort { session, watched, .. } = effort;
    cluster.ration(RATE).await?;
    cluster.limit(&format!("session_life={}ms", session.as_millis())).await?;
    // Everybody ends connections himself, before the server does.
    let life = session.mul_f64(0.85);
    let config = Config::default()
        .max_open(SIZE)
        .low_watermark(SIZE)
        .rate(f64::from(RATE), 1)
        .lifetime(
            Lifetime::new(session.mul_f64(0.7))
                .jitter(session.mul_f64(0.4))
                .guard_window(session.mul_f64(0.03)),
        )
        .fill_timeout(Duration::from_secs(20));
    let mut all = Vec::new();
    for (name, reservoir) in [("reservoir", true), ("standard mode", false)] {
        progress(&format!("sessions that end: {name}"));
        let pool = Dsql::connect(options(cluster, reservoir, config.clone())?, cluster.clone()).await?;
        all.push(watch(cluster, name, &pool, watched).await?);
        pool.drain(Duration::from_secs(5)).await;
    }
    progress("sessions that end: AWS's connector");
    let settings = PgPoolOptions::new().max_connections(u32::try_from(SIZE)?).max_lifetime(life);
    let pool = official(cluster, settings).await?;
    warm(&pool).await?;
    all.push(watch(cluster, "AWS's connector", &pool, watched).await?);
    pool.close().await;
    progress("sessions that end: deadpool-postgres");
    let pool = deadpool(cluster, SIZE, Some(life))?;
    warm(&pool).await?;
    all.push(watch(cluster, "deadpool-postgres", &pool, watched).await?);
    pool.close();
    tell(report, effort, &all)
}

/// Fills a pool that does not do so itself, as slowly as the server likes it.
async fn warm<P: Pool>(pool: &P) -> anyhow::Result<()> {
    let mut held = Vec::with_capacity(SIZE);
    while held.len() < SIZE {
        clock::pause(Duration::from_millis(12)).await;
        if let Ok(lent) = pool.acquire().await {
            held.push(lent);
        }
    }
    Ok(())
}

/// What befell a contestant's callers.
struct Watched {
    name: &'static str,
    found: Found,
    /// Connects that the server refused.
    throttled: u64,
    /// Sessions that it ended.
    expired: u64,
}

async fn watch<P: Pool>(
    cluster: &Cluster,
    name: &'static str,
    pool: &P,
    time: Duration,
) -> anyhow::Result<Watched> {
    let (throttled, expired) = (cluster.refused().await?, cluster.count("expired").await?);
    let found = serve(pool, HABIT, time, || 0).await?;
    let throttled = cluster.refused().await? - throttled;
    let expired = cluster.count("expired").await? - expired;
    Ok(Watched { name, found, throttled, expired })
}

#[allow(clippy::cast_precision_loss, reason = "counts of some thousands")]
fn tell(report: &mut Report, effort: Effort, all: &[Watched]) -> anyhow::Result<()> {
    let [ours, _, peers @ ..] = all else { anyhow::bail!("too few took part") };
    let best = peers.iter().map(|peer| peer.found.wait(0.999)).min_by(f64::total_cmp).context("no peer")?;
    let what = format!(
        "sessions of {} s, {RATE} opens/s, {SIZE} connections, {CALLERS} callers, {} s",
        effort.session.as_secs(),
        effort.watched.as_secs()
    );
    report.goal(
        format!("{what}: failed acquires of the reservoir"),
        ours.found.refused as f64,
        Bound::AtMost(0.0),
        "acquires",
    );
    report.goal(
        "the same: statements on an ended session",
        ours.found.failed() as f64,
        Bound::AtMost(0.0),
        "statements",
    );
    report.goal(
        "the same: p99.9 of acquire, the best peer's over the reservoir's",
        best / ours.found.wait(0.999),
        Bound::AtLeast(50.0),
        "times",
    );
    for (title, unit, value) in [
        ("p99.9 of acquire", "ms", (|one| one.found.wait(0.999)) as fn(&Watched) -> f64),
        ("longest acquire", "ms", |one| one.found.wait(1.0)),
        ("failed acquires", "acquires", |one| one.found.refused as f64),
        ("failed statements", "statements", |one| one.found.failed() as f64),
    ] {
        let rows = all.iter().map(|one| Figures::of(one.name, vec![value(one)])).collect::<Result<_, _>>()?;
        report.tables.push(Table { name: format!("sessions that end: {title}"), unit, rows });
    }
    for Watched { name, found, throttled, expired } in all {
        let said = found.said.as_deref().map_or_else(String::new, |said| format!("; the first: {said}"));
        report.note(format!(
            "sessions that end, {name}: {} acquires, {} failed, p50 {:.4} ms, p99 {:.4} ms; {throttled} connects \
             refused, {expired} sessions ended by the server{said}",
            found.waits.len(),
            found.refused,
            found.wait(0.5),
            found.wait(0.99),
        ));
    }
    report.note(
        "sessions that end: a caller has one transaction of 100 ms after the other, and asks again 10 ms after a refusal; the \
         time of an acquire is until he has a connection. Peers were filled beforehand at 80 opens/s, with a lifetime of 0.85 of \
         the session's, AWS's with its check before each loan, deadpool-postgres with RecyclingMethod::Fast. In real time",
    );
    Ok(())
}
