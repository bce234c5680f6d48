//! A cold fill of two hundred connections, as fast as the server accepts them.

use std::time::Duration;

use anyhow::ensure;
use forebay_dsql::Dsql;
use sqlx::postgres::PgPoolOptions;
use tokio::runtime::Handle;

use super::contestants::{Pool, RATE, SIZE, aws_connector, deadpool, full_reservoir, options};
use crate::clock::{self, Stopwatch};
use crate::cluster::Cluster;
use crate::race::Figures;
use crate::report::Report;
use crate::section::progress;

/// How long the server takes for a connect.
const CONNECT: Duration = Duration::from_millis(50);
const ROUNDS: usize = 5;

pub(super) async fn measure(cluster: &Cluster, report: &mut Report) -> anyhow::Result<()> {
    cluster.limit_rate(RATE).await?;
    cluster.inject(&format!("delay:at=connect,for={}ms", CONNECT.as_millis())).await?;
    let (mut reservoir, refused) = (Vec::new(), cluster.refused().await?);
    progress("a cold fill: reservoir");
    for _ in 0..ROUNDS {
        let watch = Stopwatch::start();
        let pool = Dsql::connect(options(cluster, true, full_reservoir())?, cluster.clone()).await?;
        reservoir.push(watch.elapsed().as_secs_f64());
        ensure!(pool.status().open == SIZE, "the pool is not full: {:?}", pool.status());
        pool.drain(Duration::from_secs(5)).await;
    }
    let refused_ours = cluster.refused().await? - refused;
    progress("a cold fill: peers");
    let pool = aws_connector(cluster, PgPoolOptions::new().max_connections(u32::try_from(SIZE)?)).await?;
    let (aws, aws_refused) = fill(&pool).await?;
    pool.close().await;
    let pool = deadpool(cluster, SIZE, None)?;
    let (dead, dead_refused) = fill(&pool).await?;
    pool.close();

    // The first opens at once, the last after all others.
    let theory = f64::from(u32::try_from(SIZE)? - 1) / f64::from(RATE) + CONNECT.as_secs_f64();
    let reservoir = Figures::of("reservoir", reservoir)?;
    let goal = format!(
        "cold fill of {SIZE} at {RATE}/s with {} ms each, over the theoretical time",
        CONNECT.as_millis()
    );
    report.at_most(goal, reservoir.median / theory, 1.05, "times");
    report.table(
        format!("cold fill of {SIZE} connections; in theory {theory} s"),
        "s",
        vec![
            reservoir,
            Figures::of("AWS's connector", vec![aws])?,
            Figures::of("deadpool-postgres", vec![dead])?,
        ],
    );
    report.note(format!(
        "cold fill: {refused_ours} connects refused in {ROUNDS} fills of the reservoir; {SIZE} callers at \
         once filled the others, each retrying 10 ms after a refusal: {aws_refused} refused acquires of \
         AWS's connector, {dead_refused} of deadpool-postgres"
    ));
    Ok(())
}

/// As many callers as connections, all at once. Returns the seconds until all have one, and the refusals.
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
                // Hold it until all callers have one.
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
