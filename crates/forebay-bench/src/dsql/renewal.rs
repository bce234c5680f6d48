//! A server that ends sessions, and accepts new ones slowly.

use std::time::Duration;

use anyhow::Context;
use forebay::Lifetime;
use forebay_dsql::Dsql;
use sqlx::postgres::PgPoolOptions;

use super::Effort;
use super::callers::{CALLERS, Habit, Observations, serve};
use super::contestants::{Pool, RATE, SIZE, aws_connector, deadpool, full_reservoir, options};
use crate::clock;
use crate::cluster::Cluster;
use crate::race::Figures;
use crate::report::Report;
use crate::section::progress;

/// One transaction after the other, so that every caller needs a connection all the time. With short
/// statements and pauses few connections are in use, and a pool that opens on demand opens next to none.
const HABIT: Habit = Habit { holds: Duration::from_millis(100), pauses: Duration::ZERO };

pub(super) async fn measure(cluster: &Cluster, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let Effort { session, watched, .. } = effort;
    cluster.limit_rate(RATE).await?;
    cluster.set_limits(&format!("session_life={}ms", session.as_millis())).await?;
    // Every pool closes connections before the server does.
    let life = session.mul_f64(0.85);
    let lifetime = Lifetime::new(session.mul_f64(0.7)).jitter(session.mul_f64(0.4));
    let config = full_reservoir().lifetime(lifetime.guard_window(session.mul_f64(0.03)));
    let mut all = Vec::new();
    for (name, reservoir) in [("reservoir", true), ("standard mode", false)] {
        progress(&format!("sessions that end: {name}"));
        let pool = Dsql::connect(options(cluster, reservoir, config.clone())?, cluster.clone()).await?;
        all.push(watch(cluster, name, &pool, watched).await?);
        pool.drain(Duration::from_secs(5)).await;
    }
    progress("sessions that end: AWS's connector");
    let settings = PgPoolOptions::new().max_connections(u32::try_from(SIZE)?).max_lifetime(life);
    let pool = aws_connector(cluster, settings).await?;
    warm(&pool).await?;
    all.push(watch(cluster, "AWS's connector", &pool, watched).await?);
    pool.close().await;
    progress("sessions that end: deadpool-postgres");
    let pool = deadpool(cluster, SIZE, Some(life))?;
    warm(&pool).await?;
    all.push(watch(cluster, "deadpool-postgres", &pool, watched).await?);
    pool.close();
    add_goals(report, effort, &all)
}

/// Fills a pool that does not fill itself, within the server's limit.
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

/// What the callers of a contestant observed.
struct Watched {
    name: &'static str,
    found: Observations,
    /// Connects that the server refused.
    throttled: u64,
    /// Sessions that the server ended.
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

fn add_goals(report: &mut Report, effort: Effort, all: &[Watched]) -> anyhow::Result<()> {
    let [ours, _, peers @ ..] = all else { anyhow::bail!("too few took part") };
    let best = peers.iter().map(|peer| peer.found.wait(0.999)).min_by(f64::total_cmp).context("no peer")?;
    let what = format!(
        "sessions of {} s, {RATE} opens/s, {SIZE} connections, {CALLERS} callers, {} s",
        effort.session.as_secs(),
        effort.watched.as_secs()
    );
    report.at_most(format!("{what}: failed acquires of the reservoir"), ours.found.refused, 0.0, "acquires");
    report.at_most("the same: statements on an ended session", ours.found.failed(), 0.0, "statements");
    let goal = "the same: p99.9 of acquire, the best peer's over the reservoir's";
    report.at_least(goal, best / ours.found.wait(0.999), 50.0, "times");
    for (title, unit, value) in [
        ("p99.9 of acquire", "ms", (|one| one.found.wait(0.999)) as fn(&Watched) -> f64),
        ("longest acquire", "ms", |one| one.found.wait(1.0)),
        ("failed acquires", "acquires", |one| one.found.refused as f64),
        ("failed statements", "statements", |one| one.found.failed() as f64),
    ] {
        let rows = all.iter().map(|one| Figures::of(one.name, vec![value(one)])).collect::<Result<_, _>>()?;
        report.table(format!("sessions that end: {title}"), unit, rows);
    }
    for Watched { name, found, throttled, expired } in all {
        let first =
            found.error.as_deref().map_or_else(String::new, |error| format!("; the first error: {error}"));
        report.note(format!(
            "sessions that end, {name}: {} acquires, {} failed, p50 {:.4} ms, p99 {:.4} ms; {throttled} \
             connects refused, {expired} sessions ended by the server{first}",
            found.waits.len(),
            found.refused,
            found.wait(0.5),
            found.wait(0.99),
        ));
    }
    report.note(
        "sessions that end: a caller runs one transaction of 100 ms after the other, and retries 10 ms after \
         a refusal; the time of an acquire is until it has a connection. Peers were filled beforehand at 80 \
         opens/s, with a lifetime of 0.85 of the session's, AWS's with its check before each loan, \
         deadpool-postgres with RecyclingMethod::Fast. In real time",
    );
    Ok(())
}
