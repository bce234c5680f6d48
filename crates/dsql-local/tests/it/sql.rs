//! The built-in engine: simple SQL, with PostgreSQL's types on the wire.

use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::Type;

use crate::harness::{code, config, connect, eventually, start};

#[tokio::test]
async fn types_are_right_in_both_protocols() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    let sql = "CREATE TABLE t (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), b bool, s smallint, i int, l bigint, \
               r real, d double precision, x text, v varchar(10), y bytea, j jsonb, at timestamptz DEFAULT now())";
    client.simple_query(sql).await.unwrap();
    let insert = "INSERT INTO t (b, s, i, l, r, d, x, v, y, j) \
                  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, '{\"a\": 1}')";
    let inserted = client
        .execute(insert, &[&true, &2_i16, &3_i32, &4_i64, &1.5_f32, &2.5_f64, &"it's", &"v", &&b"\0\xff"[..]])
        .await
        .unwrap();
    assert_eq!(inserted, 1);
    let row = client.query_one("SELECT * FROM t", &[]).await.unwrap();
    let types: Vec<&Type> = row.columns().iter().map(tokio_postgres::Column::type_).collect();
    let expected = [
        Type::UUID,
        Type::BOOL,
        Type::INT2,
        Type::INT4,
        Type::INT8,
        Type::FLOAT4,
        Type::FLOAT8,
        Type::TEXT,
        Type::VARCHAR,
        Type::BYTEA,
        Type::JSONB,
        Type::TIMESTAMPTZ,
    ];
    assert_eq!(types, expected.iter().collect::<Vec<_>>());
    assert_eq!((row.get::<_, bool>(1), row.get::<_, i16>(2), row.get::<_, i32>(3)), (true, 2, 3));
    assert_eq!((row.get::<_, i64>(4), row.get::<_, f32>(5), row.get::<_, f64>(6)), (4, 1.5, 2.5));
    assert_eq!((row.get::<_, &str>(7), row.get::<_, &[u8]>(9)), ("it's", &b"\0\xff"[..]));
    assert!(row.try_get::<_, std::time::SystemTime>(11).is_ok());
    let text = client.simple_query("SELECT b, y, j, d, n FROM t, (SELECT NULL AS n) AS x").await.unwrap();
    let row = text.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let row = row.unwrap();
    assert_eq!(
        (row.get(0), row.get(1), row.get(3), row.get(4)),
        (Some("t"), Some("\\x00ff"), Some("2.5"), None)
    );
}

#[tokio::test]
async fn expressions_have_types_too() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    let one = async |sql: &str| client.query_one(sql, &[]).await.unwrap();
    assert_eq!(one("SELECT 1").await.get::<_, i32>(0), 1);
    assert_eq!(one("SELECT 1 + 5000000000").await.get::<_, i64>(0), 5_000_000_001);
    assert_eq!(one("SELECT count(*) FROM generate_series(1, 5)").await.get::<_, i64>(0), 5);
    assert!(one("SELECT 2 > 1 AND 'a' LIKE 'a%'").await.get::<_, bool>(0));
    assert_eq!(one("SELECT 'a' || 'b' AS ab").await.get::<_, &str>("ab"), "ab");
    let echo =
        client.query_one("SELECT $1::bigint, $2::text, $3::bool", &[&7_i64, &"x", &false]).await.unwrap();
    assert_eq!((echo.get::<_, i64>(0), echo.get::<_, &str>(1), echo.get::<_, bool>(2)), (7, "x", false));
    let null = client.query_one("SELECT $1::int", &[&None::<i32>]).await.unwrap();
    assert_eq!(null.get::<_, Option<i32>>(0), None);
}

#[tokio::test]
async fn transactions_commit_roll_back_and_fail() {
    let cluster = start(config());
    let mut client = connect(&cluster).await;
    client.simple_query("CREATE TABLE t (n int PRIMARY KEY)").await.unwrap();
    let transaction = client.transaction().await.unwrap();
    transaction.execute("INSERT INTO t VALUES (1)", &[]).await.unwrap();
    transaction.commit().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    transaction.execute("INSERT INTO t VALUES (2)", &[]).await.unwrap();
    transaction.rollback().await.unwrap();
    client.simple_query("BEGIN").await.unwrap();
    client.simple_query("INSERT INTO t VALUES (3)").await.unwrap();
    assert_eq!(code(&client.simple_query("INSERT INTO t VALUES (1)").await.err().unwrap()), "23505");
    assert_eq!(code(&client.simple_query("SELECT 1").await.err().unwrap()), "25P02");
    client.simple_query("COMMIT").await.unwrap();
    let rows = client.query("SELECT n FROM t", &[]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn statements_of_one_query_share_a_transaction() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    client.simple_query("CREATE TABLE t (n int PRIMARY KEY)").await.unwrap();
    let error =
        client.batch_execute("INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)").await.err().unwrap();
    assert_eq!(code(&error), "23505");
    let count = async || client.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(count().await, 0);
    client.batch_execute("BEGIN; INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (2)").await.unwrap();
    assert_eq!(count().await, 2);
}

#[tokio::test]
async fn writers_take_turns_and_readers_do_not_wait() {
    let cluster = start(config());
    let (first, second) = (connect(&cluster).await, connect(&cluster).await);
    first.simple_query("CREATE TABLE t (n int)").await.unwrap();
    first.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
    let seen: i64 = second.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get(0);
    assert_eq!(seen, 0);
    let write = second.execute("INSERT INTO t VALUES (2)", &[]);
    let commit = async {
        eventually("the second writer", || cluster.counters().statements >= 5).await;
        first.simple_query("COMMIT").await.unwrap();
    };
    let (written, ()) = tokio::join!(write, commit);
    assert_eq!(written.unwrap(), 1);
    let seen: i64 = first.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get(0);
    assert_eq!(seen, 2);
}

#[tokio::test]
async fn a_writer_that_disconnects_frees_the_database() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    client.simple_query("CREATE TABLE t (n int)").await.unwrap();
    client.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
    drop(client);
    let other = connect(&cluster).await;
    other.execute("INSERT INTO t VALUES (2)", &[]).await.unwrap();
    let rows = other.query("SELECT n FROM t", &[]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), [2]);
}

#[tokio::test]
async fn what_dsql_refuses_is_refused_and_errors_have_codes() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    client.simple_query("CREATE TABLE t (n int NOT NULL)").await.unwrap();
    for (sql, expected) in [
        ("COPY t FROM STDIN", "0A000"),
        ("TRUNCATE t", "0A000"),
        ("SAVEPOINT a", "0A000"),
        ("SET statement_timeout = 5", "0A000"),
        ("CREATE TABLE s (id serial)", "42704"),
        ("CREATE TABLE t (n int)", "42P07"),
        ("SELECT * FROM nowhere", "42P01"),
        ("SELECT nobody FROM t", "42703"),
        ("SELECT nobody(1)", "42883"),
        ("SELEC 1", "42601"),
        ("INSERT INTO t VALUES (NULL)", "23502"),
        ("SHOW lc_collate", "42704"),
        ("SELECT $1", "42P02"),
    ] {
        assert_eq!(code(&client.simple_query(sql).await.err().unwrap()), expected, "{sql}");
    }
    client.simple_query("").await.unwrap();
    client.simple_query("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_result_that_is_too_large_is_an_error() {
    let cluster = start(dsql_local::Config { result_limit: 100_000, ..config() });
    let client = connect(&cluster).await;
    let large = client.query("SELECT g FROM generate_series(1, 1000000) AS g", &[]).await.err().unwrap();
    assert_eq!(code(&large), "53200");
    client.simple_query("SELECT 1").await.unwrap();
}

const ENDLESS: &str =
    "WITH RECURSIVE x (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT count(*) FROM x";

#[tokio::test]
async fn statements_that_never_end_do_not_block_connections() {
    let cluster = start(config());
    let mut busy = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let client = connect(&cluster).await;
        busy.spawn(async move { client.simple_query(ENDLESS).await.err().unwrap() });
    }
    eventually("all of them", || cluster.counters().statements == 6).await;
    // Every reader is busy; connections and statements without the engine still work.
    for _ in 0..20 {
        connect(&cluster).await.simple_query("SHOW server_version").await.unwrap();
    }
    while !busy.is_empty() {
        cluster.clock().advance(std::time::Duration::from_secs(301));
        let ended = tokio::time::timeout(std::time::Duration::from_millis(10), busy.join_next()).await;
        if let Ok(Some(error)) = ended {
            assert_eq!(code(&error.unwrap()), "54000");
        }
    }
}

#[tokio::test]
async fn a_statement_that_never_ends_is_ended_by_the_clock() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    let advance = async {
        eventually("the statement", || cluster.counters().statements == 1).await;
        // It may be about to start, so the clock advances until it has ended.
        while cluster.counters().errors == 0 {
            cluster.clock().advance(std::time::Duration::from_secs(301));
            tokio::task::yield_now().await;
        }
    };
    let (outcome, ()) = tokio::join!(client.simple_query(ENDLESS), advance);
    assert_eq!(code(&outcome.err().unwrap()), "54000");
}

#[tokio::test]
async fn indexes_are_built_by_jobs() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    client.simple_query("CREATE TABLE t (n int)").await.unwrap();
    let job = client.query_one("CREATE INDEX ASYNC t_n ON t (n)", &[]).await.unwrap();
    assert_eq!(job.columns()[0].name(), "job_id");
    client.simple_query("CALL sys.wait_for_job('builtin-done')").await.unwrap();
}
