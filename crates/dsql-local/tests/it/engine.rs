//! Hostile or careless SQL on the builtin engine.

use tokio_postgres::SimpleQueryMessage;

use crate::harness::{code, config, connect, start};

#[tokio::test]
async fn writes_after_with_are_writes() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE t (n int PRIMARY KEY, x text)").await.unwrap();
    let count = async || client.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get::<_, i64>(0);
    let insert = "WITH a AS (SELECT 1 AS n) INSERT INTO t SELECT n, 'a' FROM a";
    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(client.execute(insert, &[]).await.unwrap(), 1);
    assert_eq!(count().await, 1);
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(count().await, 0);
    let commits = cluster.counters().commits;
    let answer = client.simple_query(insert).await.unwrap();
    assert!(matches!(answer[..], [SimpleQueryMessage::CommandComplete(1)]), "{answer:?}");
    assert_eq!(cluster.counters().commits, commits + 1);
    let row = client
        .query_one("WITH a AS (SELECT 1) UPDATE t SET x = $2 WHERE n = $1 RETURNING n, x", &[&1_i32, &"b"])
        .await
        .unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, &str>(1)), (1, "b"));
    let insert = client.prepare("WITH a AS (SELECT 1) INSERT INTO t VALUES ($1, 'c')").await.unwrap();
    assert!(insert.columns().is_empty());
    assert_eq!(client.execute(&insert, &[&2_i32]).await.unwrap(), 1);
    assert_eq!(client.execute("WITH a AS (SELECT 1) DELETE FROM t", &[]).await.unwrap(), 2);
}

#[tokio::test]
async fn a_date_beyond_the_calendar_is_an_error() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    let read = client.query("SELECT '9999-12-31 23:59:59-12'::timestamptz", &[]).await;
    assert_eq!(code(&read.err().unwrap()), "22008");
    client.simple_query("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn quoted_names_are_never_text() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE t (n int)").await.unwrap();
    client.batch_execute("INSERT INTO t VALUES (1)").await.unwrap();
    for sql in ["SELECT \"nocolumn\"", "DELETE FROM t WHERE \"typ\" = 'typ'", "SELECT t.\"typ\" FROM t"] {
        let error = client.simple_query(sql).await.err().unwrap();
        assert_eq!(code(&error), "42703", "{sql}");
        let message = error.as_db_error().unwrap().message();
        assert!(message.ends_with("\" does not exist") && !message.contains("\"\""), "{message}");
    }
    let row = client.query_one("SELECT \"n\" AS \"N\" FROM \"t\"", &[]).await.unwrap();
    assert_eq!((row.columns()[0].name(), row.get::<_, i32>(0)), ("N", 1));
}

#[tokio::test]
async fn a_schema_is_seen_by_others_when_it_is_committed() {
    let cluster = start(config());
    let (first, second) = (connect(&cluster).await, connect(&cluster).await);
    first.batch_execute("CREATE TABLE sc (a int)").await.unwrap();
    first.batch_execute("INSERT INTO sc VALUES (1)").await.unwrap();
    let width = async |client: &tokio_postgres::Client| {
        client
            .query_one("SELECT * FROM sc", &[])
            .await
            .map(|row| row.len())
            .map_err(|error| error.to_string())
    };
    first.batch_execute("BEGIN; ALTER TABLE sc ADD COLUMN b int").await.unwrap();
    assert_eq!(width(&first).await, Ok(2));
    assert_eq!(width(&second).await, Ok(1));
    assert_eq!(width(&first).await, Ok(2));
    first.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!((width(&first).await, width(&second).await), (Ok(1), Ok(1)));
    first.batch_execute("BEGIN; ALTER TABLE sc ADD COLUMN b int").await.unwrap();
    assert_eq!(width(&second).await, Ok(1));
    first.batch_execute("COMMIT").await.unwrap();
    assert_eq!((width(&first).await, width(&second).await), (Ok(2), Ok(2)));
}

#[tokio::test]
async fn a_row_has_at_most_1664_columns() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    let items = |count: usize| vec!["1"; count].join(", ");
    let row = client.query_one(&format!("SELECT {}", items(1_664)), &[]).await.unwrap();
    assert_eq!(row.len(), 1_664);
    for sql in [format!("SELECT {}", items(1_665)), format!("SELECT 1 FROM (SELECT {}) x", items(1_665))] {
        assert_eq!(code(&client.simple_query(&sql).await.err().unwrap()), "54011");
    }
    // Only lists of columns are limited.
    client.simple_query(&format!("SELECT 1 WHERE 1 IN ({})", items(5_000))).await.unwrap();
}

#[tokio::test]
async fn invalid_values_are_errors() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE t (s smallint, \"I\" int, l bigint, v varchar(3))").await.unwrap();
    client
        .batch_execute("INSERT INTO t VALUES (-32768, 2147483647, 9223372036854775807, 'äöü')")
        .await
        .unwrap();
    for (sql, expected) in [
        ("SELECT 1/0", "22012"),
        ("SELECT s % 0 FROM t", "22012"),
        ("SELECT 1.5/0.0", "22012"),
        ("SELECT 2000000000 + 2000000000", "22003"),
        ("SELECT l + 1 FROM t", "22003"),
        ("SELECT sum(l) FROM (SELECT l FROM t UNION ALL SELECT 1) x", "22003"),
        ("SELECT 70000::smallint", "22003"),
        ("SELECT '3000000000'::int", "22003"),
        ("SELECT 'abc'::int", "22P02"),
        ("SELECT 'abc'::numeric", "22P02"),
        ("SELECT 'perhaps'::bool", "22P02"),
        ("INSERT INTO t (s) VALUES (32768)", "22003"),
        ("INSERT INTO t (\"I\") VALUES (-2147483649)", "22003"),
        ("UPDATE t SET \"I\" = \"I\" + 1", "22003"),
        ("INSERT INTO t (l) VALUES (9223372036854775808)", "22003"),
        ("INSERT INTO t (l) VALUES ('abc')", "22P02"),
        ("INSERT INTO t (v) VALUES ('long')", "22001"),
    ] {
        let error = client.simple_query(sql).await.err().unwrap_or_else(|| panic!("{sql}"));
        assert_eq!(code(&error), expected, "{sql}");
        assert!(!error.as_db_error().unwrap().message().contains(expected), "{error:?}");
    }
    let long = client.execute("INSERT INTO t (v) VALUES ($1)", &[&"long"]).await;
    assert_eq!(code(&long.err().unwrap()), "22001");
    let fine = "SELECT 7/2, 7 % 2, '12'::int, 2.5::int, NULL::int, 1/NULL, 6/'2'::int, \
                CASE WHEN false THEN 1/0 ELSE 5000000000 END, coalesce(NULL, 1, 5000000000)";
    let row = client.query_one(fine, &[]).await.unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, i32>(1), row.get::<_, i32>(2)), (3, 1, 12));
    assert_eq!((row.get::<_, i32>(3), row.get::<_, Option<i32>>(4), row.get::<_, i32>(6)), (3, None, 3));
    assert_eq!((row.get::<_, i64>(7), row.get::<_, i64>(8)), (5_000_000_000, 1));
    client.batch_execute("ALTER TABLE t ADD COLUMN w varchar(2)").await.unwrap();
    client.batch_execute("ALTER TABLE t DROP COLUMN v").await.unwrap();
    let long = client.simple_query("UPDATE t SET w = 'abc'").await;
    assert_eq!(code(&long.err().unwrap()), "22001");
}
