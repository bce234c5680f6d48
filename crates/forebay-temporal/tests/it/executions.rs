//! Executions and current executions: every operation, and the locks.

use forebay_dsql::{Timestamp, Uuid};
use forebay_temporal::current_execution::{self, ChasmKey, CurrentExecutionRow, CurrentKey, WorkflowKey};
use forebay_temporal::execution::{self, ExecutionRow, LockedExecution, RunKey};
use forebay_temporal::{Condition, Error, Persistence};

use crate::cluster::{blob, new_shard_id, new_uuid, quiet, store, store_of};

pub(crate) fn new_run() -> RunKey {
    new_workflow().run(new_uuid())
}

pub(crate) fn new_workflow() -> WorkflowKey {
    WorkflowKey { shard_id: new_shard_id(), namespace_id: new_uuid(), workflow_id: "wörkflow".into() }
}

pub(crate) fn execution(key: &RunKey, db_record_version: i64) -> ExecutionRow {
    ExecutionRow {
        key: key.clone(),
        next_event_id: 2 + db_record_version,
        last_write_version: 7,
        info: blob("info"),
        state: blob("state"),
        db_record_version,
    }
}

pub(crate) fn current<K>(key: K, run_id: Uuid) -> CurrentExecutionRow<K> {
    CurrentExecutionRow {
        key,
        run_id,
        create_request_id: "request".into(),
        state: 1,
        status: 2,
        start_version: 3,
        start_time: Some(Timestamp::from_nanos(1_700_000_000_123_456_000).unwrap()),
        last_write_version: 4,
        execution_state: Some(blob("state")),
    }
}

pub(crate) async fn insert(store: &Persistence, row: &ExecutionRow) {
    store.write("insert_execution", async |c| execution::insert(&c, row).await).await.unwrap();
}

async fn selected(store: &Persistence, key: &RunKey) -> Result<ExecutionRow, Error> {
    store.read("select_execution", async |c| execution::select(&c, key).await).await
}

#[tokio::test]
async fn an_execution_is_inserted_read_updated_and_deleted() {
    let store = store().await;
    let key = &new_run();
    assert!(selected(&store, key).await.unwrap_err().is_not_found());
    let row = &execution(key, 1);
    insert(&store, row).await;
    assert_eq!(selected(&store, key).await.unwrap(), *row);
    let again = store.write("insert_execution", async |c| execution::insert(&c, row).await).await;
    assert!(again.unwrap_err().is_already_exists());

    let changed = &ExecutionRow { info: blob("changed"), ..execution(key, 2) };
    store.write("update_execution", async |c| execution::update(&c, changed, 1).await).await.unwrap();
    assert_eq!(selected(&store, key).await.unwrap(), *changed);
    let stale = &ExecutionRow { info: blob("stale"), ..execution(key, 2) };
    for version in [1, 3] {
        let update = store.run("update_execution", async |tx| execution::update(&tx, stale, version).await);
        let error = update.await.unwrap_err();
        assert_eq!(*error.condition().unwrap(), Condition::row("execution", key, version));
    }
    assert_eq!(selected(&store, key).await.unwrap(), *changed);

    let delete = || store.write("delete_execution", async |c| execution::delete(&c, key).await);
    assert!(delete().await.unwrap());
    assert!(!delete().await.unwrap());
}

#[tokio::test]
async fn the_read_lock_of_an_execution_is_its_write_lock() {
    let store = store().await;
    let key = &new_run();
    insert(&store, &execution(key, 5)).await;
    let locked = LockedExecution { db_record_version: 5, next_event_id: 7 };
    let read = store.run("lock", async |tx| execution::read_lock(&tx, key).await).await.unwrap();
    let write = store.run("lock", async |tx| execution::write_lock(&tx, key).await).await.unwrap();
    assert_eq!((read, write), (locked, locked));
    let none = &new_run();
    let missing = store.run("lock", async |tx| execution::read_lock(&tx, none).await).await;
    assert!(missing.unwrap_err().is_not_found());
}

/// Whether a transaction that took the lock commits, although the execution changed meanwhile.
async fn commits_despite_a_change(read_lock: bool) -> u32 {
    let cluster = quiet().await;
    let (store, other) = (store_of(&cluster, 2).await, store_of(&cluster, 2).await);
    let (key, decision) = (&new_run(), &new_run());
    insert(&store, &execution(key, 1)).await;
    let attempts = std::sync::atomic::AtomicU32::new(0);
    let (attempts, other) = (&attempts, &other);
    let locked = store.run("lock", async |tx| {
        let attempt = attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let found = if read_lock {
            execution::read_lock(&tx, key).await?
        } else {
            execution::write_lock(&tx, key).await?
        };
        if attempt == 0 {
            let changed = &execution(key, 2);
            other.write("change", async |c| execution::update(&c, changed, 1).await).await?;
        }
        execution::insert(&tx, &execution(decision, found.db_record_version)).await
    });
    locked.await.unwrap();
    let decided = selected(&store, decision).await.unwrap();
    assert_eq!(decided.db_record_version, 2, "it rests on what was changed");
    attempts.load(std::sync::atomic::Ordering::Relaxed)
}

#[tokio::test]
async fn what_was_locked_has_not_changed_at_the_commit() {
    assert_eq!(commits_despite_a_change(true).await, 2);
    assert_eq!(commits_despite_a_change(false).await, 2);
}

async fn current_run_of<K: CurrentKey + Clone + PartialEq + std::fmt::Debug + Send + Sync>(key: K) {
    let store = store().await;
    let (key, first, second) = (&key, new_uuid(), new_uuid());
    let select = || store.read("select_current", async |c| current_execution::select(&c, key).await);
    let lock = || store.run("lock_current", async |tx| current_execution::lock(&tx, key).await);
    assert!(select().await.unwrap_err().is_not_found());
    assert_eq!(lock().await.unwrap(), None);
    let row = &current(key.clone(), first);
    store.write("insert_current", async |c| current_execution::insert(&c, row).await).await.unwrap();
    assert_eq!(select().await.unwrap(), *row);
    assert_eq!(lock().await.unwrap().as_ref(), Some(row));
    let again = store.write("insert_current", async |c| current_execution::insert(&c, row).await).await;
    assert!(again.unwrap_err().is_already_exists());

    let next =
        &CurrentExecutionRow { execution_state: None, start_time: None, ..current(key.clone(), second) };
    let update = |expected| {
        store.run(
            "update_current",
            move |tx| async move { current_execution::update(&tx, next, expected).await },
        )
    };
    update(first).await.unwrap();
    assert_eq!(select().await.unwrap(), *next);
    let error = update(first).await.unwrap_err();
    assert!(matches!(error.condition(), Some(Condition::Row { expected, .. }) if expected.contains("run ")));

    let delete = |run| {
        store.write("delete_current", move |c| async move { current_execution::delete(&c, key, run).await })
    };
    assert!(!delete(first).await.unwrap(), "it is not current any more");
    assert!(delete(second).await.unwrap());
    assert!(select().await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn the_current_run_of_a_workflow() {
    current_run_of(new_workflow()).await;
}

#[tokio::test]
async fn the_current_run_of_a_business_id() {
    let (shard_id, namespace_id) = (new_shard_id(), new_uuid());
    current_run_of(ChasmKey { shard_id, namespace_id, business_id: "order".into(), archetype_id: 9 }).await;
}

#[tokio::test]
async fn the_join_lock_returns_what_a_join_would() {
    let store = store().await;
    let key = &new_workflow();
    let lock = || store.run("join", async |tx| current_execution::lock_with_execution(&tx, key).await);
    assert_eq!(lock().await.unwrap(), None, "neither");
    let row = &current(key.clone(), new_uuid());
    store.write("insert_current", async |c| current_execution::insert(&c, row).await).await.unwrap();
    assert_eq!(lock().await.unwrap(), None, "no execution");
    insert(&store, &execution(&key.run(row.run_id), 1)).await;
    let locked = lock().await.unwrap().unwrap();
    assert_eq!(locked, CurrentExecutionRow { last_write_version: 7, ..row.clone() });
}

/// The runs of all archetypes are in `executions`, where the business id has the place of the workflow id.
#[tokio::test]
async fn the_join_lock_is_for_every_archetype() {
    let store = store().await;
    let WorkflowKey { shard_id, namespace_id, .. } = new_workflow();
    let key =
        &ChasmKey { shard_id, namespace_id, business_id: "business".into(), archetype_id: 2_500_000_000 };
    let lock = || store.run("join", async |tx| current_execution::lock_with_execution(&tx, key).await);
    let row = &current(key.clone(), new_uuid());
    store.write("insert_current", async |c| current_execution::insert(&c, row).await).await.unwrap();
    assert_eq!(lock().await.unwrap(), None, "no execution");
    insert(&store, &execution(&key.run(row.run_id), 1)).await;
    let locked = lock().await.unwrap().unwrap();
    assert_eq!(locked, CurrentExecutionRow { last_write_version: 7, ..row.clone() });
}

/// The faulty version reads the execution without a lock: its version may change before the COMMIT.
#[tokio::test]
async fn the_join_lock_holds_for_both_rows() {
    let cluster = quiet().await;
    let (store, other) = (store_of(&cluster, 2).await, store_of(&cluster, 2).await);
    for which in ["current", "execution"] {
        let (key, decision) = (&new_workflow(), &new_run());
        let row = &current(key.clone(), new_uuid());
        store.write("insert_current", async |c| current_execution::insert(&c, row).await).await.unwrap();
        insert(&store, &execution(&key.run(row.run_id), 1)).await;
        let attempts = std::sync::atomic::AtomicU32::new(0);
        let (attempts, other) = (&attempts, &other);
        let decided = store.run("decide", async |tx| {
            let found = current_execution::lock_with_execution(&tx, key).await?.unwrap();
            if attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
                if which == "current" {
                    let changed = &CurrentExecutionRow { status: 9, ..row.clone() };
                    let change = other
                        .write("change", async |c| current_execution::update(&c, changed, row.run_id).await);
                    change.await?;
                } else {
                    let changed =
                        &ExecutionRow { last_write_version: 8, ..execution(&key.run(row.run_id), 2) };
                    other.write("change", async |c| execution::update(&c, changed, 1).await).await?;
                }
            }
            execution::insert(&tx, &execution(decision, found.last_write_version)).await?;
            Ok((found.status, found.last_write_version))
        });
        let expected = if which == "current" { (9, 7) } else { (2, 8) };
        assert_eq!(decided.await.unwrap(), expected);
        assert_eq!(attempts.load(std::sync::atomic::Ordering::Relaxed), 2, "{which}");
    }
}
