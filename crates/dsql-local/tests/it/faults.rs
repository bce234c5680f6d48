//! Faults, as clients see them.

use std::time::Duration;

use dsql_local::{Cluster, Config};
use tokio::io::AsyncReadExt;

use crate::harness::{code, config, connect, eventually, socket, start, told, try_connect};

fn inject(cluster: &Cluster, fault: &str) -> u64 {
    cluster.inject(fault.parse().unwrap())
}

async fn table(cluster: &Cluster) -> tokio_postgres::Client {
    let client = connect(cluster).await;
    client.simple_query("CREATE TABLE t (n int)").await.unwrap();
    client
}

async fn count(cluster: &Cluster) -> i64 {
    connect(cluster).await.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn connections_are_refused_with_the_requested_error() {
    let cluster = start(config());
    for (fault, expected) in
        [("53300", "53300"), ("53400", "53400"), ("denied", "28000"), ("waking", "57P03")]
    {
        inject(&cluster, &format!("refuse:how={fault},n=1"));
        assert_eq!(code(&try_connect(&cluster).await.err().unwrap()), expected);
    }
    inject(&cluster, "refuse:n=1");
    assert!(try_connect(&cluster).await.err().unwrap().as_db_error().is_none());
    connect(&cluster).await;
}

#[tokio::test]
async fn a_cluster_refuses_connections_until_it_is_awake() {
    let cluster = start(Config { faults: vec!["wake:for=30s".parse().unwrap()], ..config() });
    let expected = "unable to accept connection, waking up cluster, please retry later";
    assert_eq!(told(&try_connect(&cluster).await.err().unwrap()).1, expected);
    cluster.clock().advance(Duration::from_secs(29));
    assert_eq!(told(&try_connect(&cluster).await.err().unwrap()).1, expected);
    cluster.clock().advance(Duration::from_secs(1));
    connect(&cluster).await;
}

#[tokio::test]
async fn a_throttle_lets_some_through() {
    let cluster = start(config());
    inject(&cluster, "throttle:rate=1,burst=2");
    let outcomes = [try_connect(&cluster).await, try_connect(&cluster).await, try_connect(&cluster).await];
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 2);
    cluster.clock().advance(Duration::from_secs(1));
    connect(&cluster).await;
}

#[tokio::test]
async fn delays_last_by_the_emulators_clock() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    inject(&cluster, "delay:at=statement,for=10m,n=1");
    let before = cluster.clock().now();
    let advance = async {
        eventually("the statement", || cluster.counters().statements == 1).await;
        loop {
            tokio::task::yield_now().await;
            cluster.clock().advance(Duration::from_secs(1));
        }
    };
    // Only the advancing clock brings the answer.
    tokio::select! {
        answer = client.simple_query("SELECT 1") => drop(answer.unwrap()),
        () = advance => {}
    }
    assert!(cluster.clock().now() - before >= Duration::from_secs(600));
}

#[tokio::test]
async fn all_sockets_or_a_fraction_of_them_are_severed() {
    let cluster = start(config());
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(connect(&cluster).await);
    }
    assert_eq!(cluster.sever(0.3), 3);
    eventually("three gone", || clients.iter().filter(|client| client.is_closed()).count() == 3).await;
    inject(&cluster, "sever:after=5s");
    cluster.clock().advance(Duration::from_secs(5));
    eventually("all gone", || clients.iter().all(tokio_postgres::Client::is_closed)).await;
    eventually("counted", || cluster.counters().severed == 10).await;
}

#[tokio::test]
async fn a_socket_dropped_before_the_commit_leaves_nothing_and_after_it_everything() {
    let cluster = start(config());
    let client = table(&cluster).await;
    for (fault, rows) in [("drop:at=before-commit,n=1", 0), ("drop:at=after-commit,n=1", 1)] {
        let victim = connect(&cluster).await;
        inject(&cluster, fault);
        victim.simple_query("BEGIN").await.unwrap();
        victim.simple_query("INSERT INTO t VALUES (1)").await.unwrap();
        let error = victim.simple_query("COMMIT").await.err().unwrap();
        assert!(error.as_db_error().is_none(), "{error:?}");
        assert_eq!(count(&cluster).await, rows, "{fault}");
    }
    // Also for a single statement, in either protocol.
    inject(&cluster, "drop:at=after-commit,n=1");
    assert!(client.execute("INSERT INTO t VALUES (2)", &[]).await.err().unwrap().as_db_error().is_none());
    assert_eq!(count(&cluster).await, 2);
}

#[tokio::test]
async fn conflicts_come_at_commit_and_undo_the_transaction() {
    let cluster = start(config());
    let client = table(&cluster).await;
    inject(&cluster, "conflict:n=2");
    client.simple_query("BEGIN").await.unwrap();
    client.simple_query("INSERT INTO t VALUES (1)").await.unwrap();
    let error = client.simple_query("COMMIT").await.err().unwrap();
    assert_eq!(told(&error).1, "change conflicts with another transaction (OC000)");
    assert_eq!(code(&error), "40001");
    // A single statement, in the extended protocol.
    assert_eq!(code(&client.execute("INSERT INTO t VALUES (1)", &[]).await.err().unwrap()), "40001");
    // A transaction that only read cannot conflict.
    client.batch_execute("BEGIN; SELECT 1; COMMIT").await.unwrap();
    client.execute("INSERT INTO t VALUES (1)", &[]).await.unwrap();
    assert_eq!(count(&cluster).await, 1);
    assert_eq!((cluster.counters().conflicts, cluster.counters().commits), (2, 3));
}

#[tokio::test]
async fn the_same_seed_makes_the_same_commits_conflict() {
    let run = async |seed| {
        let cluster = start(Config { seed, faults: vec!["conflict:p=0.5".parse().unwrap()], ..config() });
        let client = connect(&cluster).await;
        let mut outcomes = Vec::new();
        for _ in 0..40 {
            outcomes.push(client.execute("CREATE TABLE IF NOT EXISTS t (n int)", &[]).await.is_ok());
        }
        outcomes
    };
    let first = run(1).await;
    assert_eq!(first, run(1).await);
    assert_ne!(first, run(2).await);
}

#[tokio::test]
async fn a_server_can_be_unavailable_or_behind_the_schema() {
    let cluster = start(config());
    let client = table(&cluster).await;
    inject(&cluster, "unavailable:n=1");
    let error = client.simple_query("SELECT 1").await.err().unwrap();
    assert_eq!((code(&error), told(&error).1.as_str()), ("XX000", "server unavailable"));
    inject(&cluster, "unavailable:at=commit,n=1");
    assert_eq!(code(&client.execute("INSERT INTO t VALUES (1)", &[]).await.err().unwrap()), "XX000");
    assert_eq!(count(&cluster).await, 0);
    // The same error, though the commit is durable.
    inject(&cluster, "unavailable:at=after-commit,n=1");
    assert_eq!(code(&client.execute("INSERT INTO t VALUES (1)", &[]).await.err().unwrap()), "XX000");
    assert_eq!(count(&cluster).await, 1);
    inject(&cluster, "stale-schema:n=1");
    let error = client.simple_query("SELECT 1").await.err().unwrap();
    assert_eq!(told(&error).1, "schema has been updated by another transaction (OC001)");
    client.simple_query("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_silent_server_answers_nothing_until_the_fault_is_removed() {
    let cluster = start(config());
    let fault = inject(&cluster, "silent");
    let mut socket = socket(cluster.address()).await;
    eventually("the socket", || cluster.counters().refused.contains_key("silence")).await;
    assert!(cluster.heal(fault));
    // The socket was open without an answer; now it is closed.
    assert_eq!(socket.read(&mut [0; 1]).await.unwrap(), 0);
    connect(&cluster).await;
}

#[tokio::test]
async fn a_delay_ends_with_its_fault_or_with_the_client() {
    let cluster = start(Config { login_limit: 1, ..config() });
    let client = connect(&cluster).await;
    let fault = inject(&cluster, "delay:at=connect,for=1h");
    drop(socket(cluster.address()).await);
    eventually("the place is free", || cluster.counters().refused.get("gone") == Some(&1)).await;
    let heal = async {
        eventually("the socket", || cluster.counters().sockets == 3).await;
        assert!(cluster.heal(fault));
    };
    let (_connected, ()) = tokio::join!(connect(&cluster), heal);
    for at in ["statement", "commit"] {
        let fault = inject(&cluster, &format!("delay:at={at},for=1h"));
        let before = cluster.counters().statements;
        let heal = async {
            eventually("the statement", || cluster.counters().statements > before).await;
            assert!(cluster.heal(fault));
        };
        let (answer, ()) = tokio::join!(client.simple_query("CREATE TABLE IF NOT EXISTS t (n int)"), heal);
        answer.unwrap();
    }
}
