//! Tasks of the history service: seven tables.
//!
//! All of them work alike, so each operation is written once, for a [`TaskTable`]. They differ in what names a queue of tasks (a shard,
//! with a category or a cluster), and in whether tasks have a time at which they are due.

use std::ops::Range;
use std::sync::LazyLock;

use crate::batch;
use crate::blob::Blob;
use crate::connection::{Connection, Value};
use crate::error::Result;
use crate::page::{Page, PageToken, rows_to_ask};
use crate::persistence::Persistence;

mod key;
mod queue;
mod sql;
mod zero_time;

pub use key::{ScheduledKey, TaskKey};
pub use queue::{CategoryQueue, ShardQueue, SourceQueue, TaskQueue};
use sql::Sql;
use {key::sealed::Sealed as _, queue::sealed::Sealed as _};

/// One of the seven tables.
pub trait TaskTable: table::Sealed {
    /// What names a queue of tasks.
    type Queue: TaskQueue;
    /// What names a task in its queue, and orders them.
    type Key: TaskKey;
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow<K> {
    /// Its place in its queue.
    pub key: K,
    /// The task.
    pub task: Blob,
}

mod table {
    pub trait Sealed: 'static {
        const TABLE: &'static str;
        fn sql() -> &'static super::Sql;
    }
}

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident: $table:literal, $queue:ty => $key:ty;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub enum $name {}

            impl TaskTable for $name {
                type Queue = $queue;
                type Key = $key;
            }

            impl table::Sealed for $name {
                const TABLE: &'static str = $table;

                fn sql() -> &'static Sql {
                    static SQL: LazyLock<Sql> = LazyLock::new(|| Sql::new::<$queue, $key>($table));
                    &SQL
                }
            }
        )*
    };
}

tables! {
    /// Tasks of any category that are due at once.
    ImmediateTasks: "history_immediate_tasks", CategoryQueue => i64;
    /// Tasks of any category that are due at a time.
    ScheduledTasks: "history_scheduled_tasks", CategoryQueue => ScheduledKey;
    /// Transfer tasks.
    TransferTasks: "transfer_tasks", ShardQueue => i64;
    /// Timers.
    TimerTasks: "timer_tasks", ShardQueue => ScheduledKey;
    /// Replication tasks.
    ReplicationTasks: "replication_tasks", ShardQueue => i64;
    /// Replication tasks that could not be carried out.
    ReplicationDlqTasks: "replication_tasks_dlq", SourceQueue => i64;
    /// Visibility tasks.
    VisibilityTasks: "visibility_tasks", ShardQueue => i64;
}

/// Inserts tasks, with one statement.
///
/// # Errors
/// [`Error::AlreadyExists`](crate::Error::AlreadyExists) if one of them is there already; [`Error::TooLarge`](crate::Error::TooLarge)
/// beyond what fits into one transaction.
///
/// # Cancel safety
/// Outside of a transaction, they may have been inserted.
pub async fn insert<T: TaskTable>(
    connection: &Connection,
    queue: &T::Queue,
    tasks: &[TaskRow<T::Key>],
) -> Result<()> {
    if tasks.is_empty() {
        return Ok(());
    }
    let keys = T::Key::arrays(tasks.iter().map(|row| row.key));
    let data: Vec<&[u8]> = tasks.iter().map(|row| &*row.task.data).collect();
    let encodings: Vec<&str> = tasks.iter().map(|row| &*row.task.encoding).collect();
    let mut values = queue.values();
    values.extend(keys.iter().map(|array| &**array as Value<'_>));
    values.extend([&data as Value<'_>, &encodings]);
    connection.execute(&T::sql().insert, &values).await?;
    Ok(())
}

/// Inserts tasks, however many, in several transactions, in their order.
///
/// # Errors
/// As [`insert`]. The tasks before the failed transaction are inserted. If its outcome is unknown, its own may be, too: read before
/// going on, as a task that is there is not inserted again.
///
/// # Cancel safety
/// The first tasks are inserted, the others are not.
pub async fn insert_in_batches<T: TaskTable>(
    persistence: &Persistence,
    queue: &T::Queue,
    tasks: &[TaskRow<T::Key>],
) -> Result<()> {
    for slice in batch::slices(tasks, |row| row.task.data.len() + 64) {
        persistence
            .write("insert_tasks", |connection| async move { insert::<T>(&connection, queue, slice).await })
            .await?;
    }
    Ok(())
}

/// Reads a page of at most `size` tasks of a range, in the order of their keys. A range of tasks with a time is one of keys, or of times:
/// a time stands for its first key.
///
/// # Errors
/// [`Error::InvalidInput`](crate::Error::InvalidInput) for a size of 0, or a token of another list; those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn range_select<T: TaskTable>(
    connection: &Connection,
    queue: &T::Queue,
    range: Range<impl Into<T::Key>>,
    size: usize,
    page: Option<&PageToken>,
) -> Result<Page<TaskRow<T::Key>>> {
    let limit = rows_to_ask(size)?;
    let [start, end]: [T::Key; 2] = bounds(range);
    let (sql, begin) = match page {
        None => (&T::sql().select_first, start),
        Some(token) => (&T::sql().select_next, T::Key::of_token(token.key(T::TABLE)?).stored()),
    };
    let mut values = queue.values();
    values.extend(begin.values());
    values.extend(end.values());
    values.push(&limit);
    let rows = connection.query(sql, &values).await?;
    let columns = T::Key::COLUMNS.len();
    let task = |row| Ok(TaskRow { key: T::Key::read(row)?, task: Blob::read(row, columns)? });
    let rows = rows.iter().map(task).collect::<Result<Vec<TaskRow<T::Key>>>>()?;
    Ok(Page::cut(rows, size, T::TABLE, |row| row.key.token()))
}

/// Both ends of a range, as columns have them.
fn bounds<K: TaskKey>(range: Range<impl Into<K>>) -> [K; 2] {
    [range.start.into().stored(), range.end.into().stored()]
}

/// Deletes a task. Returns whether there was one.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, it may have been deleted.
pub async fn delete<T: TaskTable>(connection: &Connection, queue: &T::Queue, key: T::Key) -> Result<bool> {
    let key = key.stored();
    let mut values = queue.values();
    values.extend(key.values());
    Ok(connection.execute(&T::sql().delete, &values).await? > 0)
}

/// Deletes at most `limit` tasks of a range, the first ones first, with one statement. Returns how many. For all of them, however many,
/// there is [`range_delete`].
///
/// # Errors
/// [`Error::TooLarge`](crate::Error::TooLarge) if they are too many.
///
/// # Cancel safety
/// Outside of a transaction, they may have been deleted.
pub async fn range_delete_at_most<T: TaskTable>(
    connection: &Connection,
    queue: &T::Queue,
    range: Range<impl Into<T::Key>>,
    limit: usize,
) -> Result<u64> {
    let ([start, end], limit): ([T::Key; 2], i64) = (bounds(range), batch::limit(limit));
    let mut values = queue.values();
    values.extend(start.values());
    values.extend(end.values());
    values.push(&limit);
    connection.execute(&T::sql().range_delete, &values).await
}

/// Deletes the tasks of a range, however many, in several transactions. Whoever is interrupted calls it again.
///
/// # Errors
/// Those of the database; some tasks may be deleted then.
///
/// # Cancel safety
/// Some tasks are deleted, the others are not. Call it again.
pub async fn range_delete<T: TaskTable>(
    persistence: &Persistence,
    queue: &T::Queue,
    range: Range<impl Into<T::Key>>,
) -> Result<u64> {
    let [start, end]: [T::Key; 2] = bounds(range);
    let delete = |connection: Connection, limit: usize| async move {
        range_delete_at_most::<T>(&connection, queue, start..end, limit).await
    };
    persistence.delete_in_batches("range_delete_tasks", delete).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_name_the_columns_of_their_table() {
        let sql = <ScheduledTasks as table::Sealed>::sql();
        assert_eq!(
            sql.select_next,
            "SELECT visibility_timestamp, task_id, data, data_encoding FROM history_scheduled_tasks \
             WHERE shard_id = $1 AND category_id = $2 AND (visibility_timestamp, task_id) > ($3, $4) \
             AND (visibility_timestamp, task_id) < ($5, $6) ORDER BY visibility_timestamp, task_id LIMIT $7"
        );
        assert_eq!(
            <ReplicationDlqTasks as table::Sealed>::sql().range_delete,
            "DELETE FROM replication_tasks_dlq WHERE source_cluster_name = $1 AND shard_id = $2 \
             AND (task_id) IN (SELECT task_id FROM replication_tasks_dlq \
             WHERE source_cluster_name = $1 AND shard_id = $2 AND (task_id) >= ($3) AND (task_id) < ($4) ORDER BY task_id LIMIT $5)"
        );
    }
}
