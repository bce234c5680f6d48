//! Queries and updates.

use arrow_array::cast::AsArray;
use arrow_flight::sql::CommandStatementQuery;
use arrow_flight::sql::ProstMessageExt;
use arrow_flight::{FlightDescriptor, SchemaResult};
use arrow_schema::{DataType, Schema};
use flight_local::Config;
use prost::Message;
use tonic::Code;

use crate::client::{code, connect, fetch, number, query, start, status, update};

#[tokio::test]
async fn rows_come_back_as_arrow() {
    let server = start(Config { log_statements: true, ..Config::default() }).await;
    let mut client = connect(&server).await;
    let create = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, born DATE, alive BOOLEAN)";
    assert_eq!(update(&mut client, create).await.unwrap(), 0);
    let insert = "INSERT INTO t VALUES (1, 'ann', '2026-11-15', 1), (2, NULL, NULL, NULL)";
    assert_eq!(update(&mut client, insert).await.unwrap(), 2);
    assert_eq!(update(&mut client, "UPDATE t SET name = 'bob' WHERE id > 5").await.unwrap(), 0);
    let info = client.execute("SELECT * FROM t ORDER BY id".to_owned(), None).await.unwrap();
    let schema = info.clone().try_decode_schema().unwrap();
    let batches = fetch(&mut client, info).await.unwrap();
    assert_eq!(*batches[0].schema(), schema);
    let kinds: Vec<&DataType> = schema.fields().iter().map(|field| field.data_type()).collect();
    assert_eq!(kinds, [&DataType::Int64, &DataType::Utf8, &DataType::Date32, &DataType::Boolean]);
    assert_eq!(batches[0].num_rows(), 2);
    assert_eq!(batches[0].column(1).as_string::<i32>().value(0), "ann");
    assert!(batches[0].column(3).as_boolean().value(0));
    assert_eq!(server.statements()[1], insert);
    let counters = server.counters();
    assert_eq!((counters.statements_started, counters.statements_finished), (4, 4));
    server.stop().await;
}

#[tokio::test]
async fn a_result_without_rows_has_a_schema() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let info = client.execute("SELECT 1 AS n WHERE false".to_owned(), None).await.unwrap();
    let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    assert!(futures_util::TryStreamExt::try_next(&mut stream).await.unwrap().is_none());
    assert_eq!(stream.schema().unwrap().field(0).name(), "n");
    server.stop().await;
}

#[tokio::test]
async fn several_statements_in_one_text_return_the_last_result() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let sql = "CREATE TABLE t (n INT); INSERT INTO t VALUES (1), (2), (3); SELECT sum(n) FROM t";
    assert_eq!(number(&mut client, sql).await, 6);
    // A statement without rows returns its number of changed rows.
    assert_eq!(number(&mut client, "DELETE FROM t WHERE n < 3").await, 2);
    assert_eq!(number(&mut client, "DELETE FROM t RETURNING n * 10").await, 30);
    server.stop().await;
}

#[tokio::test]
async fn errors_have_different_codes_and_keep_the_session() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    update(&mut client, "CREATE TEMP TABLE t (n INTEGER PRIMARY KEY)").await.unwrap();
    update(&mut client, "INSERT INTO t VALUES (1)").await.unwrap();
    assert_eq!(code(query(&mut client, "SELEC 1").await), Code::InvalidArgument);
    assert_eq!(code(query(&mut client, "").await), Code::InvalidArgument);
    assert_eq!(code(update(&mut client, "INSERT INTO t VALUES (1)").await), Code::AlreadyExists);
    let mixed = "SELECT 1 AS n UNION ALL SELECT 'one'";
    let error = status(&query(&mut client, mixed).await.unwrap_err());
    assert!(error.message().contains("CAST"), "{error}");
    assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 1);
    assert_eq!(server.counters().sessions_ever, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_server_may_call_every_mistake_internal_and_count_nothing() {
    let server = start(Config { internal_errors: true, zero_counts: true, ..Config::default() }).await;
    let mut client = connect(&server).await;
    assert_eq!(code(query(&mut client, "SELEC 1").await), Code::Internal);
    update(&mut client, "CREATE TABLE t (n INT)").await.unwrap();
    assert_eq!(update(&mut client, "INSERT INTO t VALUES (1), (2)").await.unwrap(), 0);
    assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 2);
    server.stop().await;
}

#[tokio::test]
async fn a_ticket_is_good_once() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    update(&mut client, "CREATE TABLE t (n INT)").await.unwrap();
    let info = client.execute("INSERT INTO t VALUES (1)".to_owned(), None).await.unwrap();
    assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 0);
    fetch(&mut client, info.clone()).await.unwrap();
    assert_eq!(code(fetch(&mut client, info).await), Code::NotFound);
    assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 1);
    server.stop().await;
}

#[tokio::test]
async fn large_results_come_in_batches_that_a_client_accepts() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let sql = "SELECT value, printf('%0200d', value) AS text FROM generate_series(1, 60000)";
    let batches = query(&mut client, sql).await.unwrap();
    assert!(batches.len() > 5, "{}", batches.len());
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 60_000);
    let small = start(Config { max_batch_rows: 7, ..Config::default() }).await;
    let mut client = connect(&small).await;
    let batches = query(&mut client, "SELECT value FROM generate_series(1, 20)").await.unwrap();
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).collect::<Vec<_>>(), [7, 7, 6]);
    assert_eq!(small.counters().batches_sent, 3);
    small.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn prebuilt_batches_need_no_database() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let sql = "SELECT * FROM prebuilt(rows => 1_000_000, batch => 30000)";
    let batches = query(&mut client, sql).await.unwrap();
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1_000_000);
    assert_eq!(server.counters().batches_sent, 34);
    server.stop().await;
}

#[tokio::test]
async fn get_schema_returns_a_schema_without_running() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let query =
        CommandStatementQuery { query: "SELECT 1 + 1 AS n, 'x' AS s".to_owned(), transaction_id: None };
    let descriptor = FlightDescriptor::new_cmd(query.as_any().encode_to_vec());
    let result: SchemaResult = client.inner_mut().get_schema(descriptor).await.unwrap().into_inner();
    let schema = Schema::try_from(&result).unwrap();
    assert_eq!(schema.field(0).data_type(), &DataType::Int64);
    assert_eq!(schema.field(1).data_type(), &DataType::Utf8);
    assert_eq!(server.counters().statements_started, 0);
    server.stop().await;
}
