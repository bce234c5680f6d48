//! Metadata of the queues of the first generation: up to where each reader has read. Every change raises its version.
//!
//! A queue and its [dead letters](QueueType::dead_letters) have a row each.

use tokio_postgres::Row;

use crate::blob::Blob;
use crate::connection::{Connection, Tx};
use crate::error::{Condition, Error, Result};
pub use crate::queue_message::QueueType;

/// The metadata of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueMetadataRow {
    /// The queue.
    pub queue_type: QueueType,
    /// Up to where its readers have read.
    pub data: Blob,
    /// How often it was changed; the first version is 0.
    pub version: i64,
}

const INSERT: &str =
    "INSERT INTO queue_metadata (queue_type, data, data_encoding, version) VALUES ($1, $2, $3, $4)";
const UPDATE: &str = "UPDATE queue_metadata SET data = $2, data_encoding = $3, version = version + 1 \
     WHERE queue_type = $1 AND version = $4";
const SELECT: &str =
    "SELECT queue_type, data, data_encoding, version FROM queue_metadata WHERE queue_type = $1";
const LOCK: &str =
    "SELECT queue_type, data, data_encoding, version FROM queue_metadata WHERE queue_type = $1 FOR UPDATE";

/// Inserts the metadata of a queue.
///
/// # Errors
/// [`Error::AlreadyExists`].
///
/// # Cancel safety
/// Outside of a transaction, it may have been inserted.
pub async fn insert(connection: &Connection, row: &QueueMetadataRow) -> Result<()> {
    let QueueMetadataRow { queue_type, data, version } = row;
    connection.execute(INSERT, &[&queue_type.0, &data.data, &data.encoding, version]).await?;
    Ok(())
}

/// Writes the metadata of a queue if its version is the one in `row`, and returns the next version, which it then has.
///
/// # Errors
/// [`Error::ConditionFailed`] if it has another version, or does not exist.
///
/// # Cancel safety
/// Outside of a transaction, it may have been written.
pub async fn update(connection: &Connection, row: &QueueMetadataRow) -> Result<i64> {
    let QueueMetadataRow { queue_type, data, version } = row;
    let condition = || Condition::row("metadata of queue", queue_type, format!("version {version}"));
    connection.swap(UPDATE, &[&queue_type.0, &data.data, &data.encoding, version], condition).await?;
    Ok(version.saturating_add(1))
}

/// Reads the metadata of a queue.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn select(connection: &Connection, queue_type: QueueType) -> Result<QueueMetadataRow> {
    found(connection.query_opt(SELECT, &[&queue_type.0]).await?, queue_type)
}

/// Reads the metadata of a queue, and locks it until the end of the transaction. The lock holds nobody up: of two transactions that
/// lock or change it and overlap, the second to commit fails with a conflict, and is run again.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// The lock ends with the transaction.
pub async fn lock(tx: &Tx, queue_type: QueueType) -> Result<QueueMetadataRow> {
    found(tx.query_opt(LOCK, &[&queue_type.0]).await?, queue_type)
}

fn found(row: Option<Row>, queue_type: QueueType) -> Result<QueueMetadataRow> {
    let row = row.ok_or_else(|| Error::not_found("metadata of queue", queue_type))?;
    let (queue_type, version) = (QueueType(row.try_get(0)?), row.try_get(3)?);
    Ok(QueueMetadataRow { queue_type, data: Blob::read(&row, 1)?, version })
}
