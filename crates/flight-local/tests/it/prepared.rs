//! Prepared statements and their parameters.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow_schema::DataType;
use flight_local::Config;
use tonic::Code;

use crate::client::{code, connect, fetch, number, start, update};

fn people() -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let names: ArrayRef = Arc::new(StringArray::from(vec![Some("ann"), None, Some("cy")]));
    RecordBatch::try_from_iter_with_nullable([("id", ids, false), ("name", names, true)]).unwrap()
}

#[tokio::test]
async fn an_update_runs_for_each_row_of_its_parameters() {
    let server = start(Config { log_statements: true, ..Config::default() }).await;
    let mut client = connect(&server).await;
    update(&mut client, "CREATE TABLE t (id INT, name TEXT)").await.unwrap();
    let mut insert = client.prepare("INSERT INTO t VALUES (?, ?)".to_owned(), None).await.unwrap();
    assert_eq!(insert.parameter_schema().unwrap().fields().len(), 2);
    assert_eq!(insert.dataset_schema().unwrap().fields().len(), 0);
    insert.set_parameters(people()).unwrap();
    assert_eq!(insert.execute_update().await.unwrap(), 3);
    assert_eq!(insert.execute_update().await.unwrap(), 3);
    insert.close().await.unwrap();
    assert_eq!(number(&mut client, "SELECT count(*) FROM t WHERE name IS NULL").await, 2);
    let counters = server.counters();
    assert_eq!((counters.create_prepared_statement, counters.close_prepared_statement), (1, 1));
    server.stop().await;
}

#[tokio::test]
async fn a_query_takes_named_parameters_and_returns_the_rows_of_all() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    update(&mut client, "CREATE TABLE t (id INT, name TEXT)").await.unwrap();
    update(&mut client, "INSERT INTO t VALUES (1, 'ann'), (2, 'bob'), (3, 'cy')").await.unwrap();
    let sql = "SELECT id, name FROM t WHERE name = :name OR id = :id";
    let mut select = client.prepare(sql.to_owned(), None).await.unwrap();
    let schema = select.dataset_schema().unwrap();
    assert_eq!(schema.field(0).data_type(), &DataType::Int64);
    let parameters = select.parameter_schema().unwrap();
    assert_eq!((parameters.field(0).name().as_str(), parameters.field(1).name().as_str()), ("name", "id"));
    select.set_parameters(people()).unwrap();
    let info = select.execute().await.unwrap();
    let batches = fetch(&mut client, info).await.unwrap();
    let ids: Vec<i64> = batches
        .iter()
        .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec())
        .collect();
    assert_eq!(ids, [1, 2, 3]);
    server.stop().await;
}

#[tokio::test]
async fn what_cannot_be_bound_is_told() {
    let server = start(Config::default()).await;
    let (mut one, mut two) = (connect(&server).await, connect(&server).await);
    let mut select = one.prepare("SELECT ?".to_owned(), None).await.unwrap();
    let info = select.execute().await.unwrap();
    assert_eq!(code(fetch(&mut one, info).await), Code::InvalidArgument);
    select.set_parameters(people()).unwrap();
    let info = select.execute().await.unwrap();
    assert_eq!(code(fetch(&mut one, info).await), Code::InvalidArgument);
    assert_eq!(
        code(one.prepare("SELECT 1; SELECT 2".to_owned(), None).await.map(drop)),
        Code::InvalidArgument
    );
    assert_eq!(code(one.prepare("SELEC 1".to_owned(), None).await.map(drop)), Code::InvalidArgument);
    // A prepared statement belongs to its session.
    number(&mut two, "SELECT 1").await;
    let mut stranger = two.prepare("SELECT 1".to_owned(), None).await.unwrap();
    let info = stranger.execute().await.unwrap();
    assert_eq!(fetch(&mut two, info).await.unwrap()[0].num_rows(), 1);
    stranger.clone().close().await.unwrap();
    assert_eq!(code(stranger.execute().await), Code::NotFound);
    server.stop().await;
}
