//! Many clients that increment the same few counters, under conflicts and cuts.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use forebay::Config;
use forebay_dsql::{Dsql, Error, ErrorKind, RetryPolicy};
use tokio::runtime::Handle;

use super::Effort;
use super::contestants::{Dial, options};
use crate::cluster::Cluster;
use crate::report::Report;
use crate::section::progress;

const CLIENTS: u32 = 50;
const COUNTERS: i64 = 5;
/// A fifth of the commits conflict; some sockets are cut before a commit, some after it.
const FAULTS: &str = "conflict:p=0.2\ndrop:at=before-commit,p=0.02\ndrop:at=after-commit,p=0.02";

/// The outcomes of all transactions.
#[derive(Default)]
struct Tally {
    succeeded: BTreeSet<i64>,
    unknown: BTreeSet<i64>,
    failed: BTreeSet<i64>,
}

pub(super) async fn measure(cluster: &Cluster, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let dial = Dial::new(cluster)?;
    let (client, _driver) = dial.dial().await?;
    client.batch_execute("CREATE TABLE counter (id bigint PRIMARY KEY, n bigint NOT NULL)").await?;
    client.batch_execute("CREATE TABLE done (id bigint PRIMARY KEY)").await?;
    client.batch_execute("INSERT INTO counter SELECT g, 0 FROM generate_series(0, 4) AS g").await?;
    for (name, reservoir) in [("reservoir", true), ("standard mode", false)] {
        progress(&format!("transactions under conflicts and cuts: {name}"));
        client.batch_execute("UPDATE counter SET n = 0").await?;
        client.batch_execute("DELETE FROM done").await?;
        let config = Config::default().max_open(CLIENTS as usize).rate(1e4, 10_000);
        let policy = RetryPolicy::default().retries(1_000).base(Duration::from_millis(5)).full_jitter();
        let dsql = Dsql::builder(options(cluster, reservoir, config)?, cluster.clone()).retry(policy);
        let dsql = dsql.connect().await?;
        let (conflicts, cuts) = (cluster.count("conflicts").await?, cluster.count("severed").await?);
        cluster.inject(FAULTS).await?;
        let tally = count(&dsql, effort.transactions / CLIENTS).await?;
        cluster.control("DELETE", "/faults", "").await?;
        let conflicts = cluster.count("conflicts").await? - conflicts;
        let cuts = cluster.count("severed").await? - cuts;
        check(report, name, &client, &tally, conflicts, cuts).await?;
        dsql.drain(Duration::from_secs(5)).await;
    }
    Ok(())
}

async fn count(dsql: &Dsql, each: u32) -> anyhow::Result<Tally> {
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let dsql = dsql.clone();
            Handle::current().spawn(async move {
                let mut outcomes = Vec::new();
                for id in (0..each).map(|turn| i64::from(client * each + turn)) {
                    let run = dsql.run("count", async |tx| {
                        let update = "UPDATE counter SET n = n + 1 WHERE id = $1";
                        tx.execute(update, &[&(id % COUNTERS)]).await?;
                        tx.execute("INSERT INTO done VALUES ($1)", &[&id]).await?;
                        Ok::<_, Error>(())
                    });
                    outcomes.push((id, run.await.map_err(|error| error.kind())));
                }
                outcomes
            })
        })
        .collect();
    let mut tally = Tally::default();
    for client in clients {
        for (id, outcome) in client.await? {
            match outcome {
                Ok(()) => tally.succeeded.insert(id),
                Err(ErrorKind::CommitUnknown) => tally.unknown.insert(id),
                Err(_) => tally.failed.insert(id),
            };
        }
    }
    Ok(tally)
}

async fn check(
    report: &mut Report,
    name: &str,
    client: &tokio_postgres::Client,
    tally: &Tally,
    conflicts: u64,
    cuts: u64,
) -> anyhow::Result<()> {
    let sum: i64 = client.query_one("SELECT CAST(sum(n) AS bigint) FROM counter", &[]).await?.get(0);
    let done: BTreeSet<i64> =
        client.query("SELECT id FROM done", &[]).await?.iter().map(|row| row.get(0)).collect();
    let all = tally.succeeded.len() + tally.unknown.len() + tally.failed.len();
    let lost = tally.succeeded.difference(&done).count();
    let ghosts = tally.failed.intersection(&done).count();
    let committed_unknown = tally.unknown.intersection(&done).count();
    let sum = u64::try_from(sum).context("a negative sum")?;
    let goal =
        format!("{all} transactions of {CLIENTS} clients on {COUNTERS} counters, {name}: the sum is off by");
    report.at_most(goal, sum.abs_diff(done.len() as u64), 0.0, "increments");
    let goal = format!("the same, {name}: successes that are not stored, failures that are");
    report.at_most(goal, lost + ghosts, 0.0, "transactions");
    let goal =
        format!("the same, {name}: sockets cut at a commit and transactions reported as unknown, difference");
    report.at_most(goal, cuts.abs_diff(tally.unknown.len() as u64), 0.0, "transactions");
    report.note(format!(
        "counting, {name}: {} succeeded, {} unknown of which {committed_unknown} were committed, {} failed; \
         the sum is {sum}; {conflicts} attempts conflicted, {cuts} sockets were cut, before a commit or \
         after it",
        tally.succeeded.len(),
        tally.unknown.len(),
        tally.failed.len(),
    ));
    Ok(())
}
