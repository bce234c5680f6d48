//! Takeovers: changes of the owner of a shard that are announced before they happen. See [`shard`](crate::shard).
//!
//! They have a table of their own. A row of `shards` that is no shard would be read by programs that do not know of it.

use crate::connection::{Connection, Tx};
use crate::error::Result;

const ANNOUNCE: &str = "INSERT INTO shard_takeovers (shard_id, range_id) VALUES ($1, $2) \
     ON CONFLICT (shard_id) DO UPDATE SET range_id = excluded.range_id";
const ANNOUNCED: &str = "SELECT range_id FROM shard_takeovers WHERE shard_id = $1";
const WITHDRAW: &str = "DELETE FROM shard_takeovers WHERE shard_id = $1 AND range_id <= $2";

/// The range id of the change of owner that is announced, if there is one.
pub(crate) async fn announced(tx: &Tx, shard_id: i32) -> Result<Option<i64>> {
    let row = tx.query_opt(ANNOUNCED, &[&shard_id]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// Announces that the owner of a shard is about to change.
pub(crate) async fn announce(connection: &Connection, shard_id: i32, range_id: i64) -> Result<()> {
    connection.execute(ANNOUNCE, &[&shard_id, &range_id]).await?;
    Ok(())
}

/// Removes an announcement, and any older one.
pub(crate) async fn withdraw(connection: &Connection, shard_id: i32, range_id: i64) -> Result<()> {
    connection.execute(WITHDRAW, &[&shard_id, &range_id]).await?;
    Ok(())
}
