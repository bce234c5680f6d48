//! COPY, on the engine `postgres`.

use std::time::Duration;

use bytes::Bytes;
use dsql_local::{Cluster, Config, EngineKind};
use futures_util::{SinkExt, TryStreamExt};
use tokio_postgres::{Client, Error};

use crate::harness::{code, config, connect, eventually, start, told};

async fn cluster() -> (Cluster, Client) {
    let cluster = start(Config { engine: EngineKind::Postgres, ..config() });
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY, v text)").await.unwrap();
    (cluster, client)
}

/// Sends the data in pieces and returns the number of copied rows.
async fn copy_in(client: &Client, sql: &str, pieces: &[&[u8]]) -> Result<u64, Error> {
    let sink = client.copy_in::<_, Bytes>(sql).await?;
    let mut sink = std::pin::pin!(sink);
    for piece in pieces {
        sink.send(Bytes::copy_from_slice(piece)).await?;
    }
    sink.finish().await
}

async fn copy_out(client: &Client, sql: &str) -> Result<Vec<u8>, Error> {
    let stream = client.copy_out(sql).await?;
    let pieces: Vec<Bytes> = stream.try_collect().await?;
    Ok(pieces.concat())
}

async fn count(client: &Client) -> i64 {
    client.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn every_format_comes_back_as_it_went_in() {
    let (_cluster, client) = cluster().await;
    let text: &[u8] = b"1\tone\n2\t\\N\n3\ta\\tb\n";
    let csv: &[u8] = b"id,v\n1,one\n2,\n3,\"a,b\"\n";
    for (options, data) in [("", text), ("WITH (FORMAT csv, HEADER)", csv)] {
        // Pieces may end anywhere.
        let (first, second) = data.split_at(5);
        let sql = format!("COPY t FROM STDIN {options}");
        assert_eq!(copy_in(&client, &sql, &[first, second]).await.unwrap(), 3, "{options}");
        let sql = format!("COPY (SELECT * FROM t ORDER BY id) TO STDOUT {options}");
        assert_eq!(copy_out(&client, &sql).await.unwrap(), data, "{options}");
        client.batch_execute("DELETE FROM t").await.unwrap();
    }
    client.batch_execute("INSERT INTO t VALUES (7, 'seven'), (8, NULL)").await.unwrap();
    let binary = copy_out(&client, "COPY t TO STDOUT (FORMAT binary)").await.unwrap();
    assert!(binary.starts_with(b"PGCOPY\n\xff\r\n\0"));
    client.batch_execute("DELETE FROM t").await.unwrap();
    assert_eq!(copy_in(&client, "COPY t FROM STDIN BINARY", &[&binary]).await.unwrap(), 2);
    assert_eq!(copy_out(&client, "COPY t TO STDOUT").await.unwrap(), b"7\tseven\n8\t\\N\n");
}

#[tokio::test]
async fn the_limits_of_a_transaction_hold_for_copied_rows() {
    let (_cluster, client) = cluster().await;
    let rows = |count: usize, v: &str| {
        (0..count).fold(String::new(), |data, id| data + &format!("{id}\t{v}\n")).into_bytes()
    };
    let error = copy_in(&client, "COPY t FROM STDIN", &[&rows(3_001, "x")]).await.unwrap_err();
    assert_eq!(told(&error).1, "transaction row limit exceeded");
    assert_eq!(count(&client).await, 0);
    assert_eq!(copy_in(&client, "COPY t FROM STDIN", &[&rows(3_000, "x")]).await.unwrap(), 3_000);
    client.batch_execute("DELETE FROM t").await.unwrap();
    // One message may be larger than a statement, but not without a limit.
    let error = copy_in(&client, "COPY t FROM STDIN", &[&vec![b'x'; 65 << 20]]).await.unwrap_err();
    assert_eq!(told(&error).1, "transaction size limit 10mb exceeded");
    let large = rows(12, &"x".repeat(1_000_000));
    let pieces: Vec<&[u8]> = large.chunks(1 << 20).collect();
    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(copy_in(&client, "COPY t FROM STDIN", &pieces).await.unwrap(), 12);
    let error = client.batch_execute("COMMIT").await.unwrap_err();
    assert_eq!(told(&error).1, "transaction size limit 10mb exceeded");
    assert_eq!(count(&client).await, 0);
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_leaves_nothing_behind() {
    let (cluster, client) = cluster().await;
    let live = cluster.counters().live;
    let leaving = connect(&cluster).await;
    {
        let sink = leaving.copy_in::<_, Bytes>("COPY t FROM STDIN").await.unwrap();
        let mut sink = std::pin::pin!(sink);
        sink.send(Bytes::from_static(b"1\tone\n2\ttw")).await.unwrap();
        // The socket is cut while the server waits for more.
        cluster.inject("sever".parse().unwrap());
        drop(client);
        eventually("both sessions end", || cluster.counters().live == live - 1).await;
    }
    let client = connect(&cluster).await;
    assert_eq!(count(&client).await, 0);
}

#[tokio::test]
async fn a_failed_copy_leaves_a_usable_session() {
    let (cluster, client) = cluster().await;
    for (sql, expected) in [
        ("COPY missing FROM STDIN", "42P01"),
        ("COPY t (nope) FROM STDIN", "42703"),
        ("COPY t FROM '/etc/passwd'", "0A000"),
        ("COPY t FROM PROGRAM 'id'", "0A000"),
        ("COPY (SELECT * FROM t FOR SHARE) TO STDOUT", "0A000"),
    ] {
        assert_eq!(code(&client.simple_query(sql).await.err().unwrap()), expected, "{sql}");
    }
    for (data, expected) in [("x\ty\n", "22P02"), ("1\tx\n1\ty\n", "23505")] {
        let error = copy_in(&client, "COPY t FROM STDIN", &[data.as_bytes()]).await.unwrap_err();
        assert_eq!(code(&error), expected);
        assert_eq!(count(&client).await, 0);
    }
    // A carriage return ends a comment, so this is a refused statement among others.
    client.batch_execute("INSERT INTO t VALUES (1, 'stays')").await.unwrap();
    let hidden = "copy --\r(select 1) to stdout; truncate t; commit; copy t\n from stdin";
    client.simple_query(hidden).await.err().unwrap();
    // tokio-postgres does not expect the data of a COPY here, and gives its connection up.
    let client = connect(&cluster).await;
    assert_eq!(count(&client).await, 1);
    client.batch_execute("DELETE FROM t").await.unwrap();
    // The client gives up: the sink is dropped without `finish`.
    drop(client.copy_in::<_, Bytes>("COPY t FROM STDIN").await.unwrap());
    assert_eq!(count(&client).await, 0);
}

#[tokio::test]
async fn copied_rows_conflict_as_inserted_ones_do() {
    let (cluster, client) = cluster().await;
    let other = connect(&cluster).await;
    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(copy_in(&client, "COPY t FROM STDIN", &[b"1\tone\n"]).await.unwrap(), 1);
    assert_eq!(copy_in(&other, "COPY t FROM STDIN", &[b"1\tuno\n"]).await.unwrap(), 1);
    // Its own row is gone from the server, but not from its view.
    assert_eq!(copy_out(&client, "COPY t TO STDOUT").await.unwrap(), b"1\tone\n");
    assert_eq!(copy_in(&client, "COPY t FROM STDIN", &[b"2\ttwo\n"]).await.unwrap(), 1);
    assert_eq!(told(&client.batch_execute("COMMIT").await.unwrap_err()).0, "40001");
    assert_eq!(copy_out(&client, "COPY t TO STDOUT").await.unwrap(), b"1\tuno\n");
}

#[tokio::test]
async fn a_copy_counts_as_a_write_and_ends_with_its_transaction() {
    let (cluster, client) = cluster().await;
    client.batch_execute("BEGIN READ ONLY").await.unwrap();
    let refused = async || code(&client.simple_query("COPY t FROM STDIN").await.err().unwrap()).to_owned();
    assert_eq!(refused().await, "25006");
    client.batch_execute("ROLLBACK; BEGIN; CREATE TABLE u (id int PRIMARY KEY)").await.unwrap();
    assert_eq!(refused().await, "0A000");
    client.batch_execute("ROLLBACK").await.unwrap();
    let sink = client.copy_in::<_, Bytes>("COPY t FROM STDIN").await.unwrap();
    let mut sink = std::pin::pin!(sink);
    cluster.clock().advance(Duration::from_secs(301));
    let error = sink.as_mut().finish().await.unwrap_err();
    assert_eq!(told(&error).1, "transaction age limit of 300s exceeded");
    assert_eq!(count(&client).await, 0);
}

#[tokio::test]
async fn the_builtin_engine_says_what_copy_needs() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    for sql in ["COPY t FROM STDIN", "COPY t TO STDOUT"] {
        let error = client.simple_query(sql).await.err().unwrap();
        let expected = "COPY needs the PostgreSQL engine (--engine postgres)";
        assert_eq!(told(&error).1, expected, "{sql}");
    }
    client.batch_execute("SELECT 1").await.unwrap();
}
