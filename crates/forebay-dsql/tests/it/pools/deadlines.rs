//! A cluster that does not answer: what callers are told at their deadline, and that the pool keeps its connections.

use std::sync::Arc;
use std::time::Duration;

use dsql_local::Cluster;
use forebay::rt::Runtime;
use forebay_dsql::{Driver, DsqlPool, Error, ErrorKind, Postgres, RetryPolicy, Sqlx};

use super::cluster::{Keys, eventually, fault, options, start};
use super::hand_time::HandTime;
use super::modes::Speak;
use super::world::seconds;

/// A cluster, a pool of two connections with a deadline of 3 s, and its time.
struct Stalls<C: Driver> {
    cluster: Arc<Cluster>,
    pool: DsqlPool<C>,
    time: HandTime,
}

const DEADLINE: Duration = Duration::from_secs(3);
const FOR_EVER: &str = "for=1h";

impl<C: Driver<Connection: Speak>> Stalls<C> {
    async fn new() -> Self {
        let (cluster, time) = (start(), HandTime::new());
        let options = options(&cluster, 2).reservoir(true).deadline(DEADLINE).build().unwrap();
        let connect = DsqlPool::builder(options, Keys::of(&cluster)).runtime(time.clone()).connect();
        let pool: DsqlPool<C> = time.passing(connect).await.unwrap();
        pool.acquire().await.unwrap().execute("CREATE TABLE t (a bigint)").await.unwrap();
        let stalls = Self { cluster, pool, time };
        stalls.is_whole().await;
        stalls
    }

    /// From now on nothing is answered at this stage.
    fn stall(&self, at: &str) -> u64 {
        self.cluster.inject(fault(&format!("delay:at={at},{FOR_EVER}")))
    }

    /// Both connections are back, and they are the first two.
    async fn is_whole(&self) {
        eventually("both are back", || self.pool.status().idle == 2).await;
        assert_eq!(self.cluster.counters().accepted, 2, "none was replaced");
    }

    async fn rows(&self) -> i64 {
        self.pool.acquire().await.unwrap().number("SELECT count(*) FROM t").await.unwrap()
    }
}

async fn a_single_statement_is_given_up_and_its_connection_used_again<C: Driver<Connection: Speak>>() {
    let stalls = Stalls::<C>::new().await;
    let stall = stalls.stall("statement");
    let mut lent = stalls.pool.acquire().await.unwrap();
    let id = lent.id();
    let told = stalls.time.passing(lent.execute("INSERT INTO t VALUES (1)")).await.unwrap_err();
    assert!(told.contains("08007") || told.contains("may have been carried out"), "{told}");
    // Later ones are not sent.
    let told = stalls.time.passing(lent.execute("INSERT INTO t VALUES (2)")).await.unwrap_err();
    assert!(told.contains("not sent"), "{told}");
    drop(lent);
    // It is set aside for longer than a reset may take.
    stalls.time.advance(seconds(50));
    assert_eq!(stalls.pool.status().open, 2);
    stalls.cluster.heal(stall);
    stalls.is_whole().await;
    assert_eq!(stalls.rows().await, 1, "the first was carried out in the end, the second was not");
    let ids: Vec<_> = stalls.pool.registry().list().iter().map(|info| info.id).collect();
    assert!(ids.contains(&id));
}

#[tokio::test]
async fn a_single_statement_is_given_up_with_tokio_postgres() {
    a_single_statement_is_given_up_and_its_connection_used_again::<Postgres>().await;
}

async fn a_run_ends_at_its_deadline_and_nothing_is_committed<C: Driver<Connection: Speak>>() {
    for (stage, kind) in [
        ("begin", ErrorKind::TimedOut),
        ("statement", ErrorKind::TimedOut),
        ("other", ErrorKind::TimedOut),
        ("commit", ErrorKind::CommitUnknown),
    ] {
        let stalls = Stalls::<C>::new().await;
        let transactions = stalls.pool.transactions().with_policy(RetryPolicy::default().deadline(DEADLINE));
        let stalled = std::sync::Mutex::new(None);
        let stall = |at: &str| *stalled.lock().unwrap() = Some(stalls.stall(at));
        if stage == "begin" {
            stall("statement");
        }
        let run = transactions.run(&stalls.pool, "add", async |mut tx| {
            tx.execute("INSERT INTO t VALUES (1)")
                .await
                .map_err(|told| Error::new(ErrorKind::TimedOut, told))?;
            match stage {
                "statement" => {
                    stall("statement");
                    // An error that the body ignores.
                    let _ = tx.execute("INSERT INTO t VALUES (2)").await;
                }
                "other" => std::future::pending().await,
                "commit" => stall("commit"),
                _ => {}
            }
            Ok::<_, Error>(())
        });
        let began = stalls.time.now();
        let error = stalls.time.passing(run).await.unwrap_err();
        let took = stalls.time.now().since(began);
        assert_eq!(error.kind(), kind, "{stage}: {error}");
        assert!(took >= DEADLINE && took < DEADLINE * 2, "{stage}: {took:?}");
        stalls.cluster.heal_all();
        stalls.is_whole().await;
        let rows = stalls.rows().await;
        assert!(rows == 0 || stage == "commit" && rows == 1, "{stage}: {rows}");
    }
}

#[tokio::test]
async fn a_run_ends_at_its_deadline_with_tokio_postgres() {
    a_run_ends_at_its_deadline_and_nothing_is_committed::<Postgres>().await;
}

#[tokio::test]
async fn a_single_statement_is_given_up_with_sqlx() {
    a_single_statement_is_given_up_and_its_connection_used_again::<Sqlx>().await;
}

#[tokio::test]
async fn a_run_ends_at_its_deadline_with_sqlx() {
    a_run_ends_at_its_deadline_and_nothing_is_committed::<Sqlx>().await;
}
