//! Shards: every operation, the fence, and what goes wrong without it.

use forebay_temporal::execution::{self, RunKey};
use forebay_temporal::history_task::{self, ShardQueue, TaskRow, TransferTasks};
use forebay_temporal::shard::{self, ShardRow};
use forebay_temporal::{Condition, Error, Persistence, ShardOwner};

use crate::cluster::{alone, blob, new_shard_id, store, store_of};
use crate::executions::{execution as execution_row, insert as insert_execution, new_run};

pub(crate) async fn new_shard(store: &Persistence) -> ShardRow {
    let row = ShardRow { shard_id: new_shard_id(), range_id: 1, info: blob("new") };
    let inserted = &row;
    store.write("insert_shard", async |c| shard::insert(&c, inserted).await).await.unwrap();
    row
}

pub(crate) async fn selected(store: &Persistence, shard_id: i32) -> ShardRow {
    store.read("select_shard", async |c| shard::select(&c, shard_id).await).await.unwrap()
}

fn owner(row: &ShardRow) -> ShardOwner {
    ShardOwner { shard_id: row.shard_id, range_id: row.range_id }
}

fn failed(error: &Error) -> &Condition {
    error.condition().unwrap_or_else(|| panic!("{error:?}"))
}

#[tokio::test]
async fn a_shard_is_inserted_once_and_read() {
    let store = store().await;
    let row = &new_shard(&store).await;
    assert_eq!(selected(&store, row.shard_id).await, *row);
    let again = store.write("insert_shard", async |c| shard::insert(&c, row).await).await.unwrap_err();
    assert!(again.is_already_exists(), "{again:?}");
    let missing = store.read("select_shard", async |c| shard::select(&c, -1).await).await.unwrap_err();
    assert!(missing.is_not_found());
    assert_eq!(missing.to_string(), "there is no shard -1");
}

/// The faulty version updates without a condition: a stale owner overwrites the row of the new one.
#[tokio::test]
async fn only_the_expected_range_id_updates() {
    let store = store().await;
    let row = new_shard(&store).await;
    let taken = ShardRow { range_id: 2, info: blob("taken"), ..row.clone() };
    store.update_shard(&taken, 1).await.unwrap();
    let stale = &ShardRow { range_id: 2, info: blob("stale"), ..row.clone() };
    let expected = Condition::ShardOwner { shard_id: row.shard_id, expected_range_id: 1, found: None };
    let error = store.update_shard(stale, 1).await.unwrap_err();
    assert_eq!(*failed(&error), expected);
    let error = store.run("update_in_tx", async |tx| shard::update(&tx, stale, 1).await).await.unwrap_err();
    assert_eq!(*failed(&error), expected, "in a transaction, too");
    assert_eq!(selected(&store, row.shard_id).await, taken);

    let checkpoint = &ShardRow { info: blob("checkpoint"), ..taken.clone() };
    store.write("auto", async |c| shard::update_auto_fenced(&c, checkpoint).await).await.unwrap();
    assert_eq!(selected(&store, row.shard_id).await, *checkpoint);
    let none = &ShardRow { shard_id: -1, ..taken };
    let error = store.write("auto", async |c| shard::update_auto_fenced(&c, none).await).await.unwrap_err();
    assert!(error.is_not_found());
}

/// A range id that gets smaller lets a deposed owner in again.
#[tokio::test]
async fn no_update_lowers_a_range_id() {
    let store = store().await;
    let row = new_shard(&store).await;
    let taken = ShardRow { range_id: 2, info: blob("taken"), ..row.clone() };
    store.update_shard(&taken, 1).await.unwrap();
    let stale = &ShardRow { info: blob("by the old owner"), ..row.clone() };
    let error = store.write("auto", async |c| shard::update_auto_fenced(&c, stale).await).await.unwrap_err();
    let expected =
        Condition::ShardOwner { shard_id: row.shard_id, expected_range_id: 1, found: Some(taken.range_id) };
    assert_eq!(*failed(&error), expected);
    for error in [
        store.update_shard(stale, 2).await.unwrap_err(),
        store.run("update", async |tx| shard::update(&tx, stale, 2).await).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
    }
    assert_eq!(selected(&store, row.shard_id).await, taken);
    let mutation = store.fenced(owner(&row), "write", async |_| Ok(())).await.unwrap_err();
    assert_eq!(*failed(&mutation), expected, "the old owner stays deposed");
}

/// The generic compare-and-swap, for a statement of the caller's own.
#[tokio::test]
async fn a_swap_that_changes_no_row_has_failed() {
    let store = store().await;
    let row = new_shard(&store).await;
    let swap = |expected: i64| {
        store.write("swap", move |c| async move {
            let sql = "UPDATE shards SET range_id = $1 WHERE shard_id = $2 AND range_id = $3";
            c.swap(sql, &[&5_i64, &row.shard_id, &expected], || {
                Condition::row("shard", row.shard_id, expected)
            })
            .await
        })
    };
    swap(1).await.unwrap();
    let error = swap(1).await.unwrap_err();
    assert_eq!(*failed(&error), Condition::row("shard", row.shard_id, 1));
    assert_eq!(selected(&store, row.shard_id).await.range_id, 5);
}

#[tokio::test]
async fn locks_return_the_range_id() {
    let store = store().await;
    let row = new_shard(&store).await;
    let locked = store.run("lock", async |tx| {
        Ok((shard::read_lock(&tx, row.shard_id).await?, shard::write_lock(&tx, row.shard_id).await?))
    });
    assert_eq!(locked.await.unwrap(), (1, 1));
    assert!(store.run("lock", async |tx| shard::read_lock(&tx, -1).await).await.unwrap_err().is_not_found());
    let nobody = ShardOwner { shard_id: -1, range_id: 1 };
    let error = store.fenced(nobody, "fenced", async |_| Ok(())).await.unwrap_err();
    assert_eq!(*failed(&error), Condition::ShardOwner { shard_id: -1, expected_range_id: 1, found: None });
}

/// How a mutation makes sure that its process still owns the shard.
#[derive(Clone, Copy)]
enum Lock {
    /// As the store does.
    Fence,
    /// As the specification does: a plain SELECT.
    PlainSelect,
}

/// A mutation by the old owner, with a change of owner between its check and its COMMIT. Whether both have committed.
async fn both_commit(lock: Lock) -> bool {
    let cluster = crate::cluster::quiet().await;
    let (old, new) = (store_of(&cluster, 2).await, store_of(&cluster, 2).await);
    let row = &new_shard(&old).await;
    let mutated = &new_shard(&old).await;
    let change = ShardRow { range_id: 2, ..row.clone() };
    let (change, new) = (&change, &new);
    let mutation = old.run("mutate", async |tx| {
        match lock {
            Lock::Fence => shard::fence(&tx, owner(row)).await?,
            Lock::PlainSelect => {
                let found = shard::select(&tx, row.shard_id).await?;
                if found.range_id != row.range_id {
                    return Err(Condition::row("shard", row.shard_id, row.range_id).into());
                }
            }
        }
        // The successor comes just now. On a second attempt it has come already.
        match new.update_shard(change, 1).await {
            Ok(()) | Err(Error::ConditionFailed { .. }) => {}
            Err(error) => return Err(error),
        }
        // Another row than that of the shard, as a workflow is.
        shard::update(&tx, &ShardRow { info: blob("by the old owner"), ..mutated.clone() }, 1).await
    });
    let mutation = mutation.await;
    assert_eq!(selected(&old, row.shard_id).await.range_id, 2, "the owner has changed");
    let written = selected(&old, mutated.shard_id).await.info == blob("by the old owner");
    assert_eq!(written, mutation.is_ok(), "{mutation:?}");
    if let Err(error) = mutation {
        let found = Some(2);
        let expected = Condition::ShardOwner { shard_id: row.shard_id, expected_range_id: 1, found };
        assert_eq!(*failed(&error), expected);
    }
    written
}

#[tokio::test]
async fn a_change_of_owner_and_a_mutation_by_the_old_owner_never_both_commit() {
    assert!(!both_commit(Lock::Fence).await);
}

/// That the test above can fail: this is the fault that it is about.
#[tokio::test]
async fn with_a_plain_select_both_commit() {
    assert!(both_commit(Lock::PlainSelect).await);
}

/// On a cluster of its own, which counts conflicts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fenced_transactions_of_a_shard_take_turns() {
    let cluster = alone().await;
    let store = store_of(&cluster, 4).await;
    let row = new_shard(&store).await;
    let before = cluster.counters();
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (store, row) = (store.clone(), row.clone());
            tokio::spawn(async move {
                for _ in 0..10 {
                    let row = &row;
                    let count = store.fenced(owner(row), "count", async |tx| {
                        let found = shard::select(&tx, row.shard_id).await?;
                        let mut info = found.info.clone();
                        info.data.push(b'.');
                        shard::update(&tx, &ShardRow { info, ..found }, row.range_id).await
                    });
                    count.await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(selected(&store, row.shard_id).await.info.data.len(), "new".len() + 40, "no update is lost");
    assert_eq!(cluster.counters().conflicts, before.conflicts, "nobody defeats another");
}

/// A mutation of a workflow, as short as a real one can be: its row is locked and updated, and a task is added.
async fn mutate(store: &Persistence, owner: ShardOwner, run: &RunKey) -> Result<(), Error> {
    let queue = &ShardQueue { shard_id: owner.shard_id };
    let mutation = store.fenced(owner, "mutate", |tx| async move {
        let version = execution::write_lock(&tx, run).await?.db_record_version;
        let row = execution_row(run, version + 1);
        let task = [TaskRow { key: version, task: blob("task") }];
        execution::update(&tx, &row, version).await?;
        history_task::insert::<TransferTasks>(&tx, queue, &task).await
    });
    mutation.await
}

/// The old owner writes as fast as it can. The new one needs a few attempts at most, each a single statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_owner_commits_within_ten_attempts_under_full_load() {
    let cluster = alone().await;
    let new = store_of(&cluster, 2).await;
    let pool = crate::cluster::pool(&cluster, 4, forebay_dsql::RetryPolicy::default()).await;
    let old = Persistence::new(pool, new.ids().clone());
    let mut shards = Vec::new();
    for _ in 0..5 {
        let row = new_shard(&old).await;
        shards.push(row.shard_id);
        let run = RunKey { shard_id: row.shard_id, ..new_run() };
        insert_execution(&old, &execution_row(&run, 1)).await;
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let (old, owner, run) = (old.clone(), owner(&row), run.clone());
                tokio::spawn(async move {
                    let mut written = 0;
                    loop {
                        match mutate(&old, owner, &run).await {
                            Ok(()) => written += 1,
                            Err(error) => {
                                let deposed =
                                    matches!(failed(&error), Condition::ShardOwner { found: Some(2), .. });
                                assert!(deposed, "{error}");
                                return written;
                            }
                        }
                    }
                })
            })
            .collect();
        let commits = cluster.counters().commits;
        while cluster.counters().commits < commits + 20 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        new.update_shard(&ShardRow { range_id: 2, ..row.clone() }, 1).await.unwrap();
        let mut written = 0;
        for writer in writers {
            written += writer.await.unwrap();
        }
        assert!(written >= 20, "{written}");
    }
    let client = new.pool().unwrap().acquire().await.unwrap();
    let left = "SELECT count(*) FROM shard_takeovers WHERE shard_id = ANY($1)";
    let left = client.query_one(left, &[&shards]).await.unwrap();
    assert_eq!(left.get::<_, i64>(0), 0, "announcements are withdrawn");
}

/// Who has announced a change of owner may die before it comes to that. The owner pauses for it twice, and works on.
#[tokio::test]
async fn an_announcement_without_a_change_holds_nobody_up() {
    let cluster = alone().await;
    let store = store_of(&cluster, 2).await;
    let row = new_shard(&store).await;
    let announce = "INSERT INTO shard_takeovers (shard_id, range_id) VALUES ($1, 2)";
    one_row(&store, announce, row.shard_id).await;
    let bodies = &std::sync::atomic::AtomicU32::new(0);
    for _ in 0..3 {
        let write = store.fenced(owner(&row), "write", async |_| {
            bodies.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        });
        write.await.unwrap();
    }
    assert_eq!(bodies.load(std::sync::atomic::Ordering::Relaxed), 3, "no body runs before a pause");
    // A change of owner that succeeds at once leaves the old announcement, which nobody heeds any more.
    store.update_shard(&ShardRow { range_id: 2, ..row.clone() }, 1).await.unwrap();
    let new = ShardOwner { range_id: 2, ..owner(&row) };
    store.fenced(new, "write", async |_| Ok(())).await.unwrap();
    one_row(&store, "DELETE FROM shard_takeovers WHERE shard_id = $1", row.shard_id).await;
}

/// Runs a statement that changes one row.
async fn one_row(store: &Persistence, sql: &str, shard_id: i32) {
    let one = store.write("one_row", async |c| {
        c.swap(sql, &[&shard_id], || Condition::row("row of shard", shard_id, "any version")).await
    });
    one.await.unwrap();
}

/// The faulty version keeps announcements in `shards`, in the row `-1 - shard_id`. An owner takes a row there for an announcement, and
/// a change that is announced takes the row away.
#[tokio::test]
async fn a_change_of_owner_touches_no_other_row_of_shards() {
    let cluster = alone().await;
    let store = store_of(&cluster, 2).await;
    let row = new_shard(&store).await;
    let odd = &ShardRow { shard_id: -1 - row.shard_id, range_id: 2, info: blob("odd") };
    store.write("insert_shard", async |c| shard::insert(&c, odd).await).await.unwrap();
    let once = Persistence::new(
        crate::cluster::pool(&cluster, 1, forebay_dsql::RetryPolicy::default().retries(0)).await,
        store.ids().clone(),
    );
    once.fenced(owner(&row), "write", async |_| Ok(())).await.expect("nobody wants this shard");
    for (changed, other) in [(&row, odd), (odd, &row)] {
        let change = ShardRow { range_id: 9, ..changed.clone() };
        cluster.inject("conflict:n=3".parse().unwrap());
        store.update_shard(&change, changed.range_id).await.unwrap();
        cluster.heal_all();
        assert_eq!(selected(&store, changed.shard_id).await, change);
        let expected = if other.shard_id == odd.shard_id {
            odd.clone()
        } else {
            ShardRow { range_id: 9, ..row.clone() }
        };
        assert_eq!(selected(&store, other.shard_id).await, expected, "the other one");
    }
    one_row(&store, "DELETE FROM shards WHERE shard_id = $1", odd.shard_id).await;
}
