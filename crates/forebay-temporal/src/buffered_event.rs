//! Buffered events of a run: they wait for the end of a workflow task.

use tokio_postgres::Row;

use crate::blob::Blob;
use crate::connection::Connection;
use crate::error::Result;
use crate::execution::RunKey;
use crate::persistence::Persistence;

const INSERT: &str = "INSERT INTO buffered_events (shard_id, namespace_id, workflow_id, run_id, id, data, data_encoding) \
     SELECT $1::integer, $2::uuid, $3::varchar, $4::uuid, id, data, data_encoding \
     FROM unnest($5::bigint[], $6::bytea[], $7::varchar[]) AS event (id, data, data_encoding)";
pub(crate) const SELECT_ALL: &str = "SELECT data, data_encoding FROM buffered_events \
     WHERE shard_id = $1 AND namespace_id = $2 AND workflow_id = $3 AND run_id = $4 ORDER BY id";
const DELETE_ALL: &str = "DELETE FROM buffered_events WHERE shard_id = $1 AND namespace_id = $2 AND workflow_id = $3 AND run_id = $4";
const DELETE_SOME: &str = "DELETE FROM buffered_events \
     WHERE shard_id = $1 AND namespace_id = $2 AND workflow_id = $3 AND run_id = $4 AND id IN (SELECT id FROM buffered_events \
     WHERE shard_id = $1 AND namespace_id = $2 AND workflow_id = $3 AND run_id = $4 LIMIT $5)";

/// Appends events, with one statement. Their ids come from the generator of this process, in the order of the events. Events of another
/// process, such as the last owner of the shard, have smaller ids only if its clock was not ahead.
///
/// # Errors
/// [`Error::Id`](crate::Error::Id) if no id can be made; those of the database.
///
/// # Cancel safety
/// Outside of a transaction, they may have been appended.
pub async fn insert(connection: &Connection, run: &RunKey, events: &[Blob]) -> Result<()> {
    if events.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = events.iter().map(|_| connection.ids().next()).collect::<Result<_, _>>()?;
    let data: Vec<&[u8]> = events.iter().map(|event| &*event.data).collect();
    let encodings: Vec<&str> = events.iter().map(|event| &*event.encoding).collect();
    let mut values = run.values().to_vec();
    values.extend([&ids as crate::connection::Value<'_>, &data, &encodings]);
    connection.execute(INSERT, &values).await?;
    Ok(())
}

/// Reads all events of a run, in the order of their ids.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn select_all(connection: &Connection, run: &RunKey) -> Result<Vec<Blob>> {
    read(&connection.query(SELECT_ALL, &run.values()).await?)
}

/// Deletes all events of a run, with one statement. Returns how many there were. For more than fit into one transaction there is
/// [`delete_all_in_batches`].
///
/// # Errors
/// [`Error::TooLarge`](crate::Error::TooLarge) if there are too many.
///
/// # Cancel safety
/// Outside of a transaction, they may have been deleted.
pub async fn delete_all(connection: &Connection, run: &RunKey) -> Result<u64> {
    connection.execute(DELETE_ALL, &run.values()).await
}

/// Deletes all events of a run, however many, in several transactions. Whoever is interrupted calls it again.
///
/// # Errors
/// Those of the database; some events may be deleted then.
///
/// # Cancel safety
/// Some events are deleted, the others are not. Call it again.
pub async fn delete_all_in_batches(persistence: &Persistence, run: &RunKey) -> Result<u64> {
    let delete = |connection: Connection, limit: i64| async move {
        let mut values = run.values().to_vec();
        values.push(&limit);
        connection.execute(DELETE_SOME, &values).await
    };
    persistence.delete_in_batches("delete_buffered_events", delete).await
}

pub(crate) fn read(rows: &[Row]) -> Result<Vec<Blob>> {
    rows.iter().map(|row| Blob::read(row, 0)).collect()
}
