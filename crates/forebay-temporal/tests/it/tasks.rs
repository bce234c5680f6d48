//! The seven tables of tasks, and deletes of many rows.

use std::fmt;
use std::ops::Range;

use forebay_dsql::Timestamp;
use forebay_temporal::history_task::{
    self, CategoryQueue, ImmediateTasks, ReplicationDlqTasks, ReplicationTasks, ScheduledKey, ScheduledTasks,
    ShardQueue, SourceQueue, TaskRow, TaskTable, TimerTasks, TransferTasks, VisibilityTasks,
};
use forebay_temporal::{Condition, Error, PageToken, Persistence};

use crate::cluster::{alone, blob, new_shard_id, store, store_of};

async fn pages<T: TaskTable>(
    store: &Persistence,
    queue: &T::Queue,
    range: &Range<impl Into<T::Key> + Copy>,
    size: usize,
) -> Vec<Vec<TaskRow<T::Key>>> {
    let (mut pages, mut token): (Vec<_>, Option<PageToken>) = (Vec::new(), None);
    loop {
        let from = token.as_ref();
        let select = store.read("range_select", |c| async move {
            history_task::range_select::<T>(&c, queue, range.clone(), size, from).await
        });
        let page = select.await.unwrap();
        pages.push(page.rows);
        token = page.next;
        if token.is_none() {
            return pages;
        }
    }
}

/// Every operation on one table. `keys` are in their order; `range` holds all but the first and the last.
async fn every_operation<T: TaskTable, B: Into<T::Key> + Copy>(
    queues: &[T::Queue; 2],
    keys: &[T::Key],
    range: Range<B>,
    everything: Range<B>,
) where
    T::Key: fmt::Debug + PartialEq,
{
    let store = store().await;
    let [queue, other] = queues;
    let tasks: Vec<_> =
        keys.iter().map(|key| TaskRow { key: *key, task: blob(&format!("{key:?}")) }).collect();
    let insert = async |queue, tasks: &[TaskRow<T::Key>]| {
        store.run("insert", |tx| async move { history_task::insert::<T>(&tx, queue, tasks).await }).await
    };
    insert(queue, &[]).await.unwrap();
    assert_eq!(pages::<T>(&store, queue, &everything, 2).await, [[]]);
    insert(queue, &tasks).await.unwrap();
    insert(other, &tasks[..1]).await.unwrap();
    assert!(insert(queue, &tasks[1..2]).await.unwrap_err().is_already_exists());

    let last = tasks.len() - 1;
    for size in 1..=tasks.len() + 1 {
        let read = pages::<T>(&store, queue, &everything, size).await;
        assert_eq!(read.len(), tasks.len().div_ceil(size), "no page is empty");
        assert_eq!(read.concat(), tasks, "by {size}");
        assert_eq!(pages::<T>(&store, queue, &range, size).await.concat(), tasks[1..last], "by {size}");
    }

    let delete =
        || store.write("delete", |c| async move { history_task::delete::<T>(&c, queue, keys[2]).await });
    assert!(delete().await.unwrap());
    assert!(!delete().await.unwrap());
    let delete_in_transaction = async |limit: usize, fails: bool| {
        let range = &range;
        let delete = store.run("range_delete", |tx| async move {
            let deleted = history_task::range_delete_at_most::<T>(&tx, queue, range.clone(), limit).await?;
            if fails { Err(Condition::row("anything", "else", 0).into()) } else { Ok(deleted) }
        });
        delete.await
    };
    delete_in_transaction(100, true).await.unwrap_err();
    assert_eq!(pages::<T>(&store, queue, &range, 9).await.concat().len(), tasks.len() - 3, "rolled back");
    assert_eq!(delete_in_transaction(1, false).await.unwrap(), 1);
    assert_eq!(
        pages::<T>(&store, queue, &range, 9).await.concat(),
        tasks[3..last],
        "the first one is deleted"
    );
    let deleted = history_task::range_delete::<T>(&store, queue, range.clone()).await.unwrap();
    assert_eq!(usize::try_from(deleted).unwrap(), tasks.len() - 4);
    let left = [tasks[0].clone(), tasks[last].clone()];
    assert_eq!(pages::<T>(&store, queue, &everything, 9).await.concat(), left);
    assert_eq!(pages::<T>(&store, other, &everything, 9).await.concat(), tasks[..1], "of another queue");
    assert_eq!(history_task::range_delete::<T>(&store, queue, range).await.unwrap(), 0);
}

async fn by_number<T: TaskTable<Key = i64>>(queues: [T::Queue; 2]) {
    every_operation::<T, _>(&queues, &[-5, 1, 2, 3, 7, i64::MAX - 1], 1..8, i64::MIN..i64::MAX).await;
}

async fn by_time<T: TaskTable<Key = ScheduledKey>>(queues: [T::Queue; 2]) {
    let at = |seconds: i128| Timestamp::from_nanos(seconds * 1_000_000_000).unwrap();
    let key = |seconds, task_id| ScheduledKey { visibility_timestamp: at(seconds), task_id };
    // A later task may have a smaller number: a page that goes by both columns alone would lose it.
    let keys = [key(1, 9), key(5, 3), key(5, 4), key(5, 8), key(6, 1), key(7, 2), key(9, 1)];
    every_operation::<T, _>(&queues, &keys, at(5)..at(9), Timestamp::MIN..Timestamp::MAX).await;

    // The faulty version knows bounds of time only, and reads 3 and 4 again.
    let (store, [queue, _]) = (store().await, &queues);
    let tasks = keys.map(|key| TaskRow { key, task: blob("task") });
    let delete = history_task::range_delete::<T>(&store, queue, Timestamp::MIN..Timestamp::MAX);
    delete.await.unwrap();
    store.write("insert", async |c| history_task::insert::<T>(&c, queue, &tasks).await).await.unwrap();
    let from = key(5, 5);
    for size in [1, 2, 9] {
        let read = pages::<T>(&store, queue, &(from..at(9).into()), size).await.concat();
        assert_eq!(read.iter().map(|row| row.key).collect::<Vec<_>>(), keys[3..6], "by {size}");
        let read = pages::<T>(&store, queue, &(from..key(7, 2)), size).await.concat();
        assert_eq!(read.iter().map(|row| row.key).collect::<Vec<_>>(), keys[3..5], "by {size}");
    }
}

fn shards() -> [ShardQueue; 2] {
    [new_shard_id(), new_shard_id()].map(|shard_id| ShardQueue { shard_id })
}

fn categories() -> [CategoryQueue; 2] {
    let shard_id = new_shard_id();
    [1, 2].map(|category_id| CategoryQueue { shard_id, category_id })
}

#[tokio::test]
async fn tasks_by_number() {
    by_number::<ImmediateTasks>(categories()).await;
    by_number::<TransferTasks>(shards()).await;
    by_number::<ReplicationTasks>(shards()).await;
    by_number::<VisibilityTasks>(shards()).await;
    let shard_id = new_shard_id();
    let sources = ["east", "west"].map(|name| SourceQueue { source_cluster_name: name.into(), shard_id });
    by_number::<ReplicationDlqTasks>(sources).await;
}

#[tokio::test]
async fn tasks_by_time() {
    by_time::<ScheduledTasks>(categories()).await;
    by_time::<TimerTasks>(shards()).await;
}

/// Far beyond the limit of one transaction. The delete is cut off twice: its caller loses patience, and its connections are cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_thousand_rows_are_deleted_within_limits_and_across_interruptions() {
    const ROWS: i64 = 50_000;
    let cluster = alone().await;
    let store = store_of(&cluster, 2).await;
    let queue = ShardQueue { shard_id: new_shard_id() };
    let tasks: Vec<_> = (0..ROWS).map(|key| TaskRow { key, task: blob("task") }).collect();
    history_task::insert_in_batches::<TransferTasks>(&store, &queue, &tasks).await.unwrap();
    let left = async || -> i64 {
        let client = store.pool().unwrap().acquire().await.unwrap();
        let count = "SELECT count(*) FROM transfer_tasks WHERE shard_id = $1";
        client.query_one(count, &[&queue.shard_id]).await.unwrap().get(0)
    };
    assert_eq!(left().await, ROWS);

    let before = cluster.counters().commits;
    let deleting = tokio::spawn({
        let store = store.clone();
        async move { history_task::range_delete::<TransferTasks>(&store, &queue, 0..ROWS).await }
    });
    while cluster.counters().commits < before + 3 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    deleting.abort();
    let aborted = deleting.await;
    let after_first = left().await;
    assert!(after_first < ROWS, "{aborted:?}");

    // The answer of a COMMIT is lost, and a socket is cut: the delete goes on by itself. Two, because the statement that was aborted
    // may still be at its COMMIT, and meet the first.
    cluster.inject("drop:at=after-commit,n=2".parse().unwrap());
    let deleted = history_task::range_delete::<TransferTasks>(&store, &queue, 0..ROWS).await.unwrap();
    assert_eq!(left().await, 0);
    let deleted = i64::try_from(deleted).unwrap();
    assert!(deleted < after_first, "without the batch that nobody has confirmed");
}

#[tokio::test]
async fn more_tasks_than_fit_into_a_transaction_are_told() {
    let store = store_of(&crate::cluster::quiet().await, 1).await;
    let queue = &ShardQueue { shard_id: new_shard_id() };
    let tasks: Vec<_> = (0..3_001).map(|key| TaskRow { key, task: blob("task") }).collect();
    let tasks = &tasks;
    let insert = store
        .write("insert", |c| async move { history_task::insert::<VisibilityTasks>(&c, queue, tasks).await });
    let error = insert.await.unwrap_err();
    assert!(matches!(error, Error::TooLarge(_)), "{error:?}");
}
