//! Current executions: the run that a workflow id, or the business id of an archetype, stands for.

use std::fmt;
use std::sync::LazyLock;

use forebay_dsql::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::blob::Blob;
use crate::connection::{Connection, Tx, Value};
use crate::error::{Condition, Error, Result};
use crate::execution::{self, RunKey};

/// A row of `current_executions` or, by its key, of `current_chasm_executions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentExecutionRow<K = WorkflowKey> {
    /// What has this current run.
    pub key: K,
    /// The run.
    pub run_id: Uuid,
    /// The request that started it.
    pub create_request_id: String,
    /// Its state, as the server numbers them.
    pub state: i32,
    /// Its status, as the server numbers them.
    pub status: i32,
    /// The failover version at its start.
    pub start_version: i64,
    /// When it started.
    pub start_time: Option<Timestamp>,
    /// The failover version of the last write.
    pub last_write_version: i64,
    /// The state of the execution, as in its own row.
    pub execution_state: Option<Blob>,
}

/// A workflow, whose current run is in `current_executions`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkflowKey {
    /// The shard that it belongs to.
    pub shard_id: i32,
    /// Its namespace.
    pub namespace_id: Uuid,
    /// The workflow; at most 255 characters.
    pub workflow_id: String,
}

/// A business id of an archetype, whose current run is in `current_chasm_executions`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChasmKey {
    /// The shard that it belongs to.
    pub shard_id: i32,
    /// Its namespace.
    pub namespace_id: Uuid,
    /// The business id; at most 255 characters.
    pub business_id: String,
    /// The archetype.
    pub archetype_id: i64,
}

impl WorkflowKey {
    /// One of its runs.
    #[must_use]
    pub fn run(&self, run_id: Uuid) -> RunKey {
        let Self { shard_id, namespace_id, workflow_id } = self;
        RunKey { shard_id: *shard_id, namespace_id: *namespace_id, workflow_id: workflow_id.clone(), run_id }
    }
}

impl fmt::Display for WorkflowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shard_id, namespace_id, workflow_id } = self;
        write!(f, "{workflow_id:?} of namespace {namespace_id} in shard {shard_id}")
    }
}

impl fmt::Display for ChasmKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shard_id, namespace_id, business_id, archetype_id } = self;
        write!(
            f,
            "{business_id:?}, archetype {archetype_id}, of namespace {namespace_id} in shard {shard_id}"
        )
    }
}

impl ChasmKey {
    /// One of its runs. Its row in `executions` has the business id in the place of a workflow id.
    #[must_use]
    pub fn run(&self, run_id: Uuid) -> RunKey {
        let Self { shard_id, namespace_id, business_id, archetype_id: _ } = self;
        RunKey { shard_id: *shard_id, namespace_id: *namespace_id, workflow_id: business_id.clone(), run_id }
    }
}

/// The key of one of the two tables.
pub trait CurrentKey: key::Sealed {}

impl CurrentKey for WorkflowKey {}
impl CurrentKey for ChasmKey {}

mod key {
    use super::{ChasmKey, Row, RunKey, Sql, Uuid, Value, WorkflowKey};
    use crate::error::Result;

    pub trait Sealed: std::fmt::Display + Sized + Sync {
        fn sql() -> &'static Sql;
        fn values(&self) -> Vec<Value<'_>>;
        fn run_key(&self, run_id: Uuid) -> RunKey;
        /// From the first columns of a row; and how many these are.
        fn read(row: &Row) -> Result<(Self, usize)>;
    }

    impl Sealed for WorkflowKey {
        fn sql() -> &'static Sql {
            &super::CURRENT
        }

        fn values(&self) -> Vec<Value<'_>> {
            vec![&self.shard_id, &self.namespace_id, &self.workflow_id]
        }

        fn run_key(&self, run_id: Uuid) -> RunKey {
            self.run(run_id)
        }

        fn read(row: &Row) -> Result<(Self, usize)> {
            let (shard_id, namespace_id) = (row.try_get(0)?, row.try_get(1)?);
            Ok((Self { shard_id, namespace_id, workflow_id: row.try_get(2)? }, 3))
        }
    }

    impl Sealed for ChasmKey {
        fn sql() -> &'static Sql {
            &super::CHASM
        }

        fn values(&self) -> Vec<Value<'_>> {
            vec![&self.shard_id, &self.namespace_id, &self.business_id, &self.archetype_id]
        }

        fn run_key(&self, run_id: Uuid) -> RunKey {
            self.run(run_id)
        }

        fn read(row: &Row) -> Result<(Self, usize)> {
            let (shard_id, namespace_id) = (row.try_get(0)?, row.try_get(1)?);
            let (business_id, archetype_id) = (row.try_get(2)?, row.try_get(3)?);
            Ok((Self { shard_id, namespace_id, business_id, archetype_id }, 4))
        }
    }
}

/// Private, so that nobody can name what the sealed traits return.
mod sql {
    /// The statements for one table.
    #[derive(Debug)]
    pub struct Sql {
        pub(super) insert: String,
        pub(super) update: String,
        pub(super) select: String,
        pub(super) delete: String,
        pub(super) lock: String,
    }
}

use sql::Sql;

static CURRENT: LazyLock<Sql> =
    LazyLock::new(|| Sql::new("current_executions", &["shard_id", "namespace_id", "workflow_id"]));
static CHASM: LazyLock<Sql> = LazyLock::new(|| {
    Sql::new("current_chasm_executions", &["shard_id", "namespace_id", "business_id", "archetype_id"])
});

const COLUMNS: [&str; 9] = [
    "run_id",
    "create_request_id",
    "state",
    "status",
    "start_version",
    "start_time",
    "last_write_version",
    "data",
    "data_encoding",
];

impl Sql {
    fn new(table: &str, key: &[&str]) -> Self {
        let equals = |columns: &[&str], first: usize, by: &str| {
            let parts = columns.iter().enumerate().map(|(at, column)| format!("{column} = ${}", first + at));
            parts.collect::<Vec<_>>().join(by)
        };
        let all: Vec<&str> = key.iter().chain(&COLUMNS).copied().collect();
        let places: Vec<String> = (1..=all.len()).map(|at| format!("${at}")).collect();
        let (columns, row) = (all.join(", "), equals(key, 1, " AND "));
        let select = format!("SELECT {columns} FROM {table} WHERE {row}");
        Self {
            insert: format!("INSERT INTO {table} ({columns}) VALUES ({})", places.join(", ")),
            update: format!(
                "UPDATE {table} SET {} WHERE {row} AND run_id = ${}",
                equals(&COLUMNS, key.len() + 1, ", "),
                all.len() + 1
            ),
            lock: format!("{select} FOR UPDATE"),
            select,
            delete: format!("DELETE FROM {table} WHERE {row} AND run_id = ${}", key.len() + 1),
        }
    }
}

impl<K: CurrentKey> CurrentExecutionRow<K> {
    pub(crate) fn read(row: &Row) -> Result<Self> {
        let (key, at) = K::read(row)?;
        let data: Option<Vec<u8>> = row.try_get(at + 7)?;
        let encoding: String = row.try_get(at + 8)?;
        Ok(Self {
            key,
            run_id: row.try_get(at)?,
            create_request_id: row.try_get(at + 1)?,
            state: row.try_get(at + 2)?,
            status: row.try_get(at + 3)?,
            start_version: row.try_get(at + 4)?,
            start_time: row.try_get(at + 5)?,
            last_write_version: row.try_get(at + 6)?,
            execution_state: data.map(|data| Blob { data, encoding }),
        })
    }
}

/// The values of a row, where a missing state is a NULL with an empty encoding.
async fn write<K: CurrentKey>(
    connection: &Connection,
    sql: &str,
    row: &CurrentExecutionRow<K>,
    expected_run_id: Option<&Uuid>,
) -> Result<u64> {
    let (data, encoding) =
        row.execution_state.as_ref().map_or((None, ""), |blob| (Some(&blob.data), &*blob.encoding));
    let mut values = row.key.values();
    values.extend([
        &row.run_id as Value<'_>,
        &row.create_request_id,
        &row.state,
        &row.status,
        &row.start_version,
        &row.start_time,
        &row.last_write_version,
        &data,
        &encoding,
    ]);
    values.extend(expected_run_id.map(|run| run as Value<'_>));
    connection.execute(sql, &values).await
}

/// Inserts the current run of what has none.
///
/// # Errors
/// [`Error::AlreadyExists`] if it has one.
///
/// # Cancel safety
/// Outside of a transaction, the row may have been inserted.
pub async fn insert<K: CurrentKey>(connection: &Connection, row: &CurrentExecutionRow<K>) -> Result<()> {
    write(connection, &K::sql().insert, row, None).await?;
    Ok(())
}

/// Updates a row if its run is still `expected_run_id`; it may become another one.
///
/// # Errors
/// [`Error::ConditionFailed`] if the current run is another one, or there is none.
///
/// # Cancel safety
/// Outside of a transaction, the update may have happened.
pub async fn update<K: CurrentKey>(
    connection: &Connection,
    row: &CurrentExecutionRow<K>,
    expected_run_id: Uuid,
) -> Result<()> {
    match write(connection, &K::sql().update, row, Some(&expected_run_id)).await? {
        0 => Err(Condition::row("current execution", &row.key, format!("run {expected_run_id}")).into()),
        _ => Ok(()),
    }
}

/// Reads the current run.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn select<K: CurrentKey>(connection: &Connection, key: &K) -> Result<CurrentExecutionRow<K>> {
    let row = connection.query_opt(&K::sql().select, &key.values()).await?;
    CurrentExecutionRow::read(&row.ok_or_else(|| Error::not_found("current execution", key))?)
}

/// Deletes a row if its run is `run_id`. Returns whether it was.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, the row may have been deleted.
pub async fn delete<K: CurrentKey>(connection: &Connection, key: &K, run_id: Uuid) -> Result<bool> {
    let mut values = key.values();
    values.push(&run_id);
    Ok(connection.execute(&K::sql().delete, &values).await? > 0)
}

/// Locks the current run until the end of the transaction, and reads it; none if there is none.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// The lock ends with the transaction.
pub async fn lock<K: CurrentKey>(tx: &Tx, key: &K) -> Result<Option<CurrentExecutionRow<K>>> {
    let row = tx.query_opt(&K::sql().lock, &key.values()).await?;
    row.as_ref().map(CurrentExecutionRow::read).transpose()
}

/// Locks the current run and its execution until the end of the transaction. Returns the current run with the `last_write_version` of the
/// execution; none if one of the two rows is missing.
///
/// PostgreSQL does it with one statement, a join FOR UPDATE. Aurora DSQL locked rows of one table only when the specification was
/// written, so these are two statements. They are as safe as one:
///
/// - Both read the same snapshot. A transaction of Aurora DSQL has one for all its statements, so nothing can change between the two,
///   and they return what the join would return.
/// - Both lock, each by the whole key of its table. If another transaction changes either row before this one commits, this one
///   fails, as it would with the join. Had the second statement only read, a new `last_write_version` could be committed meanwhile, and this
///   transaction would commit a decision that rests on the old one.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// The locks end with the transaction.
pub async fn lock_with_execution<K: CurrentKey>(tx: &Tx, key: &K) -> Result<Option<CurrentExecutionRow<K>>> {
    let Some(mut current) = lock(tx, key).await? else { return Ok(None) };
    let run = key.run_key(current.run_id);
    let Some(row) = tx.query_opt(execution::LOCK_WRITE_VERSION, &run.values()).await? else {
        return Ok(None);
    };
    current.last_write_version = row.try_get(0)?;
    Ok(Some(current))
}

/// The statement that reads a current run by its workflow.
pub(crate) fn select_sql() -> &'static str {
    &CURRENT.select
}

impl WorkflowKey {
    pub(crate) fn values(&self) -> Vec<Value<'_>> {
        key::Sealed::values(self)
    }
}
