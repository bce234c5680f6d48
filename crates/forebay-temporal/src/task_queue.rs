//! Task queues of the matching service, in two generations of tables: `task_queues` and `task_queues_v2`.
//!
//! A task queue belongs to one process at a time, and `range_id` is the fence, as for a shard: whoever takes the queue over raises it.
//! Each operation is written once, for a [`TaskVersion`].

use std::fmt;
use std::ops::RangeInclusive;

use forebay_dsql::ErrorKind;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::blob::Blob;
use crate::connection::{Connection, Tx, Value};
use crate::error::{Condition, Error, Result};
use crate::page::{Page, PageToken, rows_to_ask};
pub use crate::task_queue_id::TaskQueueId;
pub use crate::task_version::{TaskVersion, V1, V2};

/// What names a task queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskQueueKey {
    /// Where the queue stands among all of them: a hash that the server makes of the bytes that name the queue (`FarmHash`
    /// Fingerprint32).
    pub range_hash: u32,
    /// Its id.
    pub id: TaskQueueId,
}

impl fmt::Display for TaskQueueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { range_hash, id } = self;
        write!(f, "{id} with range hash {range_hash}")
    }
}

/// A task queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskQueueRow {
    /// Which it is.
    pub key: TaskQueueKey,
    /// The fence: it grows with every change of owner.
    pub range_id: i64,
    /// What the owner keeps of it.
    pub info: Blob,
}

/// Private, so that nobody can name what the sealed trait returns.
mod sql {
    /// The statements for one table.
    #[derive(Debug)]
    pub struct Sql {
        pub(super) list: &'static str,
        pub(super) insert: String,
        pub(super) update: String,
        pub(super) raise: String,
        pub(super) select: String,
        pub(super) first_page: String,
        pub(super) next_page: String,
        pub(super) delete: String,
        pub(super) lock: String,
    }
}

pub(crate) use sql::Sql;

impl Sql {
    pub(crate) fn new(table: &'static str) -> Self {
        let columns = "range_hash, task_queue_id, range_id, data, data_encoding";
        let key = "range_hash = $1 AND task_queue_id = $2";
        let order = "ORDER BY range_hash, task_queue_id";
        Self {
            list: table,
            insert: format!("INSERT INTO {table} ({columns}) VALUES ($1, $2, $3, $4, $5)"),
            update: format!(
                "UPDATE {table} SET range_id = $3, data = $4, data_encoding = $5 WHERE {key} AND range_id = $6"
            ),
            raise: format!("UPDATE {table} SET range_id = range_id + 1 WHERE {key} AND range_id = $3"),
            select: format!("SELECT {columns} FROM {table} WHERE {key}"),
            first_page: format!(
                "SELECT {columns} FROM {table} WHERE range_hash >= $1 AND range_hash <= $2 {order} LIMIT $3"
            ),
            next_page: format!(
                "SELECT {columns} FROM {table} WHERE (range_hash, task_queue_id) > ($1, $2) AND range_hash <= $3 \
                 {order} LIMIT $4"
            ),
            delete: format!("DELETE FROM {table} WHERE {key} AND range_id = $3"),
            lock: format!("SELECT range_id FROM {table} WHERE {key} FOR UPDATE"),
        }
    }
}

impl TaskQueueKey {
    pub(crate) fn hash(&self) -> i64 {
        self.range_hash.into()
    }

    fn condition(&self, expected_range_id: i64, found: Option<i64>) -> Condition {
        let found = found.map(|found| format!("range_id {found}"));
        Condition::Row {
            entity: "task queue",
            key: self.to_string(),
            expected: format!("range_id {expected_range_id}"),
            found,
        }
    }
}

/// Inserts a task queue.
///
/// # Errors
/// [`Error::AlreadyExists`].
///
/// # Cancel safety
/// Outside of a transaction, the row may have been inserted.
pub async fn insert<V: TaskVersion>(connection: &Connection, row: &TaskQueueRow) -> Result<()> {
    let TaskQueueRow { key, range_id, info } = row;
    connection
        .execute(
            &V::task_queues().insert,
            &[&key.hash(), key.id.as_uuid(), range_id, &info.data, &info.encoding],
        )
        .await?;
    Ok(())
}

/// Updates a task queue if its range id is `expected_range_id`. There is no update without a fence, and none that lowers the range id.
///
/// # Errors
/// [`Error::ConditionFailed`] if it has another one, or does not exist; [`Error::InvalidInput`] if the new one is smaller.
///
/// # Cancel safety
/// Outside of a transaction, the update may have happened.
pub async fn update<V: TaskVersion>(
    connection: &Connection,
    row: &TaskQueueRow,
    expected_range_id: i64,
) -> Result<()> {
    let TaskQueueRow { key, range_id, info } = row;
    if *range_id < expected_range_id {
        return Err(Error::invalid(format!(
            "the range id of task queue {key} cannot go back from {expected_range_id} to {range_id}: keep it, or raise it"
        )));
    }
    let values: [Value<'_>; 6] =
        [&key.hash(), key.id.as_uuid(), range_id, &info.data, &info.encoding, &expected_range_id];
    connection.swap(&V::task_queues().update, &values, || key.condition(expected_range_id, None)).await
}

/// Reads the range id of a task queue, and updates the queue if it has not changed by then: for a caller who keeps the range id, or
/// raises it, and must only not overtake another.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::ConditionFailed`] if the queue has a greater range id than `row`, or changed in between.
///
/// # Cancel safety
/// Outside of a transaction, the update may have happened.
pub async fn update_auto_fenced<V: TaskVersion>(connection: &Connection, row: &TaskQueueRow) -> Result<()> {
    let found = select::<V>(connection, &row.key).await?.range_id;
    if found > row.range_id {
        return Err(row.key.condition(row.range_id, Some(found)).into());
    }
    update::<V>(connection, row, found).await
}

/// Takes a task queue over: raises its range id by one if it is `expected_range_id`, and returns the new one.
///
/// # Errors
/// [`Error::ConditionFailed`] if it has another one, or does not exist.
///
/// # Cancel safety
/// Outside of a transaction, it may have happened.
pub async fn raise_range_id<V: TaskVersion>(
    connection: &Connection,
    key: &TaskQueueKey,
    expected_range_id: i64,
) -> Result<i64> {
    let condition = || key.condition(expected_range_id, None);
    connection
        .swap(&V::task_queues().raise, &[&key.hash(), key.id.as_uuid(), &expected_range_id], condition)
        .await?;
    // The database has refused to go beyond the largest number.
    Ok(expected_range_id.saturating_add(1))
}

/// Reads a task queue.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn select<V: TaskVersion>(connection: &Connection, key: &TaskQueueKey) -> Result<TaskQueueRow> {
    let row = connection.query_opt(&V::task_queues().select, &[&key.hash(), key.id.as_uuid()]).await?;
    read(&row.ok_or_else(|| not_found(key))?)
}

/// Reads a page of at most `size` task queues whose range hashes are in `range_hashes`, in the order of their keys.
///
/// # Errors
/// [`Error::InvalidInput`] for a size of 0, or a token of another list; those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn list<V: TaskVersion>(
    connection: &Connection,
    range_hashes: RangeInclusive<u32>,
    size: usize,
    page: Option<&PageToken>,
) -> Result<Page<TaskQueueRow>> {
    let Sql { list, first_page, next_page, .. } = V::task_queues();
    let limit = rows_to_ask(size)?;
    let (first, last) = (i64::from(*range_hashes.start()), i64::from(*range_hashes.end()));
    let rows = match page {
        None => connection.query(first_page, &[&first, &last, &limit]).await?,
        Some(token) => {
            let (range_hash, id): (i64, Uuid) = token.key(list)?;
            connection.query(next_page, &[&range_hash, &id, &last, &limit]).await?
        }
    };
    let rows = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(Page::cut(rows, size, list, |row| (row.key.hash(), *row.key.id.as_uuid())))
}

/// Deletes a task queue if its range id is `expected_range_id`. Its tasks stay.
///
/// # Errors
/// [`Error::ConditionFailed`] if it has another one, or does not exist.
///
/// # Cancel safety
/// Outside of a transaction, it may have been deleted.
pub async fn delete<V: TaskVersion>(
    connection: &Connection,
    key: &TaskQueueKey,
    expected_range_id: i64,
) -> Result<()> {
    let condition = || key.condition(expected_range_id, None);
    connection
        .swap(&V::task_queues().delete, &[&key.hash(), key.id.as_uuid(), &expected_range_id], condition)
        .await
}

/// Locks a task queue until the end of the transaction, and returns its range id. The lock holds nobody up: of two transactions that
/// lock or change the queue and overlap, the second to commit fails with a conflict, and is run again.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// The lock ends with the transaction.
pub async fn lock<V: TaskVersion>(tx: &Tx, key: &TaskQueueKey) -> Result<i64> {
    let row = tx.query_opt(&V::task_queues().lock, &[&key.hash(), key.id.as_uuid()]).await?;
    Ok(row.ok_or_else(|| not_found(key))?.try_get(0)?)
}

/// Locks a task queue, and fails if its range id is another than `expected_range_id`: the transaction then commits only if nobody else
/// has taken the queue over before. Tasks are inserted under this fence.
///
/// # Errors
/// [`Error::ConditionFailed`] with the expected and the found range id.
///
/// # Cancel safety
/// The lock ends with the transaction.
pub async fn fence<V: TaskVersion>(tx: &Tx, key: &TaskQueueKey, expected_range_id: i64) -> Result<()> {
    let found = match lock::<V>(tx, key).await {
        Ok(found) if found == expected_range_id => return Ok(()),
        Ok(found) => Some(found),
        Err(Error::NotFound { .. }) => None,
        Err(error) => return Err(error),
    };
    Err(key.condition(expected_range_id, found).into())
}

fn not_found(key: &TaskQueueKey) -> Error {
    Error::not_found("task queue", key)
}

fn read(row: &Row) -> Result<TaskQueueRow> {
    let range_hash: i64 = row.try_get(0)?;
    let range_hash = u32::try_from(range_hash).map_err(|_| {
        let told = format!("a task queue has the range hash {range_hash}, which is not one: repair its row");
        Error::Database(forebay_dsql::Error::new(ErrorKind::Permanent, told))
    })?;
    let key = TaskQueueKey { range_hash, id: TaskQueueId::from_uuid(row.try_get(1)?) };
    Ok(TaskQueueRow { key, range_id: row.try_get(2)?, info: Blob::read(row, 3)? })
}
