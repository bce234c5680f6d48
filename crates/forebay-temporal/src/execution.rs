//! Executions: one row for each run of a workflow.

use std::fmt;

use tokio_postgres::Row;
use uuid::Uuid;

use crate::blob::Blob;
use crate::connection::{Connection, Tx, Value};
use crate::error::{Condition, Error, Result};

/// A run of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey {
    /// The shard that the workflow belongs to.
    pub shard_id: i32,
    /// Its namespace.
    pub namespace_id: Uuid,
    /// The workflow; at most 255 characters.
    pub workflow_id: String,
    /// The run.
    pub run_id: Uuid,
}

/// The condition for one run, whose values are parameters 1 to 4.
pub(crate) const RUN: &str = "shard_id = $1 AND namespace_id = $2 AND workflow_id = $3 AND run_id = $4";

impl RunKey {
    pub(crate) fn values(&self) -> [Value<'_>; 4] {
        [&self.shard_id, &self.namespace_id, &self.workflow_id, &self.run_id]
    }

    fn not_found(&self) -> Error {
        Error::not_found("execution", self)
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shard_id, namespace_id, workflow_id, run_id } = self;
        write!(f, "{workflow_id:?}, run {run_id}, of namespace {namespace_id} in shard {shard_id}")
    }
}

/// A row of `executions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionRow {
    /// Which run it is.
    pub key: RunKey,
    /// The number of the next event.
    pub next_event_id: i64,
    /// The failover version of the last write.
    pub last_write_version: i64,
    /// The execution.
    pub info: Blob,
    /// Its state.
    pub state: Blob,
    /// The version of this row: its fence. It grows with every update.
    pub db_record_version: i64,
}

/// What a lock of an execution tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockedExecution {
    /// The version of the row.
    pub db_record_version: i64,
    /// The number of the next event.
    pub next_event_id: i64,
}

const INSERT: &str = "INSERT INTO executions (shard_id, namespace_id, workflow_id, run_id, next_event_id, last_write_version, \
     data, data_encoding, state, state_encoding, db_record_version) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
const UPDATE: &str = "UPDATE executions SET next_event_id = $5, last_write_version = $6, data = $7, data_encoding = $8, \
     state = $9, state_encoding = $10, db_record_version = $11 \
     WHERE shard_id = $1 AND namespace_id = $2 AND workflow_id = $3 AND run_id = $4 AND db_record_version = $12";
pub(crate) const SELECT: &str = "SELECT shard_id, namespace_id, workflow_id, run_id, next_event_id, last_write_version, \
     data, data_encoding, state, state_encoding, db_record_version FROM executions \
     WHERE shard_id = $1 AND namespace_id = $2 AND workflow_id = $3 AND run_id = $4";
const DELETE: &str =
    "DELETE FROM executions WHERE shard_id = $1 AND namespace_id = $2 AND workflow_id = $3 AND run_id = $4";
const LOCK: &str = "SELECT db_record_version, next_event_id FROM executions \
     WHERE shard_id = $1 AND namespace_id = $2 AND workflow_id = $3 AND run_id = $4 FOR UPDATE";
pub(crate) const LOCK_WRITE_VERSION: &str = "SELECT last_write_version FROM executions \
     WHERE shard_id = $1 AND namespace_id = $2 AND workflow_id = $3 AND run_id = $4 FOR UPDATE";

impl ExecutionRow {
    pub(crate) fn read(row: &Row) -> Result<Self> {
        let key = RunKey {
            shard_id: row.try_get(0)?,
            namespace_id: row.try_get(1)?,
            workflow_id: row.try_get(2)?,
            run_id: row.try_get(3)?,
        };
        Ok(Self {
            key,
            next_event_id: row.try_get(4)?,
            last_write_version: row.try_get(5)?,
            info: Blob::read(row, 6)?,
            state: Blob::read(row, 8)?,
            db_record_version: row.try_get(10)?,
        })
    }

    fn values(&self) -> Vec<Value<'_>> {
        let Self { key, next_event_id, last_write_version, info, state, db_record_version } = self;
        let mut values = key.values().to_vec();
        values.extend([
            next_event_id as Value<'_>,
            last_write_version,
            &info.data,
            &info.encoding,
            &state.data,
            &state.encoding,
            db_record_version,
        ]);
        values
    }
}

/// Inserts an execution.
///
/// # Errors
/// [`Error::AlreadyExists`].
///
/// # Cancel safety
/// Outside of a transaction, the row may have been inserted.
pub async fn insert(connection: &Connection, row: &ExecutionRow) -> Result<()> {
    connection.execute(INSERT, &row.values()).await?;
    Ok(())
}

/// Updates an execution if its row has the version `expected_version`. The new version is the row's.
///
/// # Errors
/// [`Error::ConditionFailed`] if it has another version, or does not exist.
///
/// # Cancel safety
/// Outside of a transaction, the update may have happened.
pub async fn update(connection: &Connection, row: &ExecutionRow, expected_version: i64) -> Result<()> {
    let mut values = row.values();
    values.push(&expected_version);
    connection.swap(UPDATE, &values, || Condition::row("execution", &row.key, expected_version)).await
}

/// Reads an execution.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn select(connection: &Connection, key: &RunKey) -> Result<ExecutionRow> {
    let row = connection.query_opt(SELECT, &key.values()).await?;
    ExecutionRow::read(&row.ok_or_else(|| key.not_found())?)
}

/// Deletes an execution. Returns whether there was one.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, the row may have been deleted.
pub async fn delete(connection: &Connection, key: &RunKey) -> Result<bool> {
    Ok(connection.execute(DELETE, &key.values()).await? > 0)
}

/// Locks an execution against changes until the end of the transaction. It is the same lock as [`write_lock`]: Aurora DSQL has no
/// FOR SHARE.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// The lock ends with the transaction.
pub async fn read_lock(tx: &Tx, key: &RunKey) -> Result<LockedExecution> {
    write_lock(tx, key).await
}

/// Locks an execution until the end of the transaction: of two transactions that lock or change it and overlap, the second to commit
/// fails with a conflict, and is run again.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// The lock ends with the transaction.
pub async fn write_lock(tx: &Tx, key: &RunKey) -> Result<LockedExecution> {
    let row = tx.query_opt(LOCK, &key.values()).await?.ok_or_else(|| key.not_found())?;
    Ok(LockedExecution { db_record_version: row.try_get(0)?, next_event_id: row.try_get(1)? })
}
