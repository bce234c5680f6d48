//! Inserts batches into a table.

use arrow_array::RecordBatch;
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use arrow_schema::Schema;
use rusqlite::{Connection, OptionalExtension};
use tokio::sync::mpsc::Receiver;

use crate::counters::{Tally, add};
use crate::error::Failure;
use crate::execution::Execution;
use crate::parameters::{Rows, declaration};
use crate::race::unless;
use crate::runtime;

/// What the client sends.
#[derive(Debug)]
pub(crate) enum IngestMessage {
    Schema(std::sync::Arc<Schema>),
    Batch(RecordBatch),
    /// The end. Without it the client is gone, and nothing is kept.
    End,
}

/// Inserts all batches or none. Returns the number of rows.
pub(crate) fn ingest(
    connection: &Connection,
    command: &CommandStatementIngest,
    mut feed: Receiver<IngestMessage>,
    run: &Execution,
    tally: &Tally,
) -> Result<i64, Failure> {
    let Some(IngestMessage::Schema(schema)) = receive(&mut feed, run)? else {
        return Err(Failure::Interrupted);
    };
    // Outside of a transaction, begin one that writes from the start: it waits for other writers. A
    // transaction that reads first fails if another session writes in between. A temporary table has no other
    // writer.
    let [begin, keep, undo] = match connection.is_autocommit() && !command.temporary {
        true => ["BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"],
        false => [
            "SAVEPOINT flight_local_ingest",
            "RELEASE flight_local_ingest",
            "ROLLBACK TO flight_local_ingest; RELEASE flight_local_ingest",
        ],
    };
    connection.execute_batch(begin)?;
    let taken = take_all(connection, command, &schema, &mut feed, run);
    let end = if taken.is_ok() { keep } else { undo };
    match (taken, connection.execute_batch(end)) {
        (Ok(rows), Ok(())) => {
            add(&tally.rows_ingested, u64::try_from(rows).unwrap_or(0));
            Ok(rows)
        }
        (Ok(_), Err(error)) => {
            if begin == "BEGIN IMMEDIATE" {
                // The transaction must not stay open; it may have been rolled back already.
                let (Ok(()) | Err(_)) = connection.execute_batch(undo);
            }
            Err(error.into())
        }
        // A cancellation has already rolled back the transaction and its savepoint.
        (Err(failure), _) => Err(failure),
    }
}

fn take_all(
    connection: &Connection,
    command: &CommandStatementIngest,
    schema: &Schema,
    feed: &mut Receiver<IngestMessage>,
    run: &Execution,
) -> Result<i64, Failure> {
    let table = Table::of(connection, command)?;
    table.prepare(connection, command, schema)?;
    let names: Vec<String> = schema.fields().iter().map(|field| quoted(field.name())).collect();
    let marks = vec!["?"; names.len()].join(", ");
    let sql = format!("INSERT INTO {} ({}) VALUES ({marks})", table.name(), names.join(", "));
    let mut insert = connection.prepare(&sql)?;
    let places: Vec<usize> = (0..names.len()).collect();
    let mut taken = 0;
    loop {
        match receive(feed, run)? {
            Some(IngestMessage::Batch(batch)) => {
                let rows = Rows::new(&batch)?;
                for row in 0..rows.len {
                    rows.bind(row, &places, &mut insert)?;
                    insert.raw_execute()?;
                }
                run.steps(rows.len as u64);
                taken += i64::try_from(rows.len).unwrap_or(0);
            }
            Some(IngestMessage::End) => return Ok(taken),
            Some(IngestMessage::Schema(_)) | None => return Err(Failure::Interrupted),
        }
    }
}

fn receive(feed: &mut Receiver<IngestMessage>, run: &Execution) -> Result<Option<IngestMessage>, Failure> {
    runtime::wait_for(unless(feed.recv(), run.cancelled())).ok_or(Failure::Interrupted)
}

struct Table {
    database: String,
    name: String,
    exists: bool,
}

impl Table {
    fn of(connection: &Connection, command: &CommandStatementIngest) -> Result<Self, Failure> {
        if command.schema.as_ref().is_some_and(|schema| !schema.is_empty()) {
            return Err(Failure::Request("this server has no schemas; leave the schema out".to_owned()));
        }
        if command.table.is_empty() {
            return Err(Failure::Request("the table has no name; give one".to_owned()));
        }
        let database = match (&command.catalog, command.temporary) {
            (_, true) => "temp".to_owned(),
            (Some(catalog), false) if !catalog.is_empty() => catalog.clone(),
            _ => "main".to_owned(),
        };
        let sql =
            format!("SELECT 1 FROM {}.sqlite_schema WHERE type = 'table' AND name = ?1", quoted(&database));
        let exists = connection.query_row(&sql, [&command.table], |_| Ok(())).optional()?.is_some();
        Ok(Self { database, name: command.table.clone(), exists })
    }

    fn name(&self) -> String {
        format!("{}.{}", quoted(&self.database), quoted(&self.name))
    }

    /// Creates, replaces or keeps the table, as the options demand.
    fn prepare(
        &self,
        connection: &Connection,
        command: &CommandStatementIngest,
        schema: &Schema,
    ) -> Result<(), Failure> {
        let options = command.table_definition_options.unwrap_or_default();
        let refuse = |why: &str| Err(Failure::Request(format!("table {} {why}", self.name())));
        match (self.exists, options.if_exists(), options.if_not_exist()) {
            (true, TableExistsOption::Append, _) => return Ok(()),
            (true, TableExistsOption::Replace, _) => {
                connection.execute_batch(&format!("DROP TABLE {}", self.name()))?;
            }
            (true, _, _) => return refuse("exists; append to it, or replace it"),
            (false, _, TableNotExistOption::Fail) => {
                return refuse("does not exist; create it, or let the ingestion do so");
            }
            (false, _, _) => {}
        }
        let columns: Vec<String> = schema
            .fields()
            .iter()
            .map(|field| {
                let null = if field.is_nullable() { "" } else { " NOT NULL" };
                format!("{} {}{null}", quoted(field.name()), declaration(field.data_type()))
            })
            .collect();
        connection.execute_batch(&format!("CREATE TABLE {} ({})", self.name(), columns.join(", ")))?;
        Ok(())
    }
}

/// A quoted identifier.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
