//! Tasks of the matching service, in two generations of tables: `tasks` and `tasks_v2`.
//!
//! Each operation is written once, for a [`TaskVersion`]. A server inserts tasks in a transaction that is fenced by their queue:
//! [`task_queue::fence`](crate::task_queue::fence).

use std::fmt;
use std::ops::Range;

use uuid::Uuid;

use crate::batch;
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

/// Private, so that nobody can name what the sealed trait returns.
mod sql {
    /// The statements for one table.
    #[derive(Debug)]
    pub struct Sql {
        pub(super) list: &'static str,
        pub(super) insert: String,
        pub(super) first_page: String,
        pub(super) next_page: String,
        pub(super) delete: String,
    }
}

pub(crate) use sql::Sql;

impl Sql {
    /// For a table whose tasks are named by these columns, which are numbers.
    pub(crate) fn new(table: &'static str, key: &[&str]) -> Self {
        let (count, key) = (key.len(), key.join(", "));
        let places = |first: usize| -> String {
            (first..first + count).map(|at| format!("${at}")).collect::<Vec<_>>().join(", ")
        };
        let arrays = std::iter::repeat_n("bigint", count).chain(["bytea", "varchar"]).enumerate();
        let arrays: Vec<_> = arrays.map(|(at, of)| format!("${}::{of}[]", at + 3)).collect();
        let columns = format!("range_hash, task_queue_id, {key}, data, data_encoding");
        let in_queue = "range_hash = $1 AND task_queue_id = $2";
        // $3 is a limit; keys come after it.
        let (first, second) = (places(4), places(4 + count));
        let page = |begin: &str| {
            format!(
                "SELECT {key}, data, data_encoding FROM {table} WHERE {in_queue} AND ({key}) {begin} ({first}) \
                 AND ({key}) < ({second}) ORDER BY {key} LIMIT $3"
            )
        };
        Self {
            list: table,
            insert: format!(
                "INSERT INTO {table} ({columns}) SELECT {columns} \
                 FROM unnest($1::bigint[], $2::uuid[], {}) AS task ({columns})",
                arrays.join(", ")
            ),
            first_page: page(">="),
            next_page: page(">"),
            delete: format!(
                "DELETE FROM {table} WHERE {in_queue} AND ({key}) IN (SELECT {key} FROM {table} \
                 WHERE {in_queue} AND ({key}) < ({first}) ORDER BY {key} LIMIT $3)"
            ),
        }
    }
}

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
    connection.execute(&V::tasks().insert, &values).await?;
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
        None => (&V::tasks().first_page, range.start),
        Some(token) => (&V::tasks().next_page, token.key(V::tasks().list)?),
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
    Ok(Page::cut(rows, size, V::tasks().list, |row| row.key))
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
    let (hash, limit) = (queue.hash(), batch::limit(limit));
    let mut values: Vec<Value<'_>> = vec![&hash, queue.id.as_uuid(), &limit];
    values.extend(numbers(&end));
    connection.execute(&V::tasks().delete, &values).await
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
    let delete = |connection: Connection, limit: usize| async move {
        delete::<V>(&connection, queue, end, limit).await
    };
    persistence.delete_in_batches("delete_matching_tasks", delete).await
}

fn numbers<K: TaskKey>(key: &K) -> impl Iterator<Item = Value<'_>> {
    key::Sealed::numbers(key).into_iter().map(|number| number as Value<'_>)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_name_a_task_by_its_whole_key() {
        let sql = Sql::new("tasks_v2", &["pass", "task_id"]);
        assert_eq!(
            sql.next_page,
            "SELECT pass, task_id, data, data_encoding FROM tasks_v2 WHERE range_hash = $1 AND task_queue_id = $2 \
             AND (pass, task_id) > ($4, $5) AND (pass, task_id) < ($6, $7) ORDER BY pass, task_id LIMIT $3"
        );
        assert_eq!(
            Sql::new("tasks", &["task_id"]).delete,
            "DELETE FROM tasks WHERE range_hash = $1 AND task_queue_id = $2 AND (task_id) IN (SELECT task_id FROM tasks \
             WHERE range_hash = $1 AND task_queue_id = $2 AND (task_id) < ($4) ORDER BY task_id LIMIT $3)"
        );
    }
}
