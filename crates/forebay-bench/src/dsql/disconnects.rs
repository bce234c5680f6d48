//! Transfers while the server cuts all sockets, and then cuts them again and throttles new connections.

use std::time::Duration;

use anyhow::ensure;
use forebay::Config;
use forebay_dsql::{Driver, Dsql, DsqlPool, Error, ErrorKind, SqlxDsql};
use tokio::runtime::Handle;

use super::Effort;
use super::contestants::{Dial, options_within};
use crate::clock::{self, Stopwatch};
use crate::cluster::Cluster;
use crate::race::Figures;
use crate::report::Report;
use crate::section::progress;

/// The transfers of one round.
const TRANSFERS: u32 = 200;
/// When the four waves of fifty transfers begin, in milliseconds after the start: the second and the fourth
/// are under way when the sockets are cut.
const WAVES: [u64; 4] = [0, 1_195, 2_400, 3_195];
/// The pause of a transaction between its statements.
const WORK: Duration = Duration::from_millis(5);
const ACCOUNTS: u32 = 10;
const BALANCE: i64 = 1_000;
const SIZE: usize = 20;
/// How long a caller waits for a connection.
const WAIT: Duration = Duration::from_secs(2);
/// When the sockets are cut, and when they are cut again and throttled, after the start of a round.
const CUT_AT: Duration = Duration::from_millis(1_200);
const THROTTLED_AT: Duration = Duration::from_millis(3_200);

/// The outcomes of the transfers of one round.
#[derive(Clone, Copy, Default)]
struct Tally {
    committed: i64,
    /// Cut during their COMMIT.
    unknown: i64,
    failed: u32,
}

/// One driver in one mode.
struct Lane {
    name: &'static str,
    reservoir: bool,
    rounds: Vec<Tally>,
}

pub(super) async fn measure(cluster: &Cluster, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let dial = Dial::new(cluster)?;
    let (client, driver) = dial.dial().await?;
    client.batch_execute("CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL)").await?;
    client.batch_execute("CREATE TABLE transfer (id int PRIMARY KEY)").await?;
    drop(client);
    driver.await?;
    let lane = |name, reservoir| Lane { name, reservoir, rounds: Vec::new() };
    let mut lanes = [
        lane("reservoir, tokio-postgres", true),
        lane("reservoir, sqlx", true),
        lane("standard mode, tokio-postgres", false),
        lane("standard mode, sqlx", false),
    ];
    for number in 0..effort.rounds {
        for (at, lane) in lanes.iter_mut().enumerate() {
            progress(&format!("transfers under mass disconnects: {}, round {}", lane.name, number + 1));
            lane.rounds.push(if at % 2 == 0 {
                round(cluster, &dial, lane.reservoir, pay).await?
            } else {
                round(cluster, &dial, lane.reservoir, pay_by_sqlx).await?
            });
        }
    }
    let total = |lane: &Lane| lane.rounds.iter().map(|round| f64::from(round.failed)).sum::<f64>();
    for lane in lanes.iter().filter(|lane| lane.reservoir) {
        let all = TRANSFERS * u32::try_from(effort.rounds)?;
        let name = format!("{all} transfers under mass disconnects and a throttle, {}: failed", lane.name);
        report.at_most(name, total(lane), 0.0, "transfers");
    }
    let failed = |lane: &Lane| lane.rounds.iter().map(|round| f64::from(round.failed)).collect();
    let rows = lanes.iter().map(|lane| Figures::of(lane.name, failed(lane))).collect::<Result<_, _>>()?;
    let name = format!("failed of the {TRANSFERS} transfers of a round, under mass disconnects");
    report.table(name, "transfers", rows);
    for lane in &lanes {
        let unknown: i64 = lane.rounds.iter().map(|round| round.unknown).sum();
        let committed: i64 = lane.rounds.iter().map(|round| round.committed).sum();
        report.note(format!(
            "mass disconnects, {}: {committed} committed, {} failed, {unknown} unknown",
            lane.name,
            total(lane)
        ));
    }
    report.note(format!(
        "mass disconnects: {SIZE} connections, transfers on {ACCOUNTS} accounts that begin in waves of fifty \
         {WAVES:?} ms after the start, {WAIT:?} for a connection; all sockets are cut {CUT_AT:?} and \
         {THROTTLED_AT:?} after the start, and with the second cut new connections are throttled to 2 a \
         second"
    ));
    Ok(())
}

/// One round, with a new pool.
async fn round<C, F>(
    cluster: &Cluster,
    dial: &Dial,
    reservoir: bool,
    pay: fn(DsqlPool<C>, u32) -> F,
) -> anyhow::Result<Tally>
where
    C: Driver,
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    cluster.reset().await?;
    let (client, driver) = dial.dial().await?;
    client.batch_execute("DELETE FROM account").await?;
    client.batch_execute("DELETE FROM transfer").await?;
    let accounts: Vec<_> = (0..ACCOUNTS).map(|id| format!("({id}, {BALANCE})")).collect();
    client.batch_execute(&format!("INSERT INTO account VALUES {}", accounts.join(", "))).await?;
    // It would take one of the few connections that the server accepts.
    drop(client);
    driver.await?;
    let config = Config::default().max_open(SIZE);
    let options = options_within(cluster, reservoir, config, WAIT)?;
    let pool: DsqlPool<C> = DsqlPool::connect(options, cluster.clone()).await?;

    let began = Stopwatch::start();
    let faults = {
        let cluster = cluster.clone();
        Handle::current().spawn(async move {
            clock::pause(CUT_AT).await;
            cluster.inject("sever").await?;
            clock::pause(THROTTLED_AT.saturating_sub(began.elapsed())).await;
            cluster.inject("throttle:rate=2,burst=1\nsever").await
        })
    };
    let mut callers = Vec::new();
    for number in 0..TRANSFERS {
        let wave = Duration::from_millis(WAVES[number as usize * WAVES.len() / TRANSFERS as usize]);
        clock::pause(wave.saturating_sub(began.elapsed())).await;
        callers.push(Handle::current().spawn(pay(pool.clone(), number)));
    }
    let mut tally = Tally::default();
    for caller in callers {
        match caller.await?.map_err(|error| error.kind()) {
            Ok(()) => tally.committed += 1,
            Err(ErrorKind::CommitUnknown) => tally.unknown += 1,
            Err(_) => tally.failed += 1,
        }
    }
    faults.await??;
    pool.drain(Duration::from_secs(5)).await;

    cluster.reset().await?;
    let (client, driver) = dial.dial().await?;
    let query = async |sql| anyhow::Ok(client.query_one(sql, &[]).await?.get::<_, i64>(0));
    let sum = query("SELECT CAST(sum(balance) AS bigint) FROM account").await?;
    ensure!(sum == i64::from(ACCOUNTS) * BALANCE, "the sum of all balances changed: {sum}");
    let stored = query("SELECT count(*) FROM transfer").await?;
    let Tally { committed, unknown, .. } = tally;
    ensure!(
        (committed..=committed + unknown).contains(&stored),
        "{stored} transfers are stored, {committed} were reported as committed and {unknown} as unknown"
    );
    drop(client);
    driver.await?;
    Ok(tally)
}

fn statements(number: u32) -> [String; 3] {
    let (from, to) = (number % ACCOUNTS, (number * 7 + 3) % ACCOUNTS);
    [
        format!("UPDATE account SET balance = balance - 1 WHERE id = {from}"),
        format!("UPDATE account SET balance = balance + 1 WHERE id = {to}"),
        format!("INSERT INTO transfer VALUES ({number})"),
    ]
}

async fn pay(dsql: Dsql, number: u32) -> Result<(), Error> {
    let [debit, credit, note] = statements(number);
    dsql.run("transfer", async |tx| {
        tx.batch_execute(&debit).await?;
        clock::pause(WORK).await;
        tx.batch_execute(&credit).await?;
        tx.batch_execute(&note).await?;
        Ok(())
    })
    .await
}

async fn pay_by_sqlx(dsql: SqlxDsql, number: u32) -> Result<(), Error> {
    let [debit, credit, note] = statements(number);
    let say = |text: &String| sqlx::raw_sql(sqlx::AssertSqlSafe(text.clone()));
    dsql.run("transfer", async |mut tx| {
        say(&debit).execute(tx.pg()).await?;
        clock::pause(WORK).await;
        say(&credit).execute(tx.pg()).await?;
        say(&note).execute(tx.pg()).await?;
        Ok(())
    })
    .await
}
