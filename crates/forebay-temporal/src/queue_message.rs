//! Messages of queues, in two generations of tables: `queue`, whose queues have a number, and `queue_messages`, whose queues have a
//! name. Each operation is written once, for a [`MessageQueue`].
//!
//! # The next message id
//!
//! Ids are given by the writer: the last one and 1. Two writers that overlap both read the same last id, and both insert a row with the
//! next one. The rows have the same key, so the second transaction to commit fails with a conflict. It is run again, reads a later last
//! id and takes the one after that. So no message is lost, and a message that is committed later never has a smaller id: a reader that
//! goes on after the last id that it has seen misses nothing.
//!
//! That holds as long as the last message of a queue is kept. In an empty queue, ids begin with 0 again.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::LazyLock;

use tokio_postgres::Row;

use crate::batch;
use crate::blob::Blob;
use crate::connection::{Connection, Tx, Value};
use crate::error::{Error, Result};
use crate::page::{Page, PageToken, rows_to_ask};
use crate::persistence::Persistence;

/// What names a queue: a [`QueueType`] or a [`QueueKey`].
pub trait MessageQueue: queue::Sealed + fmt::Debug + fmt::Display + Sync + Send {}

impl MessageQueue for QueueType {}
impl MessageQueue for QueueKey {}

/// A queue of the first generation, as the server numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueType(pub i32);

impl QueueType {
    /// The queue of the messages of this one that could not be handled. Its number is the negative one.
    #[must_use]
    pub const fn dead_letters(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

impl fmt::Display for QueueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A partition of a queue of the second generation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey {
    /// The type of the queue, as the server numbers them.
    pub queue_type: i32,
    /// Its name; at most 255 characters.
    pub queue_name: String,
    /// The partition. Servers have used 0 only.
    pub partition: i64,
}

impl fmt::Display for QueueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue_type, queue_name, partition } = self;
        write!(f, "{queue_name:?} of type {queue_type}, partition {partition}")
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRow {
    /// Its place in its queue; the first is 0.
    pub message_id: i64,
    /// The message.
    pub payload: Blob,
}

mod queue {
    use super::{LazyLock, QueueKey, QueueType, Sql, Value};

    pub trait Sealed: 'static {
        fn sql() -> &'static Sql;
        fn values(&self) -> Vec<Value<'_>>;
    }

    impl Sealed for QueueType {
        fn sql() -> &'static Sql {
            static SQL: LazyLock<Sql> = LazyLock::new(|| Sql::new("queue", &[("queue_type", "integer")]));
            &SQL
        }

        fn values(&self) -> Vec<Value<'_>> {
            vec![&self.0]
        }
    }

    impl Sealed for QueueKey {
        fn sql() -> &'static Sql {
            static SQL: LazyLock<Sql> = LazyLock::new(|| {
                let columns =
                    [("queue_type", "integer"), ("queue_name", "varchar"), ("queue_partition", "bigint")];
                Sql::new("queue_messages", &columns)
            });
            &SQL
        }

        fn values(&self) -> Vec<Value<'_>> {
            vec![&self.queue_type, &self.queue_name, &self.partition]
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
        pub(super) enqueue: String,
        pub(super) select: String,
        pub(super) first_page: String,
        pub(super) next_page: String,
        pub(super) delete: String,
        pub(super) range_delete: String,
        pub(super) range_delete_some: String,
        pub(super) last: String,
        pub(super) lock: String,
    }
}

use sql::Sql;

impl Sql {
    fn new(table: &'static str, queue: &[(&str, &str)]) -> Self {
        let columns = queue.iter().map(|(column, _)| *column).collect::<Vec<_>>().join(", ");
        let typed = queue.iter().enumerate().map(|(at, (_, of))| format!("${}::{of}", at + 1));
        let typed = typed.collect::<Vec<_>>().join(", ");
        let in_queue = queue.iter().enumerate().map(|(at, (column, _))| format!("{column} = ${}", at + 1));
        let in_queue = in_queue.collect::<Vec<_>>().join(" AND ");
        // The values after those of the queue.
        let [a, b, c] = [1, 2, 3].map(|at| format!("${}", queue.len() + at));
        let message = "message_id, message_payload, message_encoding";
        let last =
            format!("SELECT message_id FROM {table} WHERE {in_queue} ORDER BY message_id DESC LIMIT 1");
        let page = |begin: &str| {
            format!(
                "SELECT {message} FROM {table} WHERE {in_queue} AND message_id {begin} {a} AND message_id <= {b} \
                 ORDER BY message_id LIMIT {c}"
            )
        };
        Self {
            list: table,
            insert: format!(
                "INSERT INTO {table} ({columns}, {message}) SELECT {typed}, {message} \
                 FROM unnest({a}::bigint[], {b}::bytea[], {c}::varchar[]) AS message ({message})"
            ),
            enqueue: format!(
                "INSERT INTO {table} ({columns}, {message}) VALUES ({typed}, COALESCE(({last}), -1) + 1, {a}, {b}) \
                 RETURNING message_id"
            ),
            select: format!("SELECT {message} FROM {table} WHERE {in_queue} AND message_id = {a}"),
            first_page: page(">="),
            next_page: page(">"),
            delete: format!("DELETE FROM {table} WHERE {in_queue} AND message_id = {a}"),
            range_delete: format!(
                "DELETE FROM {table} WHERE {in_queue} AND message_id >= {a} AND message_id <= {b}"
            ),
            range_delete_some: format!(
                "DELETE FROM {table} WHERE {in_queue} AND message_id IN (SELECT message_id FROM {table} \
                 WHERE {in_queue} AND message_id >= {a} AND message_id <= {b} ORDER BY message_id LIMIT {c})"
            ),
            lock: format!("SELECT message_id FROM {table} WHERE {in_queue} AND message_id = {a} FOR UPDATE"),
            last,
        }
    }
}

fn with<'a, Q: MessageQueue>(queue: &'a Q, more: &[Value<'a>]) -> Vec<Value<'a>> {
    let mut values = queue::Sealed::values(queue);
    values.extend(more);
    values
}

/// Appends a message, with one statement, and returns its id: the last one and 1.
///
/// # Errors
/// [`Error::Conflict`] if others have appended all the time; those of the database.
///
/// # Cancel safety
/// Outside of a transaction, it may have been appended.
pub async fn enqueue<Q: MessageQueue>(connection: &Connection, queue: &Q, payload: &Blob) -> Result<i64> {
    let values = with(queue, &[&payload.data, &payload.encoding]);
    let rows = connection.query(&Q::sql().enqueue, &values).await?;
    let row = rows.first().ok_or_else(|| Error::not_found("message just appended to queue", queue))?;
    Ok(row.try_get(0)?)
}

/// Inserts messages with ids of the caller's choice, with one statement.
///
/// # Errors
/// [`Error::AlreadyExists`] if there is one with such an id already; [`Error::TooLarge`] beyond what fits into one transaction.
///
/// # Cancel safety
/// Outside of a transaction, they may have been inserted.
pub async fn insert<Q: MessageQueue>(
    connection: &Connection,
    queue: &Q,
    messages: &[MessageRow],
) -> Result<()> {
    if messages.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = messages.iter().map(|row| row.message_id).collect();
    let payloads: Vec<&[u8]> = messages.iter().map(|row| &*row.payload.data).collect();
    let encodings: Vec<&str> = messages.iter().map(|row| &*row.payload.encoding).collect();
    connection.execute(&Q::sql().insert, &with(queue, &[&ids, &payloads, &encodings])).await?;
    Ok(())
}

/// Reads a message.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn select<Q: MessageQueue>(
    connection: &Connection,
    queue: &Q,
    message_id: i64,
) -> Result<MessageRow> {
    let row = connection.query_opt(&Q::sql().select, &with(queue, &[&message_id])).await?;
    let missing = || Error::not_found("message", format!("{message_id} in queue {queue}"));
    read(&row.ok_or_else(missing)?)
}

/// Reads a page of at most `size` messages of a range, in their order. A reader that has read up to `last` goes on with
/// `(Bound::Excluded(last), Bound::Unbounded)`.
///
/// # Errors
/// [`Error::InvalidInput`] for a size of 0, or a token of another list; those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn range_select<Q: MessageQueue>(
    connection: &Connection,
    queue: &Q,
    range: impl RangeBounds<i64>,
    size: usize,
    page: Option<&PageToken>,
) -> Result<Page<MessageRow>> {
    let limit = rows_to_ask(size)?;
    let (first, last) = ends(&range);
    let Sql { list, first_page, next_page, .. } = Q::sql();
    let (sql, begin) = match page {
        None => (first_page, first),
        Some(token) => (next_page, token.key(list)?),
    };
    let rows = connection.query(sql, &with(queue, &[&begin, &last, &limit])).await?;
    let rows = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(Page::cut(rows, size, list, |row| row.message_id))
}

/// Deletes a message. Returns whether there was one.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, it may have been deleted.
pub async fn delete<Q: MessageQueue>(connection: &Connection, queue: &Q, message_id: i64) -> Result<bool> {
    Ok(connection.execute(&Q::sql().delete, &with(queue, &[&message_id])).await? > 0)
}

/// Deletes the messages of a range, with one statement. Returns how many there were. For more than fit into one transaction there is
/// [`range_delete_in_batches`].
///
/// # Errors
/// [`Error::TooLarge`] if there are too many.
///
/// # Cancel safety
/// Outside of a transaction, they may have been deleted.
pub async fn range_delete<Q: MessageQueue>(
    connection: &Connection,
    queue: &Q,
    range: impl RangeBounds<i64>,
) -> Result<u64> {
    let (first, last) = ends(&range);
    connection.execute(&Q::sql().range_delete, &with(queue, &[&first, &last])).await
}

/// Deletes the messages of a range, however many, in several transactions, the first ones first. Whoever is interrupted calls it again.
///
/// # Errors
/// Those of the database; some messages may be deleted then.
///
/// # Cancel safety
/// The first messages are deleted, the others are not. Call it again.
pub async fn range_delete_in_batches<Q: MessageQueue>(
    persistence: &Persistence,
    queue: &Q,
    range: impl RangeBounds<i64>,
) -> Result<u64> {
    let (first, last) = ends(&range);
    let delete = |connection: Connection, limit: usize| async move {
        let limit = batch::limit(limit);
        connection.execute(&Q::sql().range_delete_some, &with(queue, &[&first, &last, &limit])).await
    };
    persistence.delete_in_batches("range_delete_messages", delete).await
}

/// The id of the last message of a queue, whose row is locked until the end of the transaction; none if the queue is empty.
///
/// Aurora DSQL locks a row only by its whole key. So the id is read first, and the row with that id is locked then: both statements see
/// the same snapshot. The lock holds nobody up: of two transactions that lock the same last message, or of which one deletes it, and
/// that overlap, the second to commit fails with a conflict. In an empty queue there is nothing to lock, and the key of the
/// first message does the same for all who insert it.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// The lock ends with the transaction.
pub async fn lock_last_message_id<Q: MessageQueue>(tx: &Tx, queue: &Q) -> Result<Option<i64>> {
    let Some(row) = tx.query_opt(&Q::sql().last, &with(queue, &[])).await? else { return Ok(None) };
    let last: i64 = row.try_get(0)?;
    tx.query(&Q::sql().lock, &with(queue, &[&last])).await?;
    Ok(Some(last))
}

/// The first and the last id of a range. The first is the greater one if there is none.
fn ends(range: &impl RangeBounds<i64>) -> (i64, i64) {
    let first = match range.start_bound() {
        Bound::Included(id) => Some(*id),
        Bound::Excluded(id) => id.checked_add(1),
        Bound::Unbounded => Some(i64::MIN),
    };
    let last = match range.end_bound() {
        Bound::Included(id) => Some(*id),
        Bound::Excluded(id) => id.checked_sub(1),
        Bound::Unbounded => Some(i64::MAX),
    };
    first.zip(last).unwrap_or((i64::MAX, i64::MIN))
}

fn read(row: &Row) -> Result<MessageRow> {
    Ok(MessageRow { message_id: row.try_get(0)?, payload: Blob::read(row, 1)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_any_bounds() {
        assert_eq!(ends(&(3..=7)), (3, 7));
        assert_eq!(ends(&(3..7)), (3, 6));
        assert_eq!(ends(&(3..)), (3, i64::MAX));
        assert_eq!(ends(&..), (i64::MIN, i64::MAX));
        assert_eq!(ends(&(Bound::Excluded(-1), Bound::Included(7))), (0, 7));
        for nothing in
            [(Bound::Excluded(i64::MAX), Bound::Unbounded), (Bound::Unbounded, Bound::Excluded(i64::MIN))]
        {
            assert_eq!(ends(&nothing), (i64::MAX, i64::MIN));
        }
    }
}
