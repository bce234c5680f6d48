//! Whole workflows: loaded in one snapshot, with at most two round trips.

use std::collections::BTreeMap;

use forebay_dsql::RetryPolicy;
use forebay_temporal::current_execution::WorkflowKey;
use forebay_temporal::execution_map::{
    self, ActivityInfos, ChasmNode, ChasmNodes, ChildExecutionInfos, RequestCancelInfos, SignalInfos,
    SignalsRequested, TimerInfos,
};
use forebay_temporal::{Persistence, ShardOwner, buffered_event, current_execution, execution, workflow};
use futures_util::future;

use crate::cluster::{blob, new_uuid, pool_at, quiet, store, store_of};
use crate::executions::{current, execution, new_run, new_workflow};
use crate::round_trips::RoundTrips;
use crate::shards::new_shard;

/// A run with an entry in every map.
async fn new_full_run(store: &Persistence) -> execution::RunKey {
    let workflow = &new_workflow();
    let run = &workflow.run(new_uuid());
    let by_number = &BTreeMap::from([(1, blob("one")), (2, blob("two"))]);
    let by_text = &BTreeMap::from([("a".to_owned(), blob("a"))]);
    let set = &BTreeMap::from([("a".to_owned(), ()), ("b".to_owned(), ())]);
    let nodes = &BTreeMap::from([("a/b".to_owned(), ChasmNode { metadata: blob("m"), data: None })]);
    let events = &[blob("first"), blob("second")];
    let write = store.run("create", |tx| async move {
        execution::insert(&tx, &execution(run, 1)).await?;
        current_execution::insert(&tx, &current(workflow.clone(), run.run_id)).await?;
        execution_map::replace::<ActivityInfos>(&tx, run, by_number).await?;
        execution_map::replace::<TimerInfos>(&tx, run, by_text).await?;
        execution_map::replace::<ChildExecutionInfos>(&tx, run, by_number).await?;
        execution_map::replace::<RequestCancelInfos>(&tx, run, by_number).await?;
        execution_map::replace::<SignalInfos>(&tx, run, by_number).await?;
        execution_map::replace::<SignalsRequested>(&tx, run, set).await?;
        execution_map::replace::<ChasmNodes>(&tx, run, nodes).await?;
        buffered_event::insert(&tx, run, events).await
    });
    write.await.unwrap();
    run.clone()
}

fn check(loaded: &workflow::Workflow, run: &execution::RunKey) {
    assert_eq!(loaded.execution, execution(run, 1));
    assert_eq!(loaded.current.as_ref().unwrap().run_id, run.run_id);
    for map in [
        &loaded.activity_infos,
        &loaded.child_execution_infos,
        &loaded.request_cancel_infos,
        &loaded.signal_infos,
    ] {
        assert_eq!(*map, BTreeMap::from([(1, blob("one")), (2, blob("two"))]));
    }
    assert_eq!(loaded.timer_infos.len(), 1);
    assert_eq!(loaded.signals_requested.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(loaded.chasm_nodes["a/b"].metadata, blob("m"));
    assert_eq!(loaded.buffered_events, [blob("first"), blob("second")]);
}

#[tokio::test]
async fn a_workflow_is_loaded_with_all_its_parts() {
    let store = store().await;
    let run = &new_full_run(&store).await;
    for _ in 0..20 {
        check(&workflow::load(&store, run).await.unwrap(), run);
    }
    assert!(workflow::load(&store, &new_run()).await.unwrap_err().is_not_found());
    let only_a_row = &new_run();
    crate::executions::insert(&store, &execution(only_a_row, 1)).await;
    let loaded = workflow::load(&store, only_a_row).await.unwrap();
    assert_eq!((loaded.current, loaded.buffered_events.len()), (None, 0));
}

#[tokio::test]
async fn a_workflow_is_loaded_in_two_round_trips_at_most() {
    let cluster = quiet().await;
    let run = &new_full_run(&store_of(&cluster, 1).await).await;
    let proxy = RoundTrips::to(cluster.address()).await;
    let pool = pool_at(&cluster, proxy.port, 1, RetryPolicy::default()).await;
    let ids = store_of(&cluster, 1).await.ids().clone();
    let store = Persistence::new(pool, ids);
    proxy.take();
    check(&workflow::load(&store, run).await.unwrap(), run);
    assert_eq!(proxy.take(), 2, "one to prepare, one to read");
    for _ in 0..3 {
        check(&workflow::load(&store, run).await.unwrap(), run);
        assert_eq!(proxy.take(), 1, "everything is prepared");
    }
    // That the proxy counts: a transaction with one statement waits for BEGIN, the statement and COMMIT.
    for expected in [4, 3] {
        store.run("lock", |tx| async move { execution::write_lock(&tx, run).await }).await.unwrap();
        assert_eq!(proxy.take(), expected);
    }
}

/// Operations that are joined leave together.
#[tokio::test]
async fn a_workflow_is_written_in_four_round_trips() {
    let cluster = quiet().await;
    let direct = store_of(&cluster, 1).await;
    let proxy = RoundTrips::to(cluster.address()).await;
    let pool = pool_at(&cluster, proxy.port, 1, RetryPolicy::default()).await;
    let store = Persistence::new(pool, direct.ids().clone());
    let shard = new_shard(&direct).await;
    let owner = ShardOwner { shard_id: shard.shard_id, range_id: shard.range_id };
    for expected in [6, 4, 4] {
        let workflow = &WorkflowKey { shard_id: shard.shard_id, ..new_workflow() };
        let run = &workflow.run(new_uuid());
        let (row, current) = (&execution(run, 1), &current(workflow.clone(), run.run_id));
        let (entries, events) = (&BTreeMap::from([(1, blob("one"))]), &[blob("first")]);
        proxy.take();
        let create = store.fenced(owner, "create", |tx| async move {
            let insert = execution::insert(&tx, row);
            let insert = future::try_join(insert, current_execution::insert(&tx, current));
            let parts = execution_map::replace::<ActivityInfos>(&tx, run, entries);
            let parts = future::try_join(parts, execution_map::replace::<SignalInfos>(&tx, run, entries));
            let parts = future::try_join(parts, buffered_event::insert(&tx, run, events));
            future::try_join(insert, parts).await.map(drop)
        });
        create.await.unwrap();
        // BEGIN, the fence, all the rest, COMMIT; before that, each of the two in between is prepared.
        assert_eq!(proxy.take(), expected);
        let loaded = workflow::load(&direct, run).await.unwrap();
        assert_eq!((loaded.execution, loaded.current.as_ref()), (row.clone(), Some(current)));
        assert_eq!((&loaded.activity_infos, &loaded.signal_infos), (entries, entries));
    }
}

/// All tables are read as of one moment: a writer that changes several in one transaction is seen as a whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_is_loaded_in_one_snapshot() {
    let cluster = quiet().await;
    let store = store_of(&cluster, 3).await;
    let run = &new_full_run(&store).await;
    let writer = tokio::spawn({
        let (store, run) = (store.clone(), run.clone());
        async move {
            for version in 1..40_i64 {
                let run = &run;
                let text = &version.to_string();
                let write = store.run("write", |tx| async move {
                    execution_map::replace::<ActivityInfos>(&tx, run, &BTreeMap::from([(1, blob(text))]))
                        .await?;
                    execution_map::replace::<SignalInfos>(&tx, run, &BTreeMap::from([(1, blob(text))]))
                        .await?;
                    execution::update(&tx, &execution(run, version + 1), version).await
                });
                write.await.unwrap();
            }
        }
    });
    let mut seen = 0;
    while !writer.is_finished() {
        let loaded = workflow::load(&store, run).await.unwrap();
        assert_eq!(loaded.activity_infos[&1], loaded.signal_infos[&1]);
        let version = loaded.execution.db_record_version;
        if version > 1 {
            assert_eq!(loaded.activity_infos[&1], blob(&(version - 1).to_string()));
            seen += 1;
        }
    }
    writer.await.unwrap();
    assert!(seen > 0);
}
