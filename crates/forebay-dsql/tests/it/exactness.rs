//! Many writers, injected conflicts, sockets cut before and after commits: each success is there once, each failure not
//! at all, and only what is called unknown may be either.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dsql_local::{Cluster, EngineKind};
use forebay::rt::TokioRuntime;
use forebay_dsql::{Auth, Error, ErrorKind, RetryPolicy, Sessions, Transactions};
use sqlx::Executor;

use crate::plain::{self, Postgres, Sqlx, cluster, cluster_on};

const CLIENTS: i64 = 8;
const EACH: i64 = 15;
const FAULTS: [&str; 5] = [
    "conflict:p=0.2",
    "drop:at=before-commit,p=0.05",
    "drop:at=after-commit,p=0.05",
    "unavailable:at=after-commit,p=0.03",
    "unavailable:at=statement,p=0.01",
];

fn transactions() -> Transactions {
    let policy = RetryPolicy::default().retries(50).base(Duration::from_millis(1)).full_jitter();
    Transactions::new(policy, TokioRuntime::current().unwrap(), "test", "default")
}

async fn prepared(engine: EngineKind) -> Arc<Cluster> {
    let cluster = Arc::new(cluster_on(engine));
    let client = Postgres(&cluster).session().await.unwrap().0;
    client.batch_execute("CREATE TABLE counters (id bigint PRIMARY KEY, n bigint NOT NULL)").await.unwrap();
    client.batch_execute("CREATE TABLE done (id bigint PRIMARY KEY)").await.unwrap();
    client.batch_execute("INSERT INTO counters VALUES (0, 0), (1, 0), (2, 0)").await.unwrap();
    for fault in FAULTS {
        cluster.inject(fault.parse().unwrap());
    }
    cluster
}

async fn classify(cluster: &Cluster, outcomes: &BTreeMap<i64, Result<(), ErrorKind>>) {
    cluster.heal_all();
    let client = Postgres(cluster).session().await.unwrap().0;
    let sum: i64 = client.query_one("SELECT CAST(sum(n) AS bigint) FROM counters", &[]).await.unwrap().get(0);
    let done = client.query("SELECT id FROM done", &[]).await.unwrap();
    let done: Vec<i64> = done.iter().map(|row| row.get(0)).collect();
    assert_eq!(sum, i64::try_from(done.len()).unwrap(), "each transaction is all or nothing");
    assert_eq!(i64::try_from(outcomes.len()).unwrap(), CLIENTS * EACH);
    let (mut succeeded, mut unknown) = (0, 0);
    for (id, outcome) in outcomes {
        match outcome {
            Ok(()) => {
                succeeded += 1;
                assert!(done.contains(id), "{id} succeeded and is not there");
            }
            Err(ErrorKind::CommitUnknown) => unknown += 1,
            Err(kind) => assert!(!done.contains(id), "{id} failed with {kind} and is there"),
        }
    }
    assert!(succeeded > CLIENTS * EACH / 2 && unknown > 0, "{succeeded} succeeded, {unknown} unknown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_success_is_counted_once_with_tokio_postgres() {
    count_with_tokio_postgres(EngineKind::Builtin).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_success_is_counted_once_by_a_real_postgres() {
    count_with_tokio_postgres(EngineKind::Postgres).await;
}

async fn count_with_tokio_postgres(engine: EngineKind) {
    let (cluster, transactions) = (prepared(engine).await, transactions());
    let tasks: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (cluster, transactions) = (Arc::clone(&cluster), transactions.clone());
            tokio::spawn(async move {
                let (mut outcomes, pool) = (Vec::new(), Postgres(&cluster));
                for id in (0..EACH).map(|n| client * EACH + n) {
                    let run = transactions.run(&pool, "count", async |link| {
                        let update = "UPDATE counters SET n = n + 1 WHERE id = $1";
                        link.0.execute(update, &[&(id % 3)]).await?;
                        link.0.execute("INSERT INTO done VALUES ($1)", &[&id]).await?;
                        Ok::<_, Error>(())
                    });
                    outcomes.push((id, run.await.map_err(|error| error.kind())));
                }
                outcomes
            })
        })
        .collect();
    let mut outcomes = BTreeMap::new();
    for task in tasks {
        outcomes.extend(task.await.unwrap());
    }
    classify(&cluster, &outcomes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_success_is_counted_once_with_sqlx() {
    let (cluster, transactions) = (prepared(EngineKind::Builtin).await, transactions());
    let tasks: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (cluster, transactions) = (Arc::clone(&cluster), transactions.clone());
            tokio::spawn(async move {
                let (mut outcomes, pool) = (Vec::new(), Sqlx(&cluster));
                for id in (0..EACH).map(|n| client * EACH + n) {
                    let run = transactions.run(&pool, "count", async |mut link| {
                        let update = sqlx::query("UPDATE counters SET n = n + 1 WHERE id = $1");
                        link.0.execute(update.bind(id % 3)).await?;
                        link.0.execute(sqlx::query("INSERT INTO done VALUES ($1)").bind(id)).await?;
                        Ok::<_, Error>(())
                    });
                    outcomes.push((id, run.await.map_err(|error| error.kind())));
                }
                outcomes
            })
        })
        .collect();
    let mut outcomes = BTreeMap::new();
    for task in tasks {
        outcomes.extend(task.await.unwrap());
    }
    classify(&cluster, &outcomes).await;
}

#[tokio::test]
async fn an_expired_token_and_a_wrong_one_are_told_apart() {
    let cluster = cluster();
    let token = cluster.token("admin").unwrap();
    cluster.clock().advance(Duration::from_secs(16 * 60));
    let error = Error::from(plain::connect(&cluster, &token).await.err().unwrap());
    assert_eq!(error.kind(), ErrorKind::Auth(Auth::SignatureExpired), "{error}");
    assert!(error.to_string().contains("check the clock"), "{error}");
    let wrong = cluster.token("app").unwrap();
    let error = Error::from(plain::connect(&cluster, &wrong).await.err().unwrap());
    assert_eq!(error.kind(), ErrorKind::Auth(Auth::Denied), "{error}");
}
