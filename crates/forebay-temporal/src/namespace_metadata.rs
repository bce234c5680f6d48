//! Namespace metadata: the number that the next change of a namespace gets. It is one row, which the schema brings.

use tokio_postgres::Row;

use crate::connection::{Connection, Tx};
use crate::error::{Condition, Error, Result};
use crate::namespace::PARTITION;

const SELECT: &str = "SELECT notification_version FROM namespace_metadata WHERE partition_id = $1";
const LOCK: &str = "SELECT notification_version FROM namespace_metadata WHERE partition_id = $1 FOR UPDATE";
const UPDATE: &str = "UPDATE namespace_metadata SET notification_version = notification_version + 1 \
     WHERE partition_id = $1 AND notification_version = $2";

/// The number of the next change.
///
/// # Errors
/// [`Error::NotFound`] if the row of the schema is missing.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn select(connection: &Connection) -> Result<i64> {
    read(connection.query_opt(SELECT, &[&PARTITION]).await?)
}

/// The number of the next change, locked until the end of the transaction. The lock holds nobody up: of two transactions that change
/// namespaces and overlap, the second to commit fails with a conflict, and is run again.
///
/// # Errors
/// [`Error::NotFound`] if the row of the schema is missing.
///
/// # Cancel safety
/// The lock ends with the transaction.
pub async fn lock(tx: &Tx) -> Result<i64> {
    read(tx.query_opt(LOCK, &[&PARTITION]).await?)
}

/// Counts a change: raises the number by one if it is `expected_notification_version`, and returns the new one.
///
/// # Errors
/// [`Error::ConditionFailed`] if it is another.
///
/// # Cancel safety
/// Outside of a transaction, it may have been raised.
pub async fn update(connection: &Connection, expected_notification_version: i64) -> Result<i64> {
    let condition = || {
        Condition::row(
            "namespace metadata",
            PARTITION,
            format!("notification_version {expected_notification_version}"),
        )
    };
    connection.swap(UPDATE, &[&PARTITION, &expected_notification_version], condition).await?;
    Ok(expected_notification_version.saturating_add(1))
}

fn read(row: Option<Row>) -> Result<i64> {
    Ok(row.ok_or_else(|| Error::not_found("namespace metadata", PARTITION))?.try_get(0)?)
}
