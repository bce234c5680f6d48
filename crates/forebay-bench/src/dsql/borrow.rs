//! Acquire, `SELECT 1`, give back: sixteen callers, sixteen connections.

use std::sync::Arc;
use std::time::Duration;

use forebay::Config;
use forebay_dsql::Dsql;
use sqlx::postgres::PgPoolOptions;
use tokio::runtime::Runtime;
use tokio::sync::Barrier;
use tokio_postgres::Client;

use super::Effort;
use super::callers::CALLERS;
use super::cluster::Cluster;
use super::contestants::{Dial, Official, Pool, deadpool, official, one, options};
use crate::checkout::progress;
use crate::clock;
use crate::race::{Lane, race};
use crate::report::{Bound, Report, Table};

const DEDICATED: &str = "a connection each";

/// One connection for each caller, and nobody to lend it.
impl Pool for Arc<Client> {
    type Lent<'a> = &'a Client;

    async fn acquire(&self) -> anyhow::Result<&Client> {
        Ok(self)
    }

    async fn select(lent: &mut Self::Lent<'_>) -> anyhow::Result<()> {
        one(lent).await
    }
}

pub(super) fn measure(
    runtime: &Runtime,
    cluster: &Cluster,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    progress("acquire, SELECT 1, give back");
    let config = || Config::default().max_open(CALLERS).rate(1e4, 10_000);
    let connect = |reservoir| {
        runtime.block_on(async {
            anyhow::Ok(Dsql::connect(options(cluster, reservoir, config())?, cluster.clone()).await?)
        })
    };
    let (reservoir, standard) = (connect(true)?, connect(false)?);
    let aws = runtime.block_on(connector(cluster))?;
    let deadpool = deadpool(cluster, CALLERS, None)?;
    let dial = Dial::new(cluster)?;
    let dedicated = (0..CALLERS).map(|_| anyhow::Ok(Arc::new(runtime.block_on(dial.dial())?.0)));
    let dedicated = dedicated.collect::<Result<Vec<_>, _>>()?;

    let lanes = vec![
        lane(runtime, "reservoir", vec![reservoir; CALLERS], effort.turn),
        lane(runtime, "standard mode", vec![standard; CALLERS], effort.turn),
        lane(runtime, "AWS's connector", vec![aws; CALLERS], effort.turn),
        lane(runtime, "deadpool-postgres", vec![deadpool; CALLERS], effort.turn),
        lane(runtime, DEDICATED, dedicated, effort.turn),
    ];
    let table = Table {
        name: format!("acquire, SELECT 1, give back: {CALLERS} callers, {CALLERS} connections"),
        unit: "1/s",
        rows: race(effort.rounds, lanes)?,
    };
    let ours = table.median("reservoir")?;
    for (peer, goal) in [("AWS's connector", 1.9), ("deadpool-postgres", 1.0), (DEDICATED, 0.95)] {
        report.goal(
            format!("{}: the reservoir against {peer}", table.name),
            ours / table.median(peer)?,
            Bound::AtLeast(goal),
            "times",
        );
    }
    report.tables.push(table);
    report.note(
        "acquire, SELECT 1, give back: everybody with tokio-postgres sends query_typed, AWS's connector its prepared \
         statement; its check before each loan is off (the one after each use cannot be), lifetimes are off",
    );
    Ok(())
}

async fn connector(cluster: &Cluster) -> anyhow::Result<Official> {
    let connections = u32::try_from(CALLERS)?;
    let settings = PgPoolOptions::new()
        .max_connections(connections)
        .min_connections(connections)
        .test_before_acquire(false)
        .max_lifetime(None)
        .idle_timeout(None);
    official(cluster, settings).await
}

/// `handles` has one for each caller.
fn lane<'a, P: Pool>(runtime: &'a Runtime, name: &str, handles: Vec<P>, time: Duration) -> Lane<'a> {
    Lane::new(name, move || runtime.block_on(crowd(runtime, &handles, time)))
}

/// How many turns a second all callers had.
async fn crowd<P: Pool>(runtime: &Runtime, handles: &[P], time: Duration) -> anyhow::Result<f64> {
    let start = Arc::new(Barrier::new(handles.len()));
    let callers: Vec<_> = handles
        .iter()
        .map(|pool| {
            let (pool, start) = (pool.clone(), Arc::clone(&start));
            runtime.spawn(async move {
                start.wait().await;
                let (until, mut turns) = (clock::nanos() + clock::whole_nanos(time), 0_u32);
                while clock::nanos() < until {
                    let mut lent = pool.acquire().await?;
                    P::select(&mut lent).await?;
                    turns += 1;
                }
                anyhow::Ok(turns)
            })
        })
        .collect();
    let mut all = 0.0;
    for caller in callers {
        all += f64::from(caller.await??);
    }
    Ok(all / time.as_secs_f64())
}
