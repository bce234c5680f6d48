//! What one borrower leaves in a session, and what the next one finds.

use std::time::Duration;

use flight_local::{Config, FlightLocal};
use forebay_flight::{AsyncFlightSQLPool, AsyncSession, Error, Ingest, QueryOptions};
use futures_util::stream;

use crate::drops::dropped_after;
use crate::fixture::{eventually, integers, numbers, pool, server, server_with, warm_pool};

/// A pool of one session, and two tables.
async fn one() -> (FlightLocal, AsyncFlightSQLPool) {
    let server = server().await;
    let pool = pool(&server, 1).await;
    for table in ["a", "b"] {
        pool.update(&format!("CREATE TABLE {table} (n INTEGER)")).await.unwrap();
    }
    (server, pool)
}

/// The next borrower is in no transaction, and sees nothing of the one before.
async fn is_clean(pool: &AsyncFlightSQLPool, after: &str) {
    let mut next = pool.acquire_session().await.unwrap();
    assert_eq!(integers(&next.query("SELECT count(*) FROM a").await.unwrap()), [0], "{after}");
    if let Err(error) = next.update("BEGIN").await {
        panic!("{after}: {error}");
    }
    next.rollback().await.unwrap();
}

#[tokio::test]
async fn no_transaction_is_handed_on() {
    for steps in [
        &["BEGIN", "INSERT INTO a VALUES (1)"] as &[&str],
        &["SAVEPOINT x", "INSERT INTO a VALUES (1)"],
        &["BEGIN; INSERT INTO a VALUES (1); INSERT INTO nowhere VALUES (1); COMMIT"],
        &[
            "BEGIN",
            "INSERT INTO a VALUES (1)",
            "CREATE TRIGGER t AFTER INSERT ON a BEGIN DELETE FROM b; DELETE FROM b; END",
        ],
        &["--c\nBEGIN", "INSERT INTO a VALUES (1)"],
        &["BEGIN", "INSERT INTO a VALUES (1)", "SAVEPOINT x", "ROLLBACK TO x"],
    ] {
        let (_server, pool) = one().await;
        let mut session = pool.acquire_session().await.unwrap();
        for step in steps {
            // One of them is meant to fail.
            let _ = session.update(step).await;
        }
        drop(session);
        is_clean(&pool, &format!("{steps:?}")).await;
    }
}

#[tokio::test]
async fn no_transaction_is_handed_on_by_a_script_that_takes_too_long() {
    let (_server, pool) = one().await;
    let script = "BEGIN; INSERT INTO a VALUES (1); SELECT sleep_ms(60000); COMMIT";
    let error = pool.update_with_options(script, QueryOptions::new().with_timeout_ms(200)).await.unwrap_err();
    assert!(matches!(error, Error::QueryTimeout { .. }), "{error}");
    is_clean(&pool, script).await;
}

#[tokio::test]
async fn no_transaction_of_a_prepared_statement_is_handed_on() {
    let (_server, pool) = one().await;
    let mut session = pool.acquire_session().await.unwrap();
    let mut begin = session.prepare_query("BEGIN").await.unwrap();
    assert!(session.commit().await.is_err(), "it has not been run");
    begin.update().await.unwrap();
    session.commit().await.unwrap();
    begin.update().await.unwrap();
    session.update("INSERT INTO a VALUES (1)").await.unwrap();
    drop(session);
    is_clean(&pool, "prepared").await;
}

#[tokio::test]
async fn a_transaction_by_sql_costs_no_session() {
    let (server, pool) = one().await;
    for _ in 0..3 {
        let mut session = pool.acquire_session().await.unwrap();
        session.update("BEGIN").await.unwrap();
        session.update("COMMIT").await.unwrap();
        session.query("BEGIN").await.unwrap();
        session.query("COMMIT").await.unwrap();
        let mut begin = session.prepare_query("BEGIN").await.unwrap();
        let mut commit = session.prepare_query("COMMIT").await.unwrap();
        begin.update().await.unwrap();
        commit.update().await.unwrap();
        assert!(matches!(session.commit().await, Err(Error::Config { .. })), "none is open");
    }
    assert_eq!(server.counters().sessions_ever, 1);
}

#[tokio::test]
async fn a_script_that_ends_its_transaction_costs_no_session() {
    let (server, pool) = one().await;
    for script in
        ["BEGIN; INSERT INTO b VALUES (1); COMMIT", "SAVEPOINT x; INSERT INTO b VALUES (1); RELEASE x"]
    {
        pool.update(script).await.unwrap();
        is_clean(&pool, script).await;
    }
    let mut session = pool.acquire_session().await.unwrap();
    session.update("BEGIN; INSERT INTO b VALUES (1); COMMIT").await.unwrap();
    session.begin_transaction().await.unwrap();
    session.update("INSERT INTO b VALUES (1)").await.unwrap();
    session.commit().await.unwrap();
    drop(session);
    is_clean(&pool, "a script and a transaction").await;
    assert_eq!(integers(&pool.query("SELECT count(*) FROM b").await.unwrap()), [4]);
    assert_eq!(server.counters().sessions_ever, 1);
}

#[tokio::test]
async fn nothing_temporary_is_handed_on() {
    for create in [
        "CREATE TABLE \"temp\".leak (n INTEGER)",
        "CREATE TABLE 'temp'.leak (n INTEGER)",
        "CREATE TABLE `temp`.leak (n INTEGER)",
        "CREATE TABLE [temp].leak (n INTEGER)",
    ] {
        let (_server, pool) = one().await;
        pool.update(create).await.unwrap();
        let error = pool.query("SELECT * FROM leak").await.unwrap_err();
        assert!(error.to_string().contains("leak"), "{create}: {error}");
    }
    let (_server, pool) = one().await;
    let batches = stream::iter([Ok::<_, std::io::Error>(numbers([1]))]);
    let loaded = pool.ingest(Ingest::into_table("leak").catalog("temp").create(), batches).await;
    assert!(loaded.is_ok(), "{loaded:?}");
    assert!(pool.query("SELECT * FROM leak").await.is_err());
}

#[tokio::test]
async fn bad_statements_cost_no_sessions() {
    for sql in ["SELECT nonsense", "SELEC 1", "SELECT 'x", "PRAGMA table_info(a)"] {
        let server = server_with(Config::like_swanlake()).await;
        let pool = pool(&server, 2).await;
        for _ in 0..10 {
            let _ = pool.query(sql).await;
            let _ = pool.update(sql).await;
            let _ = pool.query_with_param(sql, numbers([1])).await;
        }
        assert_eq!(pool.query("SELECT 1").await.unwrap().row_count(), 1);
        let sessions = server.counters().sessions_ever;
        assert!(sessions <= 2, "{sql}: {sessions}");
    }
}

#[tokio::test]
async fn a_failed_statement_that_may_have_altered_its_session_closes_it() {
    let (server, pool) = one().await;
    for sql in ["CREATE TEMP TABLE leak (n INTEGER); SELEC 1", "SELEC 1; CREATE TEMP TABLE leak (n INTEGER)"]
    {
        assert!(pool.update(sql).await.is_err());
        assert!(pool.query("SELECT * FROM leak").await.is_err());
    }
    assert_eq!(server.counters().sessions_ever, 3);
}

#[tokio::test]
async fn a_function_call_with_an_alias_does_not_run_twice() {
    for (sql, times) in
        [("SELECT 1, sleep_ms(1) AS x", 1), ("SELECT [sleep_ms](1)", 1), ("SELECT 1, 2 AS x", 2)]
    {
        let server = server_with(Config { log_statements: true, ..Config::default() }).await;
        let pool = warm_pool(&server, 2).await;
        server.faults().reset_after_next(1);
        assert_eq!(pool.query(sql).await.is_ok(), times == 2, "{sql}");
        let run = server.statements().iter().filter(|statement| statement.as_str() == sql).count();
        assert_eq!(run, times, "{sql}");
    }
}

#[tokio::test]
async fn a_session_that_is_dropped_is_closed_on_the_server() {
    let server = server_with(Config { session_linger: Duration::from_secs(900), ..Config::default() }).await;
    let mut session = AsyncSession::connect(server.url().as_str()).await.unwrap();
    session.update("CREATE TEMP TABLE t (a INTEGER)").await.unwrap();
    drop(session);
    eventually("it is gone", || server.counters().sessions_open == 0).await;
    assert_eq!((server.counters().close_session, server.counters().sessions_lingering), (1, 0));

    let mut session = AsyncSession::connect(server.url().as_str()).await.unwrap();
    session.query("SELECT 1").await.unwrap();
    session.close().await.unwrap();
    assert_eq!(server.counters().close_session, 2, "told once");
    drop(AsyncSession::connect(server.url().as_str()).await.unwrap());
    eventually("both connections are closed", || server.counters().connections_open == 0).await;
    assert_eq!(server.counters().close_session, 2, "an unused one is none to the server");
}

#[tokio::test]
async fn a_dropped_prepare_leaves_no_statement() {
    let (server, pool) = one().await;
    for polls in 0..30 {
        let mut session = pool.acquire_session().await.unwrap();
        dropped_after(polls, session.prepare_query("SELECT 1")).await;
        drop(session);
        dropped_after(polls, pool.query_with_param("SELECT ?", numbers([1]))).await;
    }
    let counters = || server.counters();
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
    // On a busy machine a session may answer too late, and be replaced.
    eventually("each is closed, or gone with its session", || {
        counters().create_prepared_statement == counters().close_prepared_statement
            || counters().sessions_ever > 1
    })
    .await;
    assert!(counters().create_prepared_statement > 0);
}

#[tokio::test]
async fn a_write_that_times_out_in_a_transaction_leaves_a_usable_session() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    pool.update("CREATE TABLE t (n INTEGER)").await.unwrap();
    let mut session = pool.acquire_session().await.unwrap();
    for how in ["rollback", "commit"] {
        session.begin_transaction().await.unwrap();
        let options = QueryOptions::new().with_timeout_ms(200);
        let write = "INSERT INTO t SELECT sleep_ms(60000)";
        session.update_with_options(write, options).await.unwrap_err();
        match how {
            "rollback" => session.rollback().await.unwrap(),
            _ => drop(session.commit().await.unwrap_err()),
        }
        session.query("SELECT 1").await.unwrap();
    }
    session.begin_transaction().await.unwrap();
    session.update("INSERT INTO t VALUES (7)").await.unwrap();
    session.commit().await.unwrap();
    drop(session);
    assert_eq!(integers(&pool.query("SELECT n FROM t").await.unwrap()), [7]);
}
