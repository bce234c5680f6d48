//! Results larger than memory, spread over endpoints, read by slow readers; and batches the other way.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use flight_local::{Actions, Config, Support};
use forebay_flight::{AsyncSession, Error, FlightSQLPool, Ingest, QueryOptions};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};

use crate::fixture::{
    blocking_server, eventually, integers, numbers, pause, pool, server, server_with, small,
};

#[tokio::test]
async fn a_stream_gives_its_connection_back_at_its_end() {
    let server = server_with(Config { max_batch_rows: 10, ..Config::default() }).await;
    let pool = pool(&server, 1).await;
    let mut stream = pool.query_stream("SELECT value FROM generate_series(1, 95)").await.unwrap();
    let (mut batches, mut rows) = (0, 0);
    while let Some(batch) = stream.next_batch().await {
        batches += 1;
        rows += batch.unwrap().num_rows();
    }
    assert_eq!((batches, rows), (10, 95));
    assert_eq!(pool.status().in_use, 0, "though the stream is still there");
    assert!(stream.next_batch().await.is_none());
    // The same with the methods of `StreamExt` and `TryStreamExt`, which nothing hides.
    let mut stream = pool.query_stream("SELECT value FROM generate_series(1, 95)").await.unwrap();
    let first: Option<Result<RecordBatch, Error>> = stream.next().await;
    let rest: Vec<RecordBatch> = stream.try_collect().await.unwrap();
    assert_eq!((first.unwrap().unwrap().num_rows(), rest.len()), (10, 9));
    let stream = pool.query_stream("SELECT value FROM generate_series(1, 95)").await.unwrap();
    assert_eq!(stream.read_all().await.unwrap().row_count(), 95);
}

#[tokio::test]
async fn endpoints_are_read_in_order_at_all_locations() {
    for further_listeners in [0, 2] {
        let config =
            Config { endpoints_per_result: 3, further_listeners, max_batch_rows: 7, ..Config::default() };
        let server = server_with(config).await;
        let pool = pool(&server, 1).await;
        let result = pool.query("SELECT value FROM generate_series(1, 100)").await.unwrap();
        assert_eq!(
            integers(&result),
            (1..=100).collect::<Vec<_>>(),
            "with {further_listeners} more listeners"
        );
        let result = pool.query("SELECT value FROM generate_series(1, 0)").await.unwrap();
        assert_eq!((result.row_count(), result.schema().fields().len()), (0, 1));
    }
}

#[tokio::test]
async fn a_slow_reader_holds_the_server_back() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    let mut stream = pool.query_stream("SELECT * FROM prebuilt(rows => 100000000)").await.unwrap();
    for read in 1..=5 {
        stream.next_batch().await.unwrap().unwrap();
        pause(Duration::from_millis(100)).await;
        let ahead = server.counters().batches_sent - read;
        assert!(ahead <= 8, "{ahead} batches ahead of the reader");
    }
}

#[tokio::test]
async fn ingest_creates_appends_and_reports_progress() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    let told = Arc::new(AtomicU64::new(0));
    let ingest = Ingest::into_table("t").create().on_progress({
        let told = Arc::clone(&told);
        move |progress| told.store(progress.rows, Ordering::Relaxed)
    });
    let batches = (0..10).map(|batch| Ok::<_, Infallible>(numbers(batch * 100..batch * 100 + 100)));
    let loaded = pool.ingest(ingest, stream::iter(batches)).await.unwrap();
    assert_eq!(loaded.rows_affected(), Some(1000));
    assert_eq!(told.load(Ordering::Relaxed), 1000);
    let more = stream::iter([Ok::<_, Infallible>(numbers([7]))]);
    pool.ingest(Ingest::into_table("t"), more).await.unwrap();
    assert_eq!(integers(&pool.query("SELECT count(*) FROM t").await.unwrap()), [1001]);
    let again = stream::iter([Ok::<_, Infallible>(numbers([7]))]);
    let error = pool.ingest(Ingest::into_table("t").create(), again).await.unwrap_err();
    assert!(matches!(error, Error::Server { .. }), "{error}");
    let replace = stream::iter([Ok::<_, Infallible>(numbers([1, 2]))]);
    pool.ingest(Ingest::into_table("t").create_or_replace(), replace).await.unwrap();
    assert_eq!(integers(&pool.query("SELECT count(*) FROM t").await.unwrap()), [2]);
    assert_eq!(server.counters().sessions_ever, 1);
}

#[tokio::test]
async fn an_ingest_that_fails_on_this_side_is_not_stored_as_complete() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    let broken = || -> Vec<Result<_, std::io::Error>> {
        vec![Ok(numbers(0..10)), Err(std::io::Error::other("the disk is gone"))]
    };
    let error = pool.ingest(Ingest::into_table("t"), stream::iter(broken())).await.unwrap_err();
    assert!(matches!(&error, Error::Input { message } if message.contains("the disk is gone")), "{error}");
    // In a transaction nothing of it is left.
    let mut session = pool.acquire_session().await.unwrap();
    session.update("DELETE FROM t").await.unwrap();
    let mut transaction = session.begin().await.unwrap();
    assert!(transaction.ingest(Ingest::into_table("t"), stream::iter(broken())).await.is_err());
    drop(transaction);
    assert_eq!(integers(&session.query("SELECT count(*) FROM t").await.unwrap()), [0]);
}

#[tokio::test]
async fn an_ingest_keeps_its_deadline_and_can_be_dropped() {
    let server = server().await;
    let mut session = AsyncSession::connect(server.url().as_str()).await.unwrap();
    session.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    let never = || stream::iter([Ok::<_, Infallible>(numbers([1]))]).chain(stream::pending());
    let options = QueryOptions::new().with_timeout_ms(100);
    let error = session.ingest(Ingest::into_table("t").options(options), never()).await.unwrap_err();
    assert!(matches!(error, Error::QueryTimeout { .. }), "{error}");
    let runtime = forebay::rt::TokioRuntime::current().unwrap();
    let dropped = session.ingest(Ingest::into_table("t"), never());
    assert!(forebay::rt::within(&runtime, Duration::from_millis(100), dropped).await.is_none());
    assert_eq!(integers(&session.query("SELECT 7").await.unwrap()), [7]);
    eventually("nothing runs", || server.counters().statements_running == 0).await;
}

#[test]
fn a_thread_loads_from_an_iterator() {
    let server = blocking_server(Config::default());
    let pool = FlightSQLPool::new(&server.url(), small(1)).unwrap();
    let batches = (0..100).map(|batch| Ok::<_, Infallible>(numbers(batch * 10..batch * 10 + 10)));
    let loaded = pool.ingest(Ingest::into_table("t").create(), batches).unwrap();
    assert_eq!(loaded.rows_affected(), Some(1000));
    let mut session = pool.acquire_session().unwrap();
    let broken = [Ok(numbers([1])), Err("no more")];
    let error = session.ingest(Ingest::into_table("t"), broken).unwrap_err();
    assert!(matches!(error, Error::Input { .. }), "{error}");
    assert_eq!(integers(&session.query("SELECT 7").unwrap()), [7]);
}

/// It is a stream like any other.
#[tokio::test]
async fn a_result_can_be_combined_with_other_streams() {
    fn rows(
        stream: impl Stream<Item = forebay_flight::Result<arrow_array::RecordBatch>>,
    ) -> impl Future<Output = usize> {
        stream.fold(0, async |rows, batch| rows + batch.unwrap().num_rows())
    }
    let server = server().await;
    let pool = pool(&server, 2).await;
    let one = pool.query_stream("SELECT 1").await.unwrap();
    let two = pool.query_stream("SELECT 2").await.unwrap();
    assert_eq!(rows(one.chain(two)).await, 2);
}

#[tokio::test]
async fn a_long_query_reports_its_progress() {
    let long = "SELECT count(sleep_ms(1)) FROM generate_series(1, 400)";
    for support in [Support::Known, Support::Unknown] {
        let actions = Actions { poll_flight_info: support, ..Actions::default() };
        let server = server_with(Config { actions, ..Config::default() }).await;
        let pool = pool(&server, 1).await;
        for _ in 0..2 {
            let options =
                QueryOptions::new().with_progress(|done| assert!((0.0..=1.0).contains(&done), "{done}"));
            assert_eq!(integers(&pool.query_with_options(long, options).await.unwrap()), [400]);
        }
        let polls = server.counters().poll_flight_info;
        match support {
            Support::Known => assert!(polls > 2, "{polls} polls"),
            _ => assert_eq!(polls, 1, "tried once and remembered"),
        }
    }
}

#[tokio::test]
async fn a_polled_query_is_cancelled_like_any_other() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    let options = QueryOptions::new().with_progress(drop).with_timeout_ms(300);
    let error = pool.query_with_options("SELECT sleep_ms(60000)", options).await.unwrap_err();
    assert!(matches!(error, Error::QueryTimeout { .. }), "{error}");
    eventually("it has stopped", || server.counters().statements_running == 0).await;
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
}

#[tokio::test]
async fn a_failed_statement_is_not_sent_again_without_progress() {
    let server = server_with(Config { log_statements: true, ..Config::default() }).await;
    let pool = pool(&server, 1).await;
    pool.update("CREATE TABLE t (id INTEGER PRIMARY KEY)").await.unwrap();
    pool.update("INSERT INTO t VALUES (1)").await.unwrap();
    let insert = "INSERT INTO t VALUES (1) RETURNING id";
    let options = QueryOptions::new().with_progress(drop);
    pool.query_with_options(insert, options.clone()).await.unwrap_err();
    let sent = server.statements().iter().filter(|sql| sql.contains("RETURNING")).count();
    assert_eq!(sent, 1);
    pool.query_with_options("SELECT 1", options).await.unwrap();
    assert!(server.counters().poll_flight_info > 1, "a failure says nothing about polling");
}
