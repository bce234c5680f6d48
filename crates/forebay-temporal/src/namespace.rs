//! Namespaces.
//!
//! Two counters look alike. A namespace has a `notification_version` of its own: the number of the change that last wrote its row. The
//! [metadata](crate::namespace_metadata) has the number of the next change of any namespace. An update is fenced by the row's own one,
//! so a namespace can be updated however many others have changed since. A server changes one like this:
//!
//! ```no_run
//! use forebay_temporal::{Blob, Persistence, namespace, namespace_metadata};
//!
//! # async fn example(persistence: &Persistence, id: uuid::Uuid, info: &Blob) -> forebay_temporal::Result<()> {
//! let change = persistence.run("update_namespace", async |tx| {
//!     let number = namespace_metadata::lock(&tx).await?;
//!     let found = namespace::select(&tx, id).await?;
//!     let row = namespace::NamespaceRow { info: info.clone(), notification_version: number, ..found.clone() };
//!     namespace::update(&tx, &row, found.notification_version).await?;
//!     namespace_metadata::update(&tx, number).await
//! });
//! change.await?;
//! # Ok(())
//! # }
//! ```

use tokio_postgres::Row;
use uuid::Uuid;

use crate::blob::Blob;
use crate::connection::{Connection, Value};
use crate::error::{Condition, Error, Result};
use crate::page::{Page, PageToken, rows_to_ask};

/// The only partition.
pub(crate) const PARTITION: i32 = 54_321;

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceRow {
    /// Which it is.
    pub id: Uuid,
    /// Its name, which no other has; at most 255 characters.
    pub name: String,
    /// What is known of it.
    pub info: Blob,
    /// Whether it exists in several clusters.
    pub is_global: bool,
    /// The number of the change that last wrote it.
    pub notification_version: i64,
}

const INSERT: &str = "INSERT INTO namespaces (partition_id, id, name, data, data_encoding, is_global, notification_version) \
     VALUES ($1, $2, $3, $4, $5, $6, $7)";
const UPDATE: &str = "UPDATE namespaces \
     SET name = $3, data = $4, data_encoding = $5, is_global = $6, notification_version = $7 \
     WHERE partition_id = $1 AND id = $2 AND notification_version = $8";
const SELECT: &str = "SELECT id, name, data, data_encoding, is_global, notification_version FROM namespaces \
     WHERE partition_id = $1 AND id = $2";
const SELECT_BY_NAME: &str = "SELECT id, name, data, data_encoding, is_global, notification_version FROM namespaces \
     WHERE partition_id = $1 AND name = $2";
const FIRST_PAGE: &str = "SELECT id, name, data, data_encoding, is_global, notification_version FROM namespaces \
     WHERE partition_id = $1 ORDER BY id LIMIT $2";
const NEXT_PAGE: &str = "SELECT id, name, data, data_encoding, is_global, notification_version FROM namespaces \
     WHERE partition_id = $1 AND id > $2 ORDER BY id LIMIT $3";
const DELETE: &str = "DELETE FROM namespaces WHERE partition_id = $1 AND id = $2";
const DELETE_BY_NAME: &str = "DELETE FROM namespaces WHERE partition_id = $1 AND name = $2";
const LIST: &str = "namespaces";

/// Inserts a namespace.
///
/// # Errors
/// [`Error::AlreadyExists`], also if only its name does.
///
/// # Cancel safety
/// Outside of a transaction, it may have been inserted.
pub async fn insert(connection: &Connection, row: &NamespaceRow) -> Result<()> {
    connection.execute(INSERT, &row.values()).await?;
    Ok(())
}

/// Updates a namespace if its own notification version is `expected_notification_version`, as it was read.
///
/// # Errors
/// [`Error::ConditionFailed`] if it has another one, or does not exist; [`Error::AlreadyExists`] if another namespace has its new name.
///
/// # Cancel safety
/// Outside of a transaction, the update may have happened.
pub async fn update(
    connection: &Connection,
    row: &NamespaceRow,
    expected_notification_version: i64,
) -> Result<()> {
    let mut values = row.values().to_vec();
    values.push(&expected_notification_version);
    let condition = || {
        Condition::row("namespace", row.id, format!("notification_version {expected_notification_version}"))
    };
    connection.swap(UPDATE, &values, condition).await
}

/// Reads a namespace.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn select(connection: &Connection, id: Uuid) -> Result<NamespaceRow> {
    let row = connection.query_opt(SELECT, &[&PARTITION, &id]).await?;
    read(&row.ok_or_else(|| Error::not_found("namespace", id))?)
}

/// Reads the namespace with this name.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn select_by_name(connection: &Connection, name: &str) -> Result<NamespaceRow> {
    let row = connection.query_opt(SELECT_BY_NAME, &[&PARTITION, &name]).await?;
    read(&row.ok_or_else(|| Error::not_found("namespace", format!("{name:?}")))?)
}

/// Reads a page of at most `size` namespaces, in the order of their ids.
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
) -> Result<Page<NamespaceRow>> {
    let limit = rows_to_ask(size)?;
    let rows = match page {
        None => connection.query(FIRST_PAGE, &[&PARTITION, &limit]).await?,
        Some(token) => {
            let last: Uuid = token.key(LIST)?;
            connection.query(NEXT_PAGE, &[&PARTITION, &last, &limit]).await?
        }
    };
    let rows = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(Page::cut(rows, size, LIST, |row| row.id))
}

/// Deletes a namespace. Returns whether there was one.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, it may have been deleted.
pub async fn delete(connection: &Connection, id: Uuid) -> Result<bool> {
    Ok(connection.execute(DELETE, &[&PARTITION, &id]).await? > 0)
}

/// Deletes the namespace with this name. Returns whether there was one.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, it may have been deleted.
pub async fn delete_by_name(connection: &Connection, name: &str) -> Result<bool> {
    Ok(connection.execute(DELETE_BY_NAME, &[&PARTITION, &name]).await? > 0)
}

impl NamespaceRow {
    fn values(&self) -> [Value<'_>; 7] {
        let Self { id, name, info, is_global, notification_version } = self;
        [&PARTITION, id, name, &info.data, &info.encoding, is_global, notification_version]
    }
}

fn read(row: &Row) -> Result<NamespaceRow> {
    Ok(NamespaceRow {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        info: Blob::read(row, 2)?,
        is_global: row.try_get(4)?,
        notification_version: row.try_get(5)?,
    })
}
