//! What a real SwanLake does, on a flight-local that does the same.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use flight_local::{Config, FlightLocal};
use forebay_flight::{
    AsyncFlightSQLPool, AsyncSession, ConnectOptions, Error, Phase, PoolConfig, QueryOptions, QueryResult,
};

async fn server() -> FlightLocal {
    let server = FlightLocal::start(Config::like_swanlake()).await.unwrap();
    let mut session = AsyncSession::connect(server.url().as_str()).await.unwrap();
    session.update("CREATE TABLE t (n INTEGER UNIQUE)").await.unwrap();
    server
}

async fn connect(server: &FlightLocal) -> AsyncSession {
    AsyncSession::connect(server.url().as_str()).await.unwrap()
}

fn number(result: &QueryResult) -> i64 {
    result.batches()[0].column(0).as_primitive::<Int64Type>().value(0)
}

async fn count(session: &mut AsyncSession) -> i64 {
    number(&session.query("SELECT count(*) FROM t").await.unwrap())
}

fn params(values: &[i64]) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    RecordBatch::try_from_iter([("n", column)]).unwrap()
}

/// The preset for SQLite in place of DuckDB.
fn pool_config() -> PoolConfig {
    PoolConfig {
        min_idle: 1,
        max_size: 1,
        reset_sql: vec![
            "SELECT 'DROP TABLE temp.' || name FROM sqlite_temp_master WHERE type = 'table'".to_owned(),
        ],
        // SQLite has no current schema. The server leaves a table.
        reset_schema_sql: None,
        ..PoolConfig::for_swanlake()
    }
}

#[tokio::test]
async fn a_write_that_returns_nothing_runs_once() {
    let server = server().await;
    let pool = AsyncFlightSQLPool::with_default(&server.url()).await.unwrap();
    let mut session = connect(&server).await;
    let write = "WITH x AS (SELECT coalesce(max(n), 0) + 1 AS n FROM t) INSERT INTO t SELECT n FROM x";
    assert!(pool.execute(write).await.unwrap().is_empty());
    assert!(pool.query(write).await.unwrap().schema().fields().is_empty());
    assert!(session.query_stream(write).await.unwrap().next_batch().await.is_none());
    assert_eq!(count(&mut session).await, 3);
    // What may return rows is a query, and only the server can tell what that does.
    session.query("WITH x AS (SELECT 1) SELECT * FROM x").await.unwrap();
}

#[tokio::test]
async fn after_a_failure_a_transaction_refuses_statements_until_it_is_rolled_back() {
    let server = server().await;
    for by_sql in [false, true] {
        let mut session = connect(&server).await;
        match by_sql {
            false => session.begin_transaction().await.unwrap(),
            true => drop(session.update("BEGIN").await.unwrap()),
        }
        session.update("INSERT INTO t VALUES (1)").await.unwrap();
        session.update("INSERT INTO t VALUES (1)").await.unwrap_err();
        for sql in ["INSERT INTO t VALUES (2)", "SELECT 1"] {
            let error = session.query(sql).await.unwrap_err();
            assert!(matches!(error, Error::TransactionFailed { .. }) && error.is_not_executed(), "{error}");
        }
        let error = match by_sql {
            false => session.commit().await.unwrap_err(),
            true => session.update("COMMIT").await.unwrap_err(),
        };
        assert!(matches!(error, Error::TransactionFailed { .. }), "{error}");
        assert_eq!(count(&mut session).await, 0);
        // The session goes on.
        let mut transaction = session.begin().await.unwrap();
        transaction.update("DELETE FROM t").await.unwrap();
        transaction.commit().await.unwrap();
    }
    let mut session = connect(&server).await;
    session.update("BEGIN").await.unwrap();
    session.update("SELECT nothing").await.unwrap_err();
    drop(session.update("ROLLBACK").await);
    assert_eq!(count(&mut session).await, 0);
}

#[tokio::test]
async fn a_server_that_is_known_to_continue_may() {
    let server = FlightLocal::start(Config::default()).await.unwrap();
    let options = ConnectOptions::new(&server.url()).unwrap().continue_after_errors(true);
    let mut session = AsyncSession::connect(options).await.unwrap();
    session.update("CREATE TABLE t (n INTEGER UNIQUE)").await.unwrap();
    let mut transaction = session.begin().await.unwrap();
    transaction.update("INSERT INTO t VALUES (1)").await.unwrap();
    transaction.update("INSERT INTO t VALUES (1)").await.unwrap_err();
    transaction.update("INSERT INTO t VALUES (2)").await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(count(&mut session).await, 2);
}

#[tokio::test]
async fn after_a_failed_commit_the_session_has_no_transaction() {
    let server = server().await;
    let options = ConnectOptions::new(&server.url()).unwrap().continue_after_errors(true);
    let mut session = AsyncSession::connect(options).await.unwrap();
    session.begin_transaction().await.unwrap();
    session.update("INSERT INTO t VALUES (1)").await.unwrap();
    // The server rolls back by itself, and the client does not look.
    session.update("INSERT INTO t VALUES (1)").await.unwrap_err();
    session.commit().await.unwrap_err();
    session.begin_transaction().await.unwrap();
    session.update("INSERT INTO t VALUES (7)").await.unwrap();
    session.rollback().await.unwrap();
    assert_eq!(count(&mut session).await, 0);
}

#[tokio::test]
async fn parameters_are_bound_for_each_run() {
    let server = server().await;
    let mut session = connect(&server).await;
    session.update("INSERT INTO t VALUES (1), (2)").await.unwrap();
    let mut select = session.prepare_query("SELECT n FROM t WHERE n = ?").await.unwrap();
    select.set_parameters(params(&[2])).await.unwrap();
    for _ in 0..3 {
        assert_eq!(number(&select.query().await.unwrap()), 2);
    }
    assert_eq!(number(&select.query_with_param(params(&[1])).await.unwrap()), 1);
    assert_eq!(number(&select.query().await.unwrap()), 2);
    let error = select.query_with_param(params(&[1, 2])).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "a query takes one row of parameters, but there are 2: run it once for each row"
    );
    assert!(session.query_with_param("SELECT ?", params(&[])).await.is_err());
}

#[tokio::test]
async fn the_next_borrower_gets_a_clean_session_and_no_other() {
    let server = server().await;
    let pool = AsyncFlightSQLPool::new(&server.url(), pool_config()).await.unwrap();
    for n in 0..5 {
        pool.update_with_record_batch("INSERT INTO t VALUES (?)", params(&[n])).await.unwrap();
        let mut session = pool.acquire_session().await.unwrap();
        session.update("CREATE TEMP TABLE mine (n INTEGER)").await.unwrap();
        drop(session);
        let left = pool.query("SELECT count(*) FROM sqlite_temp_master").await.unwrap();
        assert_eq!(number(&left), 0);
    }
    assert_eq!(pool.status().sessions, 1);
    // Nothing is known to restore an attached database, so this session is closed. The server keeps it.
    pool.acquire_session().await.unwrap().update("ATTACH ':memory:' AS other").await.unwrap();
    pool.query("SELECT 1").await.unwrap();
    assert_eq!(pool.status().sessions, 2);
}

#[tokio::test]
async fn settings_are_restored_by_their_names() {
    let server = server().await;
    let config = PoolConfig { reset_setting_sql: Some("PRAGMA {name} = -2000".to_owned()), ..pool_config() };
    let pool = AsyncFlightSQLPool::new(&server.url(), config.clone()).await.unwrap();
    for sql in ["PRAGMA cache_size = 7", "CREATE TEMP TABLE mine (n INTEGER); PRAGMA cache_size = 8"] {
        pool.acquire_session().await.unwrap().update(sql).await.unwrap();
        assert_eq!(number(&pool.query("SELECT cache_size FROM pragma_cache_size").await.unwrap()), -2000);
        assert_eq!(number(&pool.query("SELECT count(*) FROM sqlite_temp_master").await.unwrap()), 0);
    }
    assert_eq!(pool.status().sessions, 1);
    // A setting that was refused needs no reset. This one would not have worked.
    let mut session = pool.acquire_session().await.unwrap();
    session.update("SET nothing = 7").await.unwrap_err();
    drop(session);
    pool.query("SELECT 1").await.unwrap();
    assert_eq!(pool.status().sessions, 1);
    // Where that is not known, the session is closed.
    let config = PoolConfig { reset_setting_sql: None, ..config };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await.unwrap();
    pool.acquire_session().await.unwrap().update("PRAGMA cache_size = 7").await.unwrap();
    pool.query("SELECT 1").await.unwrap();
    assert_eq!(pool.status().sessions, 2);
}

#[tokio::test]
async fn a_with_that_writes_is_not_prepared_where_that_would_run_it() {
    let server = server().await;
    let write = "WITH x AS (SELECT ? AS n) INSERT INTO t SELECT n FROM x";
    let options = ConnectOptions::new(&server.url()).unwrap().for_swanlake();
    let mut session = AsyncSession::connect(options).await.unwrap();
    for refused in [
        session.prepare_query(write).await.map(drop),
        session.update_with_record_batch(write, params(&[1])).await.map(drop),
        session.query_with_param(write, params(&[1])).await.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Config { .. }) && error.is_not_executed(), "{error:?}");
        assert!(error.to_string().contains("run it with update"), "{error}");
    }
    assert_eq!(count(&mut session).await, 0);
    // A transaction goes on: nothing was sent.
    let mut transaction = session.begin().await.unwrap();
    transaction.prepare_query(write).await.unwrap_err();
    transaction.update("WITH x AS (SELECT 1 AS n) INSERT INTO t SELECT n FROM x").await.unwrap();
    transaction.query_with_param("WITH x AS (SELECT ?) SELECT * FROM x", params(&[1])).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(count(&mut session).await, 1);
    // Without the option the server stores a row of its own.
    connect(&server).await.prepare_query(write).await.unwrap();
    assert_eq!(count(&mut session).await, 2);
}

#[tokio::test]
async fn statements_that_outlive_the_quarantine_lock_nobody_out_and_are_counted() {
    let server = server().await;
    let config = PoolConfig {
        max_size: 2,
        session_budget: Some(2),
        quarantine_ms: 100,
        acquire_timeout_ms: 20_000,
        ..PoolConfig::default()
    };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await.unwrap();
    let soon = || QueryOptions::new().with_timeout(Duration::from_millis(50));
    for _ in 0..4 {
        pool.query_with_options("SELECT sleep_ms(2000)", soon()).await.unwrap_err();
    }
    let sessions = server.counters().sessions_open - 1;
    let said = pool.status().sessions as u64;
    assert!(said >= sessions, "the server has {sessions}, the pool says {said}");
    for _ in 0..4 {
        pool.query("SELECT 1").await.unwrap();
    }
    // They come back once their statements have ended.
    let recovered = || {
        let status = pool.status();
        let at_rest = status.idle > 0 && status.cleaning + status.closing + status.opening == 0;
        at_rest && server.counters().sessions_open - 1 == status.sessions as u64
    };
    crate::fixture::eventually("all are counted", recovered).await;
    let before = server.counters().sessions_ever;
    let mut held = Vec::new();
    for _ in 0..pool.status().idle {
        held.push(pool.acquire_session().await.unwrap());
    }
    assert_eq!(server.counters().sessions_ever, before, "no further session is opened");
}

#[tokio::test]
async fn sessions_that_the_server_keeps_are_counted_by_default_too() {
    let server = server().await;
    let config = PoolConfig { max_size: 2, session_budget: Some(2), ..PoolConfig::default() };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await.unwrap();
    for _ in 0..3 {
        pool.acquire_session().await.unwrap().update("CREATE TEMP TABLE mine (n INTEGER)").await.unwrap();
    }
    pool.query("SELECT 1").await.unwrap();
    assert!(pool.status().sessions >= 4, "three linger, and nobody is locked out: {:?}", pool.status());
}

#[tokio::test]
async fn an_open_transaction_ends_with_its_session() {
    let server = server().await;
    for close in [true, false] {
        let mut session = connect(&server).await;
        session.begin_transaction().await.unwrap();
        session.update("INSERT INTO t VALUES (1)").await.unwrap();
        match close {
            true => session.close().await.unwrap(),
            false => drop(session),
        }
        // A writer would wait for the transaction, and fail.
        let mut other = connect(&server).await;
        other.update("DELETE FROM t").await.unwrap();
        assert_eq!(count(&mut other).await, 0);
    }
}

#[tokio::test]
async fn a_timeout_behind_another_statement_says_that_nothing_was_sent() {
    let server = server().await;
    let mut session = connect(&server).await;
    server.faults().hang_next(1);
    let soon = || QueryOptions::new().with_timeout(Duration::from_millis(50));
    session.query_with_options("SELECT 1", soon()).await.unwrap_err();
    let error = session.update_with_options("INSERT INTO t VALUES (1)", soon()).await.unwrap_err();
    assert!(matches!(error, Error::QueryTimeout { phase: Phase::Wait, .. }), "{error:?}");
    assert!(error.is_not_executed() && error.to_string().contains("nothing was sent"), "{error}");
}
