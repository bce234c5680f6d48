//! One session for each connection.

use std::time::Duration;

use flight_local::{Config, SessionKey};
use tonic::Code;

use crate::client::{beside, code, connect, number, query, start, until, update};

#[tokio::test]
async fn a_connection_is_a_session() {
    let server = start(Config::default()).await;
    let (mut one, mut two) = (connect(&server).await, connect(&server).await);
    update(&mut one, "CREATE TEMP TABLE mine (n INT)").await.unwrap();
    update(&mut one, "CREATE TABLE ours (n INT)").await.unwrap();
    assert_eq!(number(&mut two, "SELECT count(*) FROM ours").await, 0);
    assert_eq!(code(query(&mut two, "SELECT * FROM mine").await), Code::InvalidArgument);
    assert_eq!(number(&mut one, "SELECT count(*) FROM mine").await, 0);
    let counters = server.counters();
    assert_eq!((counters.connections_open, counters.sessions_open, counters.sessions_ever), (2, 2, 2));
    server.stop().await;
}

#[tokio::test]
async fn a_session_ends_with_its_connection() {
    let server = start(Config::default()).await;
    let mut one = connect(&server).await;
    update(&mut one, "CREATE TABLE t (n INT)").await.unwrap();
    update(&mut one, "BEGIN IMMEDIATE").await.unwrap();
    update(&mut one, "INSERT INTO t VALUES (1)").await.unwrap();
    drop(one);
    until(&server, |counters| counters.sessions_open == 0 && counters.connections_open == 0).await;
    let mut two = connect(&server).await;
    // Its transaction is rolled back, and its lock is released.
    assert_eq!(update(&mut two, "INSERT INTO t VALUES (2)").await.unwrap(), 1);
    assert_eq!(number(&mut two, "SELECT sum(n) FROM t").await, 2);
    server.stop().await;
}

#[tokio::test]
async fn a_session_may_outlive_its_connection_and_counts_while_it_does() {
    let linger = Duration::from_millis(300);
    let server = start(Config { session_limit: 1, session_linger: linger, ..Config::default() }).await;
    let mut one = connect(&server).await;
    number(&mut one, "SELECT 1").await;
    drop(one);
    until(&server, |counters| counters.sessions_lingering == 1 && counters.connections_open == 0).await;
    let mut two = connect(&server).await;
    assert_eq!(code(query(&mut two, "SELECT 1").await), Code::ResourceExhausted);
    assert_eq!(server.counters().refused, 1);
    until(&server, |counters| counters.sessions_open == 0).await;
    assert_eq!(number(&mut two, "SELECT 1").await, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_cookie_can_be_a_session_too() {
    let config = Config {
        session_key: SessionKey::Cookie,
        session_linger: Duration::from_secs(60),
        ..Config::default()
    };
    let server = start(config).await;
    let mut one = connect(&server).await;
    let info = one.execute("SELECT 1".to_owned(), None).await.unwrap();
    let stream = one.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    let cookie = stream.headers().get("set-cookie").unwrap().to_str().unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    one.set_header("cookie", &cookie);
    update(&mut one, "CREATE TEMP TABLE mine (n INT)").await.unwrap();
    drop((stream, one));
    until(&server, |counters| counters.sessions_lingering == 1).await;
    let mut two = connect(&server).await;
    two.set_header("cookie", format!("other=1; {cookie}"));
    assert_eq!(number(&mut two, "SELECT count(*) FROM mine").await, 0);
    two.set_header("cookie", "arrow_flight_session_id=nobody");
    assert_eq!(code(query(&mut two, "SELECT 1").await), Code::NotFound);
    server.stop().await;
}

#[tokio::test]
async fn statements_of_one_session_run_one_after_another() {
    let server = start(Config::default()).await;
    let mut one = connect(&server).await;
    let mut same = one.clone();
    let mut other = connect(&server).await;
    let long = beside(async move { number(&mut one, "SELECT sleep_ms(600000)").await });
    until(&server, |counters| counters.statements_running == 1).await;
    let waiting = beside(async move { number(&mut same, "SELECT 2").await });
    // Others do not wait, and the waiting statement has not begun.
    for _ in 0..20 {
        assert_eq!(number(&mut other, "SELECT 3").await, 3);
    }
    let counters = server.counters();
    assert_eq!((counters.statements_started, counters.statements_running), (21, 1));
    assert!(!long.is_finished() && !waiting.is_finished());
    server.stop().await;
    assert!(long.await.is_err() && waiting.await.is_err());
}

#[tokio::test]
async fn a_replaced_session_leaves_its_connection_open() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    update(&mut client, "CREATE TEMP TABLE mine (n INT)").await.unwrap();
    assert_eq!(server.replace_sessions(), 1);
    assert_eq!(code(query(&mut client, "SELECT * FROM mine").await), Code::InvalidArgument);
    let counters = server.counters();
    assert_eq!((counters.connections_open, counters.sessions_open, counters.sessions_ever), (1, 1, 2));
    server.stop().await;
}
