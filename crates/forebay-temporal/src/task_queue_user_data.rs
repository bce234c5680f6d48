//! User data of task queues: what users set for a queue, such as its build ids. Every change raises its version.

use tokio_postgres::Row;
use uuid::Uuid;

use crate::blob::Blob;
use crate::connection::Connection;
use crate::error::{Condition, Error, Result};
use crate::page::{Page, PageToken, rows_to_ask};

/// The user data of a task queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserDataRow {
    /// The namespace of the queue.
    pub namespace_id: Uuid,
    /// The queue; at most 255 characters.
    pub task_queue_name: String,
    /// What users have set.
    pub data: Blob,
    /// How often it was written; the first version is 1.
    pub version: i64,
}

const SELECT: &str = "SELECT task_queue_name, data, data_encoding, version FROM task_queue_user_data \
     WHERE namespace_id = $1 AND task_queue_name = $2";
const INSERT: &str = "INSERT INTO task_queue_user_data (namespace_id, task_queue_name, data, data_encoding, version) \
     VALUES ($1, $2, $3, $4, 1) ON CONFLICT (namespace_id, task_queue_name) DO NOTHING";
const UPDATE: &str = "UPDATE task_queue_user_data SET data = $3, data_encoding = $4, version = version + 1 \
     WHERE namespace_id = $1 AND task_queue_name = $2 AND version = $5";
const FIRST_PAGE: &str = "SELECT task_queue_name, data, data_encoding, version FROM task_queue_user_data \
     WHERE namespace_id = $1 ORDER BY task_queue_name LIMIT $2";
const NEXT_PAGE: &str = "SELECT task_queue_name, data, data_encoding, version FROM task_queue_user_data \
     WHERE namespace_id = $1 AND task_queue_name > $2 ORDER BY task_queue_name LIMIT $3";
const LIST: &str = "user data of task queues";

/// Reads the user data of a task queue.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn get(connection: &Connection, namespace_id: Uuid, task_queue_name: &str) -> Result<UserDataRow> {
    let row = connection.query_opt(SELECT, &[&namespace_id, &task_queue_name]).await?;
    read(namespace_id, &row.ok_or_else(|| Error::not_found("user data of the task queue", task_queue_name))?)
}

/// Writes the user data of a task queue if its version is the one in `row`, and returns the next version, which it then has. Version 0
/// means that there is no user data yet.
///
/// # Errors
/// [`Error::ConditionFailed`] if it has another version.
///
/// # Cancel safety
/// Outside of a transaction, it may have been written.
pub async fn update(connection: &Connection, row: &UserDataRow) -> Result<i64> {
    let UserDataRow { namespace_id, task_queue_name, data, version } = row;
    let condition =
        || Condition::row("user data of the task queue", task_queue_name, format!("version {version}"));
    if *version == 0 {
        let values: [crate::connection::Value<'_>; 4] =
            [namespace_id, task_queue_name, &data.data, &data.encoding];
        connection.swap(INSERT, &values, condition).await?;
    } else {
        let values: [crate::connection::Value<'_>; 5] =
            [namespace_id, task_queue_name, &data.data, &data.encoding, version];
        connection.swap(UPDATE, &values, condition).await?;
    }
    Ok(version.saturating_add(1))
}

/// Reads a page of the user data of at most `size` task queues of a namespace, in the order of their names.
///
/// # Errors
/// [`Error::InvalidInput`] for a size of 0, or a token of another list; those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn list(
    connection: &Connection,
    namespace_id: Uuid,
    size: usize,
    page: Option<&PageToken>,
) -> Result<Page<UserDataRow>> {
    let limit = rows_to_ask(size)?;
    let rows = match page {
        None => connection.query(FIRST_PAGE, &[&namespace_id, &limit]).await?,
        Some(token) => {
            let last: String = token.key(LIST)?;
            connection.query(NEXT_PAGE, &[&namespace_id, &last, &limit]).await?
        }
    };
    let rows = rows.iter().map(|row| read(namespace_id, row)).collect::<Result<Vec<_>>>()?;
    Ok(Page::cut(rows, size, LIST, |row| row.task_queue_name.clone()))
}

fn read(namespace_id: Uuid, row: &Row) -> Result<UserDataRow> {
    let (task_queue_name, version) = (row.try_get(0)?, row.try_get(3)?);
    Ok(UserDataRow { namespace_id, task_queue_name, data: Blob::read(row, 1)?, version })
}
