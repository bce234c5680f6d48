//! Catalog commands: catalogs, tables, keys, and the server's capabilities.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray, UInt8Array};
use arrow_flight::sql::{Command, CommandGetCatalogs, CommandGetDbSchemas, CommandGetTables};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use rusqlite::Connection;
use tonic::Status;

use super::{Service, sql_info, unknown};
use crate::batch_builder::declared;
use crate::error::Failure;
use crate::ingest::quoted;
use crate::session::Session;
use crate::statement_task::run_internal;

/// The result schema of a catalog command; `None` for other commands.
pub(super) fn schema(command: &Command) -> Option<SchemaRef> {
    Some(match command {
        Command::CommandGetCatalogs(_) => CommandGetCatalogs {}.into_builder().schema(),
        Command::CommandGetDbSchemas(_) => CommandGetDbSchemas::default().into_builder().schema(),
        Command::CommandGetTables(tables) => tables.clone().into_builder().schema(),
        Command::CommandGetTableTypes(types) => types.into_builder().schema(),
        Command::CommandGetSqlInfo(_) => Arc::new(sql_info::sql_info_schema()),
        Command::CommandGetXdbcTypeInfo(_) => sql_info::types().ok()?.schema(),
        Command::CommandGetPrimaryKeys(_) => primary_key_schema(),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => foreign_key_schema(),
        _ => return None,
    })
}

impl Service {
    /// Runs a catalog command.
    pub(super) async fn catalog(
        &self,
        session: &Arc<Session>,
        command: Command,
    ) -> Result<RecordBatch, Status> {
        let internal = |error: arrow_flight::error::FlightError| Status::internal(error.to_string());
        let batch = match command {
            Command::CommandGetCatalogs(command) => {
                let mut builder = command.into_builder();
                CATALOGS.iter().for_each(|catalog| builder.append(*catalog));
                builder.build()
            }
            Command::CommandGetDbSchemas(command) => {
                let mut builder = command.into_builder();
                CATALOGS.iter().for_each(|catalog| builder.append(catalog, ""));
                builder.build()
            }
            Command::CommandGetTableTypes(command) => {
                let mut builder = command.into_builder();
                ["table", "view"].iter().for_each(|kind| builder.append(kind));
                builder.build()
            }
            Command::CommandGetSqlInfo(command) => {
                let sql_info = sql_info::sql_info(&self.shared.config).map_err(internal)?;
                command.into_builder(&sql_info).build()
            }
            Command::CommandGetXdbcTypeInfo(command) => {
                let types = sql_info::types().map_err(internal)?;
                command.into_builder(&types).build()
            }
            Command::CommandGetTables(command) => {
                return run_internal(&self.shared, session, move |connection| tables(connection, command))
                    .await;
            }
            Command::CommandGetPrimaryKeys(command) => {
                let keys = move |connection: &Connection| {
                    primary_keys(connection, &catalog(command.catalog), &command.table)
                };
                return run_internal(&self.shared, session, keys).await;
            }
            Command::CommandGetImportedKeys(command) => {
                let keys = foreign_keys(command.catalog, move |key| key.fk_table == command.table);
                return run_internal(&self.shared, session, keys).await;
            }
            Command::CommandGetExportedKeys(command) => {
                let keys = foreign_keys(command.catalog, move |key| key.pk_table == command.table);
                return run_internal(&self.shared, session, keys).await;
            }
            Command::CommandGetCrossReference(command) => {
                let keys = foreign_keys(command.fk_catalog, move |key| {
                    key.pk_table == command.pk_table && key.fk_table == command.fk_table
                });
                return run_internal(&self.shared, session, keys).await;
            }
            other => return Err(unknown(other.type_url())),
        };
        batch.map_err(internal)
    }
}

/// The databases of a session; they have no schemas.
const CATALOGS: [&str; 2] = ["main", "temp"];

/// The tables and views of a database, with their types.
fn names(connection: &Connection, catalog: &str) -> Result<Vec<(String, String)>, Failure> {
    let sql = format!(
        "SELECT name, type FROM {}.sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' \
         ESCAPE '\\' ORDER BY name",
        quoted(catalog)
    );
    let mut statement = connection.prepare(&sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn tables(connection: &Connection, command: CommandGetTables) -> Result<RecordBatch, Failure> {
    let wants_schema = command.include_schema;
    let mut builder = command.into_builder();
    for catalog in CATALOGS {
        for (name, kind) in names(connection, catalog)? {
            let schema =
                if wants_schema { table_schema(connection, catalog, &name)? } else { Schema::empty() };
            let appended = builder.append(catalog, "", name, kind, &schema);
            appended.map_err(|error| Failure::Request(error.to_string()))?;
        }
    }
    builder.build().map_err(|error| Failure::Request(error.to_string()))
}

/// Columns without a declared type are text.
fn table_schema(connection: &Connection, catalog: &str, table: &str) -> Result<Schema, Failure> {
    let sql = "SELECT name, type, \"notnull\" FROM pragma_table_info(?1, ?2)";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([table, catalog], |row| {
        let (name, declaration, strict): (String, String, bool) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Field::new(name, declared(&declaration).unwrap_or(DataType::Utf8), !strict))
    })?;
    Ok(Schema::new(rows.collect::<Result<Vec<_>, _>>()?))
}

fn primary_key_schema() -> SchemaRef {
    let text = |name, nullable| Field::new(name, DataType::Utf8, nullable);
    Arc::new(Schema::new(vec![
        text("catalog_name", true),
        text("db_schema_name", true),
        text("table_name", false),
        text("column_name", false),
        Field::new("key_sequence", DataType::Int32, false),
        text("key_name", true),
    ]))
}

fn primary_keys(connection: &Connection, catalog: &str, table: &str) -> Result<RecordBatch, Failure> {
    let mut statement =
        connection.prepare("SELECT name, pk FROM pragma_table_info(?1, ?2) WHERE pk > 0 ORDER BY pk")?;
    let rows = statement.query_map([table, catalog], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let keys: Vec<(String, i32)> = rows.collect::<Result<_, _>>()?;
    let columns: Vec<ArrayRef> = vec![
        texts(keys.iter().map(|_| Some(catalog))),
        texts(keys.iter().map(|_| None)),
        texts(keys.iter().map(|_| Some(table))),
        texts(keys.iter().map(|(name, _)| Some(name.as_str()))),
        Arc::new(Int32Array::from_iter_values(keys.iter().map(|(_, place)| *place))),
        texts(keys.iter().map(|_| None)),
    ];
    Ok(RecordBatch::try_new(primary_key_schema(), columns)?)
}

fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(StringArray::from_iter(values))
}

fn foreign_key_schema() -> SchemaRef {
    let text = |name, nullable| Field::new(name, DataType::Utf8, nullable);
    Arc::new(Schema::new(vec![
        text("pk_catalog_name", true),
        text("pk_db_schema_name", true),
        text("pk_table_name", false),
        text("pk_column_name", false),
        text("fk_catalog_name", true),
        text("fk_db_schema_name", true),
        text("fk_table_name", false),
        text("fk_column_name", false),
        Field::new("key_sequence", DataType::Int32, false),
        text("fk_key_name", true),
        text("pk_key_name", true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]))
}

struct ForeignKey {
    pk_table: String,
    pk_column: Option<String>,
    fk_table: String,
    fk_column: String,
    sequence: i32,
    update_rule: u8,
    delete_rule: u8,
}

/// The referential action, as Flight SQL numbers it.
fn rule(text: &str) -> u8 {
    match text {
        "CASCADE" => 0,
        "RESTRICT" => 1,
        "SET NULL" => 2,
        "SET DEFAULT" => 4,
        _ => 3,
    }
}

fn catalog(name: Option<String>) -> String {
    name.unwrap_or_else(|| "main".to_owned())
}

/// Finds the foreign keys of a catalog that are wanted.
fn foreign_keys(
    name: Option<String>,
    wanted: impl Fn(&ForeignKey) -> bool,
) -> impl FnOnce(&Connection) -> Result<RecordBatch, Failure> {
    move |connection| foreign_key_batch(connection, &catalog(name), wanted)
}

fn foreign_key_batch(
    connection: &Connection,
    catalog: &str,
    wanted: impl Fn(&ForeignKey) -> bool,
) -> Result<RecordBatch, Failure> {
    let mut keys = Vec::new();
    let sql = "SELECT \"table\", \"to\", \"from\", seq + 1, on_update, on_delete \
               FROM pragma_foreign_key_list(?1, ?2) ORDER BY id, seq";
    let mut statement = connection.prepare(sql)?;
    for (table, _) in names(connection, catalog)? {
        let rows = statement.query_map([table.as_str(), catalog], |row| {
            Ok(ForeignKey {
                pk_table: row.get(0)?,
                pk_column: row.get(1)?,
                fk_table: table.clone(),
                fk_column: row.get(2)?,
                sequence: row.get(3)?,
                update_rule: rule(&row.get::<_, String>(4)?),
                delete_rule: rule(&row.get::<_, String>(5)?),
            })
        })?;
        keys.extend(rows.collect::<Result<Vec<_>, _>>()?);
    }
    keys.retain(wanted);
    let text = |value: fn(&ForeignKey) -> Option<&str>| texts(keys.iter().map(value));
    let here = || texts(keys.iter().map(|_| Some(catalog)));
    let none = || texts(keys.iter().map(|_| None));
    let columns: Vec<ArrayRef> = vec![
        here(),
        none(),
        text(|key| Some(&key.pk_table)),
        // A key without a column refers to the primary key.
        text(|key| Some(key.pk_column.as_deref().unwrap_or("rowid"))),
        here(),
        none(),
        text(|key| Some(&key.fk_table)),
        text(|key| Some(&key.fk_column)),
        Arc::new(Int32Array::from_iter_values(keys.iter().map(|key| key.sequence))),
        none(),
        none(),
        Arc::new(UInt8Array::from_iter_values(keys.iter().map(|key| key.update_rule))),
        Arc::new(UInt8Array::from_iter_values(keys.iter().map(|key| key.delete_rule))),
    ];
    Ok(RecordBatch::try_new(foreign_key_schema(), columns)?)
}
