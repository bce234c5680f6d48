//! Rows in the form in which the plugin in Go writes them, by its public source: the stores read them, and write the same.
//!
//! The plugin binds identifiers as the text of a UUID, negates the transaction ids of history nodes, hashes the ids of task queues,
//! encodes protobuf messages as `Proto3`, and numbers buffered events by time, host and sequence. Here its statements have literals.

use std::fmt::Write as _;
use std::time::Duration;

use forebay::rt::{Runtime as _, VirtualTime};
use forebay_dsql::{Ids, Node, Timestamp, Uuid};
use forebay_temporal::buffered_event;
use forebay_temporal::cluster_membership::{self, MemberFilter, MemberRow};
use forebay_temporal::current_execution::{self, ChasmKey, CurrentExecutionRow, WorkflowKey};
use forebay_temporal::execution::{self, ExecutionRow, RunKey};
use forebay_temporal::execution_map::{self, ActivityInfos, SignalsRequested};
use forebay_temporal::history_node::{self, BranchKey, HistoryNode, ReadNodes};
use forebay_temporal::history_task::{
    self, CategoryQueue, ScheduledKey, ScheduledTasks, ShardQueue, TaskTable, TimerTasks,
};
use forebay_temporal::namespace::{self, NamespaceRow};
use forebay_temporal::queue_message::{self, MessageRow, QueueKey, QueueType};
use forebay_temporal::task::{self, TaskLevel, TaskRow};
use forebay_temporal::task_queue::{self, TaskQueueId, TaskQueueKey, TaskQueueRow, V2};
use forebay_temporal::{Blob, Persistence};
use tokio_postgres::SimpleQueryMessage;

use crate::cluster::{eager, new_shard_id, new_uuid, pool, quiet, store_of};
use crate::executions::new_run;

/// A few bytes as a protobuf message has them: a field with a number, and one with text.
const MESSAGE: [u8; 8] = [0x08, 0x96, 0x01, 0x12, 0x03, 0xc3, 0xa4, 0x00];
/// The same, and its encoding, as SQL.
const MESSAGE_SQL: &str = r"'\x0896011203c3a400', 'Proto3'";

fn message() -> Blob {
    Blob::proto3(MESSAGE)
}

/// What the plugin would do in another process.
pub(crate) struct Plugin<'a>(pub(crate) &'a Persistence);

impl Plugin<'_> {
    async fn execute(&self, sql: &str) {
        let client = self.0.pool().unwrap().acquire().await.unwrap();
        client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// All columns of some rows, in the text form of the database.
    pub(crate) async fn rows(&self, table: &str, filter: &str) -> Vec<String> {
        let client = self.0.pool().unwrap().acquire().await.unwrap();
        let sql = format!("SELECT * FROM {table} WHERE {filter}");
        let answer = client.simple_query(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let row = |message: &SimpleQueryMessage| {
            let SimpleQueryMessage::Row(row) = message else { return None };
            let mut text = String::new();
            for (at, column) in row.columns().iter().enumerate() {
                let _ = write!(text, "{}={} ", column.name(), row.get(at).unwrap_or("NULL"));
            }
            Some(text)
        };
        let mut rows: Vec<String> = answer.iter().filter_map(row).collect();
        rows.sort();
        rows
    }

    /// Inserts rows, and returns what is in the table then.
    pub(crate) async fn insert(&self, table: &str, filter: &str, columns: &str, values: &str) -> Vec<String> {
        self.execute(&format!("INSERT INTO {table} ({columns}) VALUES {values}")).await;
        let rows = self.rows(table, filter).await;
        assert!(!rows.is_empty(), "{table}");
        rows
    }

    /// Deletes the rows, so that the store can write the same.
    pub(crate) async fn delete(&self, table: &str, filter: &str) {
        self.execute(&format!("DELETE FROM {table} WHERE {filter}")).await;
    }
}

/// The id that the plugin gives a buffered event: 41 bits of milliseconds since 2020, 10 of the host, 12 of a sequence.
fn plugins_id(wall: Duration, node: i64, sequence: i64) -> i64 {
    let millis = i64::try_from(wall.as_millis()).unwrap() - 1_577_836_800_000;
    millis << 22 | node << 12 | sequence
}

fn run_filter(run: &RunKey) -> String {
    let RunKey { shard_id, namespace_id, workflow_id, run_id } = run;
    format!(
        "shard_id = {shard_id} AND namespace_id = '{namespace_id}' AND workflow_id = '{workflow_id}' AND run_id = '{run_id}'"
    )
}

fn run_values(run: &RunKey) -> String {
    let RunKey { shard_id, namespace_id, workflow_id, run_id } = run;
    format!("{shard_id}, '{namespace_id}', '{workflow_id}', '{run_id}'")
}

const RUN_COLUMNS: &str = "shard_id, namespace_id, workflow_id, run_id";

/// The faulty version counts from 2024: its events come four years before those that the plugin wrote a moment ago.
#[tokio::test]
async fn buffered_events_of_the_plugin_and_of_the_store_keep_their_order() {
    let time = VirtualTime::new();
    // A number that no other test uses, as all generators of a process with one number share a sequence.
    let ids = Ids::new(Node::new(1_023).unwrap(), time.clone());
    let store = Persistence::new(pool(&quiet().await, 2, eager()).await, ids);
    let (plugin, run) = (Plugin(&store), &new_run());
    let by_plugin = async |id: i64, text: &str| {
        let (columns, values) = (RUN_COLUMNS, run_values(run));
        plugin
            .execute(&format!(
                "INSERT INTO buffered_events (id, {columns}, data, data_encoding) VALUES ({id}, {values}, '{text}', 'Proto3')"
            ))
            .await;
    };
    let by_store = async |texts: &[&str]| {
        let events: Vec<Blob> = texts.iter().map(|text| Blob::proto3(*text)).collect();
        let events = &events;
        store
            .run("insert", |tx| async move { buffered_event::insert(&tx, run, events).await })
            .await
            .unwrap();
    };
    by_plugin(plugins_id(time.wall(), 7, 0), "1").await;
    by_plugin(plugins_id(time.wall(), 7, 1), "2").await;
    time.advance(Duration::from_millis(1));
    by_store(&["3", "4"]).await;
    let of_store = [0, 1].map(|sequence| plugins_id(time.wall(), 1_023, sequence));
    time.advance(Duration::from_millis(1));
    by_plugin(plugins_id(time.wall(), 7, 0), "5").await;
    time.advance(Duration::from_millis(1));
    by_store(&["6"]).await;
    // What an earlier version of the store has left comes first.
    by_plugin(plugins_id(time.wall(), 1_023, 9) - (126_230_400_000 << 22), "0").await;

    let read = store.read("select", |c| async move { buffered_event::select_all(&c, run).await }).await;
    let expected = ["0", "1", "2", "3", "4", "5", "6"];
    let text = |data: &[u8]| String::from_utf8_lossy(data).into_owned();
    assert_eq!(read.unwrap().iter().map(|event| text(&event.data)).collect::<Vec<_>>(), expected);
    let client = store.pool().unwrap().acquire().await.unwrap();
    let by_id = format!("SELECT data, id FROM buffered_events WHERE {} ORDER BY id", run_filter(run));
    let rows = client.query(&by_id, &[]).await.unwrap();
    let read: Vec<_> = rows.iter().map(|row| text(row.get(0))).collect();
    assert_eq!(read, expected, "as the plugin reads");
    assert_eq!(
        [3, 4].map(|at: usize| rows[at].get::<_, i64>(1)),
        of_store,
        "the bits of an id are the plugin's"
    );
}

#[tokio::test]
async fn history_nodes() {
    let store = store_of(&quiet().await, 2).await;
    let (plugin, branch) =
        (Plugin(&store), &BranchKey { shard_id: new_shard_id(), tree_id: new_uuid(), branch_id: new_uuid() });
    let BranchKey { shard_id, tree_id, branch_id } = branch;
    let filter = format!("shard_id = {shard_id} AND tree_id = '{tree_id}' AND branch_id = '{branch_id}'");
    let key = format!("{shard_id}, '{tree_id}', '{branch_id}'");
    let columns = "shard_id, tree_id, branch_id, node_id, prev_txn_id, txn_id, data, data_encoding";
    // Transactions 20 and 30 have written node 1. The greater one counts, and comes first.
    let values = format!(
        "({key}, 1, 0, -20, {MESSAGE_SQL}), ({key}, 1, 0, -30, {MESSAGE_SQL}), ({key}, 4, 30, -40, {MESSAGE_SQL})"
    );
    let theirs = plugin.insert("history_node", &filter, columns, &values).await;
    let node = |node_id, txn_id, prev_txn_id| HistoryNode { node_id, txn_id, prev_txn_id, events: message() };
    let nodes = [node(1, 30, 0), node(1, 20, 0), node(4, 40, 30)];
    let read = store.read("read", |c| async move {
        history_node::range_select(&c, branch, 0..9, ReadNodes::Forward, 9, None).await
    });
    assert_eq!(read.await.unwrap().rows, nodes);
    plugin.delete("history_node", &filter).await;
    let nodes = &nodes;
    store.write("insert", |c| async move { history_node::insert(&c, branch, nodes).await }).await.unwrap();
    assert_eq!(plugin.rows("history_node", &filter).await, theirs);
}

/// The bytes by which the server names a task queue: its namespace, its name, and its type, here 1 for workflows. With a subqueue, the
/// type has its highest bit set, and the number of the subqueue follows.
fn task_queue_name(namespace_id: Uuid, subqueue: Option<u8>) -> Vec<u8> {
    let mut name = namespace_id.as_bytes().to_vec();
    name.extend(b"orders");
    match subqueue {
        None => name.push(1),
        Some(subqueue) => name.extend([0x81, subqueue]),
    }
    name
}

#[tokio::test]
async fn task_queues_and_their_tasks() {
    let store = store_of(&quiet().await, 2).await;
    let plugin = Plugin(&store);
    // Computed apart from the store, with the steps that the plugin's source gives.
    let namespace_id = Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
    for (subqueue, id) in
        [(None, "20cfe5c4-ec12-4108-86fc-5b8bc941bb59"), (Some(3), "afc862b3-bf19-4b8f-9374-aeb045cff10f")]
    {
        // A range hash uses all of 32 bits without a sign.
        let key = TaskQueueKey {
            range_hash: 0xfedc_ba98,
            id: TaskQueueId::hash(&task_queue_name(namespace_id, subqueue)),
        };
        let filter = format!("range_hash = 4275878552 AND task_queue_id = '{id}'");
        let columns = "range_hash, task_queue_id, range_id, data, data_encoding";
        let values = format!("(4275878552, '{id}', 5, {MESSAGE_SQL})");
        let theirs = plugin.insert("task_queues_v2", &filter, columns, &values).await;
        let row = &TaskQueueRow { key, range_id: 5, info: message() };
        let read = store.read("read", async |c| task_queue::select::<V2>(&c, &key).await);
        assert_eq!(read.await.unwrap(), *row);
        plugin.delete("task_queues_v2", &filter).await;
        store.write("insert", async |c| task_queue::insert::<V2>(&c, row).await).await.unwrap();
        assert_eq!(plugin.rows("task_queues_v2", &filter).await, theirs);

        let columns = "range_hash, task_queue_id, pass, task_id, data, data_encoding";
        let values =
            format!("(4275878552, '{id}', 1, 9, {MESSAGE_SQL}), (4275878552, '{id}', 2, 3, {MESSAGE_SQL})");
        let theirs = plugin.insert("tasks_v2", &filter, columns, &values).await;
        let tasks = &[(1, 9), (2, 3)].map(|(pass, task_id)| TaskRow {
            queue: key,
            key: TaskLevel { pass, task_id },
            task: message(),
        });
        let all = || TaskLevel { pass: 1, task_id: 0 }..TaskLevel { pass: i64::MAX, task_id: 0 };
        let read = store.read("read", async |c| task::select::<V2>(&c, &key, all(), 9, None).await);
        assert_eq!(read.await.unwrap().rows, tasks);
        plugin.delete("tasks_v2", &filter).await;
        store.write("insert", async |c| task::insert::<V2>(&c, tasks).await).await.unwrap();
        assert_eq!(plugin.rows("tasks_v2", &filter).await, theirs);
    }
}

#[tokio::test]
async fn executions_and_their_parts() {
    let store = store_of(&quiet().await, 2).await;
    let (plugin, run) = (Plugin(&store), &new_run());
    let (filter, values) = (run_filter(run), run_values(run));
    let columns = format!(
        "{RUN_COLUMNS}, next_event_id, last_write_version, data, data_encoding, state, state_encoding, db_record_version"
    );
    let row = format!("({values}, 4, -24, {MESSAGE_SQL}, {MESSAGE_SQL}, 2)");
    let theirs = plugin.insert("executions", &filter, &columns, &row).await;
    let row = &ExecutionRow {
        key: run.clone(),
        next_event_id: 4,
        last_write_version: -24,
        info: message(),
        state: message(),
        db_record_version: 2,
    };
    let read = store.read("read", async |c| execution::select(&c, run).await).await;
    assert_eq!(read.unwrap(), *row);
    plugin.delete("executions", &filter).await;
    store.write("insert", async |c| execution::insert(&c, row).await).await.unwrap();
    assert_eq!(plugin.rows("executions", &filter).await, theirs);

    let columns = format!("{RUN_COLUMNS}, schedule_id, data, data_encoding");
    let rows = format!("({values}, 5, {MESSAGE_SQL}), ({values}, 11, {MESSAGE_SQL})");
    let theirs = plugin.insert("activity_info_maps", &filter, &columns, &rows).await;
    let read = store.read("read", async |c| execution_map::select_all::<ActivityInfos>(&c, run).await);
    let entries = &read.await.unwrap();
    assert_eq!(*entries, [(5, message()), (11, message())].into());
    plugin.delete("activity_info_maps", &filter).await;
    store
        .write("replace", async |c| execution_map::replace::<ActivityInfos>(&c, run, entries).await)
        .await
        .unwrap();
    assert_eq!(plugin.rows("activity_info_maps", &filter).await, theirs);

    let columns = format!("{RUN_COLUMNS}, signal_id");
    let rows = format!("({values}, 'signal')");
    let theirs = plugin.insert("signals_requested_sets", &filter, &columns, &rows).await;
    let read = store.read("read", async |c| execution_map::select_all::<SignalsRequested>(&c, run).await);
    let entries = &read.await.unwrap();
    assert_eq!(entries.keys().collect::<Vec<_>>(), ["signal"]);
    plugin.delete("signals_requested_sets", &filter).await;
    store
        .write("replace", async |c| execution_map::replace::<SignalsRequested>(&c, run, entries).await)
        .await
        .unwrap();
    assert_eq!(plugin.rows("signals_requested_sets", &filter).await, theirs);
}

/// The plugin leaves `start_version` to its default, and writes NULL for what it does not have.
#[tokio::test]
async fn current_executions() {
    let store = store_of(&quiet().await, 2).await;
    let (plugin, run) = (Plugin(&store), &new_run());
    let RunKey { shard_id, namespace_id, workflow_id, run_id } = run.clone();
    let key = WorkflowKey { shard_id, namespace_id, workflow_id: workflow_id.clone() };
    let chasm =
        ChasmKey { shard_id, namespace_id, business_id: workflow_id.clone(), archetype_id: 2_500_000_000 };
    let more =
        "run_id, create_request_id, state, status, start_time, last_write_version, data, data_encoding";
    for (start_time, start_sql, state, state_sql) in [
        (
            Some(Timestamp::from_nanos(1_700_000_000_123_456_789).unwrap()),
            "'2023-11-14 22:13:20.123456'",
            Some(message()),
            MESSAGE_SQL,
        ),
        (None, "NULL", None, "NULL, ''"),
    ] {
        let values = format!("'{run_id}', 'request', 2, 1, {start_sql}, -24, {state_sql}");
        let row = CurrentExecutionRow {
            key: key.clone(),
            run_id,
            create_request_id: "request".into(),
            state: 2,
            status: 1,
            start_version: 0,
            start_time,
            last_write_version: -24,
            execution_state: state,
        };
        let filter = format!("shard_id = {shard_id}");
        let columns = format!("shard_id, namespace_id, workflow_id, {more}");
        let value = format!("({shard_id}, '{namespace_id}', '{workflow_id}', {values})");
        let theirs = plugin.insert("current_executions", &filter, &columns, &value).await;
        let read = store.read("read", async |c| current_execution::select(&c, &row.key).await).await.unwrap();
        assert_eq!(read, row);
        plugin.delete("current_executions", &filter).await;
        store.write("insert", async |c| current_execution::insert(&c, &row).await).await.unwrap();
        assert_eq!(plugin.rows("current_executions", &filter).await, theirs);
        plugin.delete("current_executions", &filter).await;

        let columns = format!("shard_id, namespace_id, business_id, archetype_id, {more}");
        let value = format!("({shard_id}, '{namespace_id}', '{workflow_id}', 2500000000, {values})");
        let theirs = plugin.insert("current_chasm_executions", &filter, &columns, &value).await;
        let read = store.read("read", async |c| current_execution::select(&c, &chasm).await).await.unwrap();
        let CurrentExecutionRow { create_request_id, start_time, execution_state, .. } = row;
        let row = CurrentExecutionRow {
            key: chasm.clone(),
            run_id,
            create_request_id,
            state: 2,
            status: 1,
            start_version: 0,
            start_time,
            last_write_version: -24,
            execution_state,
        };
        assert_eq!(read, row);
        plugin.delete("current_chasm_executions", &filter).await;
        store.write("insert", async |c| current_execution::insert(&c, &row).await).await.unwrap();
        assert_eq!(plugin.rows("current_chasm_executions", &filter).await, theirs);
        plugin.delete("current_chasm_executions", &filter).await;
    }
}

#[tokio::test]
async fn messages_and_namespaces() {
    let store = store_of(&quiet().await, 2).await;
    let plugin = Plugin(&store);
    let messages = &[0, 1].map(|message_id| MessageRow { message_id, payload: message() });
    // The dead letters of a queue have its number with the opposite sign.
    let dead = QueueType(new_shard_id() + 1_000).dead_letters();
    let filter = format!("queue_type = {}", dead.0);
    let columns = "queue_type, message_id, message_payload, message_encoding";
    let values = format!("({0}, 0, {MESSAGE_SQL}), ({0}, 1, {MESSAGE_SQL})", dead.0);
    let theirs = plugin.insert("queue", &filter, columns, &values).await;
    let read = store.read("read", async |c| queue_message::range_select(&c, &dead, 0..=9, 9, None).await);
    assert_eq!(read.await.unwrap().rows, messages);
    plugin.delete("queue", &filter).await;
    store.write("insert", async |c| queue_message::insert(&c, &dead, messages).await).await.unwrap();
    assert_eq!(plugin.rows("queue", &filter).await.len(), theirs.len());
    assert_eq!(plugin.rows("queue", &filter).await, theirs);

    let queue = &QueueKey { queue_type: 1, queue_name: new_uuid().to_string(), partition: 0 };
    let filter = format!("queue_name = '{}'", queue.queue_name);
    let columns = "queue_type, queue_name, queue_partition, message_id, message_payload, message_encoding";
    let values =
        format!("(1, '{0}', 0, 0, {MESSAGE_SQL}), (1, '{0}', 0, 1, {MESSAGE_SQL})", queue.queue_name);
    let theirs = plugin.insert("queue_messages", &filter, columns, &values).await;
    let read = store.read("read", async |c| queue_message::range_select(&c, queue, 0..=9, 9, None).await);
    assert_eq!(read.await.unwrap().rows, messages);
    plugin.delete("queue_messages", &filter).await;
    store.write("insert", async |c| queue_message::insert(&c, queue, messages).await).await.unwrap();
    assert_eq!(plugin.rows("queue_messages", &filter).await, theirs);

    let id = new_uuid();
    let filter = format!("id = '{id}'");
    let columns = "partition_id, id, name, is_global, data, data_encoding, notification_version";
    let values = format!("(54321, '{id}', 'of the plugin', true, {MESSAGE_SQL}, 3)");
    let theirs = plugin.insert("namespaces", &filter, columns, &values).await;
    let row = &NamespaceRow {
        id,
        name: "of the plugin".into(),
        info: message(),
        is_global: true,
        notification_version: 3,
    };
    let read = store.read("read", async |c| namespace::select(&c, id).await).await.unwrap();
    assert_eq!(read, *row);
    plugin.delete("namespaces", &filter).await;
    store.write("insert", async |c| namespace::insert(&c, row).await).await.unwrap();
    assert_eq!(plugin.rows("namespaces", &filter).await, theirs);
    plugin.delete("namespaces", &filter).await;
}

/// Go's zero time is the beginning of the year 1. The plugin keeps that of a task as the beginning of the year 1000.
async fn tasks_with_a_time<T: TaskTable<Key = ScheduledKey>>(
    queue: &T::Queue,
    table: &str,
    (queue_columns, queue_values): (&str, &str),
) {
    let store = store_of(&quiet().await, 2).await;
    let plugin = Plugin(&store);
    let filter = format!("({queue_columns}) = ({queue_values})");
    let columns = format!("{queue_columns}, visibility_timestamp, task_id, data, data_encoding");
    let values = format!(
        "({queue_values}, '1000-01-01 00:00:00', 5, {MESSAGE_SQL}), \
         ({queue_values}, '2023-11-14 22:13:20.123456', 4, {MESSAGE_SQL})"
    );
    let theirs = plugin.insert(table, &filter, &columns, &values).await;
    let key = |nanos, task_id| ScheduledKey {
        visibility_timestamp: Timestamp::from_nanos(nanos).unwrap(),
        task_id,
    };
    let zero = key(-62_135_596_800_000_000_000, 5);
    let tasks =
        &[zero, key(1_700_000_000_123_456_000, 4)].map(|key| history_task::TaskRow { key, task: message() });
    // Page by page: the token of the first one carries the zero time.
    let (mut read, mut page) = (Vec::new(), None);
    loop {
        let from = page.as_ref();
        let next = store.read("read", |c| async move {
            history_task::range_select::<T>(&c, queue, zero..ScheduledKey::from(Timestamp::MAX), 1, from)
                .await
        });
        let next = next.await.unwrap();
        read.extend(next.rows);
        page = next.next;
        if page.is_none() {
            break;
        }
    }
    assert_eq!(read, tasks);
    let delete =
        || store.write("delete", |c| async move { history_task::delete::<T>(&c, queue, zero).await });
    assert!(delete().await.unwrap());
    plugin.delete(table, &filter).await;
    store
        .write("insert", |c| async move { history_task::insert::<T>(&c, queue, tasks).await })
        .await
        .unwrap();
    assert_eq!(plugin.rows(table, &filter).await, theirs);
    let until = ScheduledKey::from(tasks[1].key.visibility_timestamp);
    assert_eq!(history_task::range_delete::<T>(&store, queue, zero..until).await.unwrap(), 1);
}

#[tokio::test]
async fn timers() {
    let shard_id = new_shard_id();
    let queue = &ShardQueue { shard_id };
    tasks_with_a_time::<TimerTasks>(queue, "timer_tasks", ("shard_id", &shard_id.to_string())).await;
    let queue = &CategoryQueue { shard_id, category_id: 2 };
    let values = format!("{shard_id}, 2");
    let names = ("shard_id, category_id", &*values);
    tasks_with_a_time::<ScheduledTasks>(queue, "history_scheduled_tasks", names).await;
}

/// The times of members are written as they are, also the zero time. Ports and roles are 16 bits.
#[tokio::test]
async fn members_of_the_cluster() {
    let store = store_of(&quiet().await, 2).await;
    let (plugin, host_id) = (Plugin(&store), new_uuid());
    let filter = format!("host_id = '{host_id}'");
    let columns = "membership_partition, host_id, rpc_address, rpc_port, role, session_start, last_heartbeat, record_expiry";
    let values = format!(
        "(0, '{host_id}', '10.0.0.1', 7234, 2, '0001-01-01 00:00:00', '2023-11-14 22:13:20.123456', '2023-11-14 22:13:21')"
    );
    let theirs = plugin.insert("cluster_membership", &filter, columns, &values).await;
    let at = |nanos| Timestamp::from_nanos(nanos).unwrap();
    let member = &MemberRow {
        host_id,
        rpc_address: "10.0.0.1".into(),
        rpc_port: 7_234,
        role: 2,
        session_start: at(-62_135_596_800_000_000_000),
        last_heartbeat: at(1_700_000_000_123_456_000),
        record_expiry: at(1_700_000_001_000_000_000),
    };
    let of_host = &MemberFilter { host_id: Some(host_id), ..MemberFilter::default() };
    let read = store.read("read", async |c| cluster_membership::get(&c, of_host, 9, None).await);
    assert_eq!(read.await.unwrap().rows, std::slice::from_ref(member));
    plugin.delete("cluster_membership", &filter).await;
    store.write("upsert", async |c| cluster_membership::upsert(&c, member).await).await.unwrap();
    assert_eq!(plugin.rows("cluster_membership", &filter).await, theirs);
    plugin.delete("cluster_membership", &filter).await;
}

/// Rows of the plugin, then of the store, read as the plugin reads them: in one order, and none hides another.
#[tokio::test]
async fn nodes_and_messages_of_both_stand_in_one_order() {
    let store = store_of(&quiet().await, 2).await;
    let (plugin, branch) =
        (Plugin(&store), &BranchKey { shard_id: new_shard_id(), tree_id: new_uuid(), branch_id: new_uuid() });
    let BranchKey { shard_id, tree_id, branch_id } = branch;
    let filter = format!("shard_id = {shard_id} AND tree_id = '{tree_id}' AND branch_id = '{branch_id}'");
    let columns = "shard_id, tree_id, branch_id, node_id, prev_txn_id, txn_id, data, data_encoding";
    let key = format!("{shard_id}, '{tree_id}', '{branch_id}'");
    let values = format!("({key}, 1, 0, -20, {MESSAGE_SQL}), ({key}, 3, 20, -25, {MESSAGE_SQL})");
    plugin.insert("history_node", &filter, columns, &values).await;
    // A later transaction has written node 1 again, and the one after it.
    let nodes = &[(1, 30, 0), (2, 31, 30)].map(|(node_id, txn_id, prev_txn_id)| HistoryNode {
        node_id,
        txn_id,
        prev_txn_id,
        events: message(),
    });
    store.write("insert", |c| async move { history_node::insert(&c, branch, nodes).await }).await.unwrap();
    let client = store.pool().unwrap().acquire().await.unwrap();
    let sql = format!("SELECT node_id, -txn_id FROM history_node WHERE {filter} ORDER BY node_id, txn_id");
    let rows = client.query(&sql, &[]).await.unwrap();
    let read: Vec<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(read, [(1, 30), (1, 20), (2, 31), (3, 25)]);

    let queue = &QueueKey { queue_type: 1, queue_name: new_uuid().to_string(), partition: 0 };
    let filter = format!("queue_type = 1 AND queue_name = '{}'", queue.queue_name);
    let columns = "queue_type, queue_name, queue_partition, message_id, message_payload, message_encoding";
    let values =
        format!("(1, '{0}', 0, 0, {MESSAGE_SQL}), (1, '{0}', 0, 1, {MESSAGE_SQL})", queue.queue_name);
    plugin.insert("queue_messages", &filter, columns, &values).await;
    let enqueue = store.write("enqueue", async |c| queue_message::enqueue(&c, queue, &message()).await);
    assert_eq!(enqueue.await.unwrap(), 2, "after those of the plugin");
    let sql = format!("SELECT message_id FROM queue_messages WHERE {filter} ORDER BY message_id");
    let rows = client.query(&sql, &[]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<i64>>(), [0, 1, 2]);
}
