//! Compares what the database holds of a turn with what its callers were told.

use std::collections::{BTreeMap, BTreeSet};

use forebay_dsql::{PostgresConnection, Uuid};

use super::history_host::{COMPLETED, HistoryHost};

/// How many rows, or sets of rows, differ: those that were lost, and those that should not be there.
pub(super) async fn differences(host: &HistoryHost, client: &PostgresConnection) -> anyhow::Result<usize> {
    let (executions, tasks) = (workflows(host, client).await?, history_tasks(host, client).await?);
    Ok(executions + tasks + matching_tasks(host, client).await?)
}

async fn workflows(host: &HistoryHost, client: &PostgresConnection) -> anyhow::Result<usize> {
    let namespace = host.namespace_id;
    // The identifiers of this turn's histories follow that of its namespace.
    let next = Uuid::from_u128(namespace.as_u128() + (1 << 64));
    let sql = "SELECT run_id, db_record_version, next_event_id FROM executions WHERE namespace_id = $1";
    let rows = client.query(sql, &[&namespace]).await?;
    let mut executions: BTreeMap<Uuid, (i64, i64)> =
        rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect();
    let sql = "SELECT tree_id, count(*), max(node_id) FROM history_node WHERE tree_id >= $1 AND tree_id < $2 GROUP BY tree_id";
    let rows = client.query(sql, &[&namespace, &next]).await?;
    let histories: BTreeMap<Uuid, (i64, i64)> =
        rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect();
    let sql = "SELECT run_id, state FROM current_executions WHERE namespace_id = $1";
    let rows = client.query(sql, &[&namespace]).await?;
    let states: BTreeMap<Uuid, i32> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();

    let (mut differences, mut uncertain) = (0, false);
    for told in &*host.workflows.lock() {
        let run_id = told.key.run_id;
        let execution = executions.remove(&run_id);
        if told.uncertain {
            uncertain = true;
            continue;
        }
        let history = (told.nodes, told.next_event_id - 2);
        differences += usize::from(execution != Some((told.version, told.next_event_id)));
        differences += usize::from(histories.get(&run_id) != Some(&history));
        differences += usize::from((states.get(&run_id) == Some(&COMPLETED)) != told.completed);
    }
    // What is left was never acknowledged.
    differences += executions.len();
    if !uncertain {
        for table in ["activity_info_maps", "timer_info_maps", "signals_requested_sets"] {
            let sql = format!("SELECT count(*) FROM {table} WHERE namespace_id = $1");
            let left: i64 = client.query_one(&sql, &[&namespace]).await?.get(0);
            differences += usize::try_from(left)?;
        }
    }
    Ok(differences)
}

async fn history_tasks(host: &HistoryHost, client: &PostgresConnection) -> anyhow::Result<usize> {
    let sql = "SELECT shard_id, task_id FROM transfer_tasks WHERE task_id > $1";
    let mut stored: BTreeMap<i32, BTreeSet<i64>> = BTreeMap::new();
    for row in client.query(sql, &[&host.first_id]).await? {
        stored.entry(row.get(0)).or_default().insert(row.get(1));
    }
    let of_shard = |shard_id| stored.remove(shard_id).unwrap_or_default();
    let mut of_shard = of_shard;
    let shards = host.shards.iter();
    Ok(shards.map(|shard| shard.transfer_tasks.lock().differences(&of_shard(&shard.owner.shard_id))).sum())
}

async fn matching_tasks(host: &HistoryHost, client: &PostgresConnection) -> anyhow::Result<usize> {
    let mut differences = 0;
    for queue in &host.matching.queues {
        let sql = "SELECT task_id FROM tasks WHERE range_hash = $1 AND task_queue_id = $2";
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
            [&i64::from(queue.key.range_hash), queue.key.id.as_uuid()];
        let stored = client.query(sql, &values).await?.iter().map(|row| row.get(0)).collect();
        differences += queue.tasks.lock().differences(&stored);
    }
    Ok(differences)
}
