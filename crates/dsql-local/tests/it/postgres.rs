//! The engine on a private PostgreSQL: values, errors and transactions pass through.

use std::path::{Path, PathBuf};

use dsql_local::postgres::Postgres;
use dsql_local::{Cluster, Config, EngineKind};

use crate::harness::{code, config, connect, connect_with, options, start};

fn postgres() -> Config {
    Config { engine: EngineKind::Postgres, ..config() }
}

#[tokio::test]
async fn values_pass_in_both_formats() {
    let cluster = start(postgres());
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, name text, tags jsonb)").await.unwrap();
    let insert = client.prepare("INSERT INTO t VALUES ($1, $2, '[1]') RETURNING id, name, tags::text").await;
    let insert = insert.unwrap();
    assert_eq!(insert.params().iter().map(|of| of.oid()).collect::<Vec<_>>(), [20, 25]);
    // This client binds and reads in binary.
    let row = client.query_one(&insert, &[&7_i64, &None::<String>]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, Option<String>>(1)), (7, None));
    assert_eq!(row.get::<_, String>(2), "[1]");
    assert_eq!(client.execute("UPDATE t SET name = 'x' WHERE id = $1", &[&7_i64]).await.unwrap(), 1);
    let rows = client.simple_query("SELECT id, name FROM t").await.unwrap();
    let texts: Vec<_> = rows
        .iter()
        .filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some((row.get(0), row.get(1))),
            _ => None,
        })
        .collect();
    assert_eq!(texts, [(Some("7"), Some("x"))]);
}

#[tokio::test]
async fn settings_are_a_sessions_own() {
    let cluster = start(postgres());
    let (one, other) = (connect(&cluster).await, connect(&cluster).await);
    let shown = async |client: &tokio_postgres::Client| -> String {
        let sql = "SELECT extract(hour FROM timestamptz '2026-01-01 00:00:00Z')::int::text";
        client.query_one(sql, &[]).await.unwrap().get(0)
    };
    one.batch_execute("SET TimeZone = 'Asia/Tokyo'").await.unwrap();
    assert_eq!((shown(&one).await, shown(&other).await), ("9".to_owned(), "0".to_owned()));
    let error = one.batch_execute("SET TimeZone = 'no''where'").await.unwrap_err();
    assert_eq!((code(&error), shown(&one).await), ("22023", "9".to_owned()));
    // A setting takes effect at once in a transaction, and the next session has its own again.
    one.batch_execute("BEGIN; SET TimeZone = 'Asia/Kolkata'").await.unwrap();
    assert_eq!(shown(&one).await, "5");
    one.batch_execute("COMMIT").await.unwrap();
    assert_eq!((shown(&other).await, shown(&one).await), ("0".to_owned(), "5".to_owned()));
    one.batch_execute("RESET ALL").await.unwrap();
    assert_eq!(shown(&one).await, "0");
}

#[tokio::test]
async fn a_session_begins_with_what_its_start_up_asks_for_and_a_reset_restores_it() {
    let cluster = start(postgres());
    let mut options = options(&cluster);
    options.application_name("mine").options("-c TimeZone=Asia/Tokyo -c search_path=zzz");
    let client = connect_with(&cluster, &options).await.unwrap();
    let began = async || {
        let sql = "SELECT extract(hour FROM timestamptz '2026-01-01 00:00:00Z')::int::text, current_setting('search_path')";
        let row = client.query_one(sql, &[]).await.unwrap();
        let name: String = client.query_one("SHOW application_name", &[]).await.unwrap().get(0);
        [row.get::<_, String>(0), row.get(1), name]
    };
    assert_eq!(began().await, ["9", "zzz", "mine"]);
    let changes = "SET TimeZone = 'UTC'; SET search_path = public; SET application_name = 'other'";
    client.batch_execute(changes).await.unwrap();
    assert_eq!(began().await, ["0", "public", "other"]);
    client.batch_execute("RESET ALL").await.unwrap();
    assert_eq!(began().await, ["9", "zzz", "mine"]);
    options.options("-c statement_timeout=5s");
    assert_eq!(code(&connect_with(&cluster, &options).await.err().unwrap()), "0A000");
}

#[tokio::test]
async fn its_socket_is_told() {
    let cluster = start(postgres());
    let socket = cluster.socket_directory().map(|directory| directory.join(".s.PGSQL.5432"));
    assert!(socket.as_ref().is_some_and(|socket| socket.exists()), "{socket:?}");
    assert_eq!(start(config()).socket_directory(), None);
}

#[tokio::test]
async fn errors_keep_their_code_detail_and_hint() {
    let cluster = start(postgres());
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    let error = client.batch_execute("INSERT INTO t VALUES (1), (1)").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.code().code(), error.detail()), ("23505", Some("Key (id)=(1) already exists.")));
    let error = client.batch_execute("SELECT lenght('a')").await.unwrap_err();
    assert!(error.as_db_error().unwrap().hint().is_some(), "{error:?}");
    client.batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_transaction_has_one_snapshot_and_ends_as_it_is_told() {
    let cluster = start(postgres());
    let one = connect(&cluster).await;
    one.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    let other = connect(&cluster).await;
    let count = "SELECT count(*) FROM t";
    one.batch_execute("BEGIN").await.unwrap();
    assert_eq!(one.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 0);
    other.batch_execute("INSERT INTO t VALUES (1)").await.unwrap();
    assert_eq!(one.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 0);
    one.batch_execute("INSERT INTO t VALUES (2); ROLLBACK").await.unwrap();
    assert_eq!(one.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 1);
    one.batch_execute("BEGIN; INSERT INTO t VALUES (3)").await.unwrap();
    // Its locks must not outlive it.
    drop(one);
    other.batch_execute("BEGIN; INSERT INTO t VALUES (3); COMMIT").await.unwrap();
}

#[tokio::test]
async fn a_statement_ends_with_its_transactions_time() {
    let cluster = start(postgres());
    let client = connect(&cluster).await;
    let (clock, statements) = (cluster.clock(), || cluster.counters().statements);
    let before = statements();
    let ends = async {
        crate::harness::eventually("it runs", || statements() > before).await;
        // It may not have begun, but its deadline is set soon: advance the clock until it fails.
        loop {
            clock.advance(std::time::Duration::from_secs(301));
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let error = tokio::select! {
        result = client.batch_execute("SELECT pg_sleep(3600)") => result.unwrap_err(),
        () = ends => unreachable!(),
    };
    assert_eq!(code(&error), "54000");
}

#[tokio::test]
async fn it_leaves_nothing_behind_and_starts_again() {
    let mut directories: Vec<PathBuf> = Vec::new();
    for _ in 0..2 {
        let cluster = Cluster::start_with(config(), |_, clock| {
            let postgres = Postgres::start(&config(), clock)?;
            directories.push(postgres.directory().to_owned());
            Ok(postgres)
        });
        let cluster = cluster.unwrap();
        connect(&cluster).await.batch_execute("CREATE TABLE t (id int)").await.unwrap();
        assert!(directories.last().is_some_and(|directory| directory.exists()));
        cluster.stop();
    }
    assert!(directories.iter().all(|directory| !directory.exists()), "{directories:?}");
    assert_ne!(directories[0], directories[1]);
}

#[tokio::test]
async fn results_have_a_limit() {
    let cluster = start(Config { result_limit: 1 << 20, ..postgres() });
    let client = connect(&cluster).await;
    let error = client.batch_execute("SELECT repeat('x', 1000) FROM generate_series(1, 2000)").await;
    assert_eq!(code(&error.unwrap_err()), "53200");
    client.batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn rows_keys_and_values_have_size_limits() {
    let cluster = start(postgres());
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE t (id text PRIMARY KEY, a text, b bytea, c text)").await.unwrap();
    let noise = |bytes: u32| {
        format!("(SELECT string_agg(md5(i::text), '') FROM generate_series(1, {}) i)", bytes.div_ceil(32))
    };
    let weigh = async |row: String| {
        let inserted = client.batch_execute(&format!("INSERT INTO t VALUES ({row})")).await;
        client.batch_execute("DELETE FROM t").await.unwrap();
        let error = inserted.err()?;
        Some(error.as_db_error().map_or_else(String::new, |error| error.message().to_owned()))
    };
    assert_eq!(weigh(format!("'k', {}, NULL", noise(1_000_000))).await, None);
    let message = weigh(format!("'k', {}, NULL", noise(1_100_000))).await.unwrap();
    assert_eq!(message, "datatype limit greater than 1048576 bytes not supported for text");
    let (a, b) = (noise(1_040_000), noise(1_040_000));
    let message = weigh(format!("'k', {a}, {b}::bytea, {}", noise(20_000))).await.unwrap();
    assert_eq!(message, "maximum row size exceeded");
    assert_eq!(weigh("repeat('x', 1982), 'a', 'b'".to_owned()).await.unwrap(), "key size too large");
    assert_eq!(weigh("repeat('x', 1000), repeat('x', 900000), 'b'".to_owned()).await, None);
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let cache = Path::new("/proc/nowhere");
    let error = Cluster::start(Config { cache: cache.to_owned(), ..postgres() }).err().unwrap().to_string();
    assert!(error.contains("did not start") && error.contains("/proc/nowhere"), "{error}");
}
