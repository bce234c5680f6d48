//! History nodes: batches of events on the branches of a history.

use std::ops::Range;

use uuid::Uuid;

use crate::batch;
use crate::blob::Blob;
use crate::connection::{Connection, Value};
use crate::error::Result;
use crate::page::{Page, PageToken, rows_to_ask};
use crate::persistence::Persistence;

/// A branch of a history tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchKey {
    /// The shard that the history belongs to.
    pub shard_id: i32,
    /// The tree.
    pub tree_id: Uuid,
    /// The branch.
    pub branch_id: Uuid,
}

impl BranchKey {
    pub(crate) fn values(&self) -> [Value<'_>; 3] {
        [&self.shard_id, &self.tree_id, &self.branch_id]
    }
}

/// A batch of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryNode {
    /// The number of its first event.
    pub node_id: i64,
    /// The transaction that wrote it. Of several with one number, that of the greatest transaction counts. The table keeps it with
    /// the opposite sign, so that the greatest comes first.
    pub txn_id: i64,
    /// The transaction of the node before it.
    pub prev_txn_id: i64,
    /// The events. Empty where only metadata was asked for.
    pub events: Blob,
}

/// In which order nodes are read, and what of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadNodes {
    /// From the first to the last; of one number, the greatest transaction first.
    #[default]
    Forward,
    /// From the last to the first.
    Reverse,
    /// As forward, without the events.
    Metadata,
}

const INSERT: &str = "INSERT INTO history_node (shard_id, tree_id, branch_id, node_id, txn_id, prev_txn_id, data, data_encoding) \
     SELECT $1::integer, $2::uuid, $3::uuid, node_id, txn_id, prev_txn_id, data, data_encoding \
     FROM unnest($4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[], $8::varchar[]) \
     AS node (node_id, txn_id, prev_txn_id, data, data_encoding) \
     ON CONFLICT (shard_id, tree_id, branch_id, node_id, txn_id) DO UPDATE SET \
     prev_txn_id = excluded.prev_txn_id, data = excluded.data, data_encoding = excluded.data_encoding";
const DELETE: &str = "DELETE FROM history_node \
     WHERE shard_id = $1 AND tree_id = $2 AND branch_id = $3 AND node_id = $4 AND txn_id = $5";
const FORWARD: &str = "SELECT node_id, txn_id, prev_txn_id, data, data_encoding FROM history_node \
     WHERE shard_id = $1 AND tree_id = $2 AND branch_id = $3 AND (node_id, txn_id) > ($4, $5) AND node_id >= $6 AND node_id < $7 \
     ORDER BY node_id, txn_id LIMIT $8";
const REVERSE: &str = "SELECT node_id, txn_id, prev_txn_id, data, data_encoding FROM history_node \
     WHERE shard_id = $1 AND tree_id = $2 AND branch_id = $3 AND (node_id, txn_id) < ($4, $5) AND node_id >= $6 AND node_id < $7 \
     ORDER BY node_id DESC, txn_id DESC LIMIT $8";
const METADATA: &str = "SELECT node_id, txn_id, prev_txn_id FROM history_node \
     WHERE shard_id = $1 AND tree_id = $2 AND branch_id = $3 AND (node_id, txn_id) > ($4, $5) AND node_id >= $6 AND node_id < $7 \
     ORDER BY node_id, txn_id LIMIT $8";
const RANGE_DELETE: &str = "DELETE FROM history_node \
     WHERE shard_id = $1 AND tree_id = $2 AND branch_id = $3 AND (node_id, txn_id) IN (SELECT node_id, txn_id FROM history_node \
     WHERE shard_id = $1 AND tree_id = $2 AND branch_id = $3 AND node_id >= $4 ORDER BY node_id, txn_id LIMIT $5)";

/// Writes nodes, with one statement. A node that is there already, with the same transaction, is replaced: to write it again does
/// no harm.
///
/// # Errors
/// Those of the database; [`Error::TooLarge`](crate::Error::TooLarge) beyond what fits into one transaction.
///
/// # Cancel safety
/// Outside of a transaction, they may have been written.
pub async fn insert(connection: &Connection, branch: &BranchKey, nodes: &[HistoryNode]) -> Result<()> {
    if nodes.is_empty() {
        return Ok(());
    }
    let numbers = |of: fn(&HistoryNode) -> i64| nodes.iter().map(of).collect::<Vec<i64>>();
    let (ids, transactions) = (numbers(|node| node.node_id), numbers(|node| stored(node.txn_id)));
    let previous = numbers(|node| node.prev_txn_id);
    let data: Vec<&[u8]> = nodes.iter().map(|node| &*node.events.data).collect();
    let encodings: Vec<&str> = nodes.iter().map(|node| &*node.events.encoding).collect();
    let mut values = branch.values().to_vec();
    values.extend([&ids as Value<'_>, &transactions, &previous, &data, &encodings]);
    connection.execute(INSERT, &values).await?;
    Ok(())
}

/// Writes nodes, however many, in several transactions. Whoever is interrupted calls it again.
///
/// # Errors
/// Those of the database; the first nodes may be written then.
///
/// # Cancel safety
/// The first nodes are written, the others are not. Call it again.
pub async fn insert_in_batches(
    persistence: &Persistence,
    branch: &BranchKey,
    nodes: &[HistoryNode],
) -> Result<()> {
    for slice in batch::slices(nodes, |node| node.events.data.len() + 128) {
        persistence
            .write(
                "insert_history_nodes",
                |connection| async move { insert(&connection, branch, slice).await },
            )
            .await?;
    }
    Ok(())
}

/// Deletes a node. Returns whether there was one.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, it may have been deleted.
pub async fn delete(connection: &Connection, branch: &BranchKey, node_id: i64, txn_id: i64) -> Result<bool> {
    let txn_id = stored(txn_id);
    let mut values = branch.values().to_vec();
    values.extend([&node_id as Value<'_>, &txn_id]);
    Ok(connection.execute(DELETE, &values).await? > 0)
}

/// Reads a page of at most `size` nodes whose numbers are in `range`.
///
/// # Errors
/// [`Error::InvalidInput`](crate::Error::InvalidInput) for a size of 0, or a token of another list; those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn range_select(
    connection: &Connection,
    branch: &BranchKey,
    range: Range<i64>,
    read: ReadNodes,
    size: usize,
    page: Option<&PageToken>,
) -> Result<Page<HistoryNode>> {
    let limit = rows_to_ask(size)?;
    let (sql, list, first) = match read {
        ReadNodes::Forward => (FORWARD, "history nodes", i64::MIN),
        ReadNodes::Reverse => (REVERSE, "history nodes in reverse order", i64::MAX),
        ReadNodes::Metadata => (METADATA, "metadata of history nodes", i64::MIN),
    };
    let (node_id, txn_id) = page.map_or(Ok((first, first)), |token| token.key(list))?;
    let mut values = branch.values().to_vec();
    values.extend([&node_id as Value<'_>, &txn_id, &range.start, &range.end, &limit]);
    let rows = connection.query(sql, &values).await?;
    let nodes = rows.iter().map(|row| {
        let events = if row.len() > 3 { Blob::read(row, 3)? } else { Blob::new([], "") };
        let (node_id, txn_id) = (row.try_get(0)?, stored(row.try_get(1)?));
        Ok(HistoryNode { node_id, txn_id, prev_txn_id: row.try_get(2)?, events })
    });
    let nodes = nodes.collect::<Result<Vec<_>>>()?;
    Ok(Page::cut(nodes, size, list, |node| (node.node_id, stored(node.txn_id))))
}

/// Deletes at most `limit` nodes of a branch from `min_node_id` on, the first ones first, with one statement. Returns how many. For all
/// of them, however many, there is [`range_delete`].
///
/// # Errors
/// [`Error::TooLarge`](crate::Error::TooLarge) if they are too many.
///
/// # Cancel safety
/// Outside of a transaction, they may have been deleted.
pub async fn range_delete_at_most(
    connection: &Connection,
    branch: &BranchKey,
    min_node_id: i64,
    limit: usize,
) -> Result<u64> {
    let limit = batch::limit(limit);
    let mut values = branch.values().to_vec();
    values.extend([&min_node_id as Value<'_>, &limit]);
    connection.execute(RANGE_DELETE, &values).await
}

/// Deletes the nodes of a branch from `min_node_id` on, however many, in several transactions. Whoever is interrupted calls it again.
///
/// # Errors
/// Those of the database; some nodes may be deleted then.
///
/// # Cancel safety
/// Some nodes are deleted, the others are not. Call it again.
pub async fn range_delete(persistence: &Persistence, branch: &BranchKey, min_node_id: i64) -> Result<u64> {
    let delete = |connection: Connection, limit: usize| async move {
        range_delete_at_most(&connection, branch, min_node_id, limit).await
    };
    persistence.delete_in_batches("range_delete_history_nodes", delete).await
}

/// The number of a transaction as the table has it, and back.
fn stored(txn_id: i64) -> i64 {
    txn_id.saturating_neg()
}
