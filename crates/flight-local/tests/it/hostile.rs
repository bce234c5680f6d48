//! Malformed requests, and clients that come and go.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::sql::{
    Any, CommandStatementIngest, CommandStatementQuery, CommandStatementSubstraitPlan,
    CommandStatementUpdate, ProstMessageExt, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use arrow_flight::{Action, FlightData, FlightDescriptor, Ticket};
use flight_local::Config;
use futures_util::{TryStreamExt, stream};
use prost::Message;
use tonic::Code;

use crate::client::{beside, connect, number, query, start, until};

#[tokio::test]
async fn malformed_requests_are_refused_and_affect_nobody() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let query = CommandStatementQuery { query: "SELECT 1".to_owned(), transaction_id: None };
    let unknown = Any { type_url: "type.googleapis.com/nothing".to_owned(), value: vec![1, 2, 3].into() };
    let broken = Any { value: vec![0xff; 9].into(), ..query.as_any() };
    let substrait = CommandStatementSubstraitPlan::default().as_any();
    let update = CommandStatementUpdate { query: "SELECT 1".to_owned(), transaction_id: None }.as_any();
    let bodies =
        [vec![], vec![0xff; 40], unknown.encode_to_vec(), broken.encode_to_vec(), substrait.encode_to_vec()];
    for body in bodies {
        let descriptor = FlightDescriptor::new_cmd(body.clone());
        let answers = [
            client.inner_mut().get_flight_info(descriptor.clone()).await.map(drop),
            client.inner_mut().poll_flight_info(descriptor.clone()).await.map(drop),
            client.inner_mut().get_schema(descriptor.clone()).await.map(drop),
            client.inner_mut().do_get(Ticket::new(body.clone())).await.map(drop),
            client
                .inner_mut()
                .do_action(Action::new("CreatePreparedStatement", body.clone()))
                .await
                .map(drop),
            client.inner_mut().do_action(Action::new("CancelQuery", body.clone())).await.map(drop),
            client.inner_mut().do_action(Action::new("EndTransaction", body.clone())).await.map(drop),
        ];
        for answer in answers {
            assert_eq!(answer.unwrap_err().code(), Code::InvalidArgument, "{body:?}");
        }
        let data = FlightData { flight_descriptor: Some(descriptor), ..FlightData::default() };
        let answer = client.inner_mut().do_put(stream::iter([data])).await;
        assert_eq!(answer.unwrap_err().code(), Code::InvalidArgument);
    }
    let empty = client.inner_mut().do_put(stream::iter([FlightData::default()])).await;
    assert_eq!(empty.unwrap_err().code(), Code::InvalidArgument);
    assert!(client.inner_mut().do_put(stream::iter([])).await.is_err());
    // GetFlightInfo refuses an update command.
    let wrong = client.inner_mut().get_flight_info(FlightDescriptor::new_cmd(update.encode_to_vec())).await;
    assert_eq!(wrong.unwrap_err().code(), Code::InvalidArgument);
    // An ingestion with malformed batches.
    let command = CommandStatementIngest { table: "t".to_owned(), ..CommandStatementIngest::default() };
    let data = FlightData {
        flight_descriptor: Some(FlightDescriptor::new_cmd(command.as_any().encode_to_vec())),
        data_header: vec![1; 64].into(),
        ..FlightData::default()
    };
    assert!(client.inner_mut().do_put(stream::iter([data])).await.is_err());
    until(&server, |counters| counters.statements_running == 0).await;
    assert_eq!(number(&mut client, "SELECT count(*) FROM sqlite_schema").await, 0);
    assert_eq!(server.counters().sessions_ever, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_client_without_grpc_is_disconnected() {
    let server = start(Config::default()).await;
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let silent = TcpStream::connect(server.address()).unwrap();
    until(&server, |counters| counters.connections_ever == 2 && counters.connections_open == 1).await;
    drop(silent);
    until(&server, |counters| counters.connections_open == 0).await;
    assert_eq!(server.counters().sessions_ever, 0);
    server.stop().await;
}

#[tokio::test]
async fn many_clients_come_and_go_and_leave_nothing_behind() {
    let server = start(Config { session_limit: 1_000, ..Config::default() }).await;
    let mut callers = Vec::new();
    for turn in 0..24_u64 {
        let mut client = connect(&server).await;
        callers.push(beside(async move {
            let sql = match turn % 4 {
                0 => "SELECT sleep_ms(600000)",
                1 => "SELECT * FROM prebuilt(rows => 100000000)",
                2 => "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c",
                _ => "SELECT value FROM generate_series(1, 1000000000)",
            };
            query(&mut client, sql).await
        }));
        // At any point of the others' progress.
        if turn % 3 == 2 {
            callers.swap_remove(0).abort();
        }
    }
    callers.iter().for_each(|caller| caller.abort());
    let counters =
        until(&server, |counters| counters.connections_open == 0 && counters.statements_running == 0).await;
    assert_eq!(counters.sessions_open, 0);
    assert_eq!(counters.statements_started, counters.statements_finished + counters.statements_interrupted);
    let mut client = connect(&server).await;
    assert_eq!(number(&mut client, "SELECT 1").await, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_truncated_batch_is_refused_and_leaves_nothing() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    crate::client::update(&mut client, "CREATE TABLE t (a INTEGER)").await.unwrap();
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..5));
    let batch = RecordBatch::try_from_iter([("a", ids)]).unwrap();
    let append = TableDefinitionOptions {
        if_not_exist: TableNotExistOption::Fail.into(),
        if_exists: TableExistsOption::Append.into(),
    };
    let command = CommandStatementIngest {
        table: "t".to_owned(),
        table_definition_options: Some(append),
        ..CommandStatementIngest::default()
    };
    let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
    let mut data: Vec<FlightData> = FlightDataEncoderBuilder::new()
        .with_flight_descriptor(Some(descriptor))
        .build(stream::iter([Ok(batch)]))
        .try_collect()
        .await
        .unwrap();
    data[1].data_body = data[1].data_body.slice(..4);
    let refused = client.inner_mut().do_put(stream::iter(data)).await.unwrap_err();
    assert!(refused.message().contains("header"), "{refused}");
    until(&server, |counters| counters.statements_running == 0).await;
    assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 0);
    server.stop().await;
}
