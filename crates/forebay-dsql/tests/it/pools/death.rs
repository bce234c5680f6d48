//! Connections that die, and that nobody gets one of them.

use std::sync::Arc;
use std::time::Duration;

use dsql_local::{Cluster, Limits};
use forebay::Discard;
use forebay_dsql::{ConnectionState, Dsql, ErrorKind, Session};

use super::cluster::{Keys, PATIENCE, eventually, fault, options, pool, start, start_with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mass_disconnect_is_noticed_at_once() {
    let cluster = start();
    let pool: Dsql = pool(&cluster, 20, true).await;
    let before: Vec<_> = pool.registry().list().iter().map(|listed| listed.id).collect();
    assert_eq!(cluster.sever(1.0), 20);
    // Nobody uses any of them: it is the drivers who notice.
    eventually("all have been discarded", || {
        pool.reservoir_status().unwrap().counts.discards(Discard::Died) == 20
    })
    .await;
    for _ in 0..100 {
        let lent = pool.acquire_within(PATIENCE).await.unwrap();
        assert!(!before.contains(&lent.id()), "a dead one was lent");
        lent.batch_execute("SELECT 1").await.unwrap();
    }
    eventually("it is full again", || pool.status().idle == 20).await;
    assert_eq!(cluster.counters().accepted, 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standard_mode_lends_no_dead_one_either() {
    let cluster = start();
    let pool: Dsql = pool(&cluster, 5, false).await;
    let lent = pool.acquire().await.unwrap();
    let watch = Arc::clone(lent.tracker());
    drop(lent);
    assert_eq!(cluster.sever(1.0), 5);
    eventually("the driver has noticed", || watch.is_broken()).await;
    eventually("all of them", || cluster.counters().live == 0).await;
    for _ in 0..20 {
        let lent = pool.acquire_within(PATIENCE).await.unwrap();
        if lent.state() == ConnectionState::Broken {
            // Cut, and its driver had not heard of it when it was lent; from now on it has.
            continue;
        }
        lent.batch_execute("SELECT 1").await.unwrap();
    }
    let lent = pool.acquire_within(PATIENCE).await.unwrap();
    lent.batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_end_after_their_hour_are_replaced() {
    let cluster = start();
    let pool: Dsql = pool(&cluster, 10, true).await;
    let lent = pool.acquire().await.unwrap();
    cluster.clock().advance(Duration::from_secs(3_601));
    eventually("nine idle ones", || pool.reservoir_status().unwrap().counts.discards(Discard::Died) == 9)
        .await;
    eventually("the one in use knows", || lent.state() == ConnectionState::Broken).await;
    drop(lent);
    eventually("it is full again", || pool.status().idle == 10).await;
    assert_eq!((cluster.counters().expired, cluster.counters().live), (10, 10));
}

async fn lost_at_commit(fault_text: &str, durable: i64) {
    let cluster = start();
    let pool: Dsql = pool(&cluster, 1, true).await;
    let mut lent = pool.acquire().await.unwrap();
    lent.batch_execute("CREATE TABLE t (a bigint)").await.unwrap();
    cluster.inject(fault(fault_text));
    let id = lent.id();
    lent.begin().await.unwrap();
    lent.batch_execute("INSERT INTO t VALUES (1)").await.unwrap();
    let error = lent.commit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CommitUnknown, "{error}");
    assert_eq!(lent.state(), ConnectionState::Broken);
    drop(lent);
    let lent = pool.acquire_within(PATIENCE).await.unwrap();
    assert_ne!(lent.id(), id);
    let row = lent.query_one("SELECT count(*) FROM t", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), durable);
}

#[tokio::test]
async fn a_socket_lost_before_a_commit_leaves_it_unknown() {
    lost_at_commit("drop:at=before-commit,n=1", 0).await;
}

#[tokio::test]
async fn a_socket_lost_after_a_commit_leaves_it_unknown() {
    lost_at_commit("drop:at=after-commit,n=1", 1).await;
}

#[tokio::test]
async fn a_socket_lost_in_a_row_stream_is_never_lent_again() {
    let cluster = start();
    let pool: Dsql = pool(&cluster, 1, true).await;
    let lent = pool.acquire().await.unwrap();
    let id = lent.id();
    let sql = "SELECT CAST(generate_series AS bigint) FROM generate_series(1, 50000)";
    let rows = lent.query_raw::<_, i64, _>(sql, []).await.unwrap();
    let watch = Arc::clone(lent.tracker());
    cluster.sever(1.0);
    drop(rows);
    drop(lent);
    // All rows may have been under way already, and then it is only the end of them that tells.
    eventually("its driver has noticed", || watch.is_broken()).await;
    assert_ne!(pool.acquire_within(PATIENCE).await.unwrap().id(), id);
}

#[tokio::test]
async fn a_socket_goes_with_its_connection_also_if_it_waits_for_an_answer() {
    let cluster = start();
    let options = options(&cluster, 1).reservoir(true);
    let pool = Dsql::connect(options.build().unwrap(), Keys::of(&cluster)).await.unwrap();
    let lent = pool.acquire().await.unwrap();
    // Never answered, as the emulator's clock stands still.
    cluster.inject(fault("delay:at=statement,for=1h"));
    tokio::time::timeout(Duration::from_millis(20), lent.batch_execute("SELECT 1")).await.unwrap_err();
    let watch = Arc::clone(lent.tracker());
    assert_eq!(watch.state(), ConnectionState::Unanswered);
    let mut lent = lent;
    lent.mark_bad();
    drop(lent);
    eventually("its driver has ended", || watch.is_broken()).await;
    assert!(pool.drain(PATIENCE).await.is_complete());
    cluster.heal_all();
    eventually("the server has noticed", || cluster.counters().live == 0).await;
}

/// A cluster of so many connections, and the pool that wants more.
async fn crowded(connections: u32, wanted: usize) -> (Arc<Cluster>, Dsql) {
    let cluster = start_with(Limits { connections, ..Limits::default() });
    let options = options(&cluster, wanted).reservoir(true).variable("DSQL_RESERVOIR_LOW_WATERMARK", "1");
    let pool = Dsql::connect(options.build().unwrap(), Keys::of(&cluster)).await.unwrap();
    (cluster, pool)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_lives_with_fewer_than_it_wants() {
    let (cluster, pool) = crowded(3, 5).await;
    eventually("it was refused", || {
        pool.reservoir_status().unwrap().counts.failures(forebay::Failure::TooManyConnections) > 0
    })
    .await;
    eventually("it has three", || pool.status().open == 3).await;
    for _ in 0..10 {
        pool.acquire().await.unwrap().batch_execute("SELECT 1").await.unwrap();
    }
    cluster.set_limits(Limits { connections: 100, ..Limits::default() });
    eventually("it has all", || pool.status().open == 5).await;
}
