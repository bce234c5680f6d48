//! Task queues of both generations: every operation, their fence, and their pages.

use forebay_temporal::task_queue::{self, TaskQueueId, TaskQueueKey, TaskQueueRow, TaskVersion, V1, V2};
use forebay_temporal::{Condition, Error, Persistence, Tx, task};

use crate::cluster::{blob, new_shard_id, quiet, store, store_of};
use crate::{overlap, paging};

/// A task queue that no other test uses.
pub(crate) fn new_key() -> TaskQueueKey {
    let number = new_shard_id();
    TaskQueueKey { range_hash: number.unsigned_abs() << 8, id: TaskQueueId::hash(&number.to_be_bytes()) }
}

pub(crate) async fn new_queue<V: TaskVersion>(store: &Persistence) -> TaskQueueRow {
    let row = TaskQueueRow { key: new_key(), range_id: 1, info: blob("new") };
    insert::<V>(store, &row).await.unwrap();
    row
}

async fn insert<V: TaskVersion>(store: &Persistence, row: &TaskQueueRow) -> Result<(), Error> {
    store.write("insert", async |c| task_queue::insert::<V>(&c, row).await).await
}

async fn select<V: TaskVersion>(store: &Persistence, key: &TaskQueueKey) -> Result<TaskQueueRow, Error> {
    store.read("select", async |c| task_queue::select::<V>(&c, key).await).await
}

async fn update<V: TaskVersion>(store: &Persistence, row: &TaskQueueRow, expected: i64) -> Result<(), Error> {
    store.write("update", async |c| task_queue::update::<V>(&c, row, expected).await).await
}

/// What the queue was expected to have, and what it has.
fn failed(error: &Error) -> (&str, Option<&str>) {
    match error.condition() {
        Some(Condition::Row { entity: "task queue", expected, found, .. }) => (expected, found.as_deref()),
        _ => panic!("{error:?}"),
    }
}

async fn operations<V: TaskVersion>() {
    let store = store().await;
    let row = new_queue::<V>(&store).await;
    assert_eq!(select::<V>(&store, &row.key).await.unwrap(), row);
    assert!(insert::<V>(&store, &row).await.unwrap_err().is_already_exists());
    let nobody = TaskQueueRow { key: new_key(), ..row.clone() };
    assert!(select::<V>(&store, &nobody.key).await.unwrap_err().is_not_found());

    let taken = TaskQueueRow { range_id: 2, info: blob("taken"), ..row.clone() };
    update::<V>(&store, &taken, 1).await.unwrap();
    let stale = TaskQueueRow { info: blob("stale"), ..row.clone() };
    assert_eq!(failed(&update::<V>(&store, &stale, 1).await.unwrap_err()), ("range_id 1", None));
    assert_eq!(failed(&update::<V>(&store, &nobody, 1).await.unwrap_err()), ("range_id 1", None));
    assert_eq!(select::<V>(&store, &row.key).await.unwrap(), taken);

    let auto = async |row: &TaskQueueRow| {
        store.write("auto", async |c| task_queue::update_auto_fenced::<V>(&c, row).await).await
    };
    let kept = TaskQueueRow { info: blob("kept"), ..taken.clone() };
    auto(&kept).await.unwrap();
    assert_eq!(select::<V>(&store, &row.key).await.unwrap(), kept, "with the same range id");
    let raised = TaskQueueRow { range_id: 5, ..kept };
    auto(&raised).await.unwrap();
    assert_eq!(failed(&auto(&stale).await.unwrap_err()), ("range_id 1", Some("range_id 5")));
    assert!(auto(&nobody).await.unwrap_err().is_not_found());
    let lowered = &TaskQueueRow { range_id: 4, ..raised.clone() };
    let lower = store.write("update", async |c| task_queue::update::<V>(&c, lowered, 5).await);
    assert!(matches!(lower.await.unwrap_err(), Error::InvalidInput(_)));

    let raise = async |expected: i64| {
        store.write("raise", async |c| task_queue::raise_range_id::<V>(&c, &row.key, expected).await).await
    };
    assert_eq!(raise(5).await.unwrap(), 6);
    assert_eq!(failed(&raise(5).await.unwrap_err()), ("range_id 5", None));
    let raised = TaskQueueRow { range_id: 6, ..raised };
    assert_eq!(select::<V>(&store, &row.key).await.unwrap(), raised, "and nothing else");

    let delete = async |expected: i64| {
        store.write("delete", async |c| task_queue::delete::<V>(&c, &row.key, expected).await).await
    };
    assert_eq!(failed(&delete(5).await.unwrap_err()), ("range_id 5", None));
    delete(6).await.unwrap();
    assert_eq!(failed(&delete(6).await.unwrap_err()), ("range_id 6", None));
    assert!(select::<V>(&store, &row.key).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_task_queue_is_changed_and_deleted_only_with_its_range_id() {
    operations::<V1>().await;
    operations::<V2>().await;
    let store = store().await;
    let old = new_queue::<V1>(&store).await;
    assert!(select::<V2>(&store, &old.key).await.unwrap_err().is_not_found(), "the generations are apart");
}

/// Tasks are inserted under the fence of their queue. A new owner comes between the fence and the COMMIT.
async fn deposed_in_between<V: TaskVersion<Key = i64>>() {
    let cluster = quiet().await;
    let (old, new) = (store_of(&cluster, 2).await, store_of(&cluster, 2).await);
    let queue = &new_queue::<V>(&old).await.key;
    let (new, attempts) = (&new, &std::cell::Cell::new(0));
    let insert = old.run("insert_tasks", async |tx| {
        attempts.set(attempts.get() + 1);
        let task = task::TaskRow { queue: *queue, key: 7, task: blob("by the old owner") };
        task_queue::fence::<V>(&tx, queue, 1).await?;
        task::insert::<V>(&tx, &[task]).await?;
        new.write("take_over", async |c| task_queue::raise_range_id::<V>(&c, queue, 1).await).await?;
        Ok(())
    });
    assert_eq!(failed(&insert.await.unwrap_err()), ("range_id 1", Some("range_id 2")));
    assert_eq!(attempts.get(), 2, "the first conflicts, the second finds the new owner");
    let tasks = old.read("tasks", async |c| task::select::<V>(&c, queue, 0..100, 10, None).await);
    assert_eq!(tasks.await.unwrap().rows, []);
}

#[tokio::test]
async fn a_deposed_owner_inserts_no_tasks() {
    deposed_in_between::<V1>().await;
    let store = store().await;
    let row = &new_queue::<V2>(&store).await;
    let locked = store.run("lock", async |tx| {
        task_queue::fence::<V2>(&tx, &row.key, 1).await?;
        task_queue::lock::<V2>(&tx, &row.key).await
    });
    assert_eq!(locked.await.unwrap(), 1);
    let nobody = &new_key();
    let lock = store.run("lock", async |tx| task_queue::lock::<V2>(&tx, nobody).await);
    assert!(lock.await.unwrap_err().is_not_found());
    let fence = store.run("fence", async |tx| task_queue::fence::<V2>(&tx, nobody, 1).await);
    assert_eq!(failed(&fence.await.unwrap_err()), ("range_id 1", None));
}

async fn lock_against_a_change_of_owner<V: TaskVersion>() -> u32 {
    let queue = new_queue::<V>(&store_of(&quiet().await, 1).await).await.key;
    let lock = async |tx: &Tx| task_queue::lock::<V>(tx, &queue).await.map(drop);
    let raise = async |neighbour: &Persistence| {
        let raise = neighbour.write("raise", async |c| task_queue::raise_range_id::<V>(&c, &queue, 1).await);
        raise.await.map(drop)
    };
    overlap::attempts(lock, raise).await
}

#[tokio::test]
async fn a_lock_of_a_task_queue_conflicts_with_a_change_of_owner() {
    assert_eq!(lock_against_a_change_of_owner::<V1>().await, 2);
    assert_eq!(lock_against_a_change_of_owner::<V2>().await, 2);
}

async fn pages<V: TaskVersion>() {
    let store = store().await;
    let first = new_key().range_hash;
    // Six hashes; the last three queues share one, as queues rarely do.
    let mut rows: Vec<TaskQueueRow> = (0..8_u32)
        .map(|at| {
            let key = TaskQueueKey {
                range_hash: first + at.min(5),
                id: TaskQueueId::hash(&[&first.to_be_bytes()[..], &at.to_be_bytes()].concat()),
            };
            TaskQueueRow { key, range_id: at.into(), info: blob("listed") }
        })
        .collect();
    for row in &rows {
        insert::<V>(&store, row).await.unwrap();
    }
    rows.sort_by_key(|row| row.key);
    let store = &store;
    let list = |range: std::ops::RangeInclusive<u32>| {
        async move |size: usize, page: Option<&forebay_temporal::PageToken>| {
            store.read("list", async |c| task_queue::list::<V>(&c, range.clone(), size, page).await).await
        }
    };
    for size in [1, 2, 3, 8, 100] {
        assert_eq!(paging::all(size, list(first..=first + 5)).await, rows, "pages of {size}");
    }
    assert_eq!(paging::all(2, list(first + 1..=first + 4)).await, rows[1..5]);
    assert_eq!(paging::all(2, list(first + 5..=first + 5)).await, rows[5..], "one hash");
    assert_eq!(paging::all(2, list(first + 6..=first + 9)).await, [], "no queues");
    paging::refuses_nonsense(list(0..=u32::MAX)).await;
}

#[tokio::test]
async fn task_queues_are_listed_in_pages_by_hash_and_id() {
    pages::<V1>().await;
    pages::<V2>().await;
}

/// Ten queues of one hash in pages of two, as the next page is asked for: by the last id itself, or by a hash of it.
async fn paged_by(range_hash: u32, next: impl Fn(TaskQueueId) -> TaskQueueId) -> Vec<TaskQueueId> {
    let store = store_of(&quiet().await, 1).await;
    for id in ten_ids() {
        let row = TaskQueueRow { key: TaskQueueKey { range_hash, id }, range_id: 1, info: blob("") };
        insert::<V1>(&store, &row).await.unwrap();
    }
    let connection = store.pool().unwrap().acquire().await.unwrap();
    let (mut after, mut seen) = (TaskQueueId::from_uuid(forebay_dsql::Uuid::nil()), Vec::new());
    // A list that begins again never ends.
    while seen.len() < 100 {
        let sql = "SELECT task_queue_id FROM task_queues WHERE range_hash = $1 AND task_queue_id > $2 \
                   ORDER BY task_queue_id LIMIT 2";
        let rows = connection.query(sql, &[&i64::from(range_hash), after.as_uuid()]).await.unwrap();
        let Some(last) = rows.last() else { break };
        after = next(TaskQueueId::from_uuid(last.get(0)));
        seen.extend(rows.iter().map(|row| TaskQueueId::from_uuid(row.get(0))));
    }
    seen
}

/// In their order.
fn ten_ids() -> Vec<TaskQueueId> {
    let mut ids: Vec<_> = (0..10_u8).map(|number| TaskQueueId::hash(&[number])).collect();
    ids.sort_unstable();
    ids
}

/// The faulty version hashes the id in its page token, which is a hash already: it misses queues.
#[tokio::test]
async fn an_id_is_hashed_once() {
    // Hashes that no other test uses.
    assert_eq!(paged_by(u32::MAX, |id| id).await, ten_ids());
    let faulty = paged_by(u32::MAX - 1, |id| TaskQueueId::hash(id.as_uuid().as_bytes())).await;
    assert_ne!(faulty, ten_ids());
}
