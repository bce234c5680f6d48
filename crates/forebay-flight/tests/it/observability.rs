//! Metrics, status, spans, idle connections, draining.

use std::time::Duration;

use forebay_flight::{AsyncFlightSQLPool, Error, PoolConfig, metrics};
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::fixture::{eventually, pool, server, small};
use crate::spans;

#[test]
fn metrics_have_the_specified_names_and_the_endpoint() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    ::metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let server = server().await;
            let config = PoolConfig { acquire_timeout_ms: 50, ..small(2) };
            let pool = AsyncFlightSQLPool::new(&server.url(), config).await.unwrap();
            for _ in 0..10 {
                pool.query("SELECT 1").await.unwrap();
            }
            let held = (pool.acquire_session().await.unwrap(), pool.acquire_session().await.unwrap());
            assert!(matches!(pool.query("SELECT 1").await, Err(Error::PoolTimeout { .. })));
            let label = format!("{{endpoint=\"{}\"}}", server.url());
            let shown = |line: &str| handle.render().contains(&line.replace("{}", &label));
            eventually("the gauges follow", || shown("pool_conn_in_use{} 2")).await;
            drop(held);
            assert!(pool.drain(Duration::from_secs(5)).await);
            for line in [
                "pool_acquire_timeout{} 1",
                "pool_conn_created{} 2",
                "pool_conn_dropped{} 2",
                "pool_conn_in_use{} 0",
                "pool_conn_idle{} 0",
                "pool_acquire_wait_ms_count{} 12",
            ] {
                assert!(shown(line), "no {line} in:\n{}", handle.render());
            }
        });
    });
}

#[test]
fn the_manual_lists_every_metric() {
    let manual = include_str!("../../../../docs/flight.md");
    let table = metrics::manual();
    assert!(manual.contains(&table), "docs/flight.md is out of date; its table should be:\n{table}");
}

#[test]
fn the_histogram_has_buckets() {
    assert!(forebay::metrics::BUCKETS.iter().any(|(name, _)| *name == metrics::ACQUIRE_WAIT));
}

#[tokio::test]
async fn status_counts_connections_and_waiters() {
    let server = server().await;
    let pool = pool(&server, 2).await;
    let session = pool.acquire_session().await.unwrap();
    eventually("one more is kept ready", || pool.status().idle == 1).await;
    let status = pool.status();
    assert_eq!((status.in_use, status.max_size, status.sessions, status.is_closed), (1, 2, 2, false));
    assert!(session.is_connected());
    pool.query("SELECT 1").await.unwrap();
    assert!(!pool.drain(Duration::ZERO).await, "one is still held");
    drop(session);
    assert!(pool.drain(Duration::from_secs(5)).await);
    let status = pool.status();
    assert_eq!((status.idle, status.in_use, status.sessions, status.is_closed), (0, 0, 0, true));
    eventually("no connection is left", || server.counters().connections_open == 0).await;
    let counters = server.counters();
    assert_eq!(
        (counters.sessions_ever, counters.close_session),
        (2, 2),
        "each had a session from the start, and is closed by name"
    );
}

#[tokio::test]
async fn idle_connections_are_closed_down_to_min_idle() {
    let server = server().await;
    let config = PoolConfig { idle_ttl_ms: 100, ..small(4) };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(pool.acquire_session().await.unwrap());
    }
    assert_eq!(pool.status().in_use, 4);
    drop(held);
    eventually("one is left", || pool.status().idle == 1 && server.counters().connections_open == 1).await;
}

#[tokio::test]
async fn a_dropped_pool_closes_its_connections() {
    let server = server().await;
    let pool = pool(&server, 2).await;
    let session = pool.acquire_session().await.unwrap();
    drop(pool);
    assert!(session.is_connected(), "what is held stays");
    drop(session);
    eventually("no connection is left", || server.counters().connections_open == 0).await;
}

#[tokio::test]
async fn acquire_query_and_release_have_spans() {
    let server = server().await;
    spans::watch(server.url());
    let pool = pool(&server, 1).await;
    pool.query("SELECT 1").await.unwrap();
    drop(pool.acquire_session().await.unwrap());
    assert_eq!(spans::seen(&server.url()), ["acquire", "query", "release", "acquire", "release"]);
}
