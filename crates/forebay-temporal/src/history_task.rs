//! Tasks of the history service: seven tables.
//!
//! All of them work alike, so each operation is written once, for a [`TaskTable`]. They differ in what names a queue of tasks (a shard,
//! with a category or a cluster), and in whether tasks have a time at which they are due.

use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

use forebay_dsql::Timestamp;

use crate::batch;
use crate::blob::Blob;
use crate::connection::{Connection, Value};
use crate::error::Result;
use crate::page::{Page, PageToken, rows_to_ask};
use crate::persistence::Persistence;

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

/// The queues of one shard and one category.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CategoryQueue {
    /// The shard.
    pub shard_id: i32,
    /// The category, as the server numbers them.
    pub category_id: i32,
}

/// The queue of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardQueue {
    /// The shard.
    pub shard_id: i32,
}

/// The queue of one shard with tasks of another cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceQueue {
    /// The cluster that the tasks are from.
    pub source_cluster_name: String,
    /// The shard.
    pub shard_id: i32,
}

/// The key of a task that has a time at which it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduledKey {
    /// When it is due.
    pub visibility_timestamp: Timestamp,
    /// Its number, for tasks of the same time.
    pub task_id: i64,
}

/// What names a queue of tasks.
pub trait TaskQueue: queue::Sealed + fmt::Debug + Sync + Send {}

impl TaskQueue for CategoryQueue {}
impl TaskQueue for ShardQueue {}
impl TaskQueue for SourceQueue {}

/// What names a task in its queue: a number, or a time and a number.
pub trait TaskKey: key::Sealed + fmt::Debug + Copy + Ord + Sync + Send {
    /// What a range is given by.
    type Bound: Copy + fmt::Debug + Sync + Send;
}

impl TaskKey for i64 {
    type Bound = i64;
}

impl TaskKey for ScheduledKey {
    type Bound = Timestamp;
}

mod table {
    pub trait Sealed: 'static {
        const TABLE: &'static str;
        fn sql() -> &'static super::Sql;
    }
}

mod queue {
    use super::{CategoryQueue, ShardQueue, SourceQueue, Value};

    pub trait Sealed {
        /// Names and types of its columns.
        const COLUMNS: &'static [(&'static str, &'static str)];
        fn values(&self) -> Vec<Value<'_>>;
    }

    impl Sealed for CategoryQueue {
        const COLUMNS: &'static [(&'static str, &'static str)] =
            &[("shard_id", "integer"), ("category_id", "integer")];

        fn values(&self) -> Vec<Value<'_>> {
            vec![&self.shard_id, &self.category_id]
        }
    }

    impl Sealed for ShardQueue {
        const COLUMNS: &'static [(&'static str, &'static str)] = &[("shard_id", "integer")];

        fn values(&self) -> Vec<Value<'_>> {
            vec![&self.shard_id]
        }
    }

    impl Sealed for SourceQueue {
        const COLUMNS: &'static [(&'static str, &'static str)] =
            &[("source_cluster_name", "varchar"), ("shard_id", "integer")];

        fn values(&self) -> Vec<Value<'_>> {
            vec![&self.source_cluster_name, &self.shard_id]
        }
    }
}

mod key {
    use forebay_dsql::Timestamp;
    use tokio_postgres::Row;
    use tokio_postgres::types::ToSql;

    use super::{ScheduledKey, TaskKey, Value};
    use crate::error::Result;
    use crate::page::PageKey;

    pub trait Sealed: Sized {
        /// Names and types of its columns. A range is one of the first.
        const COLUMNS: &'static [(&'static str, &'static str)];
        /// What a page token carries.
        type Token: PageKey;
        fn values(&self) -> Vec<Value<'_>>;
        /// One array for each column.
        fn arrays(keys: impl Iterator<Item = Self> + Clone) -> Vec<Box<dyn ToSql + Sync + Send>>;
        fn read(row: &Row) -> Result<Self>;
        fn token(self) -> Self::Token;
        fn of_token(token: Self::Token) -> Self;
        /// The smallest key of a range that begins here.
        fn first(bound: Self::Bound) -> Self
        where
            Self: TaskKey;
    }

    impl Sealed for i64 {
        const COLUMNS: &'static [(&'static str, &'static str)] = &[("task_id", "bigint")];
        type Token = i64;

        fn values(&self) -> Vec<Value<'_>> {
            vec![self]
        }

        fn arrays(keys: impl Iterator<Item = Self> + Clone) -> Vec<Box<dyn ToSql + Sync + Send>> {
            vec![Box::new(keys.collect::<Vec<i64>>())]
        }

        fn read(row: &Row) -> Result<Self> {
            Ok(row.try_get(0)?)
        }

        fn token(self) -> i64 {
            self
        }

        fn of_token(token: i64) -> Self {
            token
        }

        fn first(bound: i64) -> Self {
            bound
        }
    }

    impl Sealed for ScheduledKey {
        const COLUMNS: &'static [(&'static str, &'static str)] =
            &[("visibility_timestamp", "timestamp"), ("task_id", "bigint")];
        type Token = (Timestamp, i64);

        fn values(&self) -> Vec<Value<'_>> {
            vec![&self.visibility_timestamp, &self.task_id]
        }

        fn arrays(keys: impl Iterator<Item = Self> + Clone) -> Vec<Box<dyn ToSql + Sync + Send>> {
            let times: Vec<Timestamp> = keys.clone().map(|key| key.visibility_timestamp).collect();
            let ids: Vec<i64> = keys.map(|key| key.task_id).collect();
            vec![Box::new(times), Box::new(ids)]
        }

        fn read(row: &Row) -> Result<Self> {
            Ok(Self { visibility_timestamp: row.try_get(0)?, task_id: row.try_get(1)? })
        }

        fn token(self) -> (Timestamp, i64) {
            (self.visibility_timestamp, self.task_id)
        }

        fn of_token((visibility_timestamp, task_id): (Timestamp, i64)) -> Self {
            Self { visibility_timestamp, task_id }
        }

        fn first(visibility_timestamp: Timestamp) -> Self {
            Self { visibility_timestamp, task_id: i64::MIN }
        }
    }
}

/// Private, so that nobody can name what the sealed traits return.
mod sql {
    /// The statements for one table.
    #[derive(Debug)]
    pub struct Sql {
        pub(super) insert: String,
        pub(super) select_first: String,
        pub(super) select_next: String,
        pub(super) delete: String,
        pub(super) range_delete: String,
    }
}

use sql::Sql;

impl Sql {
    fn new<Q: TaskQueue, K: TaskKey>(table: &str) -> Self {
        let names = |columns: &[(&'static str, &'static str)]| -> Vec<&'static str> {
            columns.iter().map(|(column, _)| *column).collect()
        };
        let (queue, key) = (names(Q::COLUMNS), names(K::COLUMNS));
        let (queues, keys) = (queue.join(", "), key.join(", "));
        let places = |first: usize, count: usize| -> String {
            (first..first + count).map(|at| format!("${at}")).collect::<Vec<_>>().join(", ")
        };
        let typed = Q::COLUMNS.iter().enumerate().map(|(at, (_, of))| format!("${}::{of}", at + 1));
        let arrays = K::COLUMNS.iter().map(|(_, of)| *of).chain(["bytea", "varchar"]);
        let arrays = arrays.enumerate().map(|(at, of)| format!("${}::{of}[]", queue.len() + at + 1));
        let in_queue: Vec<String> =
            queue.iter().enumerate().map(|(at, column)| format!("{column} = ${}", at + 1)).collect();
        let in_queue = in_queue.join(" AND ");
        // The first value after those of the queue.
        let (at, count, range) = (queue.len() + 1, key.len(), key[0]);
        let select = |begin: &str| {
            format!(
                "SELECT {keys}, data, data_encoding FROM {table} WHERE {in_queue} AND ({keys}) {begin} ({}) \
                 AND {range} < ${} ORDER BY {keys} LIMIT ${}",
                places(at, count),
                at + count,
                at + count + 1
            )
        };
        Self {
            insert: format!(
                "INSERT INTO {table} ({queues}, {keys}, data, data_encoding) SELECT {}, {keys}, data, data_encoding \
                 FROM unnest({}) AS task ({keys}, data, data_encoding)",
                typed.collect::<Vec<_>>().join(", "),
                arrays.collect::<Vec<_>>().join(", ")
            ),
            select_first: select(">="),
            select_next: select(">"),
            delete: format!("DELETE FROM {table} WHERE {in_queue} AND ({keys}) = ({})", places(at, count)),
            range_delete: format!(
                "DELETE FROM {table} WHERE {in_queue} AND ({keys}) IN (SELECT {keys} FROM {table} \
                 WHERE {in_queue} AND {range} >= ${at} AND {range} < ${} ORDER BY {keys} LIMIT ${})",
                at + 1,
                at + 2
            ),
        }
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
    let keys = key::Sealed::arrays(tasks.iter().map(|row| row.key));
    let data: Vec<&[u8]> = tasks.iter().map(|row| &*row.task.data).collect();
    let encodings: Vec<&str> = tasks.iter().map(|row| &*row.task.encoding).collect();
    let mut values = queue::Sealed::values(queue);
    values.extend(keys.iter().map(|array| &**array as Value<'_>));
    values.extend([&data as Value<'_>, &encodings]);
    connection.execute(&T::sql().insert, &values).await?;
    Ok(())
}

/// Inserts tasks, however many, in several transactions, in their order.
///
/// # Errors
/// As [`insert`]. The tasks before the failed transaction are inserted.
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

/// Reads a page of at most `size` tasks of a range, in the order of their keys. A range of tasks with a time is one of times.
///
/// # Errors
/// [`Error::InvalidInput`](crate::Error::InvalidInput) for a size of 0, or a token of another list; those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn range_select<T: TaskTable>(
    connection: &Connection,
    queue: &T::Queue,
    range: Range<<T::Key as TaskKey>::Bound>,
    size: usize,
    page: Option<&PageToken>,
) -> Result<Page<TaskRow<T::Key>>>
where
    <T::Key as TaskKey>::Bound: tokio_postgres::types::ToSql,
{
    let limit = rows_to_ask(size)?;
    let (sql, begin) = match page {
        None => (&T::sql().select_first, <T::Key as key::Sealed>::first(range.start)),
        Some(token) => (&T::sql().select_next, key::Sealed::of_token(token.key(T::TABLE)?)),
    };
    let mut values = queue::Sealed::values(queue);
    values.extend(key::Sealed::values(&begin));
    values.extend([&range.end as Value<'_>, &limit]);
    let rows = connection.query(sql, &values).await?;
    let columns = <T::Key as key::Sealed>::COLUMNS.len();
    let task = |row| Ok(TaskRow { key: key::Sealed::read(row)?, task: Blob::read(row, columns)? });
    let rows = rows.iter().map(task).collect::<Result<Vec<TaskRow<T::Key>>>>()?;
    Ok(Page::cut(rows, size, T::TABLE, |row| key::Sealed::token(row.key)))
}

/// Deletes a task. Returns whether there was one.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, it may have been deleted.
pub async fn delete<T: TaskTable>(connection: &Connection, queue: &T::Queue, key: T::Key) -> Result<bool> {
    let mut values = queue::Sealed::values(queue);
    values.extend(key::Sealed::values(&key));
    Ok(connection.execute(&T::sql().delete, &values).await? > 0)
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
    range: Range<<T::Key as TaskKey>::Bound>,
) -> Result<u64>
where
    <T::Key as TaskKey>::Bound: tokio_postgres::types::ToSql,
{
    let range = &range;
    let delete = |connection: Connection, limit: i64| async move {
        let mut values = queue::Sealed::values(queue);
        values.extend([&range.start as Value<'_>, &range.end, &limit]);
        connection.execute(&T::sql().range_delete, &values).await
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
             AND visibility_timestamp < $5 ORDER BY visibility_timestamp, task_id LIMIT $6"
        );
        assert_eq!(
            <ReplicationDlqTasks as table::Sealed>::sql().range_delete,
            "DELETE FROM replication_tasks_dlq WHERE source_cluster_name = $1 AND shard_id = $2 \
             AND (task_id) IN (SELECT task_id FROM replication_tasks_dlq \
             WHERE source_cluster_name = $1 AND shard_id = $2 AND task_id >= $3 AND task_id < $4 ORDER BY task_id LIMIT $5)"
        );
    }
}
