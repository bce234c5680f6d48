//! Jobs in the background, on the engine `postgres`.

use std::time::Duration;

use dsql_local::{Cluster, Config, EngineKind};
use tokio_postgres::Client;

use crate::harness::{PATIENCE, code, config, connect, start};

fn cluster() -> Cluster {
    start(Config { engine: EngineKind::Postgres, ..config() })
}

async fn submit(client: &Client, sql: &str) -> String {
    client.query_one(sql, &[]).await.unwrap().get("job_id")
}

async fn status(client: &Client, job: &str) -> String {
    client.query_one("SELECT status FROM sys.jobs WHERE job_id = $1", &[&job]).await.unwrap().get(0)
}

async fn wait(client: &Client, job: &str) -> bool {
    let rows = client.simple_query(&format!("CALL sys.wait_for_job('{job}')")).await.unwrap();
    let row = rows.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get("succeeded"),
        _ => None,
    });
    row == Some("t")
}

#[tokio::test]
async fn a_job_begins_by_the_emulators_clock() {
    let cluster = cluster();
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY, v text)").await.unwrap();
    let job = submit(&client, "CREATE INDEX ASYNC ON t (v)").await;
    assert_eq!(status(&client, &job).await, "submitted");
    cluster.clock().advance(Duration::from_secs(1));
    let ended = async {
        while status(&client, &job).await != "completed" {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
}

#[tokio::test]
async fn a_job_and_a_writer_both_finish() {
    let cluster = cluster();
    let (writer, client) = (connect(&cluster).await, connect(&cluster).await);
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY, v text)").await.unwrap();
    let job = submit(&client, "CREATE UNIQUE INDEX ASYNC ON t (v)").await;
    // The first statement may get OC001 for the new schema.
    if let Err(error) = writer.batch_execute("SELECT 1").await {
        assert_eq!(code(&error), "40001");
    }
    writer.batch_execute("BEGIN; INSERT INTO t VALUES (1, 'x')").await.unwrap();
    let (succeeded, committed) = tokio::join!(wait(&client, &job), writer.batch_execute("COMMIT"));
    committed.unwrap();
    assert!(succeeded);
    let error = client.batch_execute("INSERT INTO t VALUES (2, 'x')").await.unwrap_err();
    assert_eq!(code(&error), "23505");
}

#[tokio::test]
async fn a_job_continues_when_its_waiter_disconnects() {
    let cluster = cluster();
    let (waiter, client) = (connect(&cluster).await, connect(&cluster).await);
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY, v text)").await.unwrap();
    let job = submit(&client, "CREATE INDEX ASYNC ON t (v)").await;
    if let Err(error) = waiter.batch_execute("SELECT 1").await {
        assert_eq!(code(&error), "40001");
    }
    let awaited = job.clone();
    let waiting = tokio::spawn(async move { wait(&waiter, &awaited).await });
    let begun = async {
        while status(&client, &job).await == "submitted" {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, begun).await.unwrap();
    waiting.abort();
    assert!(wait(&client, &job).await);
    assert_eq!(status(&client, &job).await, "completed");
}

#[tokio::test]
async fn wait_for_job_takes_a_parameter_and_reports_an_unknown_job() {
    let cluster = cluster();
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY, v text)").await.unwrap();
    let job = submit(&client, "CREATE INDEX ASYNC ON t (v)").await;
    let row = client.query_one("CALL sys.wait_for_job($1)", &[&job]).await.unwrap();
    assert!(row.get::<_, bool>("succeeded"));
    for (id, expected) in [("a".repeat(26), "42704"), ("x'y".to_owned(), "22P02")] {
        let error = client.query_one("CALL sys.wait_for_job($1)", &[&id]).await.unwrap_err();
        assert_eq!(code(&error), expected, "{id}");
    }
}

#[tokio::test]
async fn a_job_whose_index_was_dropped_has_failed() {
    let cluster = cluster();
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY, v text)").await.unwrap();
    let job = submit(&client, "CREATE INDEX ASYNC i ON t (v)").await;
    client.batch_execute("DROP INDEX i").await.unwrap();
    assert!(!wait(&client, &job).await);
    assert_eq!(status(&client, &job).await, "failed");
}
