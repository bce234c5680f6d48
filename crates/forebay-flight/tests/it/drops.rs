//! Futures that are dropped at any await: nothing is lost on either side.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use flight_local::{Config, FlightLocal};
use forebay::Seed;
use forebay_flight::{
    AsyncFlightSQLPool, AsyncSession, CancelHandle, ConnectOptions, FlightSQLPool, Ingest, OptionValue,
    PoolConfig, QueryOptions, TableFilter,
};
use futures_util::stream;

use crate::fixture::{blocking_server, eventually, integers, numbers, pool, server, server_with, small};

/// Polls `future` at most `polls` times, then drops it. Returns its output if it ended.
pub(crate) async fn dropped_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = Some(Box::pin(future));
    let mut polled = 0;
    poll_fn(move |context| {
        if let Some(running) = &mut future {
            if polled < polls {
                polled += 1;
                if let Poll::Ready(output) = running.as_mut().poll(context) {
                    return Poll::Ready(Some(output));
                }
            }
            if polled == polls {
                future = None;
            }
        }
        if future.is_none() { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// Drops a future at each of its awaits, in turn, until it ends.
async fn at_each_await<T, F: Future<Output = T>>(mut make: impl FnMut() -> F) -> T {
    for polls in 0..500 {
        if let Some(output) = dropped_after(polls, make()).await {
            return output;
        }
    }
    panic!("it did not end");
}

/// The pool is whole again: nothing is in use or closing, and all connections can be acquired.
async fn whole(pool: &AsyncFlightSQLPool, server: &FlightLocal) {
    eventually("nothing is held", || {
        let status = pool.status();
        status.in_use + status.cleaning + status.closing + status.waiting == 0
    })
    .await;
    let mut held = Vec::new();
    for _ in 0..pool.config().max_size {
        held.push(pool.acquire_session().await.unwrap());
    }
    drop(held);
    eventually("nothing runs on the server", || server.counters().statements_running == 0).await;
    // One that came back from quarantine may be kept beside the others, within the budget.
    let (status, counters) = (pool.status(), server.counters());
    assert!(status.sessions <= 2 * status.max_size, "{status:?}");
    assert!(counters.sessions_open <= status.sessions as u64, "{counters:?} for {status:?}");
}

#[tokio::test]
async fn a_pools_statements_can_be_dropped_at_each_await() {
    let server = server().await;
    let pool = pool(&server, 2).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    at_each_await(|| pool.query("SELECT a FROM t")).await.unwrap();
    at_each_await(|| pool.execute("INSERT INTO t VALUES (1) RETURNING a")).await.unwrap();
    at_each_await(|| pool.update("INSERT INTO t VALUES (2)")).await.unwrap();
    at_each_await(|| pool.query_with_param("SELECT a FROM t WHERE a = ?", numbers([1]))).await.unwrap();
    at_each_await(|| pool.update_with_record_batch("INSERT INTO t VALUES (?)", numbers([1]))).await.unwrap();
    at_each_await(|| pool.ingest(Ingest::into_table("t"), stream::iter([Ok::<_, Infallible>(numbers([3]))])))
        .await
        .unwrap();
    at_each_await(async || {
        let mut stream = pool.query_stream("SELECT a FROM t").await.unwrap();
        while let Some(batch) = stream.next_batch().await {
            batch.unwrap();
        }
    })
    .await;
    at_each_await(|| pool.acquire_session()).await.unwrap();
    whole(&pool, &server).await;
    assert!(integers(&pool.query("SELECT count(*) FROM t").await.unwrap())[0] > 0);
}

#[tokio::test]
async fn a_sessions_methods_can_be_dropped_at_each_await() {
    let server = server().await;
    let pool = pool(&server, 2).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    for polls in 0..40 {
        let mut session = pool.acquire_session().await.unwrap();
        let rows = dropped_after(polls, async {
            let mut transaction = session.begin().await.unwrap();
            transaction.update("INSERT INTO t VALUES (1)").await.unwrap();
            let mut prepared = transaction.prepare_query("SELECT a FROM t WHERE a = ?").await.unwrap();
            let rows = prepared.query_with_param(numbers([1])).await.unwrap().row_count();
            transaction.rollback().await.unwrap();
            rows
        });
        if let Some(rows) = rows.await {
            assert_eq!(rows, 1);
        }
        if polls % 2 == 0 && session.is_connected() {
            // What was dropped is cleared up before the next statement. One that cannot be is lost, and says
            // so.
            if let Ok(result) = session.query("SELECT count(*) FROM t").await {
                assert_eq!(integers(&result), [0], "after {polls} polls");
            }
        }
        drop(session);
        assert_eq!(
            integers(&pool.query("SELECT count(*) FROM t").await.unwrap()),
            [0],
            "after {polls} polls"
        );
    }
    for polls in 0..30 {
        let mut session = pool.acquire_session().await.unwrap();
        dropped_after(polls, async {
            let options = QueryOptions::new().with_params(numbers([1]));
            let mut select = session.prepare_query("SELECT a FROM t WHERE a = ?").await.unwrap();
            select.query_with_options(options.clone()).await.unwrap();
            select.set_parameters(numbers([2])).await.unwrap();
            select.query().await.unwrap();
            select.query_stream(options.clone()).await.unwrap().read_all().await.unwrap();
            let mut update = session.prepare_query("DELETE FROM t WHERE a = ?").await.unwrap();
            update.update_with_options(options).await.unwrap();
        })
        .await;
    }
    for polls in 0..40 {
        let mut session = pool.acquire_session().await.unwrap();
        dropped_after(polls, async {
            session.action("GetSessionOptions", "", QueryOptions::new()).await.unwrap();
            session.exported_keys("t").await.unwrap();
            session.imported_keys("t").await.unwrap();
            session.cross_reference("t", "t").await.unwrap();
            session.type_info(None).await.unwrap();
            session.primary_keys("t").await.unwrap();
            session.tables(TableFilter::default()).await.unwrap();
            session.schemas(None, None).await.unwrap();
            session.catalogs().await.unwrap();
            session.table_types().await.unwrap();
            session.sql_info(&[]).await.unwrap();
            session.options().await.unwrap();
        })
        .await;
    }
    for polls in 0..12 {
        let mut session = pool.acquire_session().await.unwrap();
        dropped_after(polls, async {
            session.set_options([("query_only".to_owned(), OptionValue::Bool(true))]).await.unwrap();
            session.ping().await.unwrap();
        })
        .await;
    }
    pool.update("INSERT INTO t VALUES (1)").await.unwrap();
    whole(&pool, &server).await;
}

#[tokio::test]
async fn a_commit_that_is_dropped_leaves_all_or_nothing() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    for polls in 0..12 {
        let mut session = pool.acquire_session().await.unwrap();
        session.begin_transaction().await.unwrap();
        session.update("INSERT INTO t VALUES (1)").await.unwrap();
        session.update("INSERT INTO t VALUES (2)").await.unwrap();
        dropped_after(polls, session.commit()).await;
        drop(session);
        let rows = integers(&pool.query("SELECT count(*) FROM t").await.unwrap())[0];
        assert!(rows % 2 == 0, "half a transaction after {polls} polls: {rows} rows");
    }
    whole(&pool, &server).await;
}

#[tokio::test]
async fn connecting_and_draining_can_be_dropped_at_each_await() {
    let server = server().await;
    at_each_await(|| AsyncSession::connect(ConnectOptions::new(&server.url()).unwrap())).await.unwrap();
    let url = server.url();
    at_each_await(|| AsyncFlightSQLPool::new(&url, small(2))).await.unwrap();
    at_each_await(async || AsyncSession::connect(url.as_str()).await?.close().await).await.unwrap();
    eventually("no connection is left", || server.counters().connections_open == 0).await;
    let pool = AsyncFlightSQLPool::new(&url, small(2)).await.unwrap();
    dropped_after(1, pool.drain(Duration::from_secs(5))).await;
    assert!(pool.drain(Duration::from_secs(5)).await);
    assert!(matches!(pool.query("SELECT 1").await, Err(forebay_flight::Error::Closed)));
    eventually("no connection is left", || server.counters().connections_open == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_futures_dropped_at_random_points() {
    let server = server_with(Config { session_limit: 20, ..Config::default() }).await;
    let pool = pool(&server, 8).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    let workers = (0..10).map(|worker: u64| {
        let pool = pool.clone();
        #[allow(clippy::disallowed_methods, reason = "tasks beside each other are what is tried")]
        tokio::spawn(async move {
            let mut rng = Seed::new(worker).fork("drops").rng();
            for _ in 0..1_000 {
                let polls = usize::try_from(rng.below(8)).unwrap();
                match rng.below(4) {
                    0 => drop(dropped_after(polls, pool.update("INSERT INTO t VALUES (1)")).await),
                    1 => drop(
                        dropped_after(polls, pool.query_stream("SELECT * FROM prebuilt(rows => 1000000)"))
                            .await,
                    ),
                    2 => drop(dropped_after(polls, pool.acquire_session()).await),
                    _ => drop(dropped_after(polls, pool.query("SELECT 1")).await),
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    whole(&pool, &server).await;
    assert!(pool.drain(Duration::from_secs(10)).await);
    eventually("nothing is left on the server", || {
        server.counters().sessions_open == 0 && server.counters().connections_open == 0
    })
    .await;
}

#[test]
fn ten_thousand_calls_of_threads_given_up_at_random_points() {
    let server = blocking_server(Config { session_limit: 20, ..Config::default() });
    let config = PoolConfig { max_size: 8, ..PoolConfig::default() };
    let pool = FlightSQLPool::new(&server.url(), config).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..10 {
            let pool = &pool;
            scope.spawn(move || {
                let mut rng = Seed::new(thread).fork("drops").rng();
                for _ in 0..1_000 {
                    let timeout = rng.up_to(Duration::from_millis(3));
                    let mut options = QueryOptions::new().with_timeout(timeout);
                    if rng.below(2) == 0 {
                        let cancel = CancelHandle::new();
                        cancel.cancel();
                        options = options.with_cancel(cancel);
                    }
                    match rng.below(3) {
                        0 => {
                            drop(pool.query_stream_with_options(
                                "SELECT * FROM prebuilt(rows => 1000000)",
                                options,
                            ))
                        }
                        _ => drop(pool.query_with_options("SELECT 1", options)),
                    }
                }
            });
        }
    });
    let held: Vec<_> = (0..8).map(|_| pool.acquire_session().unwrap()).collect();
    assert_eq!(pool.status().in_use, 8);
    drop(held);
    assert_eq!(integers(&pool.query("SELECT 7").unwrap()), [7]);
    assert!(server.counters().sessions_open <= 16, "{:?}", server.counters());
    assert!(pool.drain(Duration::from_secs(10)));
    drop(pool);
    while server.counters().sessions_open > 0 {
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_dropped_wait_wakes_the_next_waiter() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    let held = pool.acquire_session().await.unwrap();
    let mut first = Box::pin(pool.acquire_session());
    let mut second = pin!(pool.acquire_session());
    poll_fn(|context| {
        assert!(first.as_mut().poll(context).is_pending());
        assert!(second.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    drop(held);
    drop(first);
    assert!(second.await.is_ok());
}
