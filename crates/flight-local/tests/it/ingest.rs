//! Ingestion.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, TimestampSecondArray};
use arrow_flight::error::FlightError;
use arrow_flight::sql::{
    CommandStatementIngest, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use arrow_schema::DataType;
use flight_local::Config;
use futures_util::stream;
use tonic::Code;

use crate::client::{Client, beside, code, connect, number, query, start, until, update};

fn batch(rows: i64) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    let values: ArrayRef =
        Arc::new(Float64Array::from_iter((0..rows).map(|id| (id % 2 == 0).then_some(0.5))));
    let times: ArrayRef =
        Arc::new(TimestampSecondArray::from_iter_values((0..rows).map(|id| 1_000_000_000 + id)));
    RecordBatch::try_from_iter_with_nullable([
        ("id", ids, false),
        ("value", values, true),
        ("at", times, true),
    ])
    .unwrap()
}

fn command(exists: TableExistsOption, missing: TableNotExistOption) -> CommandStatementIngest {
    CommandStatementIngest {
        table: "od\"d".to_owned(),
        table_definition_options: Some(TableDefinitionOptions {
            if_not_exist: missing.into(),
            if_exists: exists.into(),
        }),
        ..CommandStatementIngest::default()
    }
}

async fn ingest(
    client: &mut Client,
    command: CommandStatementIngest,
    batches: Vec<RecordBatch>,
) -> Result<i64, FlightError> {
    client.execute_ingest(command, stream::iter(batches.into_iter().map(Ok))).await
}

#[tokio::test]
async fn a_stream_of_batches_becomes_a_table() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let create = command(TableExistsOption::Fail, TableNotExistOption::Create);
    let taken = ingest(&mut client, create.clone(), vec![batch(1_000), batch(1_000)]).await;
    assert_eq!(taken.unwrap(), 2_000);
    assert_eq!(server.counters().rows_ingested, 2_000);
    assert_eq!(number(&mut client, "SELECT count(*) FROM \"od\"\"d\" WHERE value IS NULL").await, 1_000);
    let batches = query(&mut client, "SELECT * FROM \"od\"\"d\"").await.unwrap();
    let schema = batches[0].schema();
    assert_eq!(schema.field(0).data_type(), &DataType::Int64);
    assert!(matches!(schema.field(2).data_type(), DataType::Timestamp(..)));
    assert_eq!(code(ingest(&mut client, create, vec![batch(1)]).await), Code::InvalidArgument);
    let append = command(TableExistsOption::Append, TableNotExistOption::Fail);
    assert_eq!(ingest(&mut client, append, vec![batch(1)]).await.unwrap(), 1);
    let replace = command(TableExistsOption::Replace, TableNotExistOption::Fail);
    assert_eq!(ingest(&mut client, replace, vec![batch(3)]).await.unwrap(), 3);
    assert_eq!(number(&mut client, "SELECT count(*) FROM \"od\"\"d\"").await, 3);
    server.stop().await;
}

#[tokio::test]
async fn a_temporary_table_is_its_sessions_own() {
    let server = start(Config::default()).await;
    let (mut one, mut two) = (connect(&server).await, connect(&server).await);
    let command = CommandStatementIngest {
        table: "mine".to_owned(),
        temporary: true,
        ..CommandStatementIngest::default()
    };
    assert_eq!(ingest(&mut one, command, vec![batch(2)]).await.unwrap(), 2);
    assert_eq!(number(&mut one, "SELECT count(*) FROM mine").await, 2);
    assert_eq!(code(query(&mut two, "SELECT * FROM mine").await), Code::InvalidArgument);
    let missing = command_for("nowhere", TableNotExistOption::Fail);
    assert_eq!(code(ingest(&mut two, missing, vec![batch(1)]).await), Code::InvalidArgument);
    server.stop().await;
}

fn command_for(table: &str, missing: TableNotExistOption) -> CommandStatementIngest {
    CommandStatementIngest { table: table.to_owned(), ..command(TableExistsOption::Append, missing) }
}

#[tokio::test]
async fn all_of_it_is_kept_or_nothing() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    update(&mut client, "CREATE TABLE t (id INTEGER PRIMARY KEY, value REAL, at TIMESTAMP)").await.unwrap();
    let command = command_for("t", TableNotExistOption::Fail);
    // The second batch repeats the keys of the first.
    let taken = ingest(&mut client, command.clone(), vec![batch(10), batch(10)]).await;
    assert_eq!(code(taken), Code::AlreadyExists);
    assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 0);
    // A client that still sends gets the error at once.
    let twice = stream::iter([Ok(batch(10)), Ok(batch(10))]);
    let unfinished = futures_util::StreamExt::chain(twice, stream::pending());
    assert_eq!(code(client.execute_ingest(command.clone(), unfinished).await), Code::AlreadyExists);
    // A client that disconnects leaves nothing behind.
    let mut other = connect(&server).await;
    let endless = stream::unfold(0, |begin| async move {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(begin..begin + 10));
        Some((Ok(RecordBatch::try_from_iter([("id", ids)]).unwrap()), begin + 10))
    });
    let steps = server.counters().steps;
    let feeding = beside(async move { other.execute_ingest(command, endless).await });
    until(&server, |counters| counters.steps > steps + 1_000).await;
    feeding.abort();
    until(&server, |counters| counters.statements_running == 0 && counters.sessions_open == 1).await;
    assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 0);
    assert_eq!(server.counters().statements_interrupted, 1);
    server.stop().await;
}
