//! A host of Temporal's history service: the shards it owns, and the workflows it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;
use forebay_dsql::{Timestamp, Uuid};
use forebay_temporal::current_execution::{self, CurrentExecutionRow, WorkflowKey};
use forebay_temporal::execution::{self, ExecutionRow, RunKey};
use forebay_temporal::execution_map::{self, ActivityInfos, Entries, SignalsRequested, TimerInfos};
use forebay_temporal::history_node::{self, BranchKey, HistoryNode};
use forebay_temporal::history_task::{
    self, ScheduledKey, ShardQueue, TaskRow, TimerTasks, TransferTasks, VisibilityTasks,
};
use forebay_temporal::history_tree::{self, HistoryBranch};
use forebay_temporal::shard::{self, ShardRow};
use forebay_temporal::{Blob, Error, Persistence, Result, ShardOwner, Tx, workflow};
use parking_lot::Mutex;

use super::latencies::Latencies;
use super::matching_host::MatchingHost;
use super::outstanding::Outstanding;

/// After how many workflows a shard deletes the tasks that are done, and writes its row.
const CHECKPOINT: u64 = 8;
/// States of an execution, as Temporal numbers them.
const RUNNING: i32 = 2;
pub(super) const COMPLETED: i32 = 3;
/// Sizes of values, in bytes.
const INFO: usize = 600;
const STATE: usize = 60;
const EVENTS: usize = 400;
const TASK: usize = 100;

/// One process that owns all shards. Everything of one turn has a namespace of its own.
pub(super) struct HistoryHost {
    store: Persistence,
    pub(super) matching: MatchingHost,
    pub(super) namespace_id: Uuid,
    pub(super) shards: Vec<Shard>,
    /// Ids of this turn are greater.
    pub(super) first_id: i64,
    /// All workflows that were started, as far as their writes were acknowledged.
    pub(super) workflows: Mutex<Vec<Acknowledged>>,
}

/// A shard, as its owner knows it.
pub(super) struct Shard {
    pub(super) owner: ShardOwner,
    pub(super) transfer_tasks: Mutex<Outstanding>,
    completed: AtomicU64,
}

/// What the database must hold of a workflow.
#[derive(Clone, Debug)]
pub(super) struct Acknowledged {
    pub(super) key: RunKey,
    pub(super) version: i64,
    pub(super) next_event_id: i64,
    pub(super) nodes: i64,
    pub(super) completed: bool,
    /// A write failed, and may have happened or not.
    pub(super) uncertain: bool,
}

/// What a step of a workflow writes, beside its execution, its history and a transfer task.
#[derive(Default)]
struct Step {
    activities: Entries<ActivityInfos>,
    ended_activities: BTreeSet<i64>,
    timers: Entries<TimerInfos>,
    ended_timers: BTreeSet<String>,
    signals: Entries<SignalsRequested>,
    timer_task: Option<TaskRow<ScheduledKey>>,
    /// The visibility task of the last step.
    completes: Option<i64>,
}

fn blob(size: usize) -> Blob {
    Blob::proto3(vec![0x5a; size])
}

impl HistoryHost {
    /// Takes all shards over, and makes the task queues of this turn.
    pub(super) async fn start(store: Persistence, turn: u64, shards: i32) -> anyhow::Result<Self> {
        let mut owned = Vec::new();
        for shard_id in 0..shards {
            let found =
                store.read("select_shard", |c| async move { shard::select(&c, shard_id).await }).await?;
            let mine = ShardRow { range_id: found.range_id + 1, ..found.clone() };
            store.update_shard(&mine, found.range_id).await?;
            let owner = ShardOwner { shard_id, range_id: mine.range_id };
            owned.push(Shard { owner, transfer_tasks: Mutex::default(), completed: AtomicU64::new(0) });
        }
        Ok(Self {
            matching: MatchingHost::start(store.clone(), turn).await?,
            namespace_id: Uuid::from_u128(u128::from(turn) << 64),
            shards: owned,
            first_id: store.ids().next()?,
            workflows: Mutex::default(),
            store,
        })
    }

    /// Runs one workflow from its start to its completion: a workflow task that schedules an activity and a timer, the activity, a
    /// signal, the timer, and the end.
    pub(super) async fn run_workflow(&self, number: u64, latencies: &mut Latencies) -> anyhow::Result<()> {
        let count = self.shards.len() as u64;
        // Neighbours in time are neighbours in no shard.
        let shard = &self.shards[usize::try_from(number.wrapping_mul(0x9e37_79b9) % count)?];
        let run_id = Uuid::from_u128(self.namespace_id.as_u128() + u128::from(number) + 1);
        let shard_id = shard.owner.shard_id;
        let workflow =
            WorkflowKey { shard_id, namespace_id: self.namespace_id, workflow_id: format!("order-{number}") };
        let mut run = Run {
            host: self,
            shard,
            branch: BranchKey { shard_id, tree_id: run_id, branch_id: run_id },
            last_txn: 0,
            acknowledged: Acknowledged {
                key: workflow.run(run_id),
                version: 0,
                next_event_id: 1,
                nodes: 0,
                completed: false,
                uncertain: false,
            },
            workflow,
            latencies,
        };
        let outcome = run.run(number).await;
        let acknowledged = run.acknowledged;
        if acknowledged.version > 0 || acknowledged.uncertain {
            self.workflows.lock().push(acknowledged);
        }
        outcome?;
        if shard.completed.fetch_add(1, Ordering::Relaxed) % CHECKPOINT == CHECKPOINT - 1 {
            self.checkpoint(shard, latencies).await?;
        }
        Ok(())
    }

    /// Reads the next tasks of a shard, deletes those that are done, and writes its row.
    async fn checkpoint(&self, shard: &Shard, latencies: &mut Latencies) -> Result<()> {
        let (store, owner) = (&self.store, shard.owner);
        let queue = &ShardQueue { shard_id: owner.shard_id };
        let end = shard.transfer_tasks.lock().done_until();
        let read = store.read("read_transfer_tasks", |c| async move {
            history_task::range_select::<TransferTasks>(&c, queue, end..i64::MAX, 20, None).await
        });
        latencies.time("read_transfer_tasks", read).await?;
        let delete = history_task::range_delete::<TransferTasks>(store, queue, self.first_id..end);
        latencies.time("delete_transfer_tasks", delete).await?;
        shard.transfer_tasks.lock().deleted_until(end);
        let row = ShardRow { shard_id: owner.shard_id, range_id: owner.range_id, info: blob(STATE) };
        latencies.time("update_shard", store.update_shard(&row, owner.range_id)).await
    }
}

/// A workflow while it runs.
struct Run<'a> {
    host: &'a HistoryHost,
    shard: &'a Shard,
    workflow: WorkflowKey,
    branch: BranchKey,
    last_txn: i64,
    acknowledged: Acknowledged,
    latencies: &'a mut Latencies,
}

impl Run<'_> {
    async fn run(&mut self, number: u64) -> anyhow::Result<()> {
        let (activity, timer) = (self.acknowledged.next_event_id + 4, "timer".to_owned());
        let task = self.start().await?;
        self.hand_over(number, task).await?;

        let id = self.host.store.ids().next()?;
        // Times that differ: they order the timers of a shard.
        let due = Timestamp::from_nanos(1_700_000_000_000_000_000 + i128::from(number) * 1_000)?;
        let due = ScheduledKey { visibility_timestamp: due, task_id: id };
        let scheduled = Step {
            activities: BTreeMap::from([(activity, blob(TASK))]),
            timers: BTreeMap::from([(timer.clone(), blob(TASK))]),
            timer_task: Some(TaskRow { key: due, task: blob(TASK) }),
            ..Step::default()
        };
        let task = self.update("workflow_task", scheduled).await?;
        self.hand_over(number, task).await?;

        let ended_activities = BTreeSet::from([activity]);
        let task = self.update("activity", Step { ended_activities, ..Step::default() }).await?;
        self.shard.transfer_tasks.lock().done(task);

        // Signals come from outside: the host has not got the workflow in its cache.
        self.load().await?;
        let signals = BTreeMap::from([(format!("signal-{number}"), ())]);
        let task = self.update("signal", Step { signals, ..Step::default() }).await?;
        self.shard.transfer_tasks.lock().done(task);

        self.fire(due).await?;
        let ended_timers = BTreeSet::from([timer]);
        let task = self.update("timer", Step { ended_timers, ..Step::default() }).await?;
        self.shard.transfer_tasks.lock().done(task);

        let completes = Some(self.host.store.ids().next()?);
        let task = self.update("complete_workflow", Step { completes, ..Step::default() }).await?;
        self.shard.transfer_tasks.lock().done(task);
        self.acknowledged.completed = true;
        Ok(())
    }

    /// The transfer task goes to a task queue, where a worker gets it.
    async fn hand_over(&mut self, number: u64, task: i64) -> anyhow::Result<()> {
        self.host.matching.add_and_poll(number, self.latencies).await?;
        self.shard.transfer_tasks.lock().done(task);
        Ok(())
    }

    async fn start(&mut self) -> Result<i64> {
        let (store, owner) = (&self.host.store, self.shard.owner);
        let (task_id, node) = self.begin()?;
        let row = &self.execution();
        let branch = &HistoryBranch { key: self.branch, info: blob(TASK) };
        let current = &self.current(RUNNING);
        let node = &[node];
        let transfer = &[TaskRow { key: task_id, task: blob(TASK) }];
        let queue = &ShardQueue { shard_id: owner.shard_id };
        let started = store.fenced(owner, "start_workflow", |tx| async move {
            history_tree::insert(&tx, branch).await?;
            history_node::insert(&tx, &branch.key, node).await?;
            current_execution::insert(&tx, current).await?;
            execution::insert(&tx, row).await?;
            history_task::insert::<TransferTasks>(&tx, queue, transfer).await
        });
        let outcome = self.latencies.time("start_workflow", started).await;
        self.ended(task_id, node, outcome)
    }

    /// One step: the execution, a batch of events, a transfer task, and what else the step has.
    async fn update(&mut self, operation: &'static str, step: Step) -> Result<i64> {
        let (store, owner) = (&self.host.store, self.shard.owner);
        let expected = self.acknowledged.version;
        let (task_id, node) = self.begin()?;
        let row = &self.execution();
        let (key, branch, current) = (&row.key, &self.branch, &self.current(COMPLETED));
        let (node, step) = (&[node], &step);
        let transfer = &[TaskRow { key: task_id, task: blob(TASK) }];
        let queue = &ShardQueue { shard_id: owner.shard_id };
        let written = store.fenced(owner, operation, |tx| async move {
            execution::update(&tx, row, expected).await?;
            history_node::insert(&tx, branch, node).await?;
            step.write(&tx, key, queue).await?;
            if step.completes.is_some() {
                current_execution::update(&tx, current, key.run_id).await?;
            }
            history_task::insert::<TransferTasks>(&tx, queue, transfer).await
        });
        let outcome = self.latencies.time(operation, written).await;
        self.ended(task_id, node, outcome)
    }

    /// A new transfer task, and the next batch of events.
    fn begin(&self) -> Result<(i64, HistoryNode)> {
        // In this order: whoever deletes finished tasks must not see the number before it is outstanding.
        let task_id = {
            let mut tasks = self.shard.transfer_tasks.lock();
            let task_id = self.host.store.ids().next()?;
            tasks.begin(task_id);
            task_id
        };
        let node = HistoryNode {
            node_id: self.acknowledged.next_event_id,
            txn_id: task_id,
            prev_txn_id: self.last_txn,
            events: blob(EVENTS),
        };
        Ok((task_id, node))
    }

    fn ended(&mut self, task_id: i64, [node]: &[HistoryNode; 1], outcome: Result<()>) -> Result<i64> {
        let mut tasks = self.shard.transfer_tasks.lock();
        match outcome {
            Ok(()) => {
                tasks.inserted(task_id);
                self.last_txn = node.txn_id;
                self.acknowledged.version += 1;
                self.acknowledged.next_event_id += 2;
                self.acknowledged.nodes += 1;
                Ok(task_id)
            }
            Err(error) => {
                tasks.uncertain(task_id);
                self.acknowledged.uncertain = true;
                Err(error)
            }
        }
    }

    /// The row of the execution after this step.
    fn execution(&self) -> ExecutionRow {
        ExecutionRow {
            key: self.acknowledged.key.clone(),
            next_event_id: self.acknowledged.next_event_id + 2,
            last_write_version: 1,
            info: blob(INFO),
            state: blob(STATE),
            db_record_version: self.acknowledged.version + 1,
        }
    }

    fn current(&self, state: i32) -> CurrentExecutionRow {
        CurrentExecutionRow {
            key: self.workflow.clone(),
            run_id: self.acknowledged.key.run_id,
            create_request_id: "request".to_owned(),
            state,
            status: 1,
            start_version: 1,
            start_time: None,
            last_write_version: 1,
            execution_state: Some(blob(STATE)),
        }
    }

    /// Loads the workflow, and compares it with what was acknowledged.
    async fn load(&mut self) -> anyhow::Result<()> {
        let load = workflow::load(&self.host.store, &self.acknowledged.key);
        let loaded = self.latencies.time("load_workflow", load).await?;
        let (found, expected) = (loaded.execution.db_record_version, self.acknowledged.version);
        ensure!(found == expected, "{} has version {found}, not {expected}", self.acknowledged.key);
        ensure!(loaded.activity_infos.is_empty() && loaded.timer_infos.len() == 1, "its maps are wrong");
        Ok(())
    }

    /// Reads the timers that are due, and deletes this one.
    async fn fire(&mut self, due: ScheduledKey) -> anyhow::Result<()> {
        let queue = &ShardQueue { shard_id: self.shard.owner.shard_id };
        let from = due.visibility_timestamp;
        let until = Timestamp::from_nanos(from.nanos() + 1_000)?;
        let read = self.host.store.read("read_timer_tasks", |c| async move {
            history_task::range_select::<TimerTasks>(&c, queue, from..until, 20, None).await
        });
        let page = self.latencies.time("read_timer_tasks", read).await?;
        ensure!(page.rows.iter().any(|row| row.key == due), "a timer was lost");
        let delete = self.host.store.write("delete_timer_task", |c| async move {
            history_task::delete::<TimerTasks>(&c, queue, due).await
        });
        ensure!(self.latencies.time("delete_timer_task", delete).await?, "a timer was deleted already");
        Ok(())
    }
}

impl Step {
    async fn write(&self, tx: &Tx, run: &RunKey, queue: &ShardQueue) -> Result<(), Error> {
        execution_map::replace::<ActivityInfos>(tx, run, &self.activities).await?;
        execution_map::delete::<ActivityInfos>(tx, run, &self.ended_activities).await?;
        execution_map::replace::<TimerInfos>(tx, run, &self.timers).await?;
        execution_map::delete::<TimerInfos>(tx, run, &self.ended_timers).await?;
        execution_map::replace::<SignalsRequested>(tx, run, &self.signals).await?;
        if let Some(task) = &self.timer_task {
            history_task::insert::<TimerTasks>(tx, queue, std::slice::from_ref(task)).await?;
        }
        if let Some(key) = self.completes {
            execution_map::delete_all::<SignalsRequested>(tx, run).await?;
            let task = TaskRow { key, task: blob(TASK) };
            history_task::insert::<VisibilityTasks>(tx, queue, &[task]).await?;
        }
        Ok(())
    }
}
