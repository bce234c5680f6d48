//! A cluster from the outside: pools, transactions, compare-and-swap and scale, with the SDK's tokens.
//!
//! With `CLUSTER_ENDPOINT` and credentials in the environment, these tests run against that cluster. They use only their
//! own tables, and drop them. Otherwise each test starts a local cluster.
#![allow(clippy::disallowed_methods, reason = "tests with real sockets run in real time")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aws_config::SdkConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use dsql_local::{Cluster, EngineKind};
use forebay::CheckoutError;
use forebay_aws::SdkSigner;
use forebay_dsql::{
    Conflict, Dsql, Error, ErrorKind, Fence, Options, OptionsBuilder, PooledConnection, Postgres, Session,
    SqlxDsql,
};
use sqlx::Executor;

const KEY: &str = "AKIDEXAMPLE";
const SECRET: &str = "not-a-secret";
/// Longer than any step of these tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// One test at a time: a new table affects every open connection of a cluster, also those of other tests.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Where the tests run.
struct Place {
    _turn: tokio::sync::MutexGuard<'static, ()>,
    variables: BTreeMap<String, String>,
    /// The local cluster, if there is one. It ends with the test.
    local: Option<Cluster>,
}

impl Place {
    async fn find() -> Self {
        let turn = TURN.lock().await;
        let mut variables: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        if variables.get("CLUSTER_ENDPOINT").is_some_and(|endpoint| !endpoint.is_empty()) {
            return Self { _turn: turn, variables, local: None };
        }
        let local = Cluster::start(dsql_local::Config {
            engine: EngineKind::Postgres,
            credentials: vec![dsql_local::Credentials::new(KEY, SECRET)],
            ..dsql_local::Config::default()
        });
        let local = local.unwrap();
        // As `forebay dsql-local --print-env` prints them.
        for (name, value) in [
            ("CLUSTER_ENDPOINT", local.endpoint().to_owned()),
            ("REGION", local.region().to_owned()),
            ("PGPORT", local.address().port().to_string()),
            ("PGUSER", "admin".to_owned()),
            ("PGDATABASE", "postgres".to_owned()),
            ("PGSSLROOTCERT", local.ca_file().display().to_string()),
        ] {
            variables.insert(name.to_owned(), value);
        }
        Self { _turn: turn, variables, local: Some(local) }
    }

    async fn signer(&self) -> SdkSigner {
        if self.local.is_none() {
            return SdkSigner::from_env().await;
        }
        let credentials = Credentials::new(KEY, SECRET, None, None, "test");
        let provider = SharedCredentialsProvider::new(credentials);
        SdkSigner::new(SdkConfig::builder().credentials_provider(provider).build())
    }

    fn options(&self, connections: usize, reservoir: bool) -> Options {
        OptionsBuilder::from_variables(self.variables.clone())
            .variable("DSQL_MAX_CONNS", connections.to_string())
            .variable("DSQL_STAGGERED_STARTUP", "false")
            .variable("DSQL_CONNECTION_RATE_LIMIT", "50")
            .reservoir(reservoir)
            .build()
            .unwrap()
    }

    async fn pool(&self, connections: usize, reservoir: bool) -> Dsql {
        Dsql::connect(self.options(connections, reservoir), self.signer().await).await.unwrap()
    }
}

/// A table that only this test uses, independent of other tests and earlier runs.
async fn table(pool: &Dsql, columns: &str) -> String {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let name = format!("forebay_suite_{}_{}", std::process::id(), time.as_nanos());
    let create = format!("CREATE TABLE {name} ({columns})");
    pool.run("create", async |tx| Ok::<_, Error>(tx.batch_execute(&create).await?)).await.unwrap();
    name
}

async fn drop_table(pool: &Dsql, name: &str) {
    let drop = format!("DROP TABLE {name}");
    pool.run("drop", async |tx| Ok::<_, Error>(tx.batch_execute(&drop).await?)).await.unwrap();
}

/// A connection that has seen the schema change. A change fails one statement on every open connection.
async fn current<'a>(pool: &'a Dsql, table: &str) -> PooledConnection<'a, Postgres> {
    let lent = pool.acquire_within(PATIENCE).await.unwrap();
    let look = format!("SELECT 1 FROM {table}");
    if let Err(error) = lent.batch_execute(&look).await.map_err(Error::from) {
        assert_eq!(error.kind(), ErrorKind::Conflict(Conflict::Schema), "{error}");
    }
    lent
}

async fn number(pool: &Dsql, sql: &str) -> i64 {
    pool.run("read", async |tx| Ok::<_, Error>(tx.query_one(sql, &[]).await?.get(0))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_serves_in_both_modes() {
    let place = Place::find().await;
    for reservoir in [true, false] {
        let pool = place.pool(3, reservoir).await;
        assert_eq!((pool.status().open, pool.registry().count()), (3, 3));
        let mut lent = Vec::new();
        for _ in 0..3 {
            lent.push(pool.acquire_within(PATIENCE).await.unwrap());
        }
        for one in &lent {
            let row = one.query_typed("SELECT CAST(7 AS bigint)", &[]).await.unwrap();
            assert_eq!(row[0].get::<_, i64>(0), 7);
        }
        let refused = pool.acquire_within(Duration::from_millis(20)).await;
        assert!(matches!(refused, Err(CheckoutError::Exhausted { .. })), "{refused:?}");
        let before: Vec<_> = pool.registry().list().iter().map(|listed| listed.id).collect();
        assert_eq!(pool.registry().retire_all(), 3);
        drop(lent);
        let again = pool.acquire_within(PATIENCE).await.unwrap();
        assert!(!before.contains(&again.id()), "a retired one was lent");
        drop(again);
        assert!(pool.drain(PATIENCE).await.is_complete());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_is_rolled_back() {
    let place = Place::find().await;
    for reservoir in [true, false] {
        let pool = place.pool(1, reservoir).await;
        let table = table(&pool, "a bigint").await;
        let lent = current(&pool, &table).await;
        lent.batch_execute("BEGIN").await.unwrap();
        lent.batch_execute(&format!("INSERT INTO {table} VALUES (1)")).await.unwrap();
        let id = lent.id();
        drop(lent);
        let lent = pool.acquire_within(PATIENCE).await.unwrap();
        assert_eq!(lent.id(), id, "it was cleaned, not replaced");
        drop(lent);
        assert_eq!(number(&pool, &format!("SELECT count(*) FROM {table}")).await, 0);
        drop_table(&pool, &table).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_commit_conflicts_and_is_retried() {
    let place = Place::find().await;
    let pool = place.pool(10, true).await;
    let table = table(&pool, "id bigint PRIMARY KEY, n bigint NOT NULL").await;
    let insert = format!("INSERT INTO {table} VALUES (0, 0), (1, 0)");
    pool.run("fill", async |tx| Ok::<_, Error>(tx.batch_execute(&insert).await?)).await.unwrap();

    let update = format!("UPDATE {table} SET n = n + 1 WHERE id = $1");
    let mut first = current(&pool, &table).await;
    let mut second = current(&pool, &table).await;
    for one in [&mut first, &mut second] {
        one.begin().await.unwrap();
        one.execute(&update, &[&0_i64]).await.unwrap();
    }
    first.commit().await.unwrap();
    let error = second.commit().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict(_)), "{error}");
    drop((first, second));

    // Eight at once, on two rows: successful changes are stored, and failed ones are not.
    let tasks: Vec<_> = (0..8_i64)
        .map(|client| {
            let (pool, update) = (pool.clone(), update.clone());
            tokio::spawn(async move {
                let mut done = 0;
                for turn in 0..10_i64 {
                    let run = pool.run("count", async |tx| {
                        tx.execute(&update, &[&((client + turn) % 2)]).await?;
                        Ok::<_, Error>(())
                    });
                    match run.await {
                        Ok(()) => done += 1,
                        Err(error) => assert!(matches!(error.kind(), ErrorKind::Conflict(_)), "{error}"),
                    }
                }
                done
            })
        })
        .collect();
    let mut done = 1;
    for task in tasks {
        done += task.await.unwrap();
    }
    let sum = format!("SELECT CAST(sum(n) AS bigint) FROM {table}");
    assert_eq!(number(&pool, &sum).await, done);
    drop_table(&pool, &table).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_owner_changes_nothing() {
    let place = Place::find().await;
    let pool = place.pool(2, true).await;
    let table = table(&pool, "id bigint PRIMARY KEY, range_id bigint NOT NULL, data text").await;
    // A fence needs a table name that is a constant.
    let fence = Fence::new(table.clone().leak(), &["id"], "range_id");
    let insert = format!("INSERT INTO {table} VALUES (7, 4, 'old')");
    pool.run("fill", async |tx| Ok::<_, Error>(tx.batch_execute(&insert).await?)).await.unwrap();
    let lent = current(&pool, &table).await;
    fence.update(&lent, &[&7_i64], 4, &[("range_id", &5_i64), ("data", &"new")]).await.unwrap();
    let error = fence.update(&lent, &[&7_i64], 4, &[("data", &"stale")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConditionFailed, "{error}");
    assert_eq!(error.condition().unwrap().found.as_deref(), Some("5"));
    drop(lent);
    drop_table(&pool, &table).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlx_is_served_too() {
    let place = Place::find().await;
    let options = place.options(2, true);
    if options.address() != options.host() {
        let error = SqlxDsql::connect(options, place.signer().await).await.unwrap_err();
        assert!(error.to_string().contains("address"), "{error}");
        return;
    }
    let pool = SqlxDsql::connect(options, place.signer().await).await.unwrap();
    let seven = pool.run("read", async |mut tx| {
        let row = tx.fetch_one("SELECT CAST(7 AS bigint)").await?;
        Ok::<i64, Error>(sqlx::Row::get(&row, 0))
    });
    assert_eq!(seven.await.unwrap(), 7);
    assert!(pool.drain(PATIENCE).await.is_complete());
}

/// `FOREBAY_SCALE` connections, opened at 100 a second, all used at once, all replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservoir_of_many_connections() {
    let scale: usize = std::env::var("FOREBAY_SCALE").map_or(100, |scale| scale.parse().expect("a number"));
    let place = Place::find().await;
    let options = OptionsBuilder::from_variables(place.variables.clone())
        .variable("DSQL_MAX_CONNS", scale.to_string())
        .variable("DSQL_STAGGERED_STARTUP", "false")
        .variable("DSQL_CONNECTION_RATE_LIMIT", "100")
        .variable("DSQL_CONNECTION_BURST_LIMIT", "100")
        .variable("DSQL_RESERVOIR_INITIAL_FILL_TIMEOUT", "10m")
        .reservoir(true)
        .build()
        .unwrap();
    let began = Instant::now();
    let pool = Dsql::connect(options, place.signer().await).await.unwrap();
    assert_eq!(pool.status().idle, scale, "{:?}", pool.reservoir_status());
    println!("{scale} connections in {:?}", began.elapsed());

    let began = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..scale {
        let lent = pool.acquire_within(PATIENCE).await.unwrap().into_owned();
        tasks.push(tokio::spawn(async move {
            lent.query_typed("SELECT 1", &[]).await.map(|rows| (lent, rows.len()))
        }));
    }
    assert_eq!(pool.status().in_use, scale);
    let mut held = Vec::new();
    for task in tasks {
        let (lent, rows) = task.await.unwrap().unwrap();
        assert_eq!(rows, 1);
        held.push(lent);
    }
    println!("all used at once in {:?}", began.elapsed());
    drop(held);
    assert!(pool.drain(PATIENCE).await.is_complete());
    assert_eq!(pool.registry().count(), 0);
}
