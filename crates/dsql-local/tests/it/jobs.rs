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
async fn jobs_work_in_a_schema_whose_name_needs_quotes() {
    let cluster = cluster();
    let client = connect(&cluster).await;
    for sql in [
        "CREATE SCHEMA \"My \"\"Schema\"",
        "CREATE TABLE \"My \"\"Schema\".\"T\" (id int PRIMARY KEY, v int)",
        "ALTER TABLE \"My \"\"Schema\".\"T\" ADD CONSTRAINT \"C\" CHECK (v > 0) NOT VALID",
    ] {
        client.batch_execute(sql).await.unwrap();
    }
    for (sql, object) in [
        ("CREATE INDEX ASYNC \"I\" ON \"My \"\"Schema\".\"T\" (v)", "\"My \"\"Schema\".\"I\""),
        (
            "ALTER TABLE ASYNC \"My \"\"Schema\".\"T\" VALIDATE CONSTRAINT \"C\"",
            "\"My \"\"Schema\".\"T\".\"C\"",
        ),
    ] {
        let job = submit(&client, sql).await;
        assert!(wait(&client, &job).await, "{sql}");
        let named = client.query_one("SELECT object_name FROM sys.jobs WHERE job_id = $1", &[&job]).await;
        assert_eq!(named.unwrap().get::<_, String>(0), object);
    }
    client.batch_execute("DROP TABLE \"My \"\"Schema\".\"T\"").await.unwrap();
    let sql =
        "SELECT count(*) FROM sys.jobs WHERE job_type = 'DROP' AND object_name = '\"My \"\"Schema\".\"T\"'";
    assert_eq!(client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 1);
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
async fn a_job_without_its_table_is_completed_and_says_so() {
    let cluster = cluster();
    let client = connect(&cluster).await;
    for (table, drop) in [("t", "DROP INDEX i_t"), ("u", "DROP TABLE u")] {
        client.batch_execute(&format!("CREATE TABLE {table} (id int PRIMARY KEY, v text)")).await.unwrap();
        let job = submit(&client, &format!("CREATE INDEX ASYNC i_{table} ON {table} (v)")).await;
        client.batch_execute(drop).await.unwrap();
        assert!(wait(&client, &job).await);
        let row = client
            .query_one("SELECT status, details FROM sys.jobs WHERE job_id = $1", &[&job])
            .await
            .unwrap();
        let details = format!("relation \"public.i_{table}\" does not exist");
        assert_eq!((row.get(0), row.get(1)), ("completed", details.as_str()));
    }
}

#[tokio::test]
async fn drop_and_analyze_are_listed_once_they_are_committed() {
    let cluster = cluster();
    let (client, other) = (connect(&cluster).await, connect(&cluster).await);
    let listed = async || {
        let sql = "SELECT job_type, object_name, status FROM sys.jobs ORDER BY job_type, object_name";
        let rows = client.query(sql, &[]).await.unwrap();
        let text = |row: &tokio_postgres::Row| [0, 1, 2].map(|at| row.get::<_, String>(at)).join(" ");
        rows.iter().map(text).collect::<Vec<_>>()
    };
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    client.batch_execute("CREATE TABLE u (id int PRIMARY KEY)").await.unwrap();
    client.batch_execute("ANALYZE t").await.unwrap();
    client.batch_execute("BEGIN; DROP TABLE t; ROLLBACK").await.unwrap();
    client.batch_execute("DROP TABLE missing").await.unwrap_err();
    assert_eq!(listed().await, ["ANALYZE public.t completed"]);
    // Another transaction takes the lock away before the commit, so that the statement runs twice.
    client.batch_execute("BEGIN; DROP TABLE IF EXISTS t, missing -- bye").await.unwrap();
    other.batch_execute("INSERT INTO t VALUES (1)").await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(listed().await, ["ANALYZE public.t completed", "DROP public.t completed"]);
}
