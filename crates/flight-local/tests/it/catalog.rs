//! The catalog.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt8Type};
use arrow_flight::sql::{
    CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys,
    CommandGetPrimaryKeys, CommandGetTables, CommandGetXdbcTypeInfo, SqlInfo,
};
use arrow_flight::{FlightInfo, IpcMessage};
use arrow_schema::{DataType, Schema};
use flight_local::Config;

use crate::client::{Client, connect, fetch, start, update};

fn texts(batch: &RecordBatch, column: &str) -> Vec<String> {
    let column = batch.column_by_name(column).unwrap().as_string::<i32>();
    column.iter().map(|text| text.unwrap_or_default().to_owned()).collect()
}

async fn one(client: &mut Client, info: FlightInfo) -> RecordBatch {
    let schema = info.clone().try_decode_schema().unwrap();
    let batches = fetch(client, info).await.unwrap();
    assert_eq!(*batches[0].schema(), schema);
    batches[0].clone()
}

#[tokio::test]
async fn tables_and_keys_are_listed() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let sql = "CREATE TABLE author (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
               CREATE TABLE book (a INT, b INT, author INT REFERENCES author (id) ON DELETE CASCADE,
                                  PRIMARY KEY (b, a));
               CREATE VIEW titles AS SELECT b FROM book;
               CREATE TEMP TABLE mine (n INT)";
    update(&mut client, sql).await.unwrap();
    let info = client.get_tables(CommandGetTables::default()).await.unwrap();
    let tables = one(&mut client, info).await;
    assert_eq!(texts(&tables, "table_name"), ["author", "book", "titles", "mine"]);
    assert_eq!(texts(&tables, "table_type"), ["table", "table", "view", "table"]);
    let command = CommandGetTables {
        catalog: Some("main".to_owned()),
        table_name_filter_pattern: Some("auth%".to_owned()),
        include_schema: true,
        ..CommandGetTables::default()
    };
    let info = client.get_tables(command).await.unwrap();
    let tables = one(&mut client, info).await;
    assert_eq!(texts(&tables, "table_name"), ["author"]);
    let schema = tables.column_by_name("table_schema").unwrap().as_binary::<i32>().value(0).to_vec();
    let schema = Schema::try_from(IpcMessage(schema.into())).unwrap();
    assert_eq!(schema.field(0).data_type(), &DataType::Int64);
    assert!(!schema.field(1).is_nullable());
    let keys = CommandGetPrimaryKeys { table: "book".to_owned(), ..CommandGetPrimaryKeys::default() };
    let info = client.get_primary_keys(keys).await.unwrap();
    let keys = one(&mut client, info).await;
    assert_eq!(texts(&keys, "column_name"), ["b", "a"]);
    assert_eq!(keys.column_by_name("key_sequence").unwrap().as_primitive::<Int32Type>().value(1), 2);
    let imported = CommandGetImportedKeys { table: "book".to_owned(), ..CommandGetImportedKeys::default() };
    let exported = CommandGetExportedKeys { table: "author".to_owned(), ..CommandGetExportedKeys::default() };
    let cross = CommandGetCrossReference {
        pk_table: "author".to_owned(),
        fk_table: "book".to_owned(),
        ..CommandGetCrossReference::default()
    };
    let infos = [
        client.get_imported_keys(imported).await.unwrap(),
        client.get_exported_keys(exported).await.unwrap(),
        client.get_cross_reference(cross).await.unwrap(),
    ];
    for info in infos {
        let keys = one(&mut client, info).await;
        assert_eq!(texts(&keys, "fk_column_name"), ["author"]);
        assert_eq!(texts(&keys, "pk_table_name"), ["author"]);
        assert_eq!(keys.column_by_name("delete_rule").unwrap().as_primitive::<UInt8Type>().value(0), 0);
    }
    server.stop().await;
}

#[tokio::test]
async fn the_server_tells_what_it_is() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let info = client.get_catalogs().await.unwrap();
    assert_eq!(texts(&one(&mut client, info).await, "catalog_name"), ["main", "temp"]);
    let info = client.get_db_schemas(CommandGetDbSchemas::default()).await.unwrap();
    assert_eq!(one(&mut client, info).await.num_rows(), 2);
    let info = client.get_table_types().await.unwrap();
    assert_eq!(texts(&one(&mut client, info).await, "table_type"), ["table", "view"]);
    let info = client.get_sql_info(vec![SqlInfo::FlightSqlServerName]).await.unwrap();
    assert_eq!(one(&mut client, info).await.num_rows(), 1);
    let info = client.get_sql_info(vec![]).await.unwrap();
    assert!(one(&mut client, info).await.num_rows() > 10);
    let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: None }).await.unwrap();
    assert_eq!(texts(&one(&mut client, info).await, "type_name").len(), 7);
    assert_eq!(server.counters().statements_started, 0);
    server.stop().await;
}
