//! Threads with a small stack.

use flight_local::Config;
use forebay_flight::{AsyncFlightSQLPool, FlightSQLPool, PoolConfig};

use crate::fixture::{blocking_server, integers, numbers, small};

/// Runs it with a stack of one mebibyte, half of a thread's default.
#[allow(clippy::disallowed_methods, reason = "threads are what is tried")]
fn narrowly(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(1 << 20).spawn(work).unwrap().join().unwrap();
}

#[test]
fn a_pool_needs_little_stack() {
    let server = blocking_server(Config::default());
    let url = server.url();
    narrowly(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let pool = AsyncFlightSQLPool::new(&url, small(2)).await.unwrap();
            pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
            pool.update_with_record_batch("INSERT INTO t VALUES (?)", numbers([1, 2])).await.unwrap();
            let found = pool.query_with_param("SELECT a FROM t WHERE a > ?", numbers([1])).await.unwrap();
            assert_eq!(integers(&found), [2]);
            let mut session = pool.acquire_session().await.unwrap();
            let mut transaction = session.begin().await.unwrap();
            transaction.update("CREATE TEMP TABLE u (a INTEGER)").await.unwrap();
            drop(transaction);
            drop(session);
            assert_eq!(integers(&pool.query("SELECT count(*) FROM t").await.unwrap()), [2]);
            assert!(pool.drain(std::time::Duration::from_secs(5)).await);
        });
    });
}

#[test]
fn a_pool_for_threads_needs_little_stack() {
    let server = blocking_server(Config::default());
    let url = server.url();
    narrowly(move || {
        let pool = FlightSQLPool::new(&url, PoolConfig { max_size: 2, ..PoolConfig::default() }).unwrap();
        pool.update("CREATE TABLE t (a INTEGER)").unwrap();
        assert_eq!(integers(&pool.query("SELECT count(*) FROM t").unwrap()), [0]);
        let mut session = pool.acquire_session().unwrap();
        session.update("BEGIN").unwrap();
        drop(session);
        assert!(pool.query("SELECT * FROM t").unwrap().is_empty());
    });
}
