//! History trees: the branches of each history.

use tokio_postgres::Row;
use uuid::Uuid;

use crate::blob::Blob;
use crate::connection::{Connection, Value};
use crate::error::Result;
use crate::history_node::BranchKey;
use crate::page::{Page, PageToken, rows_to_ask};

/// A branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryBranch {
    /// Which it is.
    pub key: BranchKey,
    /// What is known of it.
    pub info: Blob,
}

const INSERT: &str = "INSERT INTO history_tree (shard_id, tree_id, branch_id, data, data_encoding) VALUES ($1, $2, $3, $4, $5) \
     ON CONFLICT (shard_id, tree_id, branch_id) DO UPDATE SET data = excluded.data, data_encoding = excluded.data_encoding";
const SELECT: &str = "SELECT shard_id, tree_id, branch_id, data, data_encoding FROM history_tree \
     WHERE shard_id = $1 AND tree_id = $2 ORDER BY branch_id";
const FIRST_PAGE: &str = "SELECT shard_id, tree_id, branch_id, data, data_encoding FROM history_tree \
     ORDER BY shard_id, tree_id, branch_id LIMIT $1";
const NEXT_PAGE: &str = "SELECT shard_id, tree_id, branch_id, data, data_encoding FROM history_tree \
     WHERE (shard_id, tree_id, branch_id) > ($1, $2, $3) ORDER BY shard_id, tree_id, branch_id LIMIT $4";
const DELETE: &str = "DELETE FROM history_tree WHERE shard_id = $1 AND tree_id = $2 AND branch_id = $3";
const LIST: &str = "history branches";

/// Writes a branch. One that is there already is replaced.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, it may have been written.
pub async fn insert(connection: &Connection, branch: &HistoryBranch) -> Result<()> {
    let HistoryBranch { key, info } = branch;
    let mut values = key.values().to_vec();
    values.extend([&info.data as Value<'_>, &info.encoding]);
    connection.execute(INSERT, &values).await?;
    Ok(())
}

/// Reads all branches of a tree.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn select(connection: &Connection, shard_id: i32, tree_id: Uuid) -> Result<Vec<HistoryBranch>> {
    connection.query(SELECT, &[&shard_id, &tree_id]).await?.iter().map(read).collect()
}

/// Reads a page of at most `size` branches of all trees of all shards.
///
/// The first page has a statement of its own: there is no identifier that all others follow.
///
/// # Errors
/// [`Error::InvalidInput`](crate::Error::InvalidInput) for a size of 0, or a token of another list; those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn paginate(
    connection: &Connection,
    size: usize,
    page: Option<&PageToken>,
) -> Result<Page<HistoryBranch>> {
    let limit = rows_to_ask(size)?;
    let rows = match page {
        None => connection.query(FIRST_PAGE, &[&limit]).await?,
        Some(token) => {
            let (shard_id, tree_id, branch_id): (i32, Uuid, Uuid) = token.key(LIST)?;
            connection.query(NEXT_PAGE, &[&shard_id, &tree_id, &branch_id, &limit]).await?
        }
    };
    let rows = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(Page::cut(rows, size, LIST, |HistoryBranch { key, .. }| (key.shard_id, key.tree_id, key.branch_id)))
}

/// Deletes a branch. Returns whether there was one.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, it may have been deleted.
pub async fn delete(connection: &Connection, branch: &BranchKey) -> Result<bool> {
    Ok(connection.execute(DELETE, &branch.values()).await? > 0)
}

fn read(row: &Row) -> Result<HistoryBranch> {
    let key = BranchKey { shard_id: row.try_get(0)?, tree_id: row.try_get(1)?, branch_id: row.try_get(2)? };
    Ok(HistoryBranch { key, info: Blob::read(row, 3)? })
}
