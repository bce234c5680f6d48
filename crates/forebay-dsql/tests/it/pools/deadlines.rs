//! A cluster that does not answer: what callers are told at their deadline, and that the pool keeps its connections.

use std::sync::Arc;
use std::time::Duration;

use dsql_local::Cluster;
use forebay::rt::Runtime;
use forebay_dsql::{Driver, DsqlPool, Error, ErrorKind, Postgres, RetryPolicy, Sqlx};

use super::cluster::{Keys, eventually, fault, options, start};
use super::door::Door;
use super::hand_time::HandTime;
use super::modes::Speak;
use super::world::seconds;

/// A cluster, a pool of two connections with a deadline of 3 s, and its time.
struct Stalls<C: Driver> {
    cluster: Arc<Cluster>,
    door: Door,
    pool: DsqlPool<C>,
    time: HandTime,
}

const DEADLINE: Duration = Duration::from_secs(3);
const FOR_EVER: &str = "for=1h";

impl<C: Driver<Connection: Speak>> Stalls<C> {
    async fn new() -> Self {
        let (cluster, time) = (start(), HandTime::new());
        let (door, port) = Door::open(cluster.address()).await;
        let options = options(&cluster, 2).port(port).reservoir(true).deadline(DEADLINE).build().unwrap();
        let connect = DsqlPool::builder(options, Keys::of(&cluster)).runtime(time.clone()).connect();
        let pool: DsqlPool<C> = time.passing(connect).await.unwrap();
        pool.acquire().await.unwrap().execute("CREATE TABLE t (a bigint)").await.unwrap();
        let stalls = Self { cluster, door, pool, time };
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
            stalls.door.stop_after(u64::MAX, 0);
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
        stalls.door.go_on();
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

async fn a_transaction_of_begin_ends_at_its_deadline<C: Driver<Connection: Speak>>() {
    let stalls = Stalls::<C>::new().await;
    let Stalls { pool, time, .. } = &stalls;
    let mut tx = pool.begin().await.unwrap();
    tx.execute("INSERT INTO t VALUES (1)").await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    tx.execute("INSERT INTO t VALUES (2)").await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    tx.execute("INSERT INTO t VALUES (3)").await.unwrap();
    drop(tx);
    stalls.is_whole().await;
    assert_eq!(stalls.rows().await, 1);

    // At BEGIN.
    stalls.door.stop_after(u64::MAX, 0);
    let error = time.passing(pool.begin()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    stalls.door.go_on();
    stalls.is_whole().await;

    // At a statement. What comes then is not sent, also if its caller ignores the error.
    let mut tx = pool.begin().await.unwrap();
    tx.execute("INSERT INTO t VALUES (4)").await.unwrap();
    let stall = stalls.stall("statement");
    let told = time.passing(tx.execute("INSERT INTO t VALUES (5)")).await.unwrap_err();
    assert!(told.contains("its transaction is rolled back"), "{told}");
    stalls.cluster.heal(stall);
    let error = time.passing(tx.commit()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    stalls.is_whole().await;
    assert_eq!(stalls.rows().await, 1);

    // While its caller does something else.
    let mut tx = pool.begin().await.unwrap();
    tx.execute("INSERT INTO t VALUES (6)").await.unwrap();
    time.advance(DEADLINE);
    let error = tx.commit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    stalls.is_whole().await;
    assert_eq!(stalls.rows().await, 1);

    // At COMMIT.
    let mut tx = pool.begin_within(DEADLINE * 2).await.unwrap();
    tx.execute("INSERT INTO t VALUES (7)").await.unwrap();
    let stall = stalls.stall("commit");
    let began = time.now();
    let error = time.passing(tx.commit()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CommitUnknown, "{error}");
    assert!(time.now().since(began) >= DEADLINE * 2);
    stalls.cluster.heal(stall);
    stalls.is_whole().await;

    // For want of a connection.
    let all = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
    let began = time.now();
    let error = time.passing(pool.begin()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoConnection, "{error}");
    let error = time.passing(pool.run("none", async |_tx| Ok::<_, Error>(()))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoConnection, "{error}");
    assert!((DEADLINE * 2..DEADLINE * 4).contains(&time.now().since(began)));
    drop(all);
}

#[tokio::test]
async fn a_transaction_of_begin_ends_at_its_deadline_with_tokio_postgres() {
    a_transaction_of_begin_ends_at_its_deadline::<Postgres>().await;
}

#[tokio::test]
async fn a_transaction_of_begin_ends_at_its_deadline_with_sqlx() {
    a_transaction_of_begin_ends_at_its_deadline::<Sqlx>().await;
}

/// The first bytes of the answers come, and no more: whatever they are, callers are told in time, and the pool serves again.
async fn a_server_that_stops_at_any_byte<C: Driver<Connection: Speak>>() {
    let stalls = Stalls::<C>::new().await;
    let Stalls { pool, time, door, .. } = &stalls;
    for bytes in (0..400).step_by(23) {
        let mut lent = time.passing(pool.acquire()).await.unwrap();
        door.stop_after(u64::MAX, bytes);
        let began = time.now();
        let asked = time.passing(lent.number("SELECT count(*) FROM t")).await;
        if asked.is_err() {
            let took = time.now().since(began);
            assert!(took >= DEADLINE && took <= DEADLINE + seconds(2), "{bytes}: {took:?}");
        }
        door.go_on();
        drop(lent);
        eventually("both are back", || {
            time.advance(Duration::from_millis(10));
            pool.status().idle == 2
        })
        .await;
    }
    assert_eq!(stalls.rows().await, 0);
}

#[tokio::test]
async fn a_server_that_stops_at_any_byte_with_tokio_postgres() {
    a_server_that_stops_at_any_byte::<Postgres>().await;
}

#[tokio::test]
async fn a_server_that_stops_at_any_byte_with_sqlx() {
    a_server_that_stops_at_any_byte::<Sqlx>().await;
}

/// What the socket does not take has not been carried out, and is not sent later.
#[tokio::test]
async fn what_was_not_sent_is_not_carried_out() {
    let stalls = Stalls::<Postgres>::new().await;
    let Stalls { pool, time, door, .. } = &stalls;
    door.stop_after(0, u64::MAX);
    let lent = pool.acquire().await.unwrap();
    let large = format!("INSERT INTO t VALUES (1) -- {}", "x".repeat(9 << 20));
    let first = lent.batch_execute(&large);
    let second = lent.batch_execute("INSERT INTO t VALUES (2)");
    let (first, second) = time.passing(async { tokio::join!(first, second) }).await;
    // The first is cut off in its middle, which the connection does not survive.
    let (first, second) = (Error::from(first.unwrap_err()), Error::from(second.unwrap_err()));
    assert_eq!((first.kind(), second.kind()), (ErrorKind::Disconnected, ErrorKind::Disconnected));
    drop(lent);
    door.go_on();
    eventually("another is opened", || pool.status().idle == 2).await;
    assert_eq!(stalls.rows().await, 0);
}

#[tokio::test]
async fn all_requests_of_a_connection_are_given_up_together() {
    let stalls = Stalls::<Postgres>::new().await;
    stalls.door.stop_after(u64::MAX, 0);
    let lent = stalls.pool.acquire().await.unwrap();
    let asked = async {
        tokio::join!(
            lent.batch_execute("BEGIN"),
            lent.query("SELECT a FROM t", &[]),
            lent.batch_execute("COMMIT"),
            lent.query_raw::<_, i64, _>("SELECT a FROM t", []),
        )
    };
    let (begin, query, commit, stream) = stalls.time.passing(asked).await;
    let code = |error: tokio_postgres::Error| error.code().unwrap().code().to_owned();
    assert_eq!(code(begin.unwrap_err()), "08007", "a COMMIT is behind it");
    assert_eq!(code(query.unwrap_err()), "08007");
    assert_eq!(code(commit.unwrap_err()), "08007");
    assert!(stream.is_err());
    drop(lent);
    stalls.door.go_on();
    stalls.is_whole().await;
}

/// The deadline, the death of the connection and the end of the pool at one moment.
async fn all_at_once<C: Driver<Connection: Speak>>() {
    let stalls = Stalls::<C>::new().await;
    let Stalls { cluster, pool, time, .. } = &stalls;
    let _stall = stalls.stall("statement");
    let run = pool.run("add", async |mut tx| {
        tx.execute("INSERT INTO t VALUES (1)").await.map_err(|told| Error::new(ErrorKind::TimedOut, told))
    });
    let mut run = std::pin::pin!(run);
    assert!(tokio::time::timeout(Duration::from_millis(20), run.as_mut()).await.is_err());
    let closing = pool.clone();
    let drained = tokio::spawn(async move { closing.drain(seconds(30)).await });
    eventually("it closes", || pool.status().closed).await;
    time.advance(DEADLINE);
    cluster.sever(1.0);
    assert!(time.passing(run).await.is_err());
    cluster.heal_all();
    let drained = time.passing(drained).await.unwrap();
    assert!(drained.is_complete(), "{drained:?}");
    eventually("all closed", || cluster.counters().live == 0).await;
}

#[tokio::test]
async fn all_at_once_with_tokio_postgres() {
    all_at_once::<Postgres>().await;
}

#[tokio::test]
async fn all_at_once_with_sqlx() {
    all_at_once::<Sqlx>().await;
}

/// A connection that is set aside does not keep a pool from closing.
#[tokio::test]
async fn a_pool_closes_while_a_connection_is_set_aside() {
    let stalls = Stalls::<Postgres>::new().await;
    let Stalls { pool, time, .. } = &stalls;
    let _stall = stalls.stall("statement");
    let mut lent = pool.acquire().await.unwrap();
    time.passing(lent.execute("INSERT INTO t VALUES (1)")).await.unwrap_err();
    drop(lent);
    let drained = time.passing(pool.drain(seconds(10))).await;
    assert!(drained.is_complete(), "{drained:?}");
}

/// A longer deadline of one connection, and the pool's own again for its next caller.
async fn one_connection_may_have_another_deadline<C>()
where
    C: Driver<Connection: Speak + Patient>,
{
    let stalls = Stalls::<C>::new().await;
    let Stalls { pool, time, .. } = &stalls;
    for (limit, least, most) in
        [(Some(DEADLINE * 3), DEADLINE * 3, DEADLINE * 4), (None, DEADLINE, DEADLINE * 2)]
    {
        let mut lent = pool.acquire().await.unwrap();
        if limit.is_some() {
            lent.have_patience(limit);
        }
        let stall = stalls.stall("statement");
        let began = time.now();
        time.passing(lent.number("SELECT count(*) FROM t")).await.unwrap_err();
        let took = time.now().since(began);
        assert!(took >= least && took < most, "{took:?}");
        drop(lent);
        stalls.cluster.heal(stall);
        stalls.is_whole().await;
    }
    let mut lent = pool.acquire().await.unwrap();
    lent.have_patience(None);
    let stall = stalls.stall("statement");
    let mut asked = std::pin::pin!(lent.number("SELECT count(*) FROM t"));
    for _ in 0..10 {
        assert!(
            tokio::time::timeout(Duration::from_millis(2), asked.as_mut()).await.is_err(),
            "it was given up"
        );
        time.advance(DEADLINE);
    }
    stalls.cluster.heal(stall);
    asked.await.unwrap();
}

trait Patient {
    fn have_patience(&mut self, limit: Option<Duration>);
}

impl Patient for forebay_dsql::PostgresConnection {
    fn have_patience(&mut self, limit: Option<Duration>) {
        self.set_statement_deadline(limit);
    }
}

impl Patient for forebay_dsql::SqlxConnection {
    fn have_patience(&mut self, limit: Option<Duration>) {
        self.set_statement_deadline(limit);
    }
}

#[tokio::test]
async fn one_connection_may_have_another_deadline_with_tokio_postgres() {
    one_connection_may_have_another_deadline::<Postgres>().await;
}

#[tokio::test]
async fn one_connection_may_have_another_deadline_with_sqlx() {
    one_connection_may_have_another_deadline::<Sqlx>().await;
}

/// Begin and its two ends, dropped at each of their awaits.
async fn transactions_of_begin_dropped_anywhere<C: Driver<Connection: Speak>>() {
    let stalls = Stalls::<C>::new().await;
    let Stalls { pool, time, .. } = &stalls;
    let mut rows = 0;
    for end in ["begin", "commit", "rollback"] {
        for polls in 0..8 {
            let begun = pool.begin();
            if end == "begin" {
                super::cancellation::dropped_after(polls, begun).await;
            } else {
                let mut tx = time.passing(begun).await.unwrap();
                tx.execute("INSERT INTO t VALUES (1)").await.unwrap();
                match end {
                    "commit" => super::cancellation::dropped_after(polls, tx.commit()).await,
                    _ => super::cancellation::dropped_after(polls, tx.rollback()).await,
                };
            }
            stalls.is_whole().await;
            let found = stalls.rows().await;
            assert!(found == rows || end == "commit" && found == rows + 1, "{end} {polls}");
            rows = found;
            stalls.is_whole().await;
        }
    }
}

#[tokio::test]
async fn transactions_of_begin_dropped_anywhere_with_tokio_postgres() {
    transactions_of_begin_dropped_anywhere::<Postgres>().await;
}

#[tokio::test]
async fn transactions_of_begin_dropped_anywhere_with_sqlx() {
    transactions_of_begin_dropped_anywhere::<Sqlx>().await;
}
