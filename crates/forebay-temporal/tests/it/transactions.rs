//! What is run again, what is not, and what is counted.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use dsql_local::Cluster;
use forebay_dsql::{ErrorKind, Limit, RetryPolicy};
use forebay_temporal::execution_map::{self, ActivityInfos, Entries};
use forebay_temporal::shard::{self, ShardRow};
use forebay_temporal::{Blob, Error, Persistence};

use crate::cluster::{alone, blob, new_shard_id, pool, store_of};
use crate::shards::{new_shard, selected};

fn inject(cluster: &Cluster, fault: &str) {
    cluster.inject(fault.parse().unwrap());
}

/// Updates a shard in a transaction. How many attempts it took, and what became of it.
async fn update(store: &Persistence, row: &ShardRow, text: &str) -> (u32, Result<(), Error>) {
    let (attempts, row) = (&AtomicU32::new(0), &ShardRow { info: blob(text), ..row.clone() });
    let run = store.run("update_shard_in_tx", async |tx| {
        attempts.fetch_add(1, Ordering::Relaxed);
        shard::update(&tx, row, row.range_id).await
    });
    let outcome = run.await;
    (attempts.load(Ordering::Relaxed), outcome)
}

/// The faulty version turns the error into text before it is classified, and never tries again.
#[tokio::test]
async fn a_conflict_is_run_again_as_a_whole() {
    let cluster = alone().await;
    let store = store_of(&cluster, 1).await;
    let row = new_shard(&store).await;
    inject(&cluster, "conflict:n=2");
    let (attempts, outcome) = update(&store, &row, "at last").await;
    outcome.unwrap();
    assert_eq!(attempts, 3);
    assert_eq!(selected(&store, row.shard_id).await.info, blob("at last"));

    // Also without a transaction around it.
    inject(&cluster, "conflict:n=2");
    store.update_shard(&ShardRow { range_id: 2, ..row.clone() }, 1).await.unwrap();
    inject(&cluster, "stale-schema:n=2");
    assert_eq!(selected(&store, row.shard_id).await.range_id, 2);

    inject(&cluster, "conflict:n=100");
    let never = Persistence::new(
        pool(&cluster, 1, RetryPolicy::default().retries(2).base(std::time::Duration::from_millis(1))).await,
        store.ids().clone(),
    );
    let row = ShardRow { range_id: 2, ..row };
    let (attempts, outcome) = update(&never, &row, "never").await;
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Conflict(_)), "{error:?}");
    assert!(matches!(ErrorKind::of(&error), ErrorKind::Conflict(_)));
    assert_eq!(attempts, 3);
}

#[tokio::test]
async fn a_failed_condition_is_not_run_again() {
    let cluster = alone().await;
    let store = store_of(&cluster, 1).await;
    let row = new_shard(&store).await;
    let stale = ShardRow { range_id: 9, ..row };
    let (attempts, outcome) = update(&store, &stale, "stale").await;
    assert!(outcome.unwrap_err().condition().is_some());
    assert_eq!(attempts, 1);
}

/// Whether it was committed is for the caller to find out, and it must not be done twice meanwhile.
#[tokio::test]
async fn a_commit_of_unknown_outcome_is_not_run_again() {
    let cluster = alone().await;
    let store = store_of(&cluster, 2).await;
    for (fault, text, kept) in [
        ("drop:at=before-commit,n=1", "before", false),
        ("drop:at=after-commit,n=1", "after", true),
        ("unavailable:at=after-commit,n=1", "unavailable", true),
    ] {
        let row = new_shard(&store).await;
        inject(&cluster, fault);
        let (attempts, outcome) = update(&store, &row, text).await;
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::CommitUnknown(_)), "{fault}: {error:?}");
        assert_eq!(attempts, 1, "{fault}");
        assert_eq!(selected(&store, row.shard_id).await.info == blob(text), kept, "{fault}");

        // Of a single statement the same is true.
        inject(&cluster, fault);
        let taken = ShardRow { range_id: row.range_id + 1, ..row.clone() };
        let error = store.update_shard(&taken, row.range_id).await.unwrap_err();
        assert!(matches!(error, Error::CommitUnknown(_)), "{fault}: {error:?}");
        assert_eq!(selected(&store, row.shard_id).await.range_id == taken.range_id, kept, "{fault}");
    }
}

/// A socket that is cut between transactions costs a caller nothing.
#[tokio::test]
async fn a_lost_connection_is_replaced() {
    let cluster = alone().await;
    let store = store_of(&cluster, 2).await;
    let row = new_shard(&store).await;
    for _ in 0..5 {
        cluster.sever(1.0);
        assert_eq!(selected(&store, row.shard_id).await, row);
        cluster.sever(1.0);
        update(&store, &row, "new").await.1.unwrap();
    }
}

#[tokio::test]
async fn what_does_not_fit_is_told_as_that() {
    let store = crate::cluster::store().await;
    let insert = async |info: Blob| {
        let row = &ShardRow { shard_id: new_shard_id(), range_id: 1, info };
        store.write("insert_shard", async |c| shard::insert(&c, row).await).await.unwrap_err()
    };
    let (long, nul) = ("an encoding with a long name", "a\0");
    for encoding in [long, nul] {
        let error = insert(Blob::new("x", encoding)).await;
        assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
    }
    // A value is measured as it is stored, so it must not be one that can be compressed.
    let mut rng = forebay::Seed::new(1).rng();
    let large: Vec<u8> = (0..1 << 18).flat_map(|_| rng.bits().to_be_bytes()).collect();
    let error = insert(Blob::proto3(large)).await;
    assert!(matches!(error, Error::TooLarge(_)), "{error:?}");
}

/// A server that gets a message beyond 10 MiB closes the socket without a word. So a statement that is too long is told as that before it
/// costs a connection, and is not sent again and again.
#[tokio::test]
async fn a_statement_that_is_too_long_is_not_sent() {
    let cluster = alone().await;
    let store = store_of(&cluster, 2).await;
    let run = &crate::executions::new_run();
    let entries: Entries<ActivityInfos> = (0..13).map(|key| (key, Blob::proto3(vec![7; 1 << 20]))).collect();
    let (entries, before) = (&entries, cluster.counters());
    let written =
        store.write("replace", async |c| execution_map::replace::<ActivityInfos>(&c, run, entries).await);
    let in_tx =
        store.run("replace", async |tx| execution_map::replace::<ActivityInfos>(&tx, run, entries).await);
    for error in [written.await.unwrap_err(), in_tx.await.unwrap_err()] {
        assert!(matches!(error, Error::TooLarge(_)), "{error:?}");
        assert!(error.to_string().contains("at most 10 MiB"), "{error}");
    }
    assert_eq!(cluster.counters().sockets, before.sockets, "no connection is lost");
    // What fits is sent, and the server says what is too much for a transaction.
    let entries: Entries<ActivityInfos> = (0..9).map(|key| (key, Blob::proto3(vec![7; 1 << 20]))).collect();
    let entries = &entries;
    let written =
        store.write("replace", async |c| execution_map::replace::<ActivityInfos>(&c, run, entries).await);
    let error = written.await.unwrap_err();
    assert_eq!(ErrorKind::of(&error), ErrorKind::Limit(Limit::Size), "{error}");
}

/// An owner change that is defeated a few times goes on. Nobody has given up, and it is one operation.
#[tokio::test]
async fn a_change_of_owner_is_counted_once() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let cluster = alone().await;
    let store = store_of(&cluster, 2).await;
    let row = new_shard(&store).await;
    inject(&cluster, "conflict:n=5");
    store.update_shard(&ShardRow { range_id: 2, ..row.clone() }, 1).await.unwrap();
    assert_eq!(selected(&store, row.shard_id).await.range_id, 2);
    let counted = handle.render();
    let of_update = |metric: &str| -> Vec<&str> {
        let of_update = |line: &&str| line.starts_with(metric) && line.contains("operation=\"update_shard\"");
        counted.lines().filter(of_update).collect()
    };
    assert_eq!(of_update("dsql_tx_exhausted"), Vec::<&str>::new(), "nobody has given up");
    let ended = of_update("dsql_tx_latency");
    let ended: Vec<_> = ended.iter().filter(|line| line.contains("_count")).collect();
    assert!(ended.len() == 1 && ended[0].contains("committed") && ended[0].ends_with(" 1"), "{ended:?}");
}

/// What an operator sees: each operation by its name.
#[tokio::test]
async fn transactions_are_counted_by_operation() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    // All tasks of this test run on this thread.
    let _recording = metrics::set_default_local_recorder(&recorder);
    let cluster = alone().await;
    let store = store_of(&cluster, 1).await;
    let row = new_shard(&store).await;
    inject(&cluster, "conflict:n=1");
    update(&store, &row, "counted").await.1.unwrap();
    update(&store, &ShardRow { range_id: 9, ..row.clone() }, "stale").await.1.unwrap_err();
    selected(&store, row.shard_id).await;
    let counted = handle.render();
    for (metric, labels) in [
        ("dsql_tx_conflict_total", "operation=\"update_shard_in_tx\""),
        ("dsql_tx_retry_total", "operation=\"update_shard_in_tx\",attempt=\"1\""),
        ("dsql_tx_error_class_total", "operation=\"update_shard_in_tx\",error_class=\"condition_failed\""),
        ("dsql_tx_latency", "operation=\"select_shard\",outcome=\"committed\""),
        ("dsql_tx_latency", "operation=\"insert_shard\",outcome=\"committed\""),
    ] {
        let found = counted.lines().any(|line| line.starts_with(metric) && line.contains(labels));
        assert!(found, "{metric} {labels} in\n{counted}");
    }
}

/// Polls it once.
async fn is_ready<F: Future>(future: &mut Pin<Box<F>>) -> bool {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}

/// Whoever gives up in the middle of a transaction holds nobody up: the next one gets its turn, its connection and the row.
#[tokio::test]
async fn a_dropped_transaction_leaves_nothing_behind() {
    let cluster = alone().await;
    let store = store_of(&cluster, 2).await;
    let row = &new_shard(&store).await;
    let owner = forebay_temporal::ShardOwner { shard_id: row.shard_id, range_id: 1 };
    let write = |text: &'static str| {
        store.fenced(owner, "write", move |tx| async move {
            shard::update(&tx, &ShardRow { info: blob(text), ..row.clone() }, 1).await
        })
    };
    for polls in 1..25 {
        let mut waiting = Box::pin(write("waits"));
        {
            let mut dropped = Box::pin(write("dropped"));
            for _ in 0..polls {
                if is_ready(&mut dropped).await {
                    break;
                }
                assert!(!is_ready(&mut waiting).await, "not before its turn");
                tokio::time::sleep(std::time::Duration::from_micros(300)).await;
            }
        }
        waiting.await.unwrap();
        assert_eq!(selected(&store, row.shard_id).await.info, blob("waits"), "after {polls} polls");
    }
}
