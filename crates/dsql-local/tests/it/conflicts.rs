//! The mechanism that moves conflicts to the commit must not be visible before it.

mod load;
mod values;
mod worlds;

use std::time::Duration;

use dsql_local::{Cluster, Config, EngineKind};
use tokio::time::timeout;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::harness::{PATIENCE, code, config, connect, start, told};

/// A wait for a lock never ends. This timeout tells it from an answer, even on a busy machine.
const MOMENT: Duration = Duration::from_secs(3);

const OC000: &str = "change conflicts with another transaction (OC000)";

fn cluster() -> Cluster {
    start(Config { engine: EngineKind::Postgres, ..config() })
}

/// The rows and counts of a query, as text.
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
async fn a_long_statement_that_holds_a_row_blocks_nobody() {
    let cluster = cluster();
    let (holder, other) = (connect(&cluster).await, connect(&cluster).await);
    holder.batch_execute("CREATE TABLE t (id int PRIMARY KEY, n int)").await.unwrap();
    holder.batch_execute("INSERT INTO t VALUES (1, 0), (2, 0)").await.unwrap();
    drop(other.batch_execute("SELECT 1").await);
    holder.batch_execute("BEGIN; UPDATE t SET n = 1 WHERE id = 1").await.unwrap();
    let before = cluster.counters().statements;
    // It starts again whenever others need the row, so it takes longer than it says.
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
    // The other transaction changed the row first and had to release it, so it needs the row again to commit.
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
async fn cascaded_rows_count_towards_the_limit() {
    let cluster = cluster();
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE parent (id int PRIMARY KEY)").await.unwrap();
    let child = "CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE)";
    client.batch_execute(child).await.unwrap();
    client.batch_execute("INSERT INTO parent VALUES (1), (2)").await.unwrap();
    // With its parent, the first creates 3,000 rows and the second one more.
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

#[tokio::test]
async fn a_key_inserted_and_deleted_outside_of_the_snapshot_is_a_conflict() {
    let cluster = cluster();
    let (one, other) = (connect(&cluster).await, connect(&cluster).await);
    one.batch_execute("CREATE TABLE t (id int PRIMARY KEY, n int)").await.unwrap();
    drop(other.batch_execute("SELECT 1").await);
    one.batch_execute("BEGIN; SELECT * FROM t").await.unwrap();
    other.batch_execute("INSERT INTO t VALUES (1, 2)").await.unwrap();
    other.batch_execute("DELETE FROM t WHERE id = 1").await.unwrap();
    // Both have written the key since the transaction began. It is a conflict even though the row is gone.
    assert_eq!(ask(&one, "INSERT INTO t VALUES (1, 1)").await.unwrap(), ["1 rows"]);
    let committed = one.batch_execute("COMMIT").await;
    assert_eq!(committed.err().as_ref().map(code), Some("40001"));
}

/// A table with two rows, and two sessions that know it.
async fn pair(cluster: &Cluster) -> (Client, Client) {
    let (one, other) = (connect(cluster).await, connect(cluster).await);
    one.batch_execute("CREATE TABLE t (id int PRIMARY KEY, n int)").await.unwrap();
    one.batch_execute("INSERT INTO t VALUES (1, 0), (2, 0)").await.unwrap();
    drop(other.batch_execute("SELECT 1").await);
    (one, other)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_and_a_change_that_commit_together_conflict() {
    let cluster = cluster();
    let (locker, writer) = pair(&cluster).await;
    let mut both = 0;
    for _ in 0..200 {
        locker.batch_execute("BEGIN; SELECT * FROM t WHERE id = 1 FOR UPDATE").await.unwrap();
        writer.batch_execute("BEGIN; SELECT * FROM t").await.unwrap();
        let write = writer.batch_execute("UPDATE t SET n = n + 1 WHERE id = 1; COMMIT");
        let (locked, wrote) = tokio::join!(locker.batch_execute("COMMIT"), write);
        assert!(locked.is_ok() || wrote.is_ok(), "somebody wins");
        both += u32::from(locked.is_ok() && wrote.is_ok());
    }
    assert_eq!(both, 0, "times that both did, of 200");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_committed_before_a_snapshot_is_no_conflict() {
    let cluster = cluster();
    let (locker, writer) = pair(&cluster).await;
    let mut spurious = 0;
    for round in 1..=200 {
        let mark = format!("UPDATE t SET n = {round} WHERE id = 2");
        locker
            .batch_execute(&format!("BEGIN; {mark}; SELECT * FROM t WHERE id = 1 FOR UPDATE"))
            .await
            .unwrap();
        writer.batch_execute("BEGIN").await.unwrap();
        // If the snapshot shows the other's write, that commit came first.
        let looks = writer.query_one("SELECT n FROM t WHERE id = 2", &[]);
        let (locked, seen) = tokio::join!(locker.batch_execute("COMMIT"), looks);
        locked.unwrap();
        writer.batch_execute("UPDATE t SET n = n + 1 WHERE id = 1").await.unwrap();
        let committed = writer.batch_execute("COMMIT").await;
        spurious += u32::from(seen.unwrap().get::<_, i32>(0) == round && committed.is_err());
    }
    assert_eq!(spurious, 0, "conflicts with one who had committed before, of 200");
}

#[tokio::test]
async fn a_transaction_that_lost_may_use_two_tables_with_the_same_name() {
    let cluster = cluster();
    let (one, other) = pair(&cluster).await;
    one.batch_execute("CREATE SCHEMA app").await.unwrap();
    one.batch_execute("CREATE TABLE app.t (id int PRIMARY KEY, name text)").await.unwrap();
    one.batch_execute("INSERT INTO app.t VALUES (1, 'x')").await.unwrap();
    drop(other.batch_execute("SELECT 1").await);
    one.batch_execute("BEGIN; SELECT 1").await.unwrap();
    other.batch_execute("UPDATE t SET n = 1 WHERE id = 1").await.unwrap();
    assert_eq!(ask(&one, "UPDATE t SET n = 2 WHERE id = 1").await.unwrap(), ["1 rows"]);
    let both = ask(&one, "SELECT t.n, a.name FROM t JOIN app.t a USING (id)").await.unwrap();
    assert_eq!(both, ["Some(\"2\") | Some(\"x\")", "1 rows"]);
    assert_eq!(told(&one.batch_execute("COMMIT").await.unwrap_err()).1, OC000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_the_schema_and_readers_never_wait_for_each_other() {
    let cluster = cluster();
    let (one, other) = (connect(&cluster).await, connect(&cluster).await);
    one.batch_execute("CREATE TABLE a (id int PRIMARY KEY)").await.unwrap();
    one.batch_execute("CREATE TABLE b (id int PRIMARY KEY)").await.unwrap();
    drop(other.batch_execute("SELECT 1").await);
    let rounds = async |client: &Client, read: &str, changed: &str| {
        for _ in 0..10 {
            let sql =
                format!("BEGIN; SELECT * FROM {read}; ALTER TABLE {changed} ADD COLUMN c int; ROLLBACK");
            timeout(MOMENT * 5, client.batch_execute(&sql)).await.expect("nobody waits").unwrap();
        }
    };
    tokio::join!(rounds(&one, "a", "b"), rounds(&other, "b", "a"));
}

#[tokio::test]
async fn a_replay_checks_constraints_at_the_end_of_a_statement() {
    let cluster = cluster();
    let one = connect(&cluster).await;
    for sql in [
        "CREATE TABLE tree (id int PRIMARY KEY, up int REFERENCES tree)",
        "CREATE TABLE seats (id int PRIMARY KEY, k int UNIQUE DEFERRABLE)",
        "CREATE TABLE row (id int PRIMARY KEY, n int)",
        "INSERT INTO row VALUES (1, 0)",
        "INSERT INTO seats VALUES (1, 1), (2, 2), (3, 3)",
    ] {
        one.batch_execute(sql).await.unwrap();
    }
    let other = connect(&cluster).await;
    one.batch_execute("BEGIN; INSERT INTO tree VALUES (2, 1), (1, NULL); UPDATE seats SET k = k + 1")
        .await
        .unwrap();
    one.batch_execute("UPDATE row SET n = 1").await.unwrap();
    other.batch_execute("BEGIN; UPDATE row SET n = 2; ROLLBACK").await.unwrap();
    assert_eq!(ask(&one, "SELECT count(*) FROM tree").await.unwrap()[0], "Some(\"2\")");
    other.batch_execute("BEGIN; UPDATE row SET n = 3; ROLLBACK").await.unwrap();
    one.batch_execute("COMMIT").await.unwrap();
    assert_eq!(ask(&one, "SELECT sum(k) FROM seats").await.unwrap()[0], "Some(\"9\")");
}

#[tokio::test]
async fn a_key_that_another_transaction_changed_is_a_conflict() {
    let cluster = cluster();
    let (one, other) = pair(&cluster).await;
    one.batch_execute("BEGIN; SELECT * FROM t").await.unwrap();
    other.batch_execute("UPDATE t SET id = 9 WHERE id = 1").await.unwrap();
    assert_eq!(ask(&one, "INSERT INTO t VALUES (1, 77)").await.ok().map(|_| ()), Some(()));
    assert_eq!(one.batch_execute("COMMIT").await.err().as_ref().map(code), Some("40001"));
}

#[tokio::test]
async fn writes_of_functions_count_and_can_fail() {
    let cluster = cluster();
    let one = connect(&cluster).await;
    one.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    let body = "'INSERT INTO t SELECT generate_series(1, $1); SELECT 1'";
    one.batch_execute(&format!("CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS {body}")).await.unwrap();
    let error = one.batch_execute("SELECT f(3001)").await.unwrap_err();
    assert_eq!(code(&error), "54000");
    assert_eq!(ask(&one, "SELECT count(*) FROM t").await.unwrap()[0], "Some(\"0\")");
    one.batch_execute("SELECT f(10)").await.unwrap();
    assert_eq!(ask(&one, "SELECT count(*) FROM t").await.unwrap()[0], "Some(\"10\")");
}

#[tokio::test]
async fn a_job_runs_with_the_privileges_of_the_table_owner() {
    let cluster = cluster();
    let one = connect(&cluster).await;
    for sql in [
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "CREATE FUNCTION evil(int) RETURNS bool LANGUAGE sql AS 'CREATE ROLE better SUPERUSER; SELECT true'",
        "ALTER TABLE t ADD CONSTRAINT c CHECK (evil(id)) NOT VALID",
    ] {
        one.batch_execute(sql).await.unwrap();
    }
    let job =
        one.query_one("ALTER TABLE ASYNC t VALIDATE CONSTRAINT c", &[]).await.unwrap().get::<_, String>(0);
    assert_eq!(ask(&one, &format!("CALL sys.wait_for_job('{job}')")).await.unwrap()[0], "Some(\"f\")");
    assert_eq!(
        ask(&one, "SELECT count(*) FROM pg_roles WHERE rolname = 'better'").await.unwrap()[0],
        "Some(\"0\")"
    );
}

#[tokio::test]
async fn a_statement_that_is_too_deep_to_be_followed_is_refused() {
    let cluster = cluster();
    let one = connect(&cluster).await;
    one.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    let terms = vec!["id = 1"; 20_000].join(" OR ");
    let error = one.batch_execute(&format!("SELECT * FROM t WHERE {terms} FOR UPDATE")).await.unwrap_err();
    assert_eq!(code(&error), "54001");
    one.batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn rows_of_a_view_cannot_be_locked_and_the_refusal_says_so() {
    let cluster = cluster();
    let one = connect(&cluster).await;
    one.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    one.batch_execute("CREATE VIEW v AS SELECT * FROM t").await.unwrap();
    let error = one.batch_execute("SELECT * FROM v FOR UPDATE").await.unwrap_err();
    assert_eq!(code(&error), "0A000");
    assert_eq!(error.as_db_error().unwrap().detail(), Some("it locks rows of a view"));
    let error = one.batch_execute("SELECT nothing FROM t FOR UPDATE").await.unwrap_err();
    assert_eq!(code(&error), "42703");
}
