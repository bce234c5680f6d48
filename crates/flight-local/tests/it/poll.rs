//! Background statements.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_flight::sql::{CommandStatementQuery, ProstMessageExt};
use arrow_flight::{CancelFlightInfoRequest, CancelStatus, FlightClient, FlightDescriptor, PollInfo};
use flight_local::{Actions, Config, Support};
use prost::Message;
use tonic::Code;

use crate::client::{channel, connect, fetch, start, until};

fn descriptor(sql: &str) -> FlightDescriptor {
    let query = CommandStatementQuery { query: sql.to_owned(), transaction_id: None };
    FlightDescriptor::new_cmd(query.as_any().encode_to_vec())
}

#[tokio::test]
async fn a_long_statement_tells_how_far_it_is() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let sql = "SELECT max(progress(value, 20) + sleep_ms(30) * 0) FROM generate_series(1, 20)";
    let mut seen = Vec::new();
    let mut next = Some(descriptor(sql));
    let mut last = PollInfo::default();
    while let Some(descriptor) = next {
        last = client.inner_mut().poll_flight_info(descriptor).await.unwrap().into_inner();
        seen.extend(last.progress);
        next = last.flight_descriptor.clone();
        assert!(next.is_none() || last.info.as_ref().unwrap().endpoint.is_empty());
    }
    assert!(seen.len() > 2, "{seen:?}");
    assert!(seen.is_sorted(), "{seen:?}");
    assert!(seen[0] < 1.0 && seen.last() == Some(&1.0), "{seen:?}");
    let batches = fetch(&mut client, last.info.clone().unwrap()).await.unwrap();
    assert_eq!(batches[0].num_rows(), 1);
    let counters = server.counters();
    assert_eq!((counters.statements_started, counters.statements_finished), (1, 1));
    assert!(fetch(&mut client, last.info.unwrap()).await.is_err());
    server.stop().await;
}

#[tokio::test]
async fn a_short_statement_is_there_at_once() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let mut next = Some(descriptor("SELECT 42"));
    let mut polled = PollInfo::default();
    // At the first poll, unless the machine is very busy.
    while let Some(descriptor) = next {
        polled = client.inner_mut().poll_flight_info(descriptor).await.unwrap().into_inner();
        next = polled.flight_descriptor.take();
    }
    let batches = fetch(&mut client, polled.info.unwrap()).await.unwrap();
    assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), 42);
    let error = client.inner_mut().poll_flight_info(descriptor("SELEC 1")).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    server.stop().await;
}

#[tokio::test]
async fn a_background_statement_can_be_cancelled_and_ends_with_its_session() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let asleep = descriptor("SELECT sleep_ms(600000)");
    let polled = client.inner_mut().poll_flight_info(asleep.clone()).await.unwrap().into_inner();
    assert!(polled.progress.is_some_and(|progress| progress < 0.1));
    let mut other = FlightClient::new(channel(&server).await);
    let result = other.cancel_flight_info(CancelFlightInfoRequest::new(polled.info.unwrap())).await.unwrap();
    assert_eq!(result.status(), CancelStatus::Cancelled);
    let again = client.inner_mut().poll_flight_info(polled.flight_descriptor.unwrap()).await;
    assert_eq!(again.unwrap_err().code(), Code::Cancelled);
    client.inner_mut().poll_flight_info(asleep).await.unwrap();
    assert_eq!(server.counters().statements_running, 1);
    drop(client);
    let counters = until(&server, |counters| counters.statements_running == 0).await;
    assert_eq!((counters.statements_interrupted, counters.poll_flight_info), (2, 3));
    server.stop().await;
}

#[tokio::test]
async fn a_server_may_not_know_of_polling() {
    for (support, answer) in
        [(Support::Unknown, Code::Unimplemented), (Support::Refused, Code::Unimplemented)]
    {
        let actions = Actions { poll_flight_info: support, ..Actions::default() };
        let server = start(Config { actions, ..Config::default() }).await;
        let mut client = connect(&server).await;
        let error = client.inner_mut().poll_flight_info(descriptor("SELECT 1")).await.unwrap_err();
        assert_eq!(error.code(), answer);
        server.stop().await;
    }
}
