//! Tasks of the matching service, in two generations of tables: `tasks` and `tasks_v2`.
//!
//! Each operation is written once, for a [`TaskVersion`]. A server inserts tasks in a transaction that is fenced by their queue:
//! [`task_queue::fence`](crate::task_queue::fence).

use std::fmt;
use std::ops::Range;

use uuid::Uuid;

use crate::blob::Blob;
use crate::connection::{Connection, Value};
use crate::error::Result;
use crate::page::{Page, PageToken, rows_to_ask};
use crate::persistence::Persistence;
use crate::task_queue::TaskQueueKey;
pub use crate::task_version::{TaskVersion, V1, V2};

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow<K> {
    /// Its queue.
    pub queue: TaskQueueKey,
    /// Its place in the queue.
    pub key: K,
    /// The task.
    pub task: Blob,
}

/// The place of a task in a queue of [`V2`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskLevel {
    /// The pass; the first is 1.
    pub pass: i64,
    /// Its number.
    pub task_id: i64,
}

/// What names a task in its queue: a number, or a pass and a number.
pub trait TaskKey: key::Sealed + fmt::Debug + Copy + Ord + Sync + Send {}

impl TaskKey for i64 {}
impl TaskKey for TaskLevel {}

mod key {
    use super::TaskLevel;
    use crate::page::PageKey;

    /// Every column of a key is a number.
    pub trait Sealed: PageKey {
        const COLUMNS: usize;
        fn numbers(&self) -> Vec<&i64>;
        fn of(numbers: &[i64]) -> Self;
    }

    impl Sealed for i64 {
        const COLUMNS: usize = 1;

        fn numbers(&self) -> Vec<&i64> {
            vec![self]
        }

        fn of(numbers: &[i64]) -> Self {
            numbers[0]
        }
    }

    impl Sealed for TaskLevel {
        const COLUMNS: usize = 2;

        fn numbers(&self) -> Vec<&i64> {
            vec![&self.pass, &self.task_id]
        }

        fn of(numbers: &[i64]) -> Self {
            Self { pass: numbers[0], task_id: numbers[1] }
        }
    }

    impl PageKey for TaskLevel {
        fn write(&self, out: &mut Vec<u8>) {
            (self.pass, self.task_id).write(out);
        }

        fn read(bytes: &mut &[u8]) -> Option<Self> {
            let (pass, task_id) = PageKey::read(bytes)?;
            Some(Self { pass, task_id })
        }
    }
}

/// Private, so that nobody can name what the sealed trait has.
mod sql {
    /// The statements for one table.
    #[derive(Debug)]
    pub struct Sql {
        pub(super) list: &'static str,
        pub(super) insert: &'static str,
        pub(super) first_page: &'static str,
        pub(super) next_page: &'static str,
        pub(super) delete: &'static str,
    }
}

pub(crate) use sql::Sql;

/// `$first` and `$second` are the places of two keys, after those of the queue and a limit.
macro_rules! statements {
    ($table:literal, $key:literal, $first:literal, $second:literal, $arrays:literal) => {
        Sql {
            list: $table,
            insert: concat!(
                "INSERT INTO ",
                $table,
                " (range_hash, task_queue_id, ",
                $key,
                ", data, data_encoding) ",
                "SELECT range_hash, task_queue_id, ",
                $key,
                ", data, data_encoding ",
                "FROM unnest($1::bigint[], $2::uuid[], ",
                $arrays,
                ") ",
                "AS task (range_hash, task_queue_id, ",
                $key,
                ", data, data_encoding)"
            ),
            first_page: concat!(
                "SELECT ",
                $key,
                ", data, data_encoding FROM ",
                $table,
                " WHERE range_hash = $1 AND task_queue_id = $2 ",
                "AND (",
                $key,
                ") >= (",
                $first,
                ") AND (",
                $key,
                ") < (",
                $second,
                ") ORDER BY ",
                $key,
                " LIMIT $3"
            ),
            next_page: concat!(
                "SELECT ",
                $key,
                ", data, data_encoding FROM ",
                $table,
                " WHERE range_hash = $1 AND task_queue_id = $2 ",
                "AND (",
                $key,
                ") > (",
                $first,
                ") AND (",
                $key,
                ") < (",
                $second,
                ") ORDER BY ",
                $key,
                " LIMIT $3"
            ),
            delete: concat!(
                "DELETE FROM ",
                $table,
                " WHERE range_hash = $1 AND task_queue_id = $2 AND (",
                $key,
                ") IN (SELECT ",
                $key,
                " FROM ",
                $table,
                " WHERE range_hash = $1 AND task_queue_id = $2 AND (",
                $key,
                ") < (",
                $first,
                ") ORDER BY ",
                $key,
                " LIMIT $3)"
            ),
        }
    };
}
pub(crate) const V1_SQL: Sql =
    statements!("tasks", "task_id", "$4", "$5", "$3::bigint[], $4::bytea[], $5::varchar[]");
pub(crate) const V2_SQL: Sql = statements!(
    "tasks_v2",
    "pass, task_id",
    "$4, $5",
    "$6, $7",
    "$3::bigint[], $4::bigint[], $5::bytea[], $6::varchar[]"
);

/// Inserts tasks, with one statement.
///
/// # Errors
/// [`Error::AlreadyExists`](crate::Error::AlreadyExists) if one of them is there already;
/// [`Error::TooLarge`](crate::Error::TooLarge) beyond what fits into one transaction.
///
/// # Cancel safety
/// Outside of a transaction, they may have been inserted.
pub async fn insert<V: TaskVersion>(connection: &Connection, tasks: &[TaskRow<V::Key>]) -> Result<()> {
    if tasks.is_empty() {
        return Ok(());
    }
    let range_hashes: Vec<i64> = tasks.iter().map(|row| row.queue.hash()).collect();
    let queues: Vec<&Uuid> = tasks.iter().map(|row| row.queue.id.as_uuid()).collect();
    let column = |at: usize| tasks.iter().map(move |row| *key::Sealed::numbers(&row.key)[at]).collect();
    let keys: Vec<Vec<i64>> = (0..<V::Key as key::Sealed>::COLUMNS).map(column).collect();
    let data: Vec<&[u8]> = tasks.iter().map(|row| &*row.task.data).collect();
    let encodings: Vec<&str> = tasks.iter().map(|row| &*row.task.encoding).collect();
    let mut values: Vec<Value<'_>> = vec![&range_hashes, &queues];
    values.extend(keys.iter().map(|column| column as Value<'_>));
    values.extend([&data as Value<'_>, &encodings]);
    connection.execute(V::TASKS.insert, &values).await?;
    Ok(())
}

/// Reads a page of at most `size` tasks of a queue, from the beginning of `range` to just before its end, in their order.
///
/// # Errors
/// [`Error::InvalidInput`](crate::Error::InvalidInput) for a size of 0, or a token of another list; those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn select<V: TaskVersion>(
    connection: &Connection,
    queue: &TaskQueueKey,
    range: Range<V::Key>,
    size: usize,
    page: Option<&PageToken>,
) -> Result<Page<TaskRow<V::Key>>> {
    let limit = rows_to_ask(size)?;
    let (sql, begin) = match page {
        None => (V::TASKS.first_page, range.start),
        Some(token) => (V::TASKS.next_page, token.key(V::TASKS.list)?),
    };
    let hash = queue.hash();
    let mut values: Vec<Value<'_>> = vec![&hash, queue.id.as_uuid(), &limit];
    values.extend(numbers(&begin).chain(numbers(&range.end)));
    let rows = connection.query(sql, &values).await?;
    let columns = <V::Key as key::Sealed>::COLUMNS;
    let task = |row: &tokio_postgres::Row| {
        let numbers = (0..columns).map(|at| Ok(row.try_get(at)?)).collect::<Result<Vec<i64>>>()?;
        Ok(TaskRow { queue: *queue, key: key::Sealed::of(&numbers), task: Blob::read(row, columns)? })
    };
    let rows = rows.iter().map(task).collect::<Result<Vec<TaskRow<V::Key>>>>()?;
    Ok(Page::cut(rows, size, V::TASKS.list, |row| row.key))
}

/// Deletes at most `limit` tasks of a queue that come before `end`, the first ones first. Returns how many. For more than fit into one
/// transaction there is [`delete_in_batches`].
///
/// # Errors
/// [`Error::TooLarge`](crate::Error::TooLarge) if they are too many.
///
/// # Cancel safety
/// Outside of a transaction, they may have been deleted.
pub async fn delete<V: TaskVersion>(
    connection: &Connection,
    queue: &TaskQueueKey,
    end: V::Key,
    limit: usize,
) -> Result<u64> {
    let (hash, limit) = (queue.hash(), i64::try_from(limit).unwrap_or(i64::MAX));
    let mut values: Vec<Value<'_>> = vec![&hash, queue.id.as_uuid(), &limit];
    values.extend(numbers(&end));
    connection.execute(V::TASKS.delete, &values).await
}

/// Deletes all tasks of a queue that come before `end`, however many, in several transactions. Whoever is interrupted calls it again.
///
/// # Errors
/// Those of the database; some tasks may be deleted then.
///
/// # Cancel safety
/// The first tasks are deleted, the others are not. Call it again.
pub async fn delete_in_batches<V: TaskVersion>(
    persistence: &Persistence,
    queue: &TaskQueueKey,
    end: V::Key,
) -> Result<u64> {
    let delete = |connection: Connection, limit: i64| async move {
        delete::<V>(&connection, queue, end, usize::try_from(limit).unwrap_or(usize::MAX)).await
    };
    persistence.delete_in_batches("delete_matching_tasks", delete).await
}

fn numbers<K: TaskKey>(key: &K) -> impl Iterator<Item = Value<'_>> {
    key::Sealed::numbers(key).into_iter().map(|number| number as Value<'_>)
}
