//! Servers that have no session left.

use std::time::Duration;

use flight_local::Config;
use forebay_flight::{
    AsyncFlightSQLPool, AsyncSession, Code, ConnectOptions, Error, PoolConfig, QueryOptions,
};
use futures_util::future::join_all;

use crate::fixture::{eventually, integers, server_with, small};

/// Somebody else's session.
async fn other(url: &str) -> AsyncSession {
    let mut session = AsyncSession::connect(url).await.unwrap();
    session.ping().await.unwrap();
    session
}

#[tokio::test]
async fn a_connection_without_a_session_is_not_lent() {
    let server = server_with(Config { session_limit: 2, ..Config::default() }).await;
    let url = server.url();
    let other = other(&url).await;
    let pool = AsyncFlightSQLPool::new(&url, small(4)).await.unwrap();
    let queries = (0..50).map(|_| pool.query("SELECT 7"));
    for result in join_all(queries).await {
        assert_eq!(integers(&result.unwrap()), [7], "on the only session there is");
    }
    assert!(server.counters().refused > 0, "it has asked for more");
    other.close().await.unwrap();
    let held = pool.acquire_session().await.unwrap();
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7], "on the session that was freed");
    drop(held);
}

#[tokio::test]
async fn a_caller_that_waits_for_a_session_gets_the_reason() {
    let server = server_with(Config { session_limit: 1, ..Config::default() }).await;
    let url = server.url();
    let other = other(&url).await;
    let error = AsyncFlightSQLPool::new(&url, small(2)).await.unwrap_err();
    assert!(matches!(error, Error::Server { code: Code::ResourceExhausted, .. }), "{error}");
    let config = PoolConfig { min_idle: 0, acquire_timeout_ms: 500, ..small(2) };
    let pool = AsyncFlightSQLPool::new(&url, config).await.unwrap();
    let error = pool.query("SELECT 7").await.unwrap_err();
    assert!(matches!(error, Error::PoolTimeout { cause: Some(_), .. }), "{error}");
    let told = error.to_string();
    assert!(told.contains("too_many_connections") && told.contains("RESOURCE_EXHAUSTED"), "{told}");
    assert!(server.counters().refused < 10, "it holds back: {:?}", server.counters());
    eventually("no connection is left over", || server.counters().connections_open == 1).await;
    other.close().await.unwrap();
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
}

#[tokio::test]
async fn a_session_that_never_answered_counts_for_as_long_as_the_server_may_have_it() {
    let server = server_with(Config::like_swanlake()).await;
    server.faults().hang_next(1);
    let options = ConnectOptions::new(&server.url()).unwrap().connect_timeout(Duration::from_millis(500));
    let config =
        PoolConfig { min_idle: 0, session_budget: Some(2), session_linger_ms: 15 * 60_000, ..small(1) };
    let pool = AsyncFlightSQLPool::with_options(options, config).await.unwrap();
    let patient = QueryOptions::new().with_timeout_ms(20_000);
    let result = pool.query_with_options("SELECT 7", patient).await.unwrap();
    assert_eq!(integers(&result), [7], "on the second connection");
    assert_eq!((pool.status().sessions, server.counters().sessions_ever), (2, 2));
    assert!(pool.drain(Duration::from_secs(5)).await, "it is not waited for at the end");
    eventually("it is not counted any more", || pool.status().sessions == 0).await;
}
