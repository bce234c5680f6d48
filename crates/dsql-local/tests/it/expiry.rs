//! Sessions expire after an hour of the emulator's time.

use std::time::Duration;

use dsql_local::{Config, Limits};

use crate::harness::{code, config, connect, eventually, start};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_session_ends_at_60_minutes_with_a_bare_close() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    cluster.clock().advance(HOUR - SECOND);
    client.simple_query("SELECT 1").await.unwrap();
    cluster.clock().advance(SECOND);
    eventually("the end", || client.is_closed()).await;
    let error = client.simple_query("SELECT 1").await.err().unwrap();
    assert!(error.as_db_error().is_none() && error.is_closed(), "{error:?}");
    eventually("a free place", || cluster.counters().live == 0).await;
    let counters = cluster.counters();
    assert_eq!((counters.expired, counters.longest_live), (1, HOUR));
}

#[tokio::test]
async fn only_expired_sessions_end() {
    let cluster = start(config());
    let old = connect(&cluster).await;
    cluster.clock().advance(HOUR / 2);
    let young = connect(&cluster).await;
    cluster.clock().advance(HOUR / 2);
    eventually("the end", || old.is_closed()).await;
    young.simple_query("SELECT 1").await.unwrap();
    assert_eq!(cluster.counters().live, 1);
}

#[tokio::test]
async fn a_transaction_begun_before_the_end_may_finish() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    client.simple_query("CREATE TABLE t (n int)").await.unwrap();
    client.simple_query("BEGIN").await.unwrap();
    client.simple_query("INSERT INTO t VALUES (1)").await.unwrap();
    // A transaction that began in the last minute may continue for another four.
    cluster.clock().advance(HOUR - SECOND * 60);
    client.simple_query("ROLLBACK").await.unwrap();
    client.simple_query("BEGIN").await.unwrap();
    client.simple_query("INSERT INTO t VALUES (2)").await.unwrap();
    cluster.clock().advance(SECOND * 120);
    client.simple_query("INSERT INTO t VALUES (3)").await.unwrap();
    client.simple_query("COMMIT").await.unwrap();
    eventually("the end", || client.is_closed()).await;
    let other = connect(&cluster).await;
    let rows = other.query("SELECT n FROM t ORDER BY n", &[]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), [2, 3]);
}

#[tokio::test]
async fn but_not_beyond_its_own_limit() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    cluster.clock().advance(HOUR - SECOND);
    client.simple_query("BEGIN").await.unwrap();
    cluster.clock().advance(SECOND * 300);
    eventually("the end", || client.is_closed()).await;
}

#[tokio::test]
async fn a_transaction_older_than_300_s_fails_with_54000() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    for statement in ["SELECT 1", "COMMIT"] {
        client.simple_query("BEGIN").await.unwrap();
        cluster.clock().advance(SECOND * 301);
        let error = client.simple_query(statement).await.err().unwrap();
        let message = error.as_db_error().unwrap().message();
        assert_eq!((code(&error), message), ("54000", "transaction age limit of 300s exceeded"));
        client.simple_query("ROLLBACK").await.unwrap();
    }
}

#[tokio::test]
async fn an_idle_transaction_that_is_too_old_releases_its_locks() {
    let cluster = start(config());
    let idle = connect(&cluster).await;
    idle.simple_query("CREATE TABLE t (n int)").await.unwrap();
    idle.simple_query("BEGIN").await.unwrap();
    idle.simple_query("INSERT INTO t VALUES (1)").await.unwrap();
    cluster.clock().advance(SECOND * 301);
    // There is one writer: this statement would fail if it had to wait for the other transaction.
    connect(&cluster).await.simple_query("INSERT INTO t VALUES (2)").await.unwrap();
    let error = idle.simple_query("INSERT INTO t VALUES (3)").await.err().unwrap();
    assert_eq!(code(&error), "54000");
    idle.simple_query("ROLLBACK").await.unwrap();
    let rows = idle.query("SELECT n FROM t", &[]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), [2]);
}

#[tokio::test]
async fn no_transaction_begins_after_the_end() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    client.simple_query("CREATE TABLE t (n int)").await.unwrap();
    cluster.clock().advance(HOUR - SECOND);
    client.simple_query("BEGIN").await.unwrap();
    client.simple_query("INSERT INTO t VALUES (1)").await.unwrap();
    cluster.clock().advance(SECOND * 2);
    drop(client.simple_query("COMMIT; BEGIN; INSERT INTO t VALUES (2)").await);
    eventually("the end", || client.is_closed()).await;
    let other = connect(&cluster).await;
    assert_eq!(other.query("SELECT n FROM t", &[]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_changed_session_life_applies_to_new_sessions() {
    let cluster = start(config());
    let old = connect(&cluster).await;
    cluster.set_limits(Limits { session_life: SECOND, ..cluster.limits() });
    let young = connect(&cluster).await;
    cluster.clock().advance(SECOND);
    eventually("the end", || young.is_closed()).await;
    old.simple_query("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_fast_clock_expires_sessions_early() {
    let speed = "60000".parse().unwrap();
    let cluster = start(Config { speed, token_clock: dsql_local::TokenClock::Machine, ..config() });
    let client = connect(&cluster).await;
    // An hour takes 60 ms of real time.
    eventually("the end", || client.is_closed()).await;
    assert!(cluster.clock().now() >= HOUR);
}
