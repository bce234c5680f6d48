//! A host of Temporal's matching service: the task queues it leases, and the tasks that pass through them.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;
use forebay_temporal::task::{self, TaskRow};
use forebay_temporal::task_queue::{self, TaskQueueId, TaskQueueKey, TaskQueueRow, V1};
use forebay_temporal::{Blob, Persistence, Result};
use parking_lot::Mutex;

use super::latencies::Latencies;
use super::outstanding::Outstanding;

/// How many task queues there are.
pub(super) const QUEUES: u64 = 8;
/// How many tasks one poll reads.
const PAGE: usize = 20;
/// After how many tasks a queue deletes those that are done, and writes its row.
const CHECKPOINT: u64 = 16;
/// How many tasks one delete removes at most.
const DELETED: usize = 1_000;

pub(super) struct MatchingHost {
    store: Persistence,
    pub(super) queues: Vec<Queue>,
}

/// A task queue, as its owner knows it.
pub(super) struct Queue {
    pub(super) key: TaskQueueKey,
    range_id: i64,
    /// The next number. A queue has one writer at a time, as in Temporal.
    writer: tokio::sync::Mutex<i64>,
    pub(super) tasks: Mutex<Outstanding>,
    done: AtomicU64,
}

fn blob() -> Blob {
    Blob::proto3(vec![0x5a; 150])
}

impl MatchingHost {
    /// Makes the queues of this turn, and leases them: raises their range ids.
    pub(super) async fn start(store: Persistence, turn: u64) -> Result<Self> {
        let mut queues = Vec::new();
        for number in 0..QUEUES {
            let id = TaskQueueId::hash(format!("{turn}/{number}").as_bytes());
            let key = TaskQueueKey { range_hash: u32::try_from(number).unwrap_or(0), id };
            let row = &TaskQueueRow { key, range_id: 1, info: blob() };
            store
                .write("insert_task_queue", |c| async move { task_queue::insert::<V1>(&c, row).await })
                .await?;
            let lease = store.write("lease_task_queue", |c| async move {
                task_queue::raise_range_id::<V1>(&c, &row.key, row.range_id).await
            });
            let range_id = lease.await?;
            queues.push(Queue {
                key,
                range_id,
                writer: tokio::sync::Mutex::new(1),
                tasks: Mutex::default(),
                done: AtomicU64::new(0),
            });
        }
        Ok(Self { store, queues })
    }

    /// A task goes into a queue; a worker polls the queue, finds it and does it.
    pub(super) async fn add_and_poll(&self, number: u64, latencies: &mut Latencies) -> anyhow::Result<()> {
        let queue = &self.queues[usize::try_from(number % QUEUES)?];
        let task_id = latencies.time("add_task", self.add(queue)).await?;
        let from = queue.tasks.lock().done_until();
        let poll = self.store.read("poll_tasks", |c| async move {
            task::select::<V1>(&c, &queue.key, from..i64::MAX, PAGE, None).await
        });
        let page = latencies.time("poll_tasks", poll).await?;
        let found = page.next.is_some() || page.rows.iter().any(|row| row.key == task_id);
        ensure!(found, "task {task_id} was lost");
        queue.tasks.lock().done(task_id);
        if queue.done.fetch_add(1, Ordering::Relaxed) % CHECKPOINT == CHECKPOINT - 1 {
            self.checkpoint(queue, latencies).await?;
        }
        Ok(())
    }

    /// Inserts a task, if the lease still holds.
    async fn add(&self, queue: &Queue) -> Result<i64> {
        let mut next = queue.writer.lock().await;
        let task_id = *next;
        *next += 1;
        queue.tasks.lock().begin(task_id);
        let tasks = &[TaskRow { queue: queue.key, key: task_id, task: blob() }];
        let added = self.store.run("add_task", |tx| async move {
            task_queue::fence::<V1>(&tx, &queue.key, queue.range_id).await?;
            task::insert::<V1>(&tx, tasks).await
        });
        match added.await {
            Ok(()) => {
                queue.tasks.lock().inserted(task_id);
                Ok(task_id)
            }
            Err(error) => {
                queue.tasks.lock().uncertain(task_id);
                Err(error)
            }
        }
    }

    /// Deletes tasks that are done, and writes the row of the queue. It does not wait for the writer, so they conflict now and then.
    async fn checkpoint(&self, queue: &Queue, latencies: &mut Latencies) -> Result<()> {
        let end = queue.tasks.lock().done_until();
        let delete = self
            .store
            .write("delete_tasks", |c| async move { task::delete::<V1>(&c, &queue.key, end, DELETED).await });
        latencies.time("delete_tasks", delete).await?;
        queue.tasks.lock().deleted_until(end);
        let row = &TaskQueueRow { key: queue.key, range_id: queue.range_id, info: blob() };
        let update = self.store.write("update_task_queue", |c| async move {
            task_queue::update::<V1>(&c, row, row.range_id).await
        });
        latencies.time("update_task_queue", update).await
    }
}
