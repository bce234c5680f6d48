//! Build ids: which task queues of a namespace have one in their user data.
//!
//! A server changes them together with the [user data](crate::task_queue_user_data), in one transaction.

use uuid::Uuid;

use crate::connection::Connection;
use crate::error::Result;

const ADD: &str = "INSERT INTO build_id_to_task_queue (namespace_id, build_id, task_queue_name) \
     SELECT $1::uuid, build_id, $2::varchar FROM unnest($3::varchar[]) AS added (build_id)";
const REMOVE: &str = "DELETE FROM build_id_to_task_queue \
     WHERE namespace_id = $1 AND task_queue_name = $2 AND build_id = ANY($3::varchar[])";
const TASK_QUEUES: &str = "SELECT task_queue_name FROM build_id_to_task_queue \
     WHERE namespace_id = $1 AND build_id = $2 ORDER BY task_queue_name";
const COUNT: &str = "SELECT count(*) FROM build_id_to_task_queue WHERE namespace_id = $1 AND build_id = $2";

/// Notes that a task queue has these build ids, with one statement.
///
/// # Errors
/// [`Error::AlreadyExists`](crate::Error::AlreadyExists) if it has one of them already.
///
/// # Cancel safety
/// Outside of a transaction, they may have been added.
pub async fn add(
    connection: &Connection,
    namespace_id: Uuid,
    task_queue_name: &str,
    build_ids: &[String],
) -> Result<()> {
    if !build_ids.is_empty() {
        connection.execute(ADD, &[&namespace_id, &task_queue_name, &build_ids]).await?;
    }
    Ok(())
}

/// Notes that a task queue no longer has these build ids, with one statement. Returns how many of them it had.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, they may have been removed.
pub async fn remove(
    connection: &Connection,
    namespace_id: Uuid,
    task_queue_name: &str,
    build_ids: &[String],
) -> Result<u64> {
    connection.execute(REMOVE, &[&namespace_id, &task_queue_name, &build_ids]).await
}

/// The names of all task queues with a build id, in their order.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn task_queues(connection: &Connection, namespace_id: Uuid, build_id: &str) -> Result<Vec<String>> {
    let rows = connection.query(TASK_QUEUES, &[&namespace_id, &build_id]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// How many task queues have a build id.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn count_task_queues(connection: &Connection, namespace_id: Uuid, build_id: &str) -> Result<i64> {
    let row = connection.query_opt(COUNT, &[&namespace_id, &build_id]).await?;
    Ok(row.map_or(Ok(0), |row| row.try_get(0))?)
}
