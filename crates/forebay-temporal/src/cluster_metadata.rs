//! Cluster metadata: what is known of each cluster. Every change raises its version.

use tokio_postgres::Row;

use crate::blob::Blob;
use crate::connection::{Connection, Tx, Value};
use crate::error::{Condition, Error, Result};
use crate::page::{Page, PageToken, rows_to_ask};

/// The only partition.
const PARTITION: i32 = 0;

/// What is known of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMetadataRow {
    /// The cluster; at most 255 characters.
    pub cluster_name: String,
    /// What is known of it.
    pub data: Blob,
    /// How often it was written; the first version is 1.
    pub version: i64,
}

const INSERT: &str = "INSERT INTO cluster_metadata_info (metadata_partition, cluster_name, data, data_encoding, version) \
     VALUES ($1, $2, $3, $4, 1) ON CONFLICT (metadata_partition, cluster_name) DO NOTHING";
const UPDATE: &str = "UPDATE cluster_metadata_info SET data = $3, data_encoding = $4, version = version + 1 \
     WHERE metadata_partition = $1 AND cluster_name = $2 AND version = $5";
const SELECT: &str = "SELECT cluster_name, data, data_encoding, version FROM cluster_metadata_info \
     WHERE metadata_partition = $1 AND cluster_name = $2";
const LOCK: &str = "SELECT cluster_name, data, data_encoding, version FROM cluster_metadata_info \
     WHERE metadata_partition = $1 AND cluster_name = $2 FOR UPDATE";
const FIRST_PAGE: &str = "SELECT cluster_name, data, data_encoding, version FROM cluster_metadata_info \
     WHERE metadata_partition = $1 ORDER BY cluster_name LIMIT $2";
const NEXT_PAGE: &str = "SELECT cluster_name, data, data_encoding, version FROM cluster_metadata_info \
     WHERE metadata_partition = $1 AND cluster_name > $2 ORDER BY cluster_name LIMIT $3";
const DELETE: &str = "DELETE FROM cluster_metadata_info WHERE metadata_partition = $1 AND cluster_name = $2";
const LIST: &str = "clusters";

/// Writes what is known of a cluster if its version is the one in `row`, and returns the next version, which it then has. Version 0
/// means that nothing is known yet.
///
/// # Errors
/// [`Error::ConditionFailed`] if it has another version.
///
/// # Cancel safety
/// Outside of a transaction, it may have been written.
pub async fn save(connection: &Connection, row: &ClusterMetadataRow) -> Result<i64> {
    let ClusterMetadataRow { cluster_name, data, version } = row;
    let mut values: Vec<Value<'_>> = vec![&PARTITION, cluster_name, &data.data, &data.encoding];
    let sql = if *version == 0 {
        INSERT
    } else {
        values.push(version);
        UPDATE
    };
    let condition = || Condition::row("metadata of cluster", cluster_name, format!("version {version}"));
    connection.swap(sql, &values, condition).await?;
    Ok(version.saturating_add(1))
}

/// Reads a page of what is known of at most `size` clusters, in the order of their names.
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
) -> Result<Page<ClusterMetadataRow>> {
    let limit = rows_to_ask(size)?;
    let rows = match page {
        None => connection.query(FIRST_PAGE, &[&PARTITION, &limit]).await?,
        Some(token) => {
            let last: String = token.key(LIST)?;
            connection.query(NEXT_PAGE, &[&PARTITION, &last, &limit]).await?
        }
    };
    let rows = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(Page::cut(rows, size, LIST, |row| row.cluster_name.clone()))
}

/// Reads what is known of a cluster.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn get(connection: &Connection, cluster_name: &str) -> Result<ClusterMetadataRow> {
    found(connection.query_opt(SELECT, &[&PARTITION, &cluster_name]).await?, cluster_name)
}

/// Reads what is known of a cluster, and locks it until the end of the transaction. The lock holds nobody up: of two transactions that
/// lock or change it and overlap, the second to commit fails with a conflict, and is run again.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// The lock ends with the transaction.
pub async fn lock(tx: &Tx, cluster_name: &str) -> Result<ClusterMetadataRow> {
    found(tx.query_opt(LOCK, &[&PARTITION, &cluster_name]).await?, cluster_name)
}

/// Deletes what is known of a cluster. Returns whether something was.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, it may have been deleted.
pub async fn delete(connection: &Connection, cluster_name: &str) -> Result<bool> {
    Ok(connection.execute(DELETE, &[&PARTITION, &cluster_name]).await? > 0)
}

fn found(row: Option<Row>, cluster_name: &str) -> Result<ClusterMetadataRow> {
    read(&row.ok_or_else(|| Error::not_found("metadata of cluster", cluster_name))?)
}

fn read(row: &Row) -> Result<ClusterMetadataRow> {
    Ok(ClusterMetadataRow {
        cluster_name: row.try_get(0)?,
        data: Blob::read(row, 1)?,
        version: row.try_get(3)?,
    })
}
