//! Shards: who owns them, and the fence that keeps others out.
//!
//! A shard belongs to one process at a time. Whoever takes it over raises its `range_id`; a mutation carries the range id that its
//! owner believes in. Two things must never both commit: a change of owner, and a mutation by the old owner after it has read the
//! shard's row and before it knows of the change.
//!
//! Aurora DSQL runs transactions at snapshot isolation. With a plain SELECT of the range id, both would commit: they change different
//! rows (write skew). So the read lock here is FOR UPDATE: the database then treats the row as changed, and of two transactions that
//! overlap the second fails at its COMMIT. Run again, it finds the new range id and stops.
//!
//! An owner that writes all the time could defeat every attempt to take its shard over. So a process that fails a few times announces
//! the change: it writes the range id that it wants into the table `shard_takeovers`. A fenced transaction reads the row of its shard
//! there, without a lock, and pauses for a moment. Nothing but speed depends on the announcement.
//!
//! The guarantee needs all owners on this store. An owner that only reads the row, as the plugin in Go does, is not kept out.

use futures_util::future;

use crate::blob::Blob;
use crate::connection::{Connection, Tx};
use crate::error::{Condition, Error, Result};
use crate::takeover;

/// A row of `shards`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardRow {
    /// The shard.
    pub shard_id: i32,
    /// The fence: it grows with every change of owner.
    pub range_id: i64,
    /// What the owner keeps of it.
    pub info: Blob,
}

/// A shard, and the range id by which a process believes that it owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardOwner {
    /// The shard.
    pub shard_id: i32,
    /// The owner's range id.
    pub range_id: i64,
}

impl ShardOwner {
    fn deposed(self, found: Option<i64>) -> Error {
        let Self { shard_id, range_id: expected_range_id } = self;
        Condition::ShardOwner { shard_id, expected_range_id, found }.into()
    }
}

const INSERT: &str = "INSERT INTO shards (shard_id, range_id, data, data_encoding) VALUES ($1, $2, $3, $4)";
const UPDATE: &str =
    "UPDATE shards SET range_id = $1, data = $2, data_encoding = $3 WHERE shard_id = $4 AND range_id = $5";
const SELECT: &str = "SELECT shard_id, range_id, data, data_encoding FROM shards WHERE shard_id = $1";
const LOCK: &str = "SELECT range_id FROM shards WHERE shard_id = $1 FOR UPDATE";

/// Inserts a shard.
///
/// # Errors
/// [`Error::AlreadyExists`].
///
/// # Cancel safety
/// Outside of a transaction, the row may have been inserted.
pub async fn insert(connection: &Connection, row: &ShardRow) -> Result<()> {
    let ShardRow { shard_id, range_id, info } = row;
    connection.execute(INSERT, &[shard_id, range_id, &info.data, &info.encoding]).await?;
    Ok(())
}

/// Reads a shard.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn select(connection: &Connection, shard_id: i32) -> Result<ShardRow> {
    let row = connection.query_opt(SELECT, &[&shard_id]).await?;
    let row = row.ok_or_else(|| Error::not_found("shard", shard_id))?;
    Ok(ShardRow { shard_id: row.try_get(0)?, range_id: row.try_get(1)?, info: Blob::read(&row, 2)? })
}

/// Updates a shard if its range id is `expected_range_id`. There is no update without a fence, and none that lowers the range id: an
/// owner that was deposed long ago would be let in again.
/// [`Persistence::update_shard`](crate::Persistence::update_shard) does it with nothing else.
///
/// # Errors
/// [`Error::ConditionFailed`] if it has another one, or does not exist; [`Error::InvalidInput`] if the new one is smaller.
///
/// # Cancel safety
/// Outside of a transaction, the update may have happened.
pub async fn update(connection: &Connection, row: &ShardRow, expected_range_id: i64) -> Result<()> {
    let ShardRow { shard_id, range_id, info } = row;
    if *range_id < expected_range_id {
        return Err(Error::invalid(format!(
            "the range id of shard {shard_id} cannot go back from {expected_range_id} to {range_id}: keep it, or raise it"
        )));
    }
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [range_id, &info.data, &info.encoding, shard_id, &expected_range_id];
    let condition = || Condition::ShardOwner { shard_id: row.shard_id, expected_range_id, found: None };
    connection.swap(UPDATE, &values, condition).await
}

/// Reads the range id of a shard and updates the shard if it has not changed by then: for a caller who keeps the range id, or raises it,
/// and must only not overtake another.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::ConditionFailed`] if the shard has a greater range id than `row`, or changed in between.
///
/// # Cancel safety
/// Outside of a transaction, the update may have happened.
pub async fn update_auto_fenced(connection: &Connection, row: &ShardRow) -> Result<()> {
    let found = select(connection, row.shard_id).await?.range_id;
    let ShardRow { shard_id, range_id, .. } = *row;
    if found > range_id {
        return Err(ShardOwner { shard_id, range_id }.deposed(Some(found)));
    }
    update(connection, row, found).await
}

/// Locks a shard against a change of its owner until the end of the transaction, and returns its range id. It is the same lock as
/// [`write_lock`]: Aurora DSQL has no FOR SHARE, and a plain SELECT locks nothing.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// The lock ends with the transaction.
pub async fn read_lock(tx: &Tx, shard_id: i32) -> Result<i64> {
    write_lock(tx, shard_id).await
}

/// Locks a shard until the end of the transaction, and returns its range id. The lock holds nobody up: of two transactions that lock or
/// change the shard and overlap, the second to commit fails with a conflict, and is run again.
///
/// # Errors
/// [`Error::NotFound`].
///
/// # Cancel safety
/// The lock ends with the transaction.
pub async fn write_lock(tx: &Tx, shard_id: i32) -> Result<i64> {
    let row = tx.query_opt(LOCK, &[&shard_id]).await?;
    let row = row.ok_or_else(|| Error::not_found("shard", shard_id))?;
    Ok(row.try_get(0)?)
}

/// Locks the shard of `owner`, and fails if it is not the owner: the transaction then commits only if nobody else has taken the shard
/// over before. [`Persistence::fenced`](crate::Persistence::fenced) does it first.
///
/// # Errors
/// [`Error::ConditionFailed`] with the shard, the expected and the found range id.
///
/// # Cancel safety
/// The lock ends with the transaction.
pub async fn fence(tx: &Tx, owner: ShardOwner) -> Result<()> {
    match read_lock(tx, owner.shard_id).await {
        Ok(found) if found == owner.range_id => Ok(()),
        Ok(found) => Err(owner.deposed(Some(found))),
        Err(Error::NotFound { .. }) => Err(owner.deposed(None)),
        Err(error) => Err(error),
    }
}

/// As [`fence`], and tells the range id of a change of owner that was announced, if there is one. One round trip.
pub(crate) async fn fence_and_look(tx: &Tx, owner: ShardOwner) -> Result<Option<i64>> {
    let (_, announced) = future::try_join(fence(tx, owner), takeover::announced(tx, owner.shard_id)).await?;
    Ok(announced.filter(|range_id| *range_id > owner.range_id))
}
