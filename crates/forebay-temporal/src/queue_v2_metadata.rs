//! Metadata of the queues of the second generation: which there are, and where their messages begin.
//!
//! The rows have no version. Whoever changes one locks it first, in the same transaction.

use tokio_postgres::Row;

use crate::blob::Blob;
use crate::connection::{Connection, Tx};
use crate::error::{Error, Result};
use crate::page::{Page, PageToken, rows_to_ask};

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueV2MetadataRow {
    /// Its type, as the server numbers them.
    pub queue_type: i32,
    /// Its name; at most 255 characters.
    pub queue_name: String,
    /// Where the messages of its partitions begin.
    pub metadata: Blob,
}

const INSERT: &str = "INSERT INTO queues (queue_type, queue_name, metadata_payload, metadata_encoding) VALUES ($1, $2, $3, $4)";
const UPDATE: &str = "UPDATE queues SET metadata_payload = $3, metadata_encoding = $4 WHERE queue_type = $1 AND queue_name = $2";
const SELECT: &str = "SELECT queue_type, queue_name, metadata_payload, metadata_encoding FROM queues \
     WHERE queue_type = $1 AND queue_name = $2";
const LOCK: &str = "SELECT queue_type, queue_name, metadata_payload, metadata_encoding FROM queues \
     WHERE queue_type = $1 AND queue_name = $2 FOR UPDATE";
const FIRST_PAGE: &str = "SELECT queue_type, queue_name, metadata_payload, metadata_encoding FROM queues \
     WHERE queue_type = $1 ORDER BY queue_name LIMIT $2";
const NEXT_PAGE: &str = "SELECT queue_type, queue_name, metadata_payload, metadata_encoding FROM queues \
     WHERE queue_type = $1 AND queue_name > $2 ORDER BY queue_name LIMIT $3";
const LIST: &str = "queues";

/// Inserts a queue.
///
/// # Errors
/// [`Error::AlreadyExists`].
///
/// # Cancel safety
/// Outside of a transaction, it may have been inserted.
pub async fn insert(connection: &Connection, row: &QueueV2MetadataRow) -> Result<()> {
    let QueueV2MetadataRow { queue_type, queue_name, metadata } = row;
    connection.execute(INSERT, &[queue_type, queue_name, &metadata.data, &metadata.encoding]).await?;
    Ok(())
}

/// Updates a queue. The transaction has locked it before, with [`lock`].
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// Nothing is updated before the transaction commits.
pub async fn update(tx: &Tx, row: &QueueV2MetadataRow) -> Result<()> {
    let QueueV2MetadataRow { queue_type, queue_name, metadata } = row;
    let updated = tx.execute(UPDATE, &[queue_type, queue_name, &metadata.data, &metadata.encoding]).await?;
    if updated == 0 {
        return Err(not_found(*queue_type, queue_name));
    }
    Ok(())
}

/// Reads a queue.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn select(
    connection: &Connection,
    queue_type: i32,
    queue_name: &str,
) -> Result<QueueV2MetadataRow> {
    let row = connection.query_opt(SELECT, &[&queue_type, &queue_name]).await?;
    read(&row.ok_or_else(|| not_found(queue_type, queue_name))?)
}

/// Reads a queue, and locks it until the end of the transaction. The lock holds nobody up: of two transactions that lock or change it
/// and overlap, the second to commit fails with a conflict, and is run again.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// The lock ends with the transaction.
pub async fn lock(tx: &Tx, queue_type: i32, queue_name: &str) -> Result<QueueV2MetadataRow> {
    let row = tx.query_opt(LOCK, &[&queue_type, &queue_name]).await?;
    read(&row.ok_or_else(|| not_found(queue_type, queue_name))?)
}

/// Reads a page of at most `size` queues of a type, in the order of their names.
///
/// # Errors
/// [`Error::InvalidInput`] for a size of 0, or a token of another list; those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn list(
    connection: &Connection,
    queue_type: i32,
    size: usize,
    page: Option<&PageToken>,
) -> Result<Page<QueueV2MetadataRow>> {
    let limit = rows_to_ask(size)?;
    let rows = match page {
        None => connection.query(FIRST_PAGE, &[&queue_type, &limit]).await?,
        Some(token) => {
            let last: String = token.key(LIST)?;
            connection.query(NEXT_PAGE, &[&queue_type, &last, &limit]).await?
        }
    };
    let rows = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(Page::cut(rows, size, LIST, |row| row.queue_name.clone()))
}

fn not_found(queue_type: i32, queue_name: &str) -> Error {
    Error::not_found("queue", format!("{queue_name:?} of type {queue_type}"))
}

fn read(row: &Row) -> Result<QueueV2MetadataRow> {
    Ok(QueueV2MetadataRow {
        queue_type: row.try_get(0)?,
        queue_name: row.try_get(1)?,
        metadata: Blob::read(row, 2)?,
    })
}
