//! Transfers through `run` while the cluster cuts every connection, and then cuts them again and throttles new ones. Callers
//! have one timeout, and it is longer than either takes: nobody fails.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use dsql_local::{Cluster, Config, Credentials, EngineKind};
use forebay_dsql::{Driver, Dsql, DsqlPool, Error, ErrorKind, SqlxDsql};
use tokio::time::{Instant, sleep_until};

use super::cluster::{Keys, PATIENCE, fault, options};

const TRANSFERS: u32 = 200;
/// They begin in four waves of fifty at once, so many milliseconds after the start: the second and the fourth are under way when
/// the faults come.
const WAVES: [u64; 4] = [0, 1_195, 2_400, 3_195];
/// What the body does between its statements.
const WORK: Duration = Duration::from_millis(5);
const ACCOUNTS: u32 = 10;
const BALANCE: i64 = 1_000;

/// What became of the transfers of one round.
#[derive(Debug, Default)]
struct Tally {
    committed: i64,
    /// Lost in their COMMIT.
    unknown: i64,
    failed: Vec<Error>,
}

fn from(number: u32) -> u32 {
    number % ACCOUNTS
}

fn to(number: u32) -> u32 {
    (number * 7 + 3) % ACCOUNTS
}

async fn pay(dsql: Dsql, number: u32) -> Result<(), Error> {
    let (debit, credit, note) = statements(number);
    dsql.run("transfer", async |tx| {
        tx.batch_execute(&debit).await?;
        tokio::time::sleep(WORK).await;
        tx.batch_execute(&credit).await?;
        tx.batch_execute(&note).await?;
        Ok(())
    })
    .await
}

async fn pay_by_sqlx(dsql: SqlxDsql, number: u32) -> Result<(), Error> {
    let (debit, credit, note) = statements(number);
    let say = |text: &String| sqlx::raw_sql(sqlx::AssertSqlSafe(text.clone()));
    dsql.run("transfer", async |mut tx| {
        say(&debit).execute(tx.pg()).await?;
        tokio::time::sleep(WORK).await;
        say(&credit).execute(tx.pg()).await?;
        say(&note).execute(tx.pg()).await?;
        Ok(())
    })
    .await
}

fn statements(number: u32) -> (String, String, String) {
    (
        format!("UPDATE account SET balance = balance - 1 WHERE id = {}", from(number)),
        format!("UPDATE account SET balance = balance + 1 WHERE id = {}", to(number)),
        format!("INSERT INTO transfer VALUES ({number})"),
    )
}

/// Whoever opens the accounts, and looks at them in the end.
async fn teller(cluster: &Arc<Cluster>) -> Dsql {
    super::cluster::pool(cluster, 1, false).await
}

/// One round, with a cluster and a pool of its own.
async fn round<C, F>(reservoir: bool, pay: fn(DsqlPool<C>, u32) -> F) -> Tally
where
    C: Driver,
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let cluster = Cluster::start(Config {
        engine: EngineKind::Builtin,
        credentials: vec![Credentials::new("AKIDEXAMPLE", "not-a-secret")],
        ..Config::default()
    });
    let cluster = Arc::new(cluster.unwrap());
    let first = teller(&cluster).await;
    for sql in [
        "CREATE TABLE account (id int PRIMARY KEY, balance bigint)",
        "CREATE TABLE transfer (id int PRIMARY KEY)",
    ] {
        first.run("create", async |tx| Ok::<_, Error>(tx.batch_execute(sql).await?)).await.unwrap();
    }
    let accounts: Vec<_> = (0..ACCOUNTS).map(|id| format!("({id}, {BALANCE})")).collect();
    let open = format!("INSERT INTO account VALUES {}", accounts.join(", "));
    first.run("open", async |tx| Ok::<_, Error>(tx.batch_execute(&open).await?)).await.unwrap();
    let options = options(&cluster, 20)
        .reservoir(reservoir)
        .variable("DSQL_CONNECTION_RATE_LIMIT", "10")
        .variable("DSQL_RESERVOIR_ACQUIRE_TIMEOUT", "30s")
        .build()
        .unwrap();
    let pool: DsqlPool<C> = DsqlPool::connect(options, Keys::of(&cluster)).await.unwrap();

    // It would take what few connections the cluster lets in.
    first.drain(PATIENCE).await;
    let began = Instant::now();
    let faults = {
        let cluster = Arc::clone(&cluster);
        tokio::spawn(async move {
            sleep_until(began + Duration::from_millis(1_200)).await;
            cluster.sever(1.0);
            sleep_until(began + Duration::from_millis(3_200)).await;
            cluster.inject(fault("throttle:rate=2,burst=1"));
            cluster.sever(1.0);
        })
    };
    let mut callers = Vec::new();
    for number in 0..TRANSFERS {
        let wave = WAVES[number as usize * WAVES.len() / TRANSFERS as usize];
        sleep_until(began + Duration::from_millis(wave)).await;
        callers.push(tokio::spawn(pay(pool.clone(), number)));
    }
    let mut tally = Tally::default();
    for caller in callers {
        match caller.await.unwrap() {
            Ok(()) => tally.committed += 1,
            Err(error) if error.kind() == ErrorKind::CommitUnknown => tally.unknown += 1,
            Err(error) => tally.failed.push(error),
        }
    }
    faults.await.unwrap();
    cluster.heal_all();
    let teller = teller(&cluster).await;

    // The money is all there, and so is every transfer that was told to be committed; none that failed.
    let asked = async |sql: &'static str| -> i64 {
        let look = teller.run("look", async |tx| Ok::<_, Error>(tx.query_one(sql, &[]).await?.get(0)));
        look.await.unwrap()
    };
    let sum = asked("SELECT CAST(sum(balance) AS bigint) FROM account").await;
    assert_eq!(sum, i64::from(ACCOUNTS) * BALANCE);
    let transfers = asked("SELECT count(*) FROM transfer").await;
    assert!(
        (tally.committed..=tally.committed + tally.unknown).contains(&transfers),
        "{transfers} of {tally:?}"
    );
    assert!(pool.drain(PATIENCE).await.is_complete());
    tally
}

#[tokio::test]
async fn transfers_of_tokio_postgres_survive_mass_disconnects_in_a_reservoir() {
    let tally = round(true, pay).await;
    assert!(tally.failed.is_empty(), "{tally:?}");
}

#[tokio::test]
async fn transfers_of_sqlx_survive_mass_disconnects_in_a_reservoir() {
    let tally = round(true, pay_by_sqlx).await;
    assert!(tally.failed.is_empty(), "{tally:?}");
}

/// How many may fail in standard mode is not promised; only that none of them was committed, which each round looks at.
#[tokio::test]
async fn transfers_of_both_clients_are_told_right_in_standard_mode() {
    let (plain, sqlx) = tokio::join!(round(false, pay), round(false, pay_by_sqlx));
    for tally in [plain, sqlx] {
        assert!(tally.failed.iter().all(|error| error.kind() == ErrorKind::NoConnection), "{tally:?}");
        let told = tally.committed + tally.unknown;
        assert_eq!(told + i64::try_from(tally.failed.len()).unwrap(), i64::from(TRANSFERS));
    }
}
