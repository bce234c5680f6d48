//! Nexus endpoints. Each has a version, and all of them together have one: the version of the table, which every change raises in the
//! same transaction.

use tokio_postgres::Row;
use uuid::Uuid;

use crate::blob::Blob;
use crate::connection::Connection;
use crate::error::{Condition, Error, Result};
use crate::page::{Page, PageToken, rows_to_ask};

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NexusEndpointRow {
    /// Which it is.
    pub id: Uuid,
    /// What is known of it.
    pub endpoint: Blob,
    /// How often it was written; the first version is 1.
    pub version: i64,
}

const TABLE_VERSION: &str = "SELECT version FROM nexus_endpoints_partition_status WHERE id = 0";
const INITIALIZE: &str =
    "INSERT INTO nexus_endpoints_partition_status (id, version) VALUES (0, 1) ON CONFLICT (id) DO NOTHING";
const INCREMENT: &str =
    "UPDATE nexus_endpoints_partition_status SET version = version + 1 WHERE id = 0 AND version = $1";
const INSERT: &str = "INSERT INTO nexus_endpoints (id, data, data_encoding, version) VALUES ($1, $2, $3, 1)";
const UPDATE: &str = "UPDATE nexus_endpoints SET data = $2, data_encoding = $3, version = version + 1 \
     WHERE id = $1 AND version = $4";
const DELETE: &str = "DELETE FROM nexus_endpoints WHERE id = $1";
const SELECT: &str = "SELECT id, data, data_encoding, version FROM nexus_endpoints WHERE id = $1";
const FIRST_PAGE: &str = "SELECT id, data, data_encoding, version FROM nexus_endpoints ORDER BY id LIMIT $1";
const NEXT_PAGE: &str =
    "SELECT id, data, data_encoding, version FROM nexus_endpoints WHERE id > $1 ORDER BY id LIMIT $2";
const LIST: &str = "nexus endpoints";

/// The version of the table; 0 before its first change.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn table_version(connection: &Connection) -> Result<i64> {
    let row = connection.query_opt(TABLE_VERSION, &[]).await?;
    Ok(row.map_or(Ok(0), |row| row.try_get(0))?)
}

/// Counts the first change of the table: its version is 1 then.
///
/// # Errors
/// [`Error::ConditionFailed`] if it has a version already.
///
/// # Cancel safety
/// Outside of a transaction, it may have happened.
pub async fn initialize_table_version(connection: &Connection) -> Result<()> {
    connection.swap(INITIALIZE, &[], || table_condition(0)).await
}

/// Counts a change of the table: raises its version by one if it is `expected_version`, and returns the new one.
///
/// # Errors
/// [`Error::ConditionFailed`] if it has another version, or none.
///
/// # Cancel safety
/// Outside of a transaction, it may have happened.
pub async fn increment_table_version(connection: &Connection, expected_version: i64) -> Result<i64> {
    connection.swap(INCREMENT, &[&expected_version], || table_condition(expected_version)).await?;
    Ok(expected_version.saturating_add(1))
}

/// Inserts an endpoint. Its version is 1 then.
///
/// # Errors
/// [`Error::AlreadyExists`].
///
/// # Cancel safety
/// Outside of a transaction, it may have been inserted.
pub async fn insert(connection: &Connection, id: Uuid, endpoint: &Blob) -> Result<()> {
    connection.execute(INSERT, &[&id, &endpoint.data, &endpoint.encoding]).await?;
    Ok(())
}

/// Writes an endpoint if its version is the one in `row`, and returns the next version, which it then has.
///
/// # Errors
/// [`Error::ConditionFailed`] if it has another version, or does not exist.
///
/// # Cancel safety
/// Outside of a transaction, it may have been written.
pub async fn update(connection: &Connection, row: &NexusEndpointRow) -> Result<i64> {
    let NexusEndpointRow { id, endpoint, version } = row;
    let condition = || Condition::row("nexus endpoint", id, format!("version {version}"));
    connection.swap(UPDATE, &[id, &endpoint.data, &endpoint.encoding, version], condition).await?;
    Ok(version.saturating_add(1))
}

/// Deletes an endpoint. Returns whether there was one.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, it may have been deleted.
pub async fn delete(connection: &Connection, id: Uuid) -> Result<bool> {
    Ok(connection.execute(DELETE, &[&id]).await? > 0)
}

/// Reads an endpoint.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn get(connection: &Connection, id: Uuid) -> Result<NexusEndpointRow> {
    let row = connection.query_opt(SELECT, &[&id]).await?;
    read(&row.ok_or_else(|| Error::not_found("nexus endpoint", id))?)
}

/// Reads a page of at most `size` endpoints, in the order of their ids.
///
/// The first page has a statement of its own: there is no identifier that all others follow.
///
/// # Errors
/// [`Error::InvalidInput`] for a size of 0, or a token of another list; those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn list(
    connection: &Connection,
    size: usize,
    page: Option<&PageToken>,
) -> Result<Page<NexusEndpointRow>> {
    let limit = rows_to_ask(size)?;
    let rows = match page {
        None => connection.query(FIRST_PAGE, &[&limit]).await?,
        Some(token) => {
            let last: Uuid = token.key(LIST)?;
            connection.query(NEXT_PAGE, &[&last, &limit]).await?
        }
    };
    let rows = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(Page::cut(rows, size, LIST, |row| row.id))
}

fn table_condition(expected_version: i64) -> Condition {
    Condition::row("table of", LIST, format!("version {expected_version}"))
}

fn read(row: &Row) -> Result<NexusEndpointRow> {
    Ok(NexusEndpointRow { id: row.try_get(0)?, endpoint: Blob::read(row, 1)?, version: row.try_get(3)? })
}
