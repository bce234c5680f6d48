//! The server goes away and comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use flight_local::Config;
use forebay_flight::{AsyncFlightSQLPool, AsyncSession, Error, FlightSQLPool, PoolConfig};

use crate::fixture::{
    blocking_server, eventually, integers, numbers, pause, pool, server, server_with, small, warm_pool,
};

const DOWN: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_lost_session_stays_lost() {
    let server = server().await;
    let mut session = AsyncSession::connect(server.url().as_str()).await.unwrap();
    session.update("CREATE TEMP TABLE t (a INTEGER)").await.unwrap();
    server.reboot(Duration::ZERO).await.unwrap();
    for _ in 0..3 {
        let error = session.query("SELECT * FROM t").await.unwrap_err();
        assert!(matches!(error, Error::SessionLost { .. }), "{error}");
    }
    assert!(!session.is_connected());
    assert_eq!(server.counters().sessions_open, 0, "no new session in its place");
}

#[tokio::test]
async fn a_commit_on_a_lost_connection_has_an_unknown_outcome() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    let mut session = pool.acquire_session().await.unwrap();
    session.begin_transaction().await.unwrap();
    session.update("INSERT INTO t VALUES (1)").await.unwrap();
    server.reboot(Duration::ZERO).await.unwrap();
    assert!(matches!(session.commit().await, Err(Error::SessionLost { .. })));
    drop(session);
    assert!(pool.query("SELECT 1").await.is_ok());
}

#[tokio::test]
async fn idle_connections_that_die_are_replaced_before_they_are_used() {
    let server = server().await;
    let pool = pool(&server, 4).await;
    let held = (pool.acquire_session().await.unwrap(), pool.acquire_session().await.unwrap());
    drop(held);
    server.reboot(Duration::ZERO).await.unwrap();
    // An update is never repeated, so it would fail on a dead connection that had been sent to.
    eventually("the dead are gone", || pool.status().idle <= 1).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reboot_under_load_repeats_no_insert_and_ends_in_full_service() {
    let server = server().await;
    let config = PoolConfig { acquire_timeout_ms: 10_000, ..small(8) };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await.unwrap();
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let callers: Vec<_> = (0..16)
        .map(|_| {
            let (pool, stop, next) = (pool.clone(), Arc::clone(&stop), Arc::clone(&next));
            #[allow(clippy::disallowed_methods, reason = "tasks beside each other are what is tried")]
            tokio::spawn(async move {
                let (mut done, mut uncertain) = (Vec::new(), Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    match pool.update(&format!("INSERT INTO t VALUES ({id})")).await {
                        Ok(_) => done.push(id),
                        Err(Error::Transport { may_have_run: true, .. }) => uncertain.push(id),
                        Err(error) => panic!("not what a lost connection gives: {error}"),
                    }
                    match pool.query("SELECT count(*) FROM t").await {
                        Ok(_) | Err(Error::Transport { .. }) => {}
                        Err(error) => panic!("not what a lost connection gives: {error}"),
                    }
                }
                (done, uncertain)
            })
        })
        .collect();
    pause(Duration::from_millis(200)).await;
    server.reboot(DOWN).await.unwrap();
    let sessions = server.counters().sessions_ever;
    eventually("every connection is back", || pool.status().in_use == 8).await;
    pause(Duration::from_millis(200)).await;
    assert!(server.counters().sessions_ever > sessions);
    stop.store(true, Ordering::Relaxed);
    let (mut done, mut uncertain) = (Vec::new(), Vec::new());
    for caller in callers {
        let (more, doubts) = caller.await.unwrap();
        done.extend(more);
        uncertain.extend(doubts);
    }
    let mut stored = integers(&pool.query("SELECT a FROM t ORDER BY a").await.unwrap());
    let rows = stored.len();
    stored.dedup();
    assert_eq!(stored.len(), rows, "an insert was run twice");
    assert!(done.iter().all(|id| stored.binary_search(&i64::try_from(*id).unwrap()).is_ok()));
    assert!(uncertain.len() <= 16, "{} callers in doubt", uncertain.len());
}

#[test]
fn threads_wait_out_a_reboot() {
    let server = blocking_server(Config::default());
    let pool = FlightSQLPool::new(&server.url(), small(4)).unwrap();
    std::thread::scope(|scope| {
        let reboot = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(server.reboot(DOWN)).unwrap();
        });
        let callers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..50)
                        .filter(|_| pool.query("SELECT 7").is_ok_and(|result| integers(&result) == [7]))
                        .count()
                })
            })
            .collect();
        let good: usize = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
        assert!(good >= 190, "only {good} of 200 succeeded");
        reboot.join().unwrap();
    });
    assert_eq!(integers(&pool.query("SELECT 7").unwrap()), [7]);
}

#[tokio::test]
async fn a_server_that_refuses_connections_is_waited_for() {
    let server = server_with(Config::default()).await;
    let config = PoolConfig { acquire_timeout_ms: 300, ..small(2) };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await.unwrap();
    server.faults().refuse_connections(true);
    server.reboot(Duration::ZERO).await.unwrap();
    let error = pool.update("CREATE TABLE t (a INTEGER)").await.unwrap_err();
    assert!(matches!(error, Error::PoolTimeout { .. } | Error::Transport { .. }), "{error}");
    server.faults().refuse_connections(false);
    eventually("there is a connection again", || pool.status().idle > 0).await;
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
}

#[tokio::test]
async fn a_read_with_parameters_is_retried_and_a_write_is_not() {
    let server = server().await;
    // One for each connection that is cut.
    let pool = warm_pool(&server, 4).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    server.faults().reset_after_next(1);
    assert_eq!(integers(&pool.query_with_param("SELECT ?", numbers([7])).await.unwrap()), [7]);
    server.faults().reset_after_next(1);
    let insert = "INSERT INTO t VALUES (?)";
    let error = pool.update_with_record_batch(insert, numbers([1])).await.unwrap_err();
    assert!(matches!(error, Error::Transport { may_have_run: true, .. }), "{error}");
    server.faults().reset_after_next(1);
    let returning = "INSERT INTO t VALUES (?) RETURNING a";
    assert!(pool.query_with_param(returning, numbers([2])).await.is_err());
    assert_eq!(integers(&pool.query("SELECT a FROM t ORDER BY a").await.unwrap()), [1, 2]);
}
