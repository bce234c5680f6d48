//! Acquire, `SELECT 1`, return: sixteen callers, sixteen connections.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dsql_local::EngineKind;
use forebay::Config;
use forebay_dsql::Dsql;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::runtime::Runtime;
use tokio::sync::Barrier;
use tokio_postgres::Client;

use super::Effort;
use super::callers::CALLERS;
use super::contestants::{Dial, Pool, aws_connector, deadpool, options, select_one};
use crate::clock;
use crate::cluster::Cluster;
use crate::process::processor_time;
use crate::race::{Figures, Lane, race};
use crate::report::{Report, Table};
use crate::section::progress;

const DEDICATED: &str = "a connection each";
const UNCHECKED: &str = "AWS's connector, unchecked";

/// One connection for each caller, without a pool.
impl Pool for Arc<Client> {
    type Lent<'a> = &'a Client;

    async fn acquire(&self) -> anyhow::Result<&Client> {
        Ok(self)
    }

    async fn select(lent: &mut Self::Lent<'_>) -> anyhow::Result<()> {
        select_one(lent).await
    }
}

pub(super) fn measure(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    progress("acquire, SELECT 1, return");
    // A separate server: as little as possible of the measured time should be the server's.
    let cluster = &Cluster::start(EngineKind::Builtin)?;
    let config = || Config::default().max_open(CALLERS).rate(1e4, 10_000);
    let connect = |reservoir| {
        runtime.block_on(async {
            anyhow::Ok(Dsql::connect(options(cluster, reservoir, config())?, cluster.clone()).await?)
        })
    };
    let (reservoir, standard) = (connect(true)?, connect(false)?);
    let aws = runtime.block_on(connector(cluster, true))?;
    let unchecked = runtime.block_on(connector(cluster, false))?;
    let deadpool = deadpool(cluster, CALLERS, None)?;
    let dial = Dial::new(cluster)?;
    let dedicated = (0..CALLERS).map(|_| anyhow::Ok(Arc::new(runtime.block_on(dial.dial())?.0)));
    let dedicated = dedicated.collect::<Result<Vec<_>, _>>()?;

    let shared = Shared { runtime, cluster, time: effort.turn, costs: RefCell::default() };
    let lanes = vec![
        shared.lane("reservoir", vec![reservoir; CALLERS]),
        shared.lane("standard mode", vec![standard; CALLERS]),
        shared.lane("AWS's connector", vec![aws; CALLERS]),
        shared.lane(UNCHECKED, vec![unchecked; CALLERS]),
        shared.lane("deadpool-postgres", vec![deadpool; CALLERS]),
        shared.lane(DEDICATED, dedicated),
    ];
    let table = Table::new(
        format!("acquire, SELECT 1, return: {CALLERS} callers, {CALLERS} connections"),
        "1/s",
        race(effort.rounds, lanes)?,
    );
    for (peer, bound) in
        [("AWS's connector", 1.9), (UNCHECKED, 1.9), ("deadpool-postgres", 1.0), (DEDICATED, 0.95)]
    {
        let goal = format!("{}: the reservoir against {peer}", table.name);
        report.at_least(goal, table.ratio("reservoir", peer)?, bound, "times");
    }
    report.tables.push(table);
    let costs = shared.costs.into_inner().into_iter();
    // The first round warms up.
    let rows = costs.map(|(name, costs)| Figures::of(name, costs.into_iter().skip(1).collect()));
    report.table(
        "the same: processor time of callers and server for each turn",
        "us",
        rows.collect::<Result<_, _>>()?,
    );
    report.note(
        "acquire, SELECT 1, return: contestants with tokio-postgres send query_typed, AWS's connector its \
         prepared statement; it checks each connection after use, which cannot be switched off, and before, \
         which can (unchecked). Lifetimes are off. This section has a separate server with engine builtin, \
         whose SELECT 1 costs less",
    );
    Ok(())
}

async fn connector(cluster: &Cluster, checked: bool) -> anyhow::Result<PgPool> {
    let connections = u32::try_from(CALLERS)?;
    let settings = PgPoolOptions::new()
        .max_connections(connections)
        .min_connections(connections)
        .test_before_acquire(checked)
        .max_lifetime(None)
        .idle_timeout(None);
    aws_connector(cluster, settings).await
}

/// What all lanes share.
struct Shared<'a> {
    runtime: &'a Runtime,
    cluster: &'a Cluster,
    /// How long each contestant has in a round.
    time: Duration,
    /// Processor time of a turn in each round, in microseconds: unlike wall time, it does not depend on other
    /// load.
    costs: RefCell<BTreeMap<&'static str, Vec<f64>>>,
}

impl Shared<'_> {
    /// `handles` has one pool for each caller.
    fn lane<P: Pool>(&self, name: &'static str, handles: Vec<P>) -> Lane<'_> {
        let used = || anyhow::Ok(processor_time("self")? + self.cluster.server.processor_time()?);
        Lane::new(name, move || {
            let before = used()?;
            let turns = self.runtime.block_on(crowd(self.runtime, &handles, self.time))?;
            let cost = (used()? - before).as_secs_f64() * 1e6 / turns;
            self.costs.borrow_mut().entry(name).or_default().push(cost);
            Ok(turns / self.time.as_secs_f64())
        })
    }
}

/// How many turns all callers took.
pub(super) async fn crowd<P: Pool>(runtime: &Runtime, handles: &[P], time: Duration) -> anyhow::Result<f64> {
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
    Ok(all)
}
