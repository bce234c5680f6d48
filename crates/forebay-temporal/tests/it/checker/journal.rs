//! The journal of a shard, and operations on its runs.
//!
//! Every operation changes a run of the shard, and appends itself to the shard's journal in the same transaction: a history node with the
//! next number, and the row of an execution that counts them. So the journal has all operations that were committed, in their order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use forebay_dsql::Uuid;
use forebay_temporal::execution::{self, ExecutionRow, RunKey};
use forebay_temporal::execution_map::{self, ActivityInfos};
use forebay_temporal::history_node::{self, BranchKey, HistoryNode, ReadNodes};
use forebay_temporal::history_task::{self, ShardQueue, TaskRow, TransferTasks};
use forebay_temporal::{Persistence, Result, Tx, buffered_event};

use crate::cluster::blob;

pub(crate) const RUNS: u64 = 3;

/// What an operation does to its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    SetActivity(i64),
    RemoveActivity(i64),
    Buffer(u64),
    Flush,
    AddTask,
    RemoveTask(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The operation, from the id generator of its owner.
    pub(crate) id: i64,
    pub(crate) range_id: i64,
    pub(crate) run: u64,
    pub(crate) change: Change,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, argument) = match self.change {
            Change::SetActivity(key) => ("set", key),
            Change::RemoveActivity(key) => ("remove", key),
            Change::Buffer(count) => ("buffer", i64::try_from(count).unwrap()),
            Change::Flush => ("flush", 0),
            Change::AddTask => ("task", 0),
            Change::RemoveTask(id) => ("done", id),
        };
        write!(f, "{} {} {kind} {argument}", self.range_id, self.run)
    }
}

impl Entry {
    fn read(node: &HistoryNode) -> Self {
        let text = String::from_utf8(node.events.data.clone()).unwrap();
        let [range_id, run, kind, argument] = text.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let argument: i64 = argument.parse().unwrap();
        let change = match kind {
            "set" => Change::SetActivity(argument),
            "remove" => Change::RemoveActivity(argument),
            "buffer" => Change::Buffer(argument.unsigned_abs()),
            "flush" => Change::Flush,
            "task" => Change::AddTask,
            "done" => Change::RemoveTask(argument),
            other => panic!("{other}"),
        };
        Self { id: node.txn_id, range_id: range_id.parse().unwrap(), run: run.parse().unwrap(), change }
    }
}

/// What a run holds. The text of every value is the id of the operation that wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunState {
    pub(crate) version: i64,
    pub(crate) last: i64,
    pub(crate) activities: BTreeMap<i64, String>,
    /// In any order: ids of two owners do not tell which came first.
    pub(crate) buffered: Vec<String>,
}

/// What a shard holds in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardState {
    /// The operations that were committed, in their order.
    pub(crate) journal: Vec<Entry>,
    /// Their numbers.
    pub(crate) numbers: Vec<i64>,
    /// How many the journal says there are.
    pub(crate) count: i64,
    pub(crate) runs: Vec<RunState>,
    pub(crate) tasks: BTreeSet<i64>,
}

impl ShardState {
    /// What one operation after the other would leave.
    pub(crate) fn replay(journal: &[Entry]) -> (Vec<RunState>, BTreeSet<i64>) {
        let mut runs = vec![RunState::default(); usize::try_from(RUNS).unwrap()];
        let mut tasks = BTreeSet::new();
        for entry in journal {
            let run = &mut runs[usize::try_from(entry.run).unwrap()];
            run.version += 1;
            run.last = entry.id;
            let text = entry.id.to_string();
            match entry.change {
                Change::SetActivity(key) => drop(run.activities.insert(key, text)),
                Change::RemoveActivity(key) => drop(run.activities.remove(&key)),
                Change::Buffer(count) => run.buffered.extend((0..count).map(|_| text.clone())),
                Change::Flush => run.buffered.clear(),
                Change::AddTask => drop(tasks.insert(entry.id)),
                Change::RemoveTask(id) => drop(tasks.remove(&id)),
            }
            run.buffered.sort();
        }
        (runs, tasks)
    }
}

/// Run 0 and up, and the journal itself.
fn key(shard_id: i32, run: Option<u64>) -> RunKey {
    let run_id = Uuid::from_u128(run.map_or(u128::MAX, u128::from));
    RunKey { shard_id, namespace_id: Uuid::from_u128(1), workflow_id: "checked".into(), run_id }
}

fn branch(shard_id: i32) -> BranchKey {
    BranchKey { shard_id, tree_id: Uuid::from_u128(1), branch_id: Uuid::from_u128(1) }
}

fn row(key: RunKey, version: i64, last: i64) -> ExecutionRow {
    let info = blob(&last.to_string());
    ExecutionRow {
        key,
        next_event_id: 0,
        last_write_version: 0,
        state: info.clone(),
        info,
        db_record_version: version,
    }
}

/// The runs of a shard, and its journal.
pub(crate) async fn create(store: &Persistence, shard_id: i32) {
    for run in (0..RUNS).map(Some).chain([None]) {
        let row = &row(key(shard_id, run), 0, 0);
        store.write("create", async |c| execution::insert(&c, row).await).await.unwrap();
    }
}

/// How many operations were committed so far.
pub(crate) async fn length(store: &Persistence, shard_id: i32) -> Result<i64> {
    let key = &key(shard_id, None);
    let row = store.read("journal", |c| async move { execution::select(&c, key).await }).await?;
    Ok(row.db_record_version)
}

/// Does one operation, and appends it. Returns its number.
pub(crate) async fn apply(tx: &Tx, shard_id: i32, entry: &Entry) -> Result<i64> {
    let (key, journal) = (key(shard_id, Some(entry.run)), key(shard_id, None));
    // The run is locked, the journal only read: both are updated by version.
    let version = execution::write_lock(tx, &key).await?.db_record_version;
    let number = execution::select(tx, &journal).await?.db_record_version + 1;
    execution::update(tx, &row(key.clone(), version + 1, entry.id), version).await?;
    let value = blob(&entry.id.to_string());
    match &entry.change {
        Change::SetActivity(activity) => {
            execution_map::replace::<ActivityInfos>(tx, &key, &BTreeMap::from([(*activity, value)])).await?;
        }
        Change::RemoveActivity(activity) => {
            execution_map::delete::<ActivityInfos>(tx, &key, &BTreeSet::from([*activity])).await?;
        }
        Change::Buffer(count) => {
            let events: Vec<_> = (0..*count).map(|_| value.clone()).collect();
            buffered_event::insert(tx, &key, &events).await?;
        }
        Change::Flush => drop(buffered_event::delete_all(tx, &key).await?),
        Change::AddTask => {
            let task = [TaskRow { key: entry.id, task: value }];
            history_task::insert::<TransferTasks>(tx, &ShardQueue { shard_id }, &task).await?;
        }
        Change::RemoveTask(id) => {
            history_task::delete::<TransferTasks>(tx, &ShardQueue { shard_id }, *id).await?;
        }
    }
    let events = blob(&entry.to_string());
    let node = [HistoryNode { node_id: number, txn_id: entry.id, prev_txn_id: 0, events }];
    history_node::insert(tx, &branch(shard_id), &node).await?;
    execution::update(tx, &row(journal, number, entry.id), number - 1).await?;
    Ok(number)
}

/// All that the database holds of a shard.
pub(crate) async fn read(store: &Persistence, shard_id: i32) -> ShardState {
    let (branch, queue) = (&branch(shard_id), &ShardQueue { shard_id });
    let (mut nodes, mut token) = (Vec::new(), None);
    loop {
        let from = token.as_ref();
        let page = store.read("nodes", |c| async move {
            history_node::range_select(&c, branch, 0..i64::MAX, ReadNodes::Forward, 500, from).await
        });
        let page = page.await.unwrap();
        nodes.extend(page.rows);
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    let mut tasks = BTreeSet::new();
    loop {
        let from = token.as_ref();
        let page = store.read("tasks", |c| async move {
            history_task::range_select::<TransferTasks>(&c, queue, 0..i64::MAX, 500, from).await
        });
        let page = page.await.unwrap();
        tasks.extend(page.rows.iter().map(|row| row.key));
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    let mut runs = Vec::new();
    for run in 0..RUNS {
        let loaded = forebay_temporal::workflow::load(store, &key(shard_id, Some(run))).await.unwrap();
        let text = |blob: &forebay_temporal::Blob| String::from_utf8(blob.data.clone()).unwrap();
        let mut buffered: Vec<_> = loaded.buffered_events.iter().map(text).collect();
        buffered.sort();
        runs.push(RunState {
            version: loaded.execution.db_record_version,
            last: text(&loaded.execution.info).parse().unwrap(),
            activities: loaded.activity_infos.iter().map(|(key, blob)| (*key, text(blob))).collect(),
            buffered,
        });
    }
    ShardState {
        journal: nodes.iter().map(Entry::read).collect(),
        numbers: nodes.iter().map(|node| node.node_id).collect(),
        count: length(store, shard_id).await.unwrap(),
        runs,
        tasks,
    }
}
