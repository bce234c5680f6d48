//! Several runs at the same time.

use std::sync::mpsc;
use std::time::Duration;

use dsql_local::Rules;
use forebay_schema::{Error, Event, Migrator};

use super::cluster::{connect, files, rows, setup, start, state};
use super::setup::orders;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_runs_give_one_result() {
    let cluster = start(Rules::Today);
    let runs: Vec<_> = (0..4)
        .map(|_| {
            let cluster = cluster.clone();
            tokio::spawn(async move { setup(&cluster, &orders()).await })
        })
        .collect();
    let mut applied = Vec::new();
    for run in runs {
        let summary = run.await.unwrap().unwrap();
        assert_eq!(summary.version.as_deref(), Some("0003"));
        applied.extend(summary.applied);
    }
    assert_eq!(applied, ["0001_orders.sql", "0002_names.sql", "0003_view.sql"]);
    let alone = start(Rules::Today);
    setup(&alone, &orders()).await.unwrap();
    assert_eq!(state(&connect(&cluster).await).await, state(&connect(&alone).await).await);
}

/// A run that stops for longer than its lease, and wakes up when another one has finished its work.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_run_that_was_replaced_changes_nothing() {
    // Before a change of the schema, and before a change of rows.
    for number in [2, 3] {
        let cluster = start(Rules::Today);
        let (paused, is_paused) = mpsc::channel();
        let (wake, woken) = mpsc::channel::<()>();
        let woken = std::sync::Mutex::new(Some(woken));
        let observer = move |event: &Event| {
            if let Event::Statement { number: at, .. } = event
                && *at == number
                && let Some(woken) = woken.lock().unwrap().take()
            {
                paused.send(()).unwrap();
                // Nothing of this run goes on meanwhile, its heartbeat neither.
                let _ = woken.recv();
            }
        };
        let slow = Migrator::new(connect(&cluster).await, orders()).observer(observer);
        let slow = tokio::spawn(async move { slow.setup().await });
        tokio::task::block_in_place(|| is_paused.recv().unwrap());
        let impatient = Migrator::new(connect(&cluster).await, orders()).wait_for_lock(Duration::ZERO);
        let error = impatient.setup().await.unwrap_err();
        assert!(matches!(&error, Error::Locked { holder, .. } if holder.starts_with("process ")), "{error}");
        assert!(impatient.status().await.unwrap().holder.is_some());
        let lease = Duration::from_millis(100);
        let quick = Migrator::new(connect(&cluster).await, orders()).lease(lease);
        assert_eq!(quick.setup().await.unwrap().applied.len(), 3);
        let before = state(&connect(&cluster).await).await;
        wake.send(()).unwrap();
        let error = slow.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Deposed), "{error}");
        assert_eq!(state(&connect(&cluster).await).await, before);
        assert_eq!(impatient.status().await.unwrap().holder, None);
    }
}

#[tokio::test]
async fn a_run_stops_between_statements_and_continues() {
    let cluster = start(Rules::Today);
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (count, counted) = (seen.clone(), seen);
    let migrator = Migrator::new(connect(&cluster).await, orders())
        .observer(move |event| {
            if matches!(event, Event::Statement { .. }) {
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        })
        .stop_when(move || counted.load(std::sync::atomic::Ordering::SeqCst) >= 3);
    let error = migrator.setup().await.unwrap_err();
    assert!(error.to_string().starts_with("stopped before 0001_orders.sql:4;"), "{error}");
    // The lock is free at once.
    let summary = setup(&cluster, &orders()).await.unwrap();
    assert_eq!(summary.statements, 4);
}

/// A run that stops right after it has taken the lock, and wakes up when another one has it, leaves the other one's fence alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_run_that_was_replaced_does_not_write_its_fence() {
    let cluster = start(Rules::Today);
    let lease = Duration::from_millis(100);
    setup(&cluster, &files(&[("0000_first.sql", "SELECT 1;")]).named("first")).await.unwrap();
    let dsql = connect(&cluster).await;
    dsql.run("die", async |tx| {
        Ok::<_, forebay_dsql::Error>(
            tx.batch_execute("UPDATE forebay_schema_lock SET holder = 'somebody who has died'").await?,
        )
    })
    .await
    .unwrap();
    let (paused, is_paused) = mpsc::channel();
    let (wake, woken) = mpsc::channel::<()>();
    let woken = std::sync::Mutex::new(woken);
    let slow = Migrator::new(connect(&cluster).await, orders()).lease(lease).observer(move |event| {
        if matches!(event, Event::TookOver { .. }) {
            paused.send(()).unwrap();
            let _ = woken.lock().unwrap().recv();
        }
    });
    let slow = tokio::spawn(async move { slow.setup().await });
    tokio::task::block_in_place(|| is_paused.recv().unwrap());
    let quick = Migrator::new(connect(&cluster).await, orders()).lease(lease);
    assert_eq!(quick.setup().await.unwrap().applied.len(), 3);
    let comment = "SELECT obj_description('forebay_schema_lock'::regclass, 'pg_class')";
    let before = rows(&dsql, comment).await;
    wake.send(()).unwrap();
    let error = slow.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Deposed), "{error}");
    assert_eq!(rows(&dsql, comment).await, before);
}
