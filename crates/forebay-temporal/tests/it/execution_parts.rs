//! Maps, sets and buffered events of an execution.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use forebay::rt::TokioRuntime;
use forebay_dsql::{ErrorKind, Ids};
use forebay_temporal::execution_map::{
    self, ActivityInfos, ChasmNode, ChasmNodes, ChildExecutionInfos, Entries, MapTable, RequestCancelInfos,
    SignalInfos, SignalsRequested, TimerInfos,
};
use forebay_temporal::{Blob, Error, Persistence, buffered_event};

use crate::cluster::{alone, blob, eager, pool, quiet, store, store_of};
use crate::executions::new_run;

/// Every operation on one table, with three keys and two values.
async fn every_operation<T: MapTable>(keys: [T::Key; 3], [old, new]: [T::Value; 2])
where
    T::Value: PartialEq + fmt::Debug + Clone,
{
    let store = store().await;
    let (run, other) = (&new_run(), &new_run());
    let entries = |keys: &[&T::Key], value: &T::Value| -> Entries<T> {
        keys.iter().map(|key| ((*key).clone(), value.clone())).collect()
    };
    let replace = async |of, entries: Entries<T>| {
        let entries = &entries;
        let replace =
            store.run("replace", |tx| async move { execution_map::replace::<T>(&tx, of, entries).await });
        replace.await.unwrap();
    };
    let all = async |of| {
        let select = store.read("select", |c| async move { execution_map::select_all::<T>(&c, of).await });
        select.await.unwrap()
    };
    let [a, b, c] = &keys;
    replace(run, BTreeMap::new()).await;
    assert_eq!(all(run).await, BTreeMap::new());
    replace(run, entries(&[a, b], &old)).await;
    replace(other, entries(&[a], &old)).await;
    replace(run, entries(&[b, c], &new)).await;
    let expected: Entries<T> = entries(&[a], &old).into_iter().chain(entries(&[b, c], &new)).collect();
    assert_eq!(all(run).await, expected);

    let gone = &BTreeSet::from([a.clone(), b.clone()]);
    let delete = || store.write("delete", |c| async move { execution_map::delete::<T>(&c, run, gone).await });
    assert_eq!(delete().await.unwrap(), 2);
    assert_eq!(delete().await.unwrap(), 0);
    assert_eq!(all(run).await, entries(&[c], &new));
    let delete_all =
        || store.run("delete_all", |tx| async move { execution_map::delete_all::<T>(&tx, run).await });
    assert_eq!(delete_all().await.unwrap(), 1);
    assert_eq!(delete_all().await.unwrap(), 0);
    assert_eq!(all(other).await.len(), 1, "of another run");
    assert_eq!(execution_map::delete_all_in_batches::<T>(&store, other).await.unwrap(), 1);
    assert_eq!(all(other).await.len(), 0);
}

fn texts() -> [String; 3] {
    ["a", "b", "ç"].map(str::to_owned)
}

#[tokio::test]
async fn maps_by_number() {
    let blobs = [blob("old"), blob("new")];
    every_operation::<ActivityInfos>([1, 5, i64::MAX], blobs.clone()).await;
    every_operation::<ChildExecutionInfos>([1, 5, 6], blobs.clone()).await;
    every_operation::<RequestCancelInfos>([1, 5, 6], blobs.clone()).await;
    every_operation::<SignalInfos>([1, 5, 6], blobs).await;
}

#[tokio::test]
async fn maps_by_text() {
    every_operation::<TimerInfos>(texts(), [blob("old"), blob("new")]).await;
    every_operation::<SignalsRequested>(texts(), [(), ()]).await;
    let node = |data| ChasmNode { metadata: blob("metadata"), data };
    every_operation::<ChasmNodes>(texts(), [node(Some(blob("data"))), node(None)]).await;
}

/// The plugin in Go reads every encoding into a text, which cannot be NULL.
#[tokio::test]
async fn a_node_without_data_has_an_empty_encoding() {
    let store = store().await;
    let run = &new_run();
    let nodes = &BTreeMap::from([("a".to_owned(), ChasmNode { metadata: blob("metadata"), data: None })]);
    let replace =
        store.write("replace", async |c| execution_map::replace::<ChasmNodes>(&c, run, nodes).await);
    replace.await.unwrap();
    let client = store.pool().unwrap().acquire().await.unwrap();
    let sql = "SELECT data IS NULL, data_encoding FROM chasm_node_maps WHERE run_id = $1";
    let row = loop {
        match client.query_one(sql, &[&run.run_id]).await {
            // The neighbour has changed the schema.
            Err(error) if matches!(ErrorKind::of(&error), ErrorKind::Conflict(_)) => {}
            row => break row.unwrap(),
        }
    };
    assert_eq!((row.get(0), row.get(1)), (true, Some("".to_owned())));
}

/// The faulty version writes row by row.
#[tokio::test]
async fn a_map_of_any_size_is_one_statement() {
    let cluster = alone().await;
    let store = store_of(&cluster, 1).await;
    let run = &new_run();
    let entries = |count: i64| -> Entries<ActivityInfos> { (0..count).map(|key| (key, blob("x"))).collect() };
    let statements = async |count| {
        let (before, entries) = (cluster.counters().statements, &entries(count));
        let replace = store.run("replace", |tx| async move {
            execution_map::replace::<ActivityInfos>(&tx, run, entries).await
        });
        replace.await.unwrap();
        cluster.counters().statements - before
    };
    let one = statements(1).await;
    assert_eq!(statements(500).await, one);
    let count =
        store.read("select", |c| async move { execution_map::select_all::<ActivityInfos>(&c, run).await });
    assert_eq!(count.await.unwrap().len(), 500);
}

#[tokio::test]
async fn more_entries_than_fit_into_a_transaction_are_told_and_deleted_in_several() {
    let store = store_of(&quiet().await, 2).await;
    let run = &new_run();
    let entries: Entries<SignalsRequested> = (0..4_000).map(|key| (format!("{key:05}"), ())).collect();
    let replace = async |entries: &Entries<SignalsRequested>| {
        let replace = |c| async move { execution_map::replace::<SignalsRequested>(&c, run, entries).await };
        store.write("replace", replace).await
    };
    let error = replace(&entries).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge(_)), "{error:?}");
    let mut first = entries;
    let second = first.split_off("02000");
    replace(&first).await.unwrap();
    replace(&second).await.unwrap();
    let all_at_once = store
        .write("delete", |c| async move { execution_map::delete_all::<SignalsRequested>(&c, run).await });
    assert!(matches!(all_at_once.await.unwrap_err(), Error::TooLarge(_)));
    let deleted = execution_map::delete_all_in_batches::<SignalsRequested>(&store, run).await;
    assert_eq!(deleted.unwrap(), 4_000);
}

#[tokio::test]
async fn buffered_events_keep_their_order() {
    let store = store().await;
    let (run, other) = (&new_run(), &new_run());
    let events: Vec<Blob> = (0..30).map(|number| blob(&number.to_string())).collect();
    let insert = async |run, events: &[Blob]| {
        let insert = store.run("insert", |tx| async move { buffered_event::insert(&tx, run, events).await });
        insert.await.unwrap();
    };
    let all = async |run| {
        store.read("select", |c| async move { buffered_event::select_all(&c, run).await }).await.unwrap()
    };
    insert(run, &[]).await;
    insert(run, &events[..20]).await;
    insert(run, &events[20..]).await;
    insert(other, &events[..1]).await;
    assert_eq!(all(run).await, events);
    let delete = || store.write("delete", |c| async move { buffered_event::delete_all(&c, run).await });
    assert_eq!(delete().await.unwrap(), 30);
    assert_eq!(delete().await.unwrap(), 0);
    assert_eq!(all(run).await, []);
    assert_eq!(buffered_event::delete_all_in_batches(&store, other).await.unwrap(), 1);
}

/// The faulty version makes a new generator for each transaction: they begin with the same sequence in the same millisecond.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_buffered_events_never_collide_in_a_process() {
    let cluster = quiet().await;
    // What a process might do: a new generator and a new store for each caller.
    let node = store_of(&cluster, 1).await.ids().node();
    let run = &new_run();
    let pool = pool(&cluster, 4, eager()).await;
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (pool, run) = (pool.clone(), run.clone());
            tokio::spawn(async move {
                for _ in 0..25 {
                    let ids = Ids::new(node, TokioRuntime::current().unwrap());
                    let (store, run) = (Persistence::new(pool.clone(), ids), &run);
                    let events = &[blob("a"), blob("b"), blob("c")];
                    let insert = store
                        .run("insert", |tx| async move { buffered_event::insert(&tx, run, events).await });
                    // The ids have a unique index: a second one would be refused.
                    insert.await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let store = store_of(&cluster, 1).await;
    let all = store.read("select", |c| async move { buffered_event::select_all(&c, run).await });
    assert_eq!(all.await.unwrap().len(), 300);
}
