//! Queues of both generations: their messages, the next message id, and their metadata.

use std::cell::Cell;
use std::ops::Bound::{self, Excluded, Included, Unbounded};

use forebay_temporal::queue_message::{self, MessageQueue, MessageRow, QueueKey, QueueType};
use forebay_temporal::queue_metadata::{self, QueueMetadataRow};
use forebay_temporal::queue_v2_metadata::{self, QueueV2MetadataRow};
use forebay_temporal::{Condition, Error, PageToken, Persistence, Tx};

use crate::cluster::{blob, new_shard_id, quiet, store, store_of};
use crate::{overlap, paging};

/// A queue that no other test uses. No number is that of the dead letters of another.
fn new_v1() -> QueueType {
    QueueType(new_shard_id())
}

fn new_v2() -> QueueKey {
    QueueKey { queue_type: new_shard_id(), queue_name: "of the test".to_owned(), partition: 0 }
}

async fn enqueue(store: &Persistence, queue: &impl MessageQueue) -> i64 {
    let payload = &blob("message");
    store.write("enqueue", async |c| queue_message::enqueue(&c, queue, payload).await).await.unwrap()
}

async fn ids(store: &Persistence, queue: &impl MessageQueue) -> Vec<i64> {
    let page = async |size: usize, page: Option<&PageToken>| {
        let all = i64::MIN..=i64::MAX;
        store
            .read("range_select", async |c| {
                queue_message::range_select(&c, queue, all.clone(), size, page).await
            })
            .await
    };
    let ids: Vec<_> = paging::all(3, page).await.iter().map(|row| row.message_id).collect();
    for size in [1, 2, ids.len().max(1)] {
        let rows = paging::all(size, page).await;
        assert!(rows.iter().all(|row| row.payload == blob("message")));
        assert_eq!(rows.iter().map(|row| row.message_id).collect::<Vec<_>>(), ids, "pages of {size}");
    }
    paging::refuses_nonsense(page).await;
    ids
}

async fn operations<Q: MessageQueue>(queue: &Q, other: &Q) {
    let store = store().await;
    assert!(ids(&store, queue).await.is_empty());
    for expected in 0..3 {
        assert_eq!(enqueue(&store, queue).await, expected);
    }
    assert_eq!(enqueue(&store, other).await, 0, "every queue begins with 0");
    let insert = async |ids: &[i64]| {
        let row = |id: &i64| MessageRow { message_id: *id, payload: blob("message") };
        let rows: Vec<_> = ids.iter().map(row).collect();
        let rows = &rows;
        store.write("insert", async |c| queue_message::insert(&c, queue, rows).await).await
    };
    insert(&[7, 6]).await.unwrap();
    insert(&[]).await.unwrap();
    assert!(insert(&[8, 7]).await.unwrap_err().is_already_exists());
    assert_eq!(enqueue(&store, queue).await, 8);
    assert_eq!(ids(&store, queue).await, [0, 1, 2, 6, 7, 8]);

    let select =
        async |id: i64| store.read("select", async |c| queue_message::select(&c, queue, id).await).await;
    assert_eq!(select(6).await.unwrap(), MessageRow { message_id: 6, payload: blob("message") });
    assert!(select(5).await.unwrap_err().is_not_found());
    for (range, expected) in [
        ((Included(1), Included(7)), &[1, 2, 6, 7][..]),
        // A queue of the first generation is read from behind the last message that was seen, one of the second without an end.
        ((Excluded(-1), Included(6)), &[0, 1, 2, 6]),
        ((Included(6), Unbounded), &[6, 7, 8]),
        ((Excluded(2), Excluded(7)), &[6]),
        ((Excluded(i64::MAX), Unbounded), &[]),
    ] {
        for size in [1, 100] {
            let page = async |size: usize, page: Option<&PageToken>| {
                let page = store
                    .read("page", async |c| queue_message::range_select(&c, queue, range, size, page).await);
                page.await
            };
            let read = paging::all(size, page).await;
            assert_eq!(read.iter().map(|row| row.message_id).collect::<Vec<_>>(), expected, "{range:?}");
        }
    }

    let delete = async |id: i64| {
        store.write("delete", async |c| queue_message::delete(&c, queue, id).await).await.unwrap()
    };
    assert!(delete(1).await);
    assert!(!delete(1).await);
    let range_delete = async |range: (Bound<i64>, Bound<i64>)| {
        let delete =
            store.write("range_delete", async |c| queue_message::range_delete(&c, queue, range).await);
        delete.await.unwrap()
    };
    assert_eq!(range_delete((Excluded(2), Excluded(6))).await, 0);
    assert_eq!(range_delete((Excluded(0), Included(6))).await, 2);
    assert_eq!(range_delete((Included(2), Included(6))).await, 0);
    assert_eq!(ids(&store, queue).await, [0, 7, 8]);
    assert_eq!(queue_message::range_delete_in_batches(&store, queue, ..8).await.unwrap(), 2);
    assert_eq!(enqueue(&store, queue).await, 9, "as long as the last message is kept");
    assert_eq!(ids(&store, queue).await, [8, 9]);
    assert_eq!(ids(&store, other).await, [0], "another queue is another");
}

#[tokio::test]
async fn messages_are_appended_read_in_pages_and_deleted() {
    let queue = new_v1();
    operations(&queue, &queue.dead_letters()).await;
    let queue = new_v2();
    operations(&queue, &QueueKey { partition: 1, ..queue.clone() }).await;
}

/// Aurora DSQL allows 3,000 rows in a transaction. The faulty version deletes with one statement.
#[tokio::test]
async fn more_messages_than_fit_into_a_transaction_are_deleted_in_several() {
    let store = store_of(&quiet().await, 1).await;
    let queue = &new_v1();
    let row = |message_id| MessageRow { message_id, payload: blob("message") };
    let rows: Vec<_> = (0..3_100).map(row).collect();
    for some in rows.chunks(2_000) {
        store.write("insert", async |c| queue_message::insert(&c, queue, some).await).await.unwrap();
    }
    let at_once =
        store.write("delete", async |c| queue_message::range_delete(&c, queue, 0..=i64::MAX).await).await;
    assert!(matches!(at_once, Err(Error::TooLarge(_))), "{at_once:?}");
    let deleted = queue_message::range_delete_in_batches(&store, queue, 0..=i64::MAX).await.unwrap();
    assert_eq!(deleted, 3_100);
}

async fn writers_at_the_same_time<Q: MessageQueue + Clone>(queue: Q) {
    let store = store_of(&quiet().await, 3).await;
    let writers: Vec<_> = (0..3)
        .map(|_| {
            let (store, queue) = (store.clone(), queue.clone());
            tokio::spawn(async move {
                let mut ids = Vec::new();
                for _ in 0..5 {
                    ids.push(enqueue(&store, &queue).await);
                }
                ids
            })
        })
        .collect();
    let mut given = Vec::new();
    for writer in writers {
        let ids = writer.await.unwrap();
        assert!(ids.is_sorted());
        given.extend(ids);
    }
    given.sort_unstable();
    assert_eq!(given, (0..15).collect::<Vec<_>>(), "each message has an id of its own");
    assert_eq!(ids(&store, &queue).await, given, "no message is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_at_the_same_time_lose_no_message() {
    writers_at_the_same_time(new_v1()).await;
    writers_at_the_same_time(new_v2()).await;
}

/// Between the lock of the last message and the COMMIT, `meanwhile` happens, once. Which last ids the transaction found.
async fn found_last<Q: MessageQueue>(
    queue: &Q,
    append: bool,
    meanwhile: impl AsyncFn(&Persistence) -> Result<(), Error>,
) -> Vec<Option<i64>> {
    let cluster = quiet().await;
    let (store, neighbour) = (store_of(&cluster, 1).await, store_of(&cluster, 1).await);
    let found = &Cell::new(Vec::new());
    let (neighbour, meanwhile) = (&neighbour, &meanwhile);
    let enqueue = store.run("enqueue", async |tx| {
        let last = queue_message::lock_last_message_id(&tx, queue).await?;
        let mut seen = found.take();
        seen.push(last);
        if seen.len() == 1 {
            meanwhile(neighbour).await?;
        }
        found.set(seen);
        if append {
            let row = MessageRow { message_id: last.map_or(0, |last| last + 1), payload: blob("message") };
            queue_message::insert(&tx, queue, &[row]).await?;
        }
        Ok(())
    });
    enqueue.await.unwrap();
    found.take()
}

/// The second writer to commit is run again, and goes on after the first one: in an empty queue, too, where there is no row to lock.
async fn a_second_writer_goes_on_after_the_first(queue: &impl MessageQueue) {
    let append = async |neighbour: &Persistence| {
        enqueue(neighbour, queue).await;
        Ok(())
    };
    assert_eq!(found_last(queue, true, append).await, [None, Some(0)]);
    assert_eq!(found_last(queue, true, append).await, [Some(1), Some(2)]);
    let nothing = async |_: &Persistence| Ok(());
    assert_eq!(found_last(queue, true, nothing).await, [Some(3)]);
    let store = store_of(&quiet().await, 1).await;
    assert_eq!(ids(&store, queue).await, [0, 1, 2, 3, 4]);

    // That the lock is one: neither of the two writes anything.
    let lock = async |neighbour: &Persistence| {
        neighbour
            .run("lock", async |tx| queue_message::lock_last_message_id(&tx, queue).await)
            .await
            .map(drop)
    };
    assert_eq!(found_last(queue, false, lock).await, [Some(4), Some(4)]);
    let delete = async |neighbour: &Persistence| {
        neighbour.write("delete", async |c| queue_message::delete(&c, queue, 4).await).await.map(drop)
    };
    assert_eq!(found_last(queue, false, delete).await, [Some(4), Some(3)]);
}

#[tokio::test]
async fn overlapping_writers_conflict_on_the_next_message_id() {
    a_second_writer_goes_on_after_the_first(&new_v1()).await;
    a_second_writer_goes_on_after_the_first(&new_v2()).await;
}

/// The faulty version locks a range that it finds with a sub-select.
#[tokio::test]
async fn a_range_cannot_be_locked() {
    let store = store().await;
    let queue = new_v1();
    enqueue(&store, &queue).await;
    for sql in [
        "SELECT message_id FROM queue WHERE message_id >= (SELECT message_id FROM queue WHERE queue_type = $1 \
         ORDER BY message_id DESC LIMIT 1) FOR UPDATE",
        "SELECT message_id FROM queue WHERE queue_type = $1 ORDER BY message_id DESC LIMIT 1 FOR UPDATE",
    ] {
        let lock = store.run("lock", async |tx| tx.swap(sql, &[&queue.0], || unreachable!()).await);
        let refused = lock.await.unwrap_err();
        assert!(matches!(refused, Error::Database(_)), "{refused:?}");
        assert!(refused.to_string().contains("FOR UPDATE"), "{refused}");
    }
    let locked = store.run("lock", async |tx| queue_message::lock_last_message_id(&tx, &queue).await);
    assert_eq!(locked.await.unwrap(), Some(0));
}

#[tokio::test]
async fn metadata_of_a_queue_and_its_dead_letters_have_versions() {
    let store = store().await;
    let queue_type = new_v1();
    let select = async |queue| store.read("select", async |c| queue_metadata::select(&c, queue).await).await;
    for queue_type in [queue_type, queue_type.dead_letters()] {
        assert!(select(queue_type).await.unwrap_err().is_not_found());
        let row = &QueueMetadataRow { queue_type, data: blob("none read"), version: 0 };
        let insert = async || store.write("insert", async |c| queue_metadata::insert(&c, row).await).await;
        insert().await.unwrap();
        assert!(insert().await.unwrap_err().is_already_exists());
        assert_eq!(select(queue_type).await.unwrap(), *row);
    }
    let row = &QueueMetadataRow { queue_type, data: blob("one read"), version: 0 };
    let update = async || store.write("update", async |c| queue_metadata::update(&c, row).await).await;
    assert_eq!(update().await.unwrap(), 1);
    let stale = update().await.unwrap_err();
    let condition = Condition::row("metadata of queue", queue_type, "version 0");
    assert_eq!(stale.condition(), Some(&condition), "{stale:?}");
    let locked = async |queue| store.run("lock", async |tx| queue_metadata::lock(&tx, queue).await).await;
    assert_eq!(locked(queue_type).await.unwrap(), QueueMetadataRow { version: 1, ..row.clone() });
    assert_eq!(locked(queue_type.dead_letters()).await.unwrap().data, blob("none read"));
    assert!(locked(new_v1()).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn queues_with_names_are_inserted_updated_under_a_lock_and_listed_in_pages() {
    let store = store().await;
    let (queue_type, other) = (new_shard_id(), new_shard_id());
    let row = |queue_type: i32, name: &str| QueueV2MetadataRow {
        queue_type,
        queue_name: name.to_owned(),
        metadata: blob("metadata"),
    };
    let insert = async |row: QueueV2MetadataRow| {
        let row = &row;
        store.write("insert", async |c| queue_v2_metadata::insert(&c, row).await).await
    };
    for name in ["b", "a", "c", "d"] {
        insert(row(queue_type, name)).await.unwrap();
    }
    insert(row(other, "e")).await.unwrap();
    assert!(insert(row(queue_type, "a")).await.unwrap_err().is_already_exists());
    let select = async |name: &str| {
        store.read("select", async |c| queue_v2_metadata::select(&c, queue_type, name).await).await
    };
    assert_eq!(select("a").await.unwrap(), row(queue_type, "a"));
    assert!(select("e").await.unwrap_err().is_not_found());

    let update = async |name: &str| {
        let update = store.run("update", async |tx| {
            let found = queue_v2_metadata::lock(&tx, queue_type, name).await?;
            queue_v2_metadata::update(&tx, &QueueV2MetadataRow { metadata: blob("later"), ..found }).await
        });
        update.await
    };
    update("a").await.unwrap();
    assert_eq!(select("a").await.unwrap().metadata, blob("later"));
    assert_eq!(select("b").await.unwrap().metadata, blob("metadata"));
    assert!(update("e").await.unwrap_err().is_not_found());
    let missing = &row(queue_type, "e");
    let unlocked = store.run("update", async |tx| queue_v2_metadata::update(&tx, missing).await);
    assert!(unlocked.await.unwrap_err().is_not_found());

    let list = async |size: usize, page: Option<&PageToken>| {
        store.read("list", async |c| queue_v2_metadata::list(&c, queue_type, size, page).await).await
    };
    for size in [1, 2, 3, 4, 5] {
        let names: Vec<_> = paging::all(size, list).await.into_iter().map(|row| row.queue_name).collect();
        assert_eq!(names, ["a", "b", "c", "d"], "pages of {size}");
    }
    paging::refuses_nonsense(list).await;
}

#[tokio::test]
async fn locks_of_metadata_conflict_with_changes() {
    let store = store_of(&quiet().await, 1).await;
    let row = &QueueMetadataRow { queue_type: new_v1(), data: blob("none read"), version: 0 };
    store.write("insert", async |c| queue_metadata::insert(&c, row).await).await.unwrap();
    let lock = async |tx: &Tx| queue_metadata::lock(tx, row.queue_type).await.map(drop);
    let update = async |neighbour: &Persistence| {
        neighbour.write("update", async |c| queue_metadata::update(&c, row).await).await.map(drop)
    };
    assert_eq!(overlap::attempts(lock, update).await, 2);

    let (queue_type, queue_name) = (new_shard_id(), "locked".to_owned());
    let row = &QueueV2MetadataRow { queue_type, queue_name, metadata: blob("metadata") };
    store.write("insert", async |c| queue_v2_metadata::insert(&c, row).await).await.unwrap();
    let lock = async |tx: &Tx| queue_v2_metadata::lock(tx, queue_type, "locked").await.map(drop);
    let update = async |neighbour: &Persistence| {
        neighbour.run("update", async |tx| queue_v2_metadata::update(&tx, row).await).await
    };
    assert_eq!(overlap::attempts(lock, update).await, 2);
}
