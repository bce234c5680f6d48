//! From nothing to two hundred connections, as fast as the server lets them in.

use std::time::Duration;

use anyhow::ensure;
use forebay::Config;
use forebay_dsql::Dsql;
use sqlx::postgres::PgPoolOptions;
use tokio::runtime::Handle;

use super::cluster::Cluster;
use super::contestants::{Pool, deadpool, official, options};
use crate::checkout::progress;
use crate::clock::{self, Stopwatch};
use crate::race::Figures;
use crate::report::{Bound, Report, Table};

const SIZE: usize = 200;
const RATE: u32 = 100;
/// How long the server takes for a connect.
const CONNECT: Duration = Duration::from_millis(50);
const ROUNDS: usize = 5;

pub(super) async fn measure(cluster: &Cluster, report: &mut Report) -> anyhow::Result<()> {
    cluster.ration(RATE).await?;
    cluster.inject(&format!("delay:at=connect,for={}ms", CONNECT.as_millis())).await?;
    let config = Config::default()
        .max_open(SIZE)
        .low_watermark(SIZE)
        .rate(f64::from(RATE), 1)
        .fill_timeout(Duration::from_secs(60));
    let (mut reservoir, refused) = (Vec::new(), cluster.refused().await?);
    progress("a cold fill: reservoir");
    for _ in 0..ROUNDS {
        let watch = Stopwatch::start();
        let pool = Dsql::connect(options(cluster, true, config.clone())?, cluster.clone()).await?;
        reservoir.push(watch.elapsed().as_secs_f64());
        ensure!(pool.status().open == SIZE, "not all were there: {:?}", pool.status());
        pool.drain(Duration::from_secs(5)).await;
    }
    let refused_ours = cluster.refused().await? - refused;
    progress("a cold fill: peers");
    let pool = official(cluster, PgPoolOptions::new().max_connections(u32::try_from(SIZE)?)).await?;
    let (aws, aws_refused) = fill(&pool).await?;
    pool.close().await;
    let pool = deadpool(cluster, SIZE, None)?;
    let (dead, dead_refused) = fill(&pool).await?;
    pool.close();

    // The first at once, the last after all others had their turn.
    let theory = f64::from(u32::try_from(SIZE)? - 1) / f64::from(RATE) + CONNECT.as_secs_f64();
    let reservoir = Figures::of("reservoir", reservoir)?;
    report.goal(
        format!(
            "cold fill of {SIZE} at {RATE}/s with {} ms each, over the theoretical time",
            CONNECT.as_millis()
        ),
        reservoir.median / theory,
        Bound::AtMost(1.05),
        "times",
    );
    report.tables.push(Table {
        name: format!("cold fill of {SIZE} connections; in theory {theory} s"),
        unit: "s",
        rows: vec![
            reservoir,
            Figures::of("AWS's connector", vec![aws])?,
            Figures::of("deadpool-postgres", vec![dead])?,
        ],
    });
    report.note(format!(
        "cold fill: {refused_ours} connects refused in {ROUNDS} fills of the reservoir; {SIZE} callers at once filled the \
         others, each asking again 10 ms after a refusal: {aws_refused} refused acquires of AWS's connector, {dead_refused} \
         of deadpool-postgres"
    ));
    Ok(())
}

/// As many callers as connections, all at once: how long until all have one, and how often they were refused.
async fn fill<P: Pool>(pool: &P) -> anyhow::Result<(f64, u64)> {
    let watch = Stopwatch::start();
    let (filled, all) = tokio::sync::watch::channel(false);
    let callers: Vec<_> = (0..SIZE)
        .map(|_| {
            let (pool, mut all) = (pool.clone(), all.clone());
            let (had, has) = tokio::sync::oneshot::channel();
            let caller = Handle::current().spawn(async move {
                let mut refused = 0;
                let lent = loop {
                    match pool.acquire().await {
                        Ok(lent) => break lent,
                        Err(_) => refused += 1,
                    }
                    clock::pause(Duration::from_millis(10)).await;
                };
                let (Ok(()) | Err(())) = had.send(());
                // Holds it until everybody has one.
                drop(all.wait_for(|all| *all).await);
                drop(lent);
                refused
            });
            (has, caller)
        })
        .collect();
    let (has, callers): (Vec<_>, Vec<_>) = callers.into_iter().unzip();
    for has in has {
        has.await?;
    }
    let took = watch.elapsed().as_secs_f64();
    filled.send(true)?;
    let mut refused = 0;
    for caller in callers {
        refused += caller.await?;
    }
    Ok((took, refused))
}
