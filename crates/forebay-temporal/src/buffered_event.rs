//! Buffered events of a run: they wait for the end of a workflow task.
//!
//! Events are read in the order of their ids. An id is 41 bits of milliseconds since 2020, 10 of the number of the process, 12 of a
//! sequence, as the plugin in Go makes them. So events of both kinds of process stand in one order: by the millisecond in which they were
//! written, by the clock of the process that wrote them. Within a millisecond, the number of the process decides.

use forebay_dsql::IdError;
use tokio_postgres::Row;

use crate::batch;
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

/// What the generator of this process leaves out of an id: the milliseconds from 2020, where the plugin's ids begin, to 2024.
const FROM_2020: i64 = (1_704_067_200_000 - 1_577_836_800_000) << 22;

/// Appends events, with one statement. Their ids come from the generator of this process, and grow with each event.
///
/// They come after the events of another process, such as the last owner of the shard, unless its clock was ahead of this one, or both
/// wrote within a millisecond. A process of the plugin that has the same number, which it makes of the name of its host, can make the
/// same id in one millisecond: the insert fails then.
///
/// # Errors
/// [`Error::Id`](crate::Error::Id) if no id can be made, as from the year 2089 on; [`Error::AlreadyExists`](crate::Error::AlreadyExists)
/// if another process has made the same id; those of the database.
///
/// # Cancel safety
/// Outside of a transaction, they may have been appended.
pub async fn insert(connection: &Connection, run: &RunKey, events: &[Blob]) -> Result<()> {
    if events.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> =
        events.iter().map(|_| connection.ids().next().and_then(since_2020)).collect::<Result<_, _>>()?;
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
    let delete = |connection: Connection, limit: usize| async move {
        let limit = batch::limit(limit);
        let mut values = run.values().to_vec();
        values.push(&limit);
        connection.execute(DELETE_SOME, &values).await
    };
    persistence.delete_in_batches("delete_buffered_events", delete).await
}

pub(crate) fn read(rows: &[Row]) -> Result<Vec<Blob>> {
    rows.iter().map(|row| Blob::read(row, 0)).collect()
}

/// The id as the plugin counts.
fn since_2020(id: i64) -> Result<i64, IdError> {
    id.checked_add(FROM_2020).ok_or(IdError::ClockOutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_end_before_they_would_be_negative() {
        assert_eq!(since_2020(i64::MAX - FROM_2020), Ok(i64::MAX));
        assert_eq!(since_2020(i64::MAX - FROM_2020 + 1), Err(IdError::ClockOutOfRange));
    }

    #[test]
    fn the_beginning_of_2024_is_1461_days_after_that_of_2020() {
        assert_eq!(since_2020(5), Ok(((1_461 * 86_400_000) << 22) + 5));
    }
}
