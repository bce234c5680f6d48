//! What was given up is cleaned up before anything else runs in its session.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use flight_local::{Actions, Config, FlightLocal, Support};
use forebay::rt::{TokioRuntime, within};
use forebay_flight::{AsyncFlightSQLPool, AsyncSession, Error, FlightSQLClient, QueryOptions};

use crate::drops::dropped_after;
use crate::fixture::{
    blocking_server, eventually, eventually_blocking, integers, numbers, pause, pool, server, server_with,
};

/// A table, and a pool to look at it from outside of any session that is tried.
async fn watched(server: &FlightLocal) -> AsyncFlightSQLPool {
    let watch = pool(server, 1).await;
    watch.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    watch
}

async fn rows(watch: &AsyncFlightSQLPool) -> Vec<i64> {
    integers(&watch.query("SELECT a FROM t ORDER BY a").await.unwrap())
}

async fn connect(server: &FlightLocal) -> AsyncSession {
    AsyncSession::connect(server.url().as_str()).await.unwrap()
}

/// Gives `future` up once a statement runs on the server.
async fn dropped_at_work<T>(server: &FlightLocal, future: impl Future<Output = T>) {
    let at_work = eventually("it runs", || server.counters().statements_running > 0);
    futures_util::future::select(Box::pin(future), Box::pin(at_work)).await;
}

/// A server that has no action for transactions, and one that has.
fn both() -> [Config; 2] {
    let words = Actions { begin_transaction: Support::Unknown, ..Actions::default() };
    [Config::default(), Config { actions: words, ..Config::default() }]
}

#[tokio::test]
async fn a_prepared_statement_waits_for_the_rollback_of_a_dropped_transaction() {
    for config in both() {
        let server = server_with(config).await;
        let watch = watched(&server).await;
        let mut session = connect(&server).await;
        let mut insert = session.prepare_query("INSERT INTO t VALUES (1)").await.unwrap();
        let mut bound = session.prepare_query("INSERT INTO t VALUES (?)").await.unwrap();
        let mut returning = session.prepare_query("INSERT INTO t VALUES (3) RETURNING a").await.unwrap();
        for _ in 0..20 {
            drop(session.begin().await.unwrap());
            insert.update().await.unwrap();
            drop(session.begin().await.unwrap());
            bound.update_with_record_batch(numbers([2])).await.unwrap();
            drop(session.begin().await.unwrap());
            assert_eq!(integers(&returning.query().await.unwrap()), [3]);
            drop(session.begin().await.unwrap());
            bound.set_parameters(numbers([4])).await.unwrap();
        }
        let kept = [[1; 20], [2; 20], [3; 20]].concat();
        assert_eq!(rows(&watch).await, kept);
    }
}

#[tokio::test]
async fn a_prepared_statement_is_not_cancelled_with_the_one_before() {
    let server = server().await;
    let watch = watched(&server).await;
    let mut session = connect(&server).await;
    let mut insert = session.prepare_query("INSERT INTO t SELECT sleep_ms(?)").await.unwrap();
    let mut select = session.prepare_query("SELECT sleep_ms(?)").await.unwrap();
    for _ in 0..3 {
        dropped_at_work(&server, insert.update_with_record_batch(numbers([60_000]))).await;
        insert.update_with_record_batch(numbers([50])).await.unwrap();
        dropped_at_work(&server, session.update("INSERT INTO t SELECT sleep_ms(60000)")).await;
        select.query_with_param(numbers([50])).await.unwrap();
    }
    assert_eq!(rows(&watch).await.len(), 3);
}

/// Sends what `future` sends, and gives it up when the server has heard of it.
async fn unheard<T>(server: &FlightLocal, future: impl Future<Output = T>) {
    let heard = || {
        let counters = server.counters();
        counters.begin_transaction + counters.end_transaction + counters.statements_started
    };
    let (before, mut future) = (heard(), Box::pin(future));
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    eventually("the server has heard of it", || heard() > before).await;
}

/// Adds a row, and notes it if that is acknowledged. On a busy machine a session may not be cleared in time:
/// it is lost then, and says so.
async fn insert(session: &mut AsyncSession, server: &FlightLocal, kept: &mut Vec<i64>, row: i64) {
    match session.update(&format!("INSERT INTO t VALUES ({row})")).await {
        Ok(_) => kept.push(row),
        Err(Error::SessionLost { may_have_run: false, .. }) => *session = connect(server).await,
        Err(error) => panic!("{row}: {error}"),
    }
}

#[tokio::test]
async fn no_statement_runs_in_a_transaction_whose_begin_or_end_was_given_up() {
    for config in both() {
        let server = server_with(config).await;
        let watch = watched(&server).await;
        let mut kept = Vec::new();
        for round in 0..4 {
            let mut session = connect(&server).await;
            // From here on it is known whether there is an action for it.
            session.begin().await.unwrap().commit().await.unwrap();
            unheard(&server, session.begin_transaction()).await;
            insert(&mut session, &server, &mut kept, 10 * round).await;

            session.begin_transaction().await.unwrap();
            session.update("INSERT INTO t VALUES (-1)").await.unwrap();
            unheard(&server, session.rollback()).await;
            insert(&mut session, &server, &mut kept, 10 * round + 1).await;

            session.begin_transaction().await.unwrap();
            unheard(&server, session.commit()).await;
            insert(&mut session, &server, &mut kept, 10 * round + 2).await;
            session.begin().await.unwrap().rollback().await.unwrap();
            session.close().await.unwrap();
        }
        assert!(!kept.is_empty());
        assert_eq!(rows(&watch).await, kept);
    }
}

#[tokio::test]
async fn a_transaction_can_be_dropped_at_each_await_and_its_session_used() {
    for config in both() {
        let server = server_with(config).await;
        let watch = watched(&server).await;
        let mut session = connect(&server).await;
        let mut kept = Vec::new();
        for (row, polls) in (0..).zip(0..12) {
            dropped_after(polls, async {
                let mut transaction = session.begin().await.unwrap();
                transaction.update("INSERT INTO t VALUES (-1)").await.unwrap();
                transaction.rollback().await.unwrap();
            })
            .await;
            insert(&mut session, &server, &mut kept, row).await;
        }
        session.close().await.unwrap();
        assert!(!kept.is_empty());
        assert_eq!(rows(&watch).await, kept);
    }
}

#[tokio::test]
async fn a_transaction_is_rolled_back_when_its_session_answers_again() {
    let actions = Actions { begin_transaction: Support::Known, ..Actions::all(Support::Unknown) };
    let server = server_with(Config { actions, interrupt_on_drop: false, ..Config::default() }).await;
    let pool = pool(&server, 1).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    let slow = QueryOptions::new().with_timeout_ms(200);

    let mut session = pool.acquire_session().await.unwrap();
    let mut transaction = session.begin().await.unwrap();
    transaction.query_with_options("SELECT sleep_ms(1000)", slow.clone()).await.unwrap_err();
    drop(transaction);
    drop(session);
    eventually("it answers again", || pool.status().closing == 0 && pool.status().cleaning == 0).await;
    // The pool needs another after this, and takes it from where it was kept.
    pool.update("CREATE TEMP TABLE bad (a INTEGER)").await.unwrap();
    for id in 0..2 {
        pool.update(&format!("INSERT INTO t VALUES ({id})")).await.unwrap();
    }
    assert!(pool.drain(Duration::from_secs(5)).await);

    let mut session = connect(&server).await;
    let mut transaction = session.begin().await.unwrap();
    transaction.query_with_options("SELECT sleep_ms(1000)", slow).await.unwrap_err();
    drop(transaction);
    session.update("INSERT INTO t VALUES (2)").await.unwrap();
    session.close().await.unwrap();
    let mut after = connect(&server).await;
    assert_eq!(integers(&after.query("SELECT a FROM t ORDER BY a").await.unwrap()), [0, 1, 2]);
}

/// With a worker that runs the last task it was given first, as tokio's do.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_rollback_does_not_overtake_the_cancelling_of_its_statement() {
    let server = server_with(Config { interrupt_on_drop: false, ..Config::default() }).await;
    let url = server.url();
    #[allow(clippy::disallowed_methods, reason = "a task of a worker's")]
    let given_up = tokio::spawn(async move {
        let mut session = AsyncSession::connect(url.as_str()).await.unwrap();
        let runtime = TokioRuntime::current().unwrap();
        let statement = async {
            let mut transaction = session.begin().await.unwrap();
            transaction.query("SELECT sleep_ms(60000)").await
        };
        assert!(within(&runtime, Duration::from_millis(200), statement).await.is_none());
        session
    });
    let mut session = given_up.await.unwrap();
    let answer = session.query_with_options("SELECT 7", QueryOptions::new().with_timeout_ms(30_000)).await;
    assert_eq!(integers(&answer.unwrap()), [7]);
}

#[test]
fn a_prepared_statement_ends_with_its_client() {
    let server = blocking_server(Config::default());
    let mut client = FlightSQLClient::connect(server.url().as_str()).unwrap();
    let mut prepared = client.prepare_query("SELECT 1").unwrap();
    assert_eq!(prepared.query().unwrap().row_count(), 1);
    drop(client);
    let error = prepared.query().unwrap_err();
    assert!(matches!(error, Error::SessionLost { may_have_run: false, .. }), "{error}");
    eventually_blocking("its session is closed", || server.counters().sessions_open == 0);
    drop(prepared);
    eventually_blocking("its connection is closed", || server.counters().connections_open == 0);
    assert_eq!(server.counters().sessions_ever, 1);
}

/// The server has closed the session, and the client has not heard of it yet.
#[test]
fn a_prepared_statement_that_is_dropped_while_its_session_ends_begins_no_other() {
    const ROUNDS: u64 = 30;
    let server = blocking_server(Config::default());
    for _ in 0..ROUNDS {
        let mut client = FlightSQLClient::connect(server.url().as_str()).unwrap();
        let prepared = client.prepare_query("SELECT 1").unwrap();
        drop(client);
        // Without a pause: the answer is on its way.
        while server.counters().sessions_open > 0 {
            std::thread::yield_now();
        }
        drop(prepared);
        eventually_blocking("its connection is closed", || server.counters().connections_open == 0);
    }
    assert_eq!(server.counters().sessions_ever, ROUNDS);
}

#[tokio::test]
async fn a_held_prepared_statement_does_not_keep_a_drained_connection_open() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    let mut session = pool.acquire_session().await.unwrap();
    let mut prepared = session.prepare_query("SELECT 1").await.unwrap();
    drop(session);
    assert!(pool.drain(Duration::from_secs(5)).await);
    eventually("its connection is closed", || server.counters().connections_open == 0).await;
    let error = prepared.query().await.unwrap_err();
    assert!(matches!(error, Error::SessionLost { may_have_run: false, .. }), "{error}");
}

#[tokio::test]
async fn a_prepared_statement_ends_with_its_session() {
    let server = server().await;
    let mut session = connect(&server).await;
    let mut prepared = session.prepare_query("SELECT 1").await.unwrap();
    drop(session);
    let error = prepared.query().await.unwrap_err();
    assert!(matches!(error, Error::SessionLost { may_have_run: false, .. }), "{error}");
    let mut session = connect(&server).await;
    let other = session.prepare_query("SELECT 1").await.unwrap();
    session.close().await.unwrap();
    // Also while the statements are held: a drain waits for the connection, not for them.
    eventually("no connection is left", || server.counters().connections_open == 0).await;
    drop((prepared, other));
    pause(Duration::from_millis(20)).await;
    assert_eq!((server.counters().sessions_ever, server.counters().sessions_open), (2, 0));
}

/// Whether its turn has come yet, when it is given up, makes no difference to an end.
#[tokio::test]
async fn an_end_that_is_given_up_while_it_waits_leaves_no_transaction() {
    // It does not stop what it is at, and says nothing meanwhile.
    let deaf = Actions { begin_transaction: Support::Known, ..Actions::all(Support::Unknown) };
    let server = server_with(Config { actions: deaf, interrupt_on_drop: false, ..Config::default() }).await;
    let watch = watched(&server).await;
    for commits in [false, true] {
        let mut session = connect(&server).await;
        session.begin_transaction().await.unwrap();
        session.update("INSERT INTO t VALUES (1)").await.unwrap();
        dropped_at_work(&server, session.query("SELECT sleep_ms(1000)")).await;
        let end = async { if commits { session.commit().await } else { session.rollback().await } };
        let runtime = TokioRuntime::current().unwrap();
        assert!(within(&runtime, Duration::from_millis(50), end).await.is_none(), "it waits");
        session.update("INSERT INTO t VALUES (2)").await.unwrap();
        session.close().await.unwrap();
        assert_eq!(rows(&watch).await, [2]);
        watch.update("DELETE FROM t").await.unwrap();
    }
}

/// All of its data is sent when it is given up: there is nothing to break off but the call.
#[tokio::test]
async fn a_dropped_update_is_stopped_by_the_abort_alone() {
    let server = server_with(Config { actions: Actions::all(Support::Unknown), ..Config::default() }).await;
    let watch = watched(&server).await;
    let mut session = connect(&server).await;
    dropped_at_work(&server, session.update("INSERT INTO t SELECT sleep_ms(60000)")).await;
    eventually("the server has stopped it", || server.counters().statements_running == 0).await;
    session.update("INSERT INTO t VALUES (1)").await.unwrap();
    assert_eq!(rows(&watch).await, [1]);
}

/// Health checks have several answers.
#[tokio::test]
async fn a_thread_of_a_runtime_may_wait_for_many_answers() {
    let server =
        std::thread::scope(|scope| scope.spawn(|| blocking_server(Config::default())).join().unwrap());
    let mut client = FlightSQLClient::connect(server.url().as_str()).unwrap();
    client.ping().unwrap();
}
