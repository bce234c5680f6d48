//! Tasks of both generations.

use std::ops::Range;

use forebay_temporal::task::{self, TaskLevel, TaskRow, TaskVersion, V1, V2};
use forebay_temporal::task_queue::TaskQueueKey;
use forebay_temporal::{Error, PageToken, Persistence};

use crate::cluster::{blob, quiet, store, store_of};
use crate::paging;
use crate::task_queues::new_key;

fn level(pass: i64, task_id: i64) -> TaskLevel {
    TaskLevel { pass, task_id }
}

async fn insert<V: TaskVersion>(store: &Persistence, tasks: &[TaskRow<V::Key>]) -> Result<(), Error> {
    store.write("insert", async |c| task::insert::<V>(&c, tasks).await).await
}

/// All tasks of a range, in pages of `size`.
async fn keys<V: TaskVersion>(
    store: &Persistence,
    queue: &TaskQueueKey,
    range: Range<V::Key>,
    size: usize,
) -> Vec<V::Key> {
    let range = &range;
    let page = async |size: usize, page: Option<&PageToken>| {
        store.read("select", async |c| task::select::<V>(&c, queue, range.clone(), size, page).await).await
    };
    let rows = paging::all(size, page).await;
    for row in &rows {
        assert_eq!((row.queue, &row.task), (*queue, &blob("task")));
    }
    rows.into_iter().map(|row| row.key).collect()
}

/// `sorted` are keys in their order; `all` holds all of them.
async fn operations<V: TaskVersion>(sorted: &[V::Key], all: Range<V::Key>) {
    let store = store().await;
    let (queue, other) = (new_key(), new_key());
    let task = |queue: TaskQueueKey, key: V::Key| TaskRow { queue, key, task: blob("task") };
    // Two queues in one statement, in any order.
    let mut tasks: Vec<_> = sorted.iter().rev().map(|key| task(queue, *key)).collect();
    tasks.push(task(other, sorted[0]));
    insert::<V>(&store, &tasks).await.unwrap();
    insert::<V>(&store, &[]).await.unwrap();
    for size in [1, 2, sorted.len(), 100] {
        assert_eq!(keys::<V>(&store, &queue, all.clone(), size).await, sorted, "pages of {size}");
    }
    assert_eq!(keys::<V>(&store, &queue, sorted[1]..sorted[4], 2).await, sorted[1..4], "without the end");
    assert_eq!(keys::<V>(&store, &other, all.clone(), 2).await, sorted[..1], "not those of another queue");
    assert_eq!(keys::<V>(&store, &new_key(), all.clone(), 2).await, [], "no tasks");
    let store = &store;
    let range = &all;
    paging::refuses_nonsense(async |size, page| {
        store.read("select", async |c| task::select::<V>(&c, &queue, range.clone(), size, page).await).await
    })
    .await;

    let again = insert::<V>(store, &[task(other, sorted[1]), task(queue, sorted[0])]).await.unwrap_err();
    assert!(again.is_already_exists(), "{again:?}");
    assert_eq!(keys::<V>(store, &other, all.clone(), 2).await, sorted[..1], "all of them or none");

    let delete = async |end: V::Key, limit: usize| {
        store.write("delete", async |c| task::delete::<V>(&c, &queue, end, limit).await).await.unwrap()
    };
    assert_eq!(delete(sorted[4], 1).await, 1, "the first one");
    assert_eq!(keys::<V>(store, &queue, all.clone(), 10).await, sorted[1..]);
    assert_eq!(delete(sorted[4], 100).await, 3, "those before the end");
    assert_eq!(keys::<V>(store, &queue, all.clone(), 10).await, sorted[4..]);
    assert_eq!(delete(sorted[4], 100).await, 0, "none");
    let rest = u64::try_from(sorted.len() - 4).unwrap();
    assert_eq!(task::delete_in_batches::<V>(store, &queue, all.end).await.unwrap(), rest);
    assert_eq!(task::delete_in_batches::<V>(store, &queue, all.end).await.unwrap(), 0);
    assert_eq!(keys::<V>(store, &other, all.clone(), 10).await, sorted[..1], "not those of another queue");
}

#[tokio::test]
async fn tasks_are_inserted_read_in_pages_and_deleted_from_the_front() {
    operations::<V1>(&[-3, 0, 1, 5, 7, 9], i64::MIN..i64::MAX).await;
    // Task ids repeat in other passes: a task is named by both.
    let levels = [level(1, 5), level(1, 9), level(2, 1), level(2, 5), level(3, 1), level(3, 5), level(4, 0)];
    operations::<V2>(&levels, level(1, 0)..level(i64::MAX, 0)).await;
}

/// Aurora DSQL allows 3,000 rows in a transaction. The faulty version deletes with one statement.
#[tokio::test]
async fn more_tasks_than_fit_into_a_transaction_are_deleted_in_several() {
    let store = store_of(&quiet().await, 1).await;
    let queue = new_key();
    let tasks: Vec<_> = (0..3_100).map(|key| TaskRow { queue, key, task: blob("task") }).collect();
    let too_many = insert::<V1>(&store, &tasks).await.unwrap_err();
    assert!(matches!(too_many, Error::TooLarge(_)), "{too_many:?}");
    for some in tasks.chunks(2_000) {
        insert::<V1>(&store, some).await.unwrap();
    }
    let at_once =
        store.write("delete", async |c| task::delete::<V1>(&c, &queue, i64::MAX, 5_000).await).await;
    assert!(matches!(at_once, Err(Error::TooLarge(_))), "{at_once:?}");
    assert_eq!(task::delete_in_batches::<V1>(&store, &queue, i64::MAX).await.unwrap(), 3_100);
}
