//! Statements that are given up stop on the server: its step counter stands still.

use std::time::Duration;

use flight_local::{Actions, Config, FlightLocal, Support};
use forebay::rt::{TokioRuntime, within};
use forebay_flight::{
    AsyncFlightSQLPool, AsyncSession, CancelHandle, Error, FlightSQLPool, Phase, PoolConfig, QueryOptions,
};

use crate::fixture::{
    blocking_server, eventually, eventually_blocking, integers, numbers, pause, pool, server, server_with,
    small,
};

const MINUTE: &str = "SELECT sleep_ms(60000)";
/// A minute of computing, not of sleeping.
const BUSY: &str = "SELECT count(*) FROM generate_series(1, 100000000000)";
const MINUTE_OF_ROWS: &str = "SELECT value, sleep_ms(1) FROM generate_series(1, 1000000)";
const MINUTE_OF_WRITING: &str = "INSERT INTO t SELECT sleep_ms(60000)";
const SHORT: Duration = Duration::from_millis(100);

/// Nothing runs on the server any more, and its steps stand still: long before the minute is over that it was
/// asked for.
async fn stopped(server: &FlightLocal) {
    for _ in 0..20 {
        let before = server.counters();
        pause(SHORT).await;
        let after = server.counters();
        if after.statements_running == 0 && after.steps == before.steps {
            return;
        }
    }
    panic!("the server is still at work: {:?}", server.counters());
}

async fn running(server: &FlightLocal) {
    eventually("it runs", || server.counters().statements_running > 0 && server.counters().steps > 0).await;
}

fn runtime() -> TokioRuntime {
    TokioRuntime::current().unwrap()
}

fn brief() -> QueryOptions {
    QueryOptions::new().with_timeout(SHORT)
}

fn is_timeout(error: &Error) -> bool {
    matches!(error, Error::QueryTimeout { .. })
}

#[tokio::test]
async fn a_timeout_stops_the_server() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    for sql in [MINUTE, BUSY] {
        let error = pool.query_with_options(sql, brief()).await.unwrap_err();
        assert!(is_timeout(&error), "{error}");
        stopped(&server).await;
        assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
    }
    assert_eq!(server.counters().sessions_ever, 1, "the session was kept");
}

#[tokio::test]
async fn a_timeout_stops_an_update_a_parameter_query_and_a_prepared_one() {
    let server = server().await;
    let config = PoolConfig { default_query_timeout_ms: Some(500), ..small(1) };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await.unwrap();
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    assert!(is_timeout(&pool.update(MINUTE_OF_WRITING).await.unwrap_err()));
    stopped(&server).await;
    let params = numbers([60_000]);
    assert!(is_timeout(&pool.query_with_param("SELECT sleep_ms(?)", params.clone()).await.unwrap_err()));
    stopped(&server).await;
    let update = pool.update_with_record_batch("INSERT INTO t SELECT sleep_ms(?)", params.clone());
    assert!(is_timeout(&update.await.unwrap_err()));
    stopped(&server).await;
    let mut session = pool.acquire_session().await.unwrap();
    let mut prepared = session.prepare_query("SELECT sleep_ms(?)").await.unwrap();
    assert!(is_timeout(&prepared.query_with_param(params).await.unwrap_err()));
    stopped(&server).await;
    drop(prepared);
    assert_eq!(integers(&session.query("SELECT count(*) FROM t").await.unwrap()), [0]);
    assert_eq!(server.counters().sessions_ever, 1, "the session was kept");
}

#[tokio::test]
async fn each_call_with_parameters_may_have_its_own_timeout() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    let options = || QueryOptions::new().with_params(numbers([60_000])).with_timeout_ms(100);
    let (select, insert) = ("SELECT sleep_ms(?)", "INSERT INTO t SELECT sleep_ms(?)");
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    assert!(is_timeout(&pool.query_with_options(select, options()).await.unwrap_err()));
    stopped(&server).await;
    assert!(is_timeout(&pool.query_stream_with_options(select, options()).await.unwrap_err()));
    stopped(&server).await;
    assert!(is_timeout(&pool.update_with_options(insert, options()).await.unwrap_err()));
    stopped(&server).await;
    let mut session = pool.acquire_session().await.unwrap();
    assert!(is_timeout(&session.query_with_options(select, options()).await.unwrap_err()));
    stopped(&server).await;
    let mut prepared = session.prepare_query(select).await.unwrap();
    assert!(is_timeout(&prepared.query_with_options(options()).await.unwrap_err()));
    stopped(&server).await;
    let mut prepared = session.prepare_query(insert).await.unwrap();
    assert!(is_timeout(&prepared.update_with_options(options()).await.unwrap_err()));
    stopped(&server).await;
    assert_eq!(integers(&session.query("SELECT count(*) FROM t").await.unwrap()), [0]);
    // The same statement works with another value.
    let short = QueryOptions::new().with_params(numbers([1])).with_timeout_ms(60_000);
    assert_eq!(prepared.update_with_options(short).await.unwrap().rows_affected(), Some(1));
}

#[tokio::test]
async fn a_dropped_future_stops_the_server() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    assert!(within(&runtime(), SHORT, pool.query(MINUTE)).await.is_none());
    stopped(&server).await;
    assert!(within(&runtime(), SHORT, pool.update(MINUTE_OF_WRITING)).await.is_none());
    stopped(&server).await;
    let mut session = AsyncSession::connect(server.url().as_str()).await.unwrap();
    assert!(within(&runtime(), SHORT, session.query(BUSY)).await.is_none());
    stopped(&server).await;
    assert_eq!(integers(&session.query("SELECT 7").await.unwrap()), [7]);
    assert_eq!(integers(&pool.query("SELECT count(*) FROM t").await.unwrap()), [0]);
    assert_eq!(server.counters().sessions_ever, 2, "both sessions were kept");
}

#[tokio::test]
async fn a_dropped_stream_stops_the_server() {
    let server = server_with(Config { max_batch_rows: 10, ..Config::default() }).await;
    let pool = pool(&server, 1).await;
    let mut stream = pool.query_stream(MINUTE_OF_ROWS).await.unwrap();
    assert_eq!(stream.schema().fields().len(), 2);
    assert!(stream.next_batch().await.unwrap().unwrap().num_rows() > 0);
    assert_eq!(pool.status().in_use, 1);
    drop(stream);
    stopped(&server).await;
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
    assert_eq!(server.counters().sessions_ever, 1);
}

#[tokio::test]
async fn a_stream_that_nobody_reads_is_given_up_in_time() {
    let config = Config { max_batch_rows: 10, interrupt_on_drop: false, ..Config::default() };
    let server = server_with(config).await;
    let pool = pool(&server, 1).await;
    for is_cancelled in [false, true] {
        let (cancel, options) = (CancelHandle::new(), QueryOptions::new());
        let options = match is_cancelled {
            true => options.with_cancel(cancel.clone()),
            false => options.with_timeout_ms(2_000),
        };
        let mut stream = pool.query_stream_with_options(MINUTE_OF_ROWS, options).await.unwrap();
        stream.next_batch().await.unwrap().unwrap();
        cancel.cancel();
        eventually("its connection is back", || pool.status().in_use == 0).await;
        stopped(&server).await;
        assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
        let error = stream.next_batch().await.unwrap().unwrap_err();
        assert_eq!(matches!(error, Error::Cancelled { may_have_run: true }), is_cancelled, "{error}");
        assert_eq!(is_timeout(&error), !is_cancelled, "{error}");
        assert!(stream.next_batch().await.is_none());
    }
    let mut session = AsyncSession::connect(server.url().as_str()).await.unwrap();
    let cancel = CancelHandle::new();
    let options = QueryOptions::new().with_cancel(cancel.clone());
    let mut stream = session.query_stream_with_options(MINUTE_OF_ROWS, options).await.unwrap();
    stream.next_batch().await.unwrap().unwrap();
    cancel.cancel();
    stopped(&server).await;
    drop(stream);
    assert_eq!(integers(&session.query("SELECT 7").await.unwrap()), [7]);
}

#[tokio::test]
async fn a_handle_stops_it_from_another_thread() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    let cancel = CancelHandle::new();
    let query = tokio::task::LocalSet::new();
    let outcome = query.run_until(async {
        let (pool, options) = (pool.clone(), QueryOptions::new().with_cancel(cancel.clone()));
        #[allow(clippy::disallowed_methods, reason = "a task beside the test's own")]
        let task = tokio::task::spawn_local(async move { pool.query_with_options(MINUTE, options).await });
        running(&server).await;
        std::thread::scope(|scope| scope.spawn(|| cancel.cancel()).join().unwrap());
        task.await.unwrap()
    });
    assert!(matches!(outcome.await, Err(Error::Cancelled { may_have_run: true })));
    stopped(&server).await;
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
    let options = QueryOptions::new().with_cancel(cancel);
    let error = pool.query_with_options("SELECT 1", options).await.unwrap_err();
    assert!(matches!(error, Error::Cancelled { may_have_run: false }) && error.is_not_executed(), "{error}");
}

#[test]
fn threads_can_stop_and_be_stopped() {
    let server = blocking_server(Config::default());
    let pool = FlightSQLPool::new(&server.url(), small(1)).unwrap();
    let error = pool.query_with_options(MINUTE, brief()).unwrap_err();
    assert!(is_timeout(&error), "{error}");
    // Before another is begun, so that it is the one that is seen to run.
    eventually_blocking("it is over", || {
        pool.status().idle == 1 && server.counters().statements_running == 0
    });
    let cancel = CancelHandle::new();
    std::thread::scope(|scope| {
        let options = QueryOptions::new().with_cancel(cancel.clone());
        let query = scope.spawn(|| pool.query_with_options(BUSY, options));
        eventually_blocking("it runs", || server.counters().statements_running > 0);
        cancel.cancel();
        assert!(matches!(query.join().unwrap(), Err(Error::Cancelled { may_have_run: true })));
    });
    assert_eq!(integers(&pool.query("SELECT 7").unwrap()), [7]);
    let mut rows = pool.query_stream("SELECT * FROM prebuilt(rows => 100000000)").unwrap();
    assert!(rows.next().unwrap().is_ok());
    drop(rows);
    assert_eq!(integers(&pool.query("SELECT 8").unwrap()), [8]);
    assert_eq!(server.counters().sessions_ever, 1);
}

/// The call is aborted, and that alone does not stop this server.
fn deaf(actions: Actions) -> Config {
    Config { interrupt_on_drop: false, actions, ..Config::default() }
}

#[tokio::test]
async fn each_step_of_the_cancellation_works_alone() {
    let none = Actions::all(Support::Unknown);
    for actions in [
        Actions { cancel_flight_info: Support::Known, ..none },
        Actions { cancel_query: Support::Known, ..none },
        Actions { cancel_flight_info: Support::Refused, cancel_query: Support::Known, ..none },
    ] {
        let server = server_with(deaf(actions)).await;
        let pool = pool(&server, 1).await;
        for _ in 0..3 {
            assert!(is_timeout(&pool.query_with_options(MINUTE, brief()).await.unwrap_err()));
            stopped(&server).await;
            assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
        }
        let counters = server.counters();
        assert_eq!(counters.sessions_ever, 1, "{actions:?}");
        if actions.cancel_flight_info != Support::Known {
            assert!(counters.cancel_flight_info <= 2, "confirmed once and remembered: {counters:?}");
        }
    }
}

/// Lets a statement time out, so that its session is the last of so many in quarantine. On a busy machine the
/// deadline may pass before the server has begun with it; then the session comes back, and it is tried again
/// with more time: as often as this returns. Each try is over before the next: what the server refused in one
/// is known in the next.
async fn run_until_stuck(pool: &AsyncFlightSQLPool, sql: &str, stuck: usize) -> u64 {
    let (mut time, mut tries) = (SHORT, 0);
    while pool.status().closing < stuck {
        assert!(time < Duration::from_secs(10), "no statement gets its session stuck");
        tries += 1;
        let mut session = pool.acquire_session().await.unwrap();
        let options = QueryOptions::new().with_timeout(time);
        assert!(is_timeout(&session.query_with_options(sql, options).await.unwrap_err()));
        drop(session);
        eventually("it is in quarantine, or back", || {
            let status = pool.status();
            status.closing == stuck || status.in_use + status.cleaning == 0
        })
        .await;
        time *= 2;
    }
    tries - 1
}

#[tokio::test]
async fn a_server_that_cannot_stop_costs_neither_time_nor_capacity() {
    for support in [Support::Unknown, Support::Refused] {
        let server = server_with(deaf(Actions::all(support))).await;
        let config = PoolConfig { session_budget: Some(6), quarantine_ms: 60_000, ..small(2) };
        let pool = AsyncFlightSQLPool::new(&server.url(), config).await.unwrap();
        let mut unheard = 0;
        for stuck in 1..=4 {
            unheard += run_until_stuck(&pool, MINUTE, stuck).await;
        }
        // Both places of the pool are free for others.
        let (mut one, mut two) =
            (pool.acquire_session().await.unwrap(), pool.acquire_session().await.unwrap());
        assert_eq!(integers(&one.query("SELECT 7").await.unwrap()), [7]);
        assert_eq!(integers(&two.query("SELECT 7").await.unwrap()), [7]);
        let (status, counters) = (pool.status(), server.counters());
        assert_eq!(
            (status.in_use, status.sessions, counters.sessions_open),
            (2, 6, 6),
            "{status:?} {counters:?}"
        );
        // One that was not begun has no name yet: that is another question, and remembered by itself.
        let questions = 2 + unheard.min(2);
        assert!(
            counters.cancel_flight_info <= 2 && counters.cancel_query <= questions,
            "remembered: {counters:?}"
        );
        drop((one, two));
        assert!(pool.drain(Duration::from_secs(5)).await, "what is in quarantine is not waited for");
    }
}

#[tokio::test]
async fn a_session_that_answers_again_is_used_again() {
    let server = server_with(deaf(Actions::all(Support::Unknown))).await;
    let pool = pool(&server, 1).await;
    assert!(is_timeout(&pool.query_with_options("SELECT sleep_ms(1000)", brief()).await.unwrap_err()));
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7], "on another, meanwhile");
    eventually("it answers again", || pool.status().closing == 0).await;
    assert_eq!((pool.status().sessions, server.counters().sessions_ever), (2, 2));
    // The pool needs a new one now, and takes it.
    pool.update("CREATE TEMP TABLE t (a INTEGER)").await.unwrap();
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
    assert_eq!(server.counters().sessions_ever, 2);
}

#[tokio::test]
async fn a_session_budget_that_is_used_up_makes_callers_wait() {
    let server = server_with(deaf(Actions::all(Support::Unknown))).await;
    let config = PoolConfig {
        max_size: 1,
        session_budget: Some(1),
        acquire_timeout_ms: 500,
        quarantine_ms: 60_000,
        ..PoolConfig::default()
    };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await.unwrap();
    run_until_stuck(&pool, "SELECT sleep_ms(2500)", 1).await;
    let error = pool.query("SELECT 7").await.unwrap_err();
    assert!(matches!(error, Error::PoolTimeout { .. }), "{error}");
    let told = error.to_string();
    assert!(told.contains("session_budget") && !told.contains("fleet"), "{told}");
    eventually("the statement has ended", || server.counters().statements_running == 0).await;
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
    assert_eq!(server.counters().sessions_ever, 1, "never a second session");
}

#[tokio::test]
async fn the_deadline_covers_the_wait_for_a_connection() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    let held = pool.acquire_session().await.unwrap();
    let error = pool.query_with_options("SELECT 1", brief()).await.unwrap_err();
    assert!(matches!(error, Error::QueryTimeout { phase: Phase::Acquire { cause: None }, .. }), "{error}");
    assert!(error.is_not_executed());
    drop(held);
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
}

#[tokio::test]
async fn the_deadline_covers_the_reading_of_the_result() {
    let server = server_with(Config { max_batch_rows: 1, ..Config::default() }).await;
    let pool = pool(&server, 1).await;
    let slow = "SELECT sleep_ms(20) FROM generate_series(1, 100000)";
    let options = QueryOptions::new().with_timeout_ms(1_000);
    let mut stream = pool.query_stream_with_options(slow, options).await.unwrap();
    let mut batches = 0;
    let error = loop {
        match stream.next_batch().await {
            Some(Ok(_)) => batches += 1,
            Some(Err(error)) => break error,
            None => panic!("it came to its end"),
        }
    };
    assert!(batches > 0 && is_timeout(&error), "{error} after {batches}");
    assert!(stream.next_batch().await.is_none());
    stopped(&server).await;
}
