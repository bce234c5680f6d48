//! What callers leave behind on a connection, and that nobody else finds it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dsql_local::{Cluster, EngineKind, Limits, Rules};
use forebay::Discard;
use forebay::rt::Runtime;
use forebay_dsql::{Conflict, ConnectionState, Dsql, Error, ErrorKind, Session, SqlxDsql};

use super::cluster::{PATIENCE, eventually, fault, pool, start, start_by, start_over};
use super::hand_time::HandTime;
use super::logs::Lines;

/// A pool of one connection, so that the next caller gets the same.
async fn one(reservoir: bool) -> (Arc<Cluster>, Dsql) {
    let cluster = start();
    let pool = pool(&cluster, 1, reservoir).await;
    (cluster, pool)
}

/// Polls a future a few times and then drops it.
async fn abandon(future: impl Future, polls: usize) {
    let mut future = pin!(future);
    for _ in 0..polls {
        let done = poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await;
        assert!(!done, "too fast to be abandoned");
    }
}

/// Polls a future once and then drops it. On a busy machine the server may have answered by then.
async fn give_up(future: impl Future) {
    let mut future = pin!(future);
    let _ = poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await;
}

#[tokio::test]
async fn a_statement_closed_in_passing_leaves_it_clean() {
    let (cluster, pool) = one(true).await;
    let lent = pool.acquire().await.unwrap();
    for _ in 0..3 {
        // Prepares, runs, and then closes the statement without waiting for the answer.
        lent.query_one("SELECT CAST(1 AS bigint)", &[]).await.unwrap();
    }
    let watch = Arc::clone(lent.tracker());
    drop(lent);
    // On this one thread the driver has not even seen the last one yet; as soon as it has, all is well.
    assert_eq!(watch.answered().await, ConnectionState::Clean);
    drop(pool.acquire_within(PATIENCE).await.unwrap());
    assert_eq!(cluster.counters().accepted, 1, "it was not replaced");
}

#[tokio::test]
async fn a_prepared_statement_returns_straight_to_the_ready() {
    let (_cluster, pool) = one(true).await;
    let lent = pool.acquire().await.unwrap();
    let statement = lent.prepare("SELECT CAST(1 AS bigint)").await.unwrap();
    lent.query_one(&statement, &[]).await.unwrap();
    assert_eq!(lent.state(), ConnectionState::Clean);
    drop(lent);
    assert_eq!(pool.reservoir_status().unwrap().ready, 1);
    drop(statement);
}

async fn a_begin_nobody_waited_for_is_undone(reservoir: bool) {
    let (cluster, pool) = one(reservoir).await;
    for polls in 1..=2 {
        let lent = pool.acquire_within(PATIENCE).await.unwrap();
        let id = lent.id();
        abandon(lent.batch_execute("BEGIN"), polls).await;
        // At the first poll it is in the driver's queue, and not on the wire.
        assert_ne!(lent.state(), ConnectionState::Clean);
        drop(lent);
        let lent = pool.acquire_within(PATIENCE).await.unwrap();
        assert_eq!((lent.id(), lent.state()), (id, ConnectionState::Clean));
    }
    assert_eq!(cluster.counters().accepted, 1);
}

#[tokio::test]
async fn a_begin_nobody_waited_for_is_undone_in_a_reservoir() {
    a_begin_nobody_waited_for_is_undone(true).await;
}

#[tokio::test]
async fn a_begin_nobody_waited_for_is_undone_in_standard_mode() {
    a_begin_nobody_waited_for_is_undone(false).await;
}

#[tokio::test]
async fn a_dropped_transaction_is_rolled_back_once() {
    let (cluster, pool) = one(true).await;
    let mut lent = pool.acquire().await.unwrap();
    lent.batch_execute("CREATE TABLE t (a bigint)").await.unwrap();
    let transaction = lent.transaction().await.unwrap();
    transaction.batch_execute("INSERT INTO t VALUES (1)").await.unwrap();
    drop(transaction);
    drop(lent);
    let before = cluster.counters().statements;
    let lent = pool.acquire_within(PATIENCE).await.unwrap();
    let row = lent.query_one("SELECT count(*) FROM t", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 0);
    // The client's own ROLLBACK may have been run before we looked; a second one would be too many.
    assert!(cluster.counters().statements - before <= 2);
}

#[tokio::test]
async fn a_failed_transaction_is_rolled_back() {
    let (cluster, pool) = one(true).await;
    let lent = pool.acquire().await.unwrap();
    lent.batch_execute("BEGIN").await.unwrap();
    lent.batch_execute("SELECT no_such_column").await.unwrap_err();
    assert_eq!(lent.state(), ConnectionState::InTransaction);
    drop(lent);
    let lent = pool.acquire_within(PATIENCE).await.unwrap();
    lent.batch_execute("SELECT 1").await.unwrap();
    assert_eq!(cluster.counters().accepted, 1);
}

#[tokio::test]
async fn settings_are_reset() {
    let (cluster, pool) = one(true).await;
    let setting = async || {
        let lent = pool.acquire_within(PATIENCE).await.unwrap();
        let messages = lent.simple_query("SHOW TimeZone").await.unwrap();
        let found = messages.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        found.unwrap()
    };
    let before = setting().await;
    let lent = pool.acquire().await.unwrap();
    lent.batch_execute("SET TimeZone = 'Europe/Rome'").await.unwrap();
    assert_eq!(lent.state(), ConnectionState::Altered);
    drop(lent);
    assert_eq!(setting().await, before);
    assert_eq!(cluster.counters().accepted, 1);
}

#[tokio::test]
async fn rows_nobody_read_do_not_reach_the_next_caller() {
    let (cluster, pool) = one(true).await;
    let lent = pool.acquire().await.unwrap();
    let sql = "SELECT CAST(generate_series AS bigint) FROM generate_series(1, 50000)";
    let rows = lent.query_raw::<_, i64, _>(sql, []).await.unwrap();
    assert_eq!(lent.state(), ConnectionState::Unanswered);
    drop(rows);
    drop(lent);
    let lent = pool.acquire_within(PATIENCE).await.unwrap();
    let row = lent.query_one("SELECT CAST(7 AS bigint)", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 7);
    assert_eq!(cluster.counters().accepted, 1);
}

#[tokio::test]
async fn one_that_does_not_answer_is_replaced() {
    let cluster = start();
    let options = super::cluster::bare_options(&cluster).reservoir(true);
    let config = forebay::Config::default().max_open(1).startup_jitter(std::time::Duration::ZERO);
    let options = options.config(config).build().unwrap();
    let time = HandTime::new();
    let builder = Dsql::builder(options, super::cluster::Keys::of(&cluster)).runtime(time.clone());
    let pool = time.passing(builder.connect()).await.unwrap();
    let lent = pool.acquire().await.unwrap();
    let id = lent.id();
    let stuck = cluster.inject(fault("delay:at=statement,for=1h,n=1"));
    abandon(lent.batch_execute("SELECT 1"), 1).await;
    drop(lent);
    // It is set aside for a minute, and then a reset may take 5 s.
    let began = time.now();
    let lent = time.passing(pool.acquire_within(PATIENCE * 2)).await.unwrap();
    assert!(time.now().since(began) >= Duration::from_secs(65));
    assert_ne!(lent.id(), id);
    let discards = pool.reservoir_status().unwrap().counts.discards(Discard::ResetFailed);
    assert_eq!(discards, 1);
    cluster.heal(stuck);
    lent.batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn sqlx_knows_what_it_does_not_know() {
    use sqlx::Executor;
    let cluster = start();
    let pool: SqlxDsql = pool(&cluster, 1, true).await;
    let ready = || pool.reservoir_status().unwrap().ready;
    // A transaction through the session: known to be clean, and back at once.
    let mut lent = pool.acquire().await.unwrap();
    lent.begin().await.unwrap();
    lent.commit().await.unwrap();
    drop(lent);
    assert_eq!(ready(), 1);
    // A statement in it may have changed a setting, and only that: one statement, and it is clean.
    let mut lent = pool.acquire().await.unwrap();
    lent.begin().await.unwrap();
    lent.pg().execute("SELECT 1").await.unwrap();
    lent.commit().await.unwrap();
    let before = cluster.counters().statements;
    drop(lent);
    assert_eq!(ready(), 0);
    drop(pool.acquire_within(PATIENCE).await.unwrap());
    assert_eq!((ready(), cluster.counters().statements - before), (1, 1));
    // Touched before: a commit does not make that good.
    let mut lent = pool.acquire().await.unwrap();
    lent.pg().execute("SET TimeZone = 'Europe/Rome'").await.unwrap();
    lent.begin().await.unwrap();
    lent.commit().await.unwrap();
    drop(lent);
    assert_eq!(ready(), 0);
    let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
    let zone: String = sqlx::query_scalar("SHOW TimeZone").fetch_one(lent.pg()).await.unwrap();
    assert_eq!((zone.as_str(), cluster.counters().accepted), ("UTC", 1));
}

/// What sqlx logs while `story` uses a pool of one connection: the statements it sends, and what the server warns of.
async fn logged_by_sqlx(engine: EngineKind, story: impl AsyncFnOnce(&Cluster, &SqlxDsql)) -> Vec<String> {
    let lines = Lines::default();
    let _logged = tracing::subscriber::set_default(lines.clone());
    let cluster = start_over(engine, Limits::default());
    let pool: SqlxDsql = pool(&cluster, 1, true).await;
    story(&cluster, &pool).await;
    // Reset, and ready again.
    drop(pool.acquire_within(PATIENCE).await.unwrap());
    assert_eq!(cluster.counters().accepted, 1, "it was cleaned each time, not replaced");
    lines.all()
}

#[tokio::test]
async fn sqlx_sends_no_rollback_where_no_transaction_was_begun() {
    use sqlx::Executor;
    for engine in [EngineKind::Builtin, EngineKind::Postgres] {
        let lines = logged_by_sqlx(engine, async |_, pool| {
            for _ in 0..3 {
                let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
                lent.pg().execute("SELECT 1").await.unwrap();
            }
            pool.run("look", async |mut tx| {
                tx.pg().execute("SELECT 1").await?;
                anyhow::Ok(())
            })
            .await
            .unwrap();
            let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
            lent.pg().execute("SELECT no_such_column").await.unwrap_err();
            drop(lent);
            // A statement that is given up, and fails.
            let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
            give_up(lent.pg().execute("SELECT no_such_column")).await;
        })
        .await;
        assert!(lines.iter().any(|line| line.contains("RESET ALL")), "sqlx is heard: {lines:?}");
        assert!(!lines.iter().any(|line| line.contains("ROLLBACK")), "{lines:?}");
        assert!(!lines.iter().any(|line| line.starts_with("WARN")), "{lines:?}");
    }
}

#[tokio::test]
async fn a_begin_sent_to_sqlx_as_text_is_rolled_back_before_anybody_else_is_served() {
    use sqlx::Executor;
    for engine in [EngineKind::Builtin, EngineKind::Postgres] {
        let lines = logged_by_sqlx(engine, async |_, pool| {
            let rows = async || {
                let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
                sqlx::query_scalar::<_, i64>("SELECT count(*) FROM t").fetch_one(lent.pg()).await.unwrap()
            };
            let mut lent = pool.acquire().await.unwrap();
            lent.pg().execute("CREATE TABLE t (a bigint)").await.unwrap();
            drop(lent);
            for last in ["INSERT INTO t VALUES (1)", "SELECT no_such_column"] {
                for given_up in [false, true] {
                    let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
                    lent.pg().execute("BEGIN").await.unwrap();
                    lent.pg().execute("INSERT INTO t VALUES (1)").await.unwrap();
                    match given_up {
                        false => drop(lent.pg().execute(last).await),
                        true => give_up(lent.pg().execute(last)).await,
                    }
                    drop(lent);
                    assert_eq!(rows().await, 0, "after {last}");
                }
            }
            let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
            give_up(lent.pg().execute("BEGIN")).await;
            drop(lent);
            let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
            lent.pg().execute("INSERT INTO t VALUES (1)").await.unwrap();
            drop(lent);
            assert_eq!(rows().await, 1, "it was in no transaction of somebody else");
        })
        .await;
        assert!(!lines.iter().any(|line| line.starts_with("WARN")), "{lines:?}");
    }
}

/// sqlx goes on counting a transaction whose COMMIT was refused.
#[tokio::test]
async fn a_refused_commit_of_sqlx_is_not_rolled_back() {
    use sqlx::Executor;
    let lines = logged_by_sqlx(EngineKind::Builtin, async |cluster, pool| {
        let mut lent = pool.acquire().await.unwrap();
        lent.pg().execute("CREATE TABLE t (a bigint)").await.unwrap();
        drop(lent);
        cluster.inject(fault("conflict:n=1"));
        for refused in [true, false] {
            let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
            lent.begin().await.unwrap();
            lent.pg().execute("INSERT INTO t VALUES (1)").await.unwrap();
            let kind = lent.commit().await.err().map(|error| error.kind());
            assert_eq!(kind, refused.then_some(ErrorKind::Conflict(Conflict::Change)));
        }
    })
    .await;
    assert!(!lines.iter().any(|line| line.starts_with("WARN")), "{lines:?}");
}

/// An older cluster knows SET, but no RESET ALL: a connection that may be altered is closed then, and not lent again.
#[tokio::test]
async fn where_settings_cannot_be_reset_nobody_finds_anothers() {
    for reservoir in [true, false] {
        let cluster = start_by(Rules::Spec);
        let pool: SqlxDsql = pool(&cluster, 1, reservoir).await;
        let mut found = Vec::new();
        for _ in 0..3 {
            let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
            let zone: String = sqlx::query_scalar("SHOW TimeZone").fetch_one(lent.pg()).await.unwrap();
            found.push(zone);
            sqlx::query("SET TimeZone = 'Europe/Rome'").execute(lent.pg()).await.unwrap();
        }
        assert_eq!(found, ["UTC", "UTC", "UTC"], "reservoir: {reservoir}");
        // What `run` leaves behind is known to be clean, and stays.
        let accepted = async || {
            pool.run("look", async |mut tx| {
                sqlx::query("SELECT 1").execute(tx.pg()).await?;
                Ok::<_, Error>(())
            })
            .await
            .unwrap();
            cluster.counters().accepted
        };
        assert_eq!(accepted().await, accepted().await, "reservoir: {reservoir}");
    }
}

/// What a real PostgreSQL says about all this is what the books were made for.
#[tokio::test]
async fn a_real_postgresql_is_understood_as_well() {
    let cluster = start_over(EngineKind::Postgres, Limits::default());
    let pool: Dsql = pool(&cluster, 1, true).await;
    let zone = async || {
        let lent = pool.acquire_within(PATIENCE).await.unwrap();
        let rows =
            lent.query_typed("SELECT current_setting('TimeZone'), count(*) FROM t", &[]).await.unwrap();
        assert_eq!(rows[0].get::<_, i64>(1), 0, "somebody else's transaction");
        rows[0].get::<_, String>(0)
    };
    pool.acquire().await.unwrap().batch_execute("CREATE TABLE t (a bigint)").await.unwrap();
    let before = zone().await;
    for (statements, shape) in [
        ("SELECT 1", ConnectionState::Clean),
        ("BEGIN; INSERT INTO t VALUES (1)", ConnectionState::InTransaction),
        ("SET TimeZone = 'Europe/Rome'", ConnectionState::Altered),
        ("BEGIN; SET TimeZone = 'Europe/Rome'", ConnectionState::InTransaction),
        ("BEGIN; SELECT no_such_column", ConnectionState::InTransaction),
    ] {
        let lent = pool.acquire_within(PATIENCE).await.unwrap();
        // The last of them fails, and is meant to.
        drop(lent.batch_execute(statements).await);
        assert_eq!(lent.state(), shape, "{statements}");
        drop(lent);
        assert_eq!(zone().await, before, "{statements}");
    }
    assert_eq!(cluster.counters().accepted, 1, "it was cleaned each time, not replaced");
}

#[tokio::test]
async fn one_marked_bad_is_not_lent_again() {
    for reservoir in [true, false] {
        let (_cluster, pool) = one(reservoir).await;
        let mut lent = pool.acquire().await.unwrap();
        let id = lent.id();
        lent.mark_bad();
        drop(lent);
        assert_ne!(pool.acquire_within(PATIENCE).await.unwrap().id(), id);
        eventually("it is gone", || pool.registry().list().iter().all(|listed| listed.id != id)).await;
    }
}

fn numbers(rows: usize) -> String {
    format!("SELECT CAST(generate_series AS bigint) FROM generate_series(1, {rows})")
}

/// The last row may have been read from the socket while the driver waits for somebody to take the first.
async fn a_stream_that_is_kept_hinders_nobody(reservoir: bool) {
    let (_cluster, pool) = one(reservoir).await;
    for rows in (100..1_600).step_by(100) {
        let lent = pool.acquire_within(PATIENCE).await.unwrap();
        let statement = lent.prepare(&numbers(rows)).await.unwrap();
        let stream = lent.query_raw::<_, i64, _>(&statement, []).await.unwrap();
        let watch = Arc::clone(lent.tracker());
        // Nothing happens any more once the driver is at rest, clean or waiting for the stream. A busy machine may take longer.
        let _ = tokio::time::timeout(Duration::from_millis(20), watch.answered()).await;
        drop(lent);
        if pool.status().idle == 0 {
            // Not lent before the stream is gone.
            drop(stream);
            let next = pool.acquire_within(PATIENCE).await.unwrap();
            next.simple_query("SELECT 7").await.unwrap();
        } else {
            let next = pool.acquire_within(PATIENCE).await.unwrap();
            let answer = tokio::time::timeout(PATIENCE, next.simple_query("SELECT 7")).await;
            answer.expect("it was said to be clean, and its driver is stuck").unwrap();
            drop(stream);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_kept_hinders_nobody_in_a_reservoir() {
    a_stream_that_is_kept_hinders_nobody(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_kept_hinders_nobody_in_standard_mode() {
    a_stream_that_is_kept_hinders_nobody(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_as_the_value_of_a_transaction_is_an_error_and_not_for_ever() {
    let (_cluster, pool) = one(true).await;
    let run = pool.run("rows", |tx| async move {
        Ok::<_, Error>(tx.query_raw::<_, i64, _>(&numbers(20_000), []).await?)
    });
    let error = tokio::time::timeout(PATIENCE, run).await.expect("not for ever").map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permanent);
    assert!(error.to_string().contains("read a stream to its end"), "{error}");
    pool.run("one", async |tx| Ok::<_, Error>(tx.batch_execute("SELECT 1").await?)).await.unwrap();
}
