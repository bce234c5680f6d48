//! The faults of the client that this one replaces, each with a test.

use std::time::Duration;

use flight_local::Config;
use forebay::rt::{TokioRuntime, within};
use forebay_flight::{AsyncFlightSQLPool, Error, FlightSQLPool, OptionValue, PoolConfig, QueryOptions};

use crate::fixture::{blocking_server, eventually, integers, pool, server, server_with, small, warm_pool};

/// A dropped future lost its place in the pool for ever.
#[tokio::test]
async fn dropped_futures_lose_no_capacity() {
    let server = server().await;
    let pool = pool(&server, 2).await;
    let runtime = TokioRuntime::current().unwrap();
    for _ in 0..6 {
        let limit = Duration::from_millis(20);
        assert!(within(&runtime, limit, pool.query("SELECT sleep_ms(60000)")).await.is_none());
    }
    let (one, two) = (pool.acquire_session().await.unwrap(), pool.acquire_session().await.unwrap());
    assert_eq!(pool.status().in_use, 2);
    drop((one, two));
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
}

/// A freed place did not wake a thread that waited for it.
#[test]
fn a_freed_connection_wakes_a_thread_that_waits() {
    let server = blocking_server(Config::default());
    let pool = FlightSQLPool::new(&server.url(), small(1)).unwrap();
    let held = pool.acquire_session().unwrap();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..4).map(|_| scope.spawn(|| pool.query("SELECT 7"))).collect();
        while pool.status().waiting < 4 {
            std::thread::yield_now();
        }
        drop(held);
        for waiter in waiters {
            assert_eq!(integers(&waiter.join().unwrap().unwrap()), [7]);
        }
    });
    // The same if the place is freed by a connection that failed.
    let mut held = pool.acquire_session().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.query("SELECT 7"));
        while pool.status().waiting < 1 {
            std::thread::yield_now();
        }
        server.faults().reset_next(1);
        assert!(matches!(held.query("SELECT 1"), Err(Error::SessionLost { .. })));
        drop(held);
        assert_eq!(integers(&waiter.join().unwrap().unwrap()), [7]);
    });
}

/// An open transaction was handed to the next borrower.
#[tokio::test]
async fn the_next_borrower_gets_a_clean_session() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();

    let mut session = pool.acquire_session().await.unwrap();
    session.begin_transaction().await.unwrap();
    session.update("INSERT INTO t VALUES (1)").await.unwrap();
    drop(session);
    assert_eq!(integers(&pool.query("SELECT count(*) FROM t").await.unwrap()), [0]);
    assert_eq!(server.counters().sessions_ever, 1, "rolled back, and kept");

    // One that was begun by words, and one by words through the pool itself.
    let mut session = pool.acquire_session().await.unwrap();
    session.update("BEGIN").await.unwrap();
    session.update("INSERT INTO t VALUES (2)").await.unwrap();
    drop(session);
    assert_eq!(integers(&pool.query("SELECT count(*) FROM t").await.unwrap()), [0]);
    pool.update("BEGIN").await.unwrap();
    pool.update("INSERT INTO t VALUES (3)").await.unwrap();
    assert_eq!(
        integers(&pool.query("SELECT count(*) FROM t").await.unwrap()),
        [1],
        "no longer in a transaction"
    );
    assert_eq!(server.counters().sessions_ever, 1);

    // Temporary tables and settings cannot be taken back: the session goes.
    let mut session = pool.acquire_session().await.unwrap();
    session.update("CREATE TEMP TABLE secret (a INTEGER)").await.unwrap();
    drop(session);
    assert!(matches!(pool.query("SELECT * FROM secret").await, Err(Error::Server { .. })));
    let read_only = OptionValue::Bool(true);
    let mut session = pool.acquire_session().await.unwrap();
    session.set_options([("query_only".to_owned(), read_only.clone())]).await.unwrap();
    assert_eq!(session.options().await.unwrap()["query_only"], read_only);
    let error =
        session.set_options([("colour".to_owned(), OptionValue::String("blue".into()))]).await.unwrap_err();
    assert!(error.to_string().contains("colour (no such option)"), "{error}");
    assert!(!error.is_not_executed(), "others of the same call are set");
    drop(session);
    let mut session = pool.acquire_session().await.unwrap();
    assert_eq!(session.options().await.unwrap()["query_only"], OptionValue::Bool(false));
    eventually("closed sessions are closed on the server too", || {
        server.counters().close_session >= 2 && server.counters().sessions_open == 1
    })
    .await;
}

/// An INSERT sent through query() was run twice.
#[tokio::test]
async fn an_insert_is_never_run_twice() {
    let server = server().await;
    let pool = warm_pool(&server, 8).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    for sql in [
        "INSERT INTO t VALUES (1) RETURNING a",
        "/* SELECT */ INSERT INTO t VALUES (1) RETURNING a",
        "WITH x AS (SELECT 1 AS a) INSERT INTO t SELECT a FROM x RETURNING a",
    ] {
        let before = integers(&pool.query("SELECT count(*) FROM t").await.unwrap())[0];
        server.faults().reset_after_next(1);
        let error = pool.query(sql).await.unwrap_err();
        assert!(matches!(error, Error::Transport { may_have_run: true, .. }), "{error}");
        let after = integers(&pool.query("SELECT count(*) FROM t").await.unwrap())[0];
        assert!(after - before <= 1, "{sql} was run twice");
    }
    let before = integers(&pool.query("SELECT count(*) FROM t").await.unwrap())[0];
    server.faults().reset_after_next(1);
    assert!(pool.update("INSERT INTO t VALUES (2)").await.is_err());
    assert_eq!(
        integers(&pool.query("SELECT count(*) FROM t").await.unwrap()),
        [before + 1],
        "once, not twice"
    );
}

/// And what reads is run again, once, on another connection.
#[tokio::test]
async fn a_read_whose_connection_fails_is_retried_once() {
    let server = server().await;
    let pool = warm_pool(&server, 8).await;
    server.faults().reset_next(1);
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
    server.faults().reset_next(2);
    let error = pool.query("SELECT 7").await.unwrap_err();
    assert!(matches!(error, Error::Transport { may_have_run: true, .. }), "{error}");
    server.faults().reset_next(1);
    let error = pool.execute("SELECT 7").await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "execute() is never repeated: {error}");
    // Not in a session, whose state is gone.
    let mut session = pool.acquire_session().await.unwrap();
    server.faults().reset_next(1);
    let error = session.query("SELECT 7").await.unwrap_err();
    assert!(matches!(error, Error::SessionLost { .. }), "{error}");
    let error = session.query("SELECT 7").await.unwrap_err();
    assert!(matches!(error, Error::SessionLost { may_have_run: false, .. }), "{error}");
}

#[tokio::test]
async fn without_retry_on_failure_a_read_whose_connection_fails_is_not_retried() {
    let server = server_with(Config { log_statements: true, ..Config::default() }).await;
    let config = PoolConfig { retry_on_failure: false, min_idle: 0, ..small(1) };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await.unwrap();
    // Opens the session: the fault must not hit its health check.
    let open = async || assert_eq!(integers(&pool.query("SELECT 1").await.unwrap()), [1]);
    let sent = |sql: &str| server.statements().iter().filter(|sent| *sent == sql).count();
    open().await;
    server.faults().reset_after_next(1);
    let error = pool.query("SELECT 7").await.unwrap_err();
    assert!(matches!(error, Error::Transport { may_have_run: true, .. }), "{error}");
    assert_eq!(sent("SELECT 7"), 1);
    // The caller's own choice counts for more, either way.
    open().await;
    server.faults().reset_after_next(1);
    let retried = pool.query_with_options("SELECT 8", QueryOptions::new().with_retry(true)).await.unwrap();
    assert_eq!((integers(&retried), sent("SELECT 8")), (vec![8], 2));
    let pool = warm_pool(&server, 1).await;
    server.faults().reset_after_next(1);
    let error = pool.query_with_options("SELECT 9", QueryOptions::new().with_retry(false)).await.unwrap_err();
    assert!(matches!(error, Error::Transport { may_have_run: true, .. }), "{error}");
    assert_eq!(sent("SELECT 9"), 1);
}

/// Each refused statement made a new connection, until the server had no session left.
#[tokio::test]
async fn bad_sql_costs_no_sessions() {
    let server = server_with(Config { session_limit: 3, ..Config::like_swanlake() }).await;
    let config = PoolConfig { retry_on_failure: true, min_idle: 0, ..small(2) };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await.unwrap();
    for _ in 0..50 {
        assert!(matches!(pool.query("SELECT nonsense").await, Err(Error::Server { .. })));
        assert!(matches!(pool.update("INSERT INTO nowhere VALUES (1)").await, Err(Error::Server { .. })));
    }
    server.faults().internal_next(5);
    for _ in 0..5 {
        assert!(matches!(pool.query("SELECT 1").await, Err(Error::Server { .. })));
    }
    assert_eq!(server.counters().sessions_ever, 1);
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
}

/// A server that keeps ended sessions is not drowned in them: those it may still have count.
#[tokio::test]
async fn lingering_sessions_stay_within_the_budget() {
    let server = server_with(Config { session_limit: 3, ..Config::like_swanlake() }).await;
    let config = PoolConfig {
        session_budget: Some(3),
        session_linger_ms: 15 * 60_000,
        acquire_timeout_ms: 500,
        ..small(1)
    };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await.unwrap();
    for _ in 0..3 {
        // Each leaves something behind, and is closed.
        pool.update("CREATE TEMP TABLE t (a INTEGER)").await.unwrap();
    }
    let error = pool.query("SELECT 1").await.unwrap_err();
    assert!(matches!(error, Error::PoolTimeout { cause: Some(_), .. }), "{error}");
    assert_eq!(
        (pool.status().sessions, server.counters().sessions_ever, server.counters().refused),
        (3, 3, 0)
    );
    assert!(pool.drain(Duration::from_secs(5)).await, "they are not waited for at the end");
}
