//! Faults.

use std::time::Duration;

use arrow_flight::error::FlightError;
use flight_local::{Config, FlightLocal};
use tonic::Code;
use tonic::transport::Endpoint;

use crate::client::{beside, code, connect, number, query, start, status, until, update};

fn is_lost<T: std::fmt::Debug>(result: Result<T, FlightError>) -> bool {
    matches!(
        status(&result.unwrap_err()).code(),
        Code::Unknown | Code::Unavailable | Code::Internal | Code::Cancelled
    )
}

async fn with_table() -> FlightLocal {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    update(&mut client, "CREATE TABLE t (n INT)").await.unwrap();
    server
}

#[tokio::test]
async fn an_internal_error_executes_nothing_and_keeps_the_session() {
    let server = with_table().await;
    let mut client = connect(&server).await;
    update(&mut client, "CREATE TEMP TABLE mine (n INT)").await.unwrap();
    server.faults().internal_next(2);
    assert_eq!(code(update(&mut client, "INSERT INTO t VALUES (1)").await), Code::Internal);
    assert_eq!(code(query(&mut client, "SELECT 1").await), Code::Internal);
    assert_eq!(number(&mut client, "SELECT (SELECT count(*) FROM t) + (SELECT count(*) FROM mine)").await, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_reset_comes_before_or_after_the_execution() {
    let server = with_table().await;
    let (mut before, mut after) = (connect(&server).await, connect(&server).await);
    server.faults().reset_next(1);
    assert!(is_lost(update(&mut before, "INSERT INTO t VALUES (1)").await));
    server.faults().reset_after_next(1);
    assert!(is_lost(update(&mut after, "INSERT INTO t VALUES (2)").await));
    until(&server, |counters| counters.connections_open == 0 && counters.sessions_open == 0).await;
    let mut client = connect(&server).await;
    assert_eq!(number(&mut client, "SELECT sum(n) FROM t").await, 2);
    server.faults().reset_after_next(1);
    assert!(is_lost(query(&mut client, "INSERT INTO t VALUES (3)").await));
    let mut client = connect(&server).await;
    assert_eq!(number(&mut client, "SELECT sum(n) FROM t").await, 5);
    server.stop().await;
}

#[tokio::test]
async fn a_statement_hangs_until_it_is_abandoned() {
    let server = with_table().await;
    let mut client = connect(&server).await;
    let mut same = client.clone();
    number(&mut client, "SELECT 1").await;
    server.faults().hang_next(1);
    let hanging = beside(async move { update(&mut client, "INSERT INTO t VALUES (1)").await });
    until(&server, |counters| counters.statements_running == 1).await;
    let steps = server.counters().steps;
    hanging.abort();
    let counters = until(&server, |counters| counters.statements_running == 0).await;
    assert_eq!((counters.statements_interrupted, counters.steps), (1, steps));
    assert_eq!(number(&mut same, "SELECT count(*) FROM t").await, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_slow_server_still_answers_and_the_delay_can_be_removed() {
    let server = with_table().await;
    let mut client = connect(&server).await;
    server.faults().slow(Duration::from_secs(3_600));
    let mut other = client.clone();
    let slow = beside(async move { number(&mut other, "SELECT 1").await });
    until(&server, |counters| counters.statements_running == 1).await;
    server.faults().slow(Duration::ZERO);
    slow.abort();
    assert_eq!(number(&mut client, "SELECT 2").await, 2);
    server.faults().slow(Duration::from_millis(1));
    assert_eq!(number(&mut client, "SELECT 3").await, 3);
    server.stop().await;
}

#[tokio::test]
async fn connections_can_be_refused() {
    let server = with_table().await;
    let mut old = connect(&server).await;
    number(&mut old, "SELECT 1").await;
    server.faults().refuse_connections(true);
    let url = server.url().replacen("grpc", "http", 1);
    let mut refused = false;
    match Endpoint::from_shared(url).unwrap().connect().await {
        Ok(channel) => {
            let mut client = arrow_flight::sql::client::FlightSqlServiceClient::new(channel);
            refused |= query(&mut client, "SELECT 1").await.is_err();
        }
        Err(_) => refused = true,
    }
    assert!(refused);
    until(&server, |counters| counters.refused >= 1).await;
    assert_eq!(number(&mut old, "SELECT 1").await, 1);
    server.faults().refuse_connections(false);
    let mut new = connect(&server).await;
    assert_eq!(number(&mut new, "SELECT 1").await, 1);
    server.stop().await;
}
