//! What the engine `postgres` does to let conflicts come out at the commit must not show before it.

mod load;
mod values;
mod worlds;

use std::time::Duration;

use dsql_local::{Cluster, Config, EngineKind};
use tokio::time::timeout;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::harness::{PATIENCE, config, connect, start, told};

/// A wait for a lock has no end: this tells it from an answer, on a busy machine, too.
const MOMENT: Duration = Duration::from_secs(3);

const OC000: &str = "change conflicts with another transaction (OC000)";

fn cluster() -> Cluster {
    start(Config { engine: EngineKind::Postgres, ..config() })
}

/// The rows and counts that a query gave, as texts.
async fn ask(client: &Client, sql: &str) -> Result<Vec<String>, Error> {
    let messages = client.simple_query(sql).await?;
    let told = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let values: Vec<String> = (0..row.len()).map(|column| format!("{:?}", row.get(column))).collect();
            Some(values.join(" | "))
        }
        SimpleQueryMessage::CommandComplete(count) => Some(format!("{count} rows")),
        _ => None,
    });
    Ok(told.collect())
}

async fn within_a_moment(client: &Client, sql: &str) -> Result<Vec<String>, Error> {
    timeout(MOMENT, ask(client, sql)).await.unwrap_or_else(|_| panic!("it waits: {sql}"))
}

#[tokio::test]
async fn nobody_waits_for_a_long_statement_of_one_who_holds_the_row() {
    let cluster = cluster();
    let (holder, other) = (connect(&cluster).await, connect(&cluster).await);
    holder.batch_execute("CREATE TABLE t (id int PRIMARY KEY, n int)").await.unwrap();
    holder.batch_execute("INSERT INTO t VALUES (1, 0), (2, 0)").await.unwrap();
    drop(other.batch_execute("SELECT 1").await);
    holder.batch_execute("BEGIN; UPDATE t SET n = 1 WHERE id = 1").await.unwrap();
    let before = cluster.counters().statements;
    // It is begun anew when others want the row, so it takes longer than it says.
    let sleeps = holder.batch_execute("SELECT pg_sleep(4)");
    let others = async {
        crate::harness::eventually("it sleeps", || cluster.counters().statements > before).await;
        other.batch_execute("BEGIN").await.unwrap();
        assert_eq!(within_a_moment(&other, "UPDATE t SET n = 2 WHERE id = 1").await.unwrap(), ["1 rows"]);
        within_a_moment(&other, "COMMIT").await.unwrap();
    };
    let (slept, ()) = timeout(PATIENCE, async { tokio::join!(sleeps, others) }).await.unwrap();
    slept.unwrap();
    assert_eq!(told(&holder.batch_execute("COMMIT").await.unwrap_err()).1, OC000);
    assert_eq!(ask(&holder, "SELECT n FROM t WHERE id = 1").await.unwrap(), ["Some(\"2\")", "1 rows"]);
}

#[tokio::test]
async fn a_commit_does_not_wait_for_a_long_statement_either() {
    let cluster = cluster();
    let (sleeper, other) = (connect(&cluster).await, connect(&cluster).await);
    sleeper.batch_execute("CREATE TABLE t (id int PRIMARY KEY, n int)").await.unwrap();
    sleeper.batch_execute("INSERT INTO t VALUES (1, 0), (2, 0)").await.unwrap();
    drop(other.batch_execute("SELECT 1").await);
    // The other has changed the row first, and was made to let go of it; so it must have it back to commit.
    other.batch_execute("BEGIN; UPDATE t SET n = 2 WHERE id = 1").await.unwrap();
    sleeper.batch_execute("BEGIN; UPDATE t SET n = 1 WHERE id = 1").await.unwrap();
    let before = cluster.counters().statements;
    let sleeps = sleeper.batch_execute("SELECT pg_sleep(4)");
    let others = async {
        crate::harness::eventually("it sleeps", || cluster.counters().statements > before).await;
        within_a_moment(&other, "COMMIT").await.unwrap();
    };
    let (slept, ()) = timeout(PATIENCE, async { tokio::join!(sleeps, others) }).await.unwrap();
    slept.unwrap();
    assert_eq!(told(&sleeper.batch_execute("COMMIT").await.unwrap_err()).1, OC000);
}

#[tokio::test]
async fn rows_that_go_with_others_count_towards_the_limit() {
    let cluster = cluster();
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE parent (id int PRIMARY KEY)").await.unwrap();
    let child = "CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE)";
    client.batch_execute(child).await.unwrap();
    client.batch_execute("INSERT INTO parent VALUES (1), (2)").await.unwrap();
    // With its parent, the first makes 3,000 rows and the second one more.
    let insert = |from: u32, count: u32, parent: u32| {
        format!("INSERT INTO child SELECT g, {parent} FROM generate_series({from}, {}) g", from + count - 1)
    };
    client.batch_execute(&insert(1, 2_999, 1)).await.unwrap();
    client.batch_execute(&insert(10_001, 3_000, 2)).await.unwrap();
    let error = client.batch_execute("DELETE FROM parent WHERE id = 2").await.unwrap_err();
    let (code, message, _) = told(&error);
    assert_eq!((code.as_str(), message.as_str()), ("54000", "transaction row limit exceeded"));
    assert_eq!(ask(&client, "SELECT count(*) FROM child").await.unwrap()[0], "Some(\"5999\")");
    assert_eq!(ask(&client, "DELETE FROM parent WHERE id = 1").await.unwrap(), ["1 rows"]);
    assert_eq!(ask(&client, "SELECT count(*) FROM child").await.unwrap()[0], "Some(\"3000\")");
}
