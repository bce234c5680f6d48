//! Statements, results, parameters, transactions: what works when nothing fails.

use forebay_flight::{AsyncSession, Code, Error, FlightSQLClient, FlightSQLPool, QueryOptions, TableFilter};

use crate::fixture::{blocking_server, integers, numbers, pool, server};
use flight_local::Config;

#[tokio::test]
async fn a_pool_queries_updates_and_binds() {
    let server = server().await;
    let pool = pool(&server, 4).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    assert_eq!(pool.update("INSERT INTO t VALUES (1), (2), (3)").await.unwrap().rows_affected(), Some(3));
    assert_eq!(integers(&pool.query("SELECT a FROM t ORDER BY a").await.unwrap()), [1, 2, 3]);
    let added = pool.update_with_record_batch("INSERT INTO t VALUES (?)", numbers([4, 5])).await.unwrap();
    assert_eq!(added.rows_affected(), Some(2));
    let found = pool.query_with_param("SELECT a FROM t WHERE a > ? ORDER BY a", numbers([3])).await.unwrap();
    assert_eq!(integers(&found), [4, 5]);
    let returned = pool.execute("INSERT INTO t VALUES (6) RETURNING a").await.unwrap();
    assert_eq!(integers(&returned), [6]);
    assert_eq!(integers(&pool.query("SELECT count(*) FROM t").await.unwrap()), [6]);
}

#[tokio::test]
async fn an_empty_result_keeps_its_schema() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    pool.update("CREATE TABLE t (a INTEGER, b TEXT)").await.unwrap();
    let result = pool.query("SELECT a, b FROM t").await.unwrap();
    assert!(result.is_empty());
    let names: Vec<_> = result.schema().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["a", "b"]);
}

#[tokio::test]
async fn a_refused_statement_leaves_the_session_as_it_was() {
    let server = server().await;
    let mut session = AsyncSession::connect(server.url().as_str()).await.unwrap();
    session.update("CREATE TEMP TABLE t (a INTEGER)").await.unwrap();
    let error = session.query("SELECT nonsense FROM nowhere").await.unwrap_err();
    assert!(
        matches!(&error, Error::Server { code, message, .. } if *code != Code::Ok && message.contains("nowhere")),
        "{error}"
    );
    assert!(session.query("SELECT * FROM t").await.unwrap().is_empty());
    assert_eq!(server.counters().sessions_ever, 1);
}

#[tokio::test]
async fn transactions_commit_and_roll_back() {
    let server = server().await;
    let pool = pool(&server, 2).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    let mut session = pool.acquire_session().await.unwrap();
    session.begin_transaction().await.unwrap();
    session.update("INSERT INTO t VALUES (1)").await.unwrap();
    assert!(matches!(session.begin_transaction().await, Err(Error::Config { .. })));
    session.commit().await.unwrap();
    assert!(matches!(session.commit().await, Err(Error::Config { .. })));
    session.begin_transaction().await.unwrap();
    session.update("INSERT INTO t VALUES (2)").await.unwrap();
    session.rollback().await.unwrap();

    let mut transaction = session.begin().await.unwrap();
    transaction.update("INSERT INTO t VALUES (3)").await.unwrap();
    drop(transaction);
    let mut transaction = session.begin().await.unwrap();
    transaction.update("INSERT INTO t VALUES (4)").await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(integers(&session.query("SELECT a FROM t ORDER BY a").await.unwrap()), [1, 4]);
}

#[tokio::test]
async fn prepared_statements_last_as_long_as_their_session() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    let mut session = pool.acquire_session().await.unwrap();
    let mut insert = session.prepare_query("INSERT INTO t VALUES (?)").await.unwrap();
    for value in 1..=3 {
        insert.update_with_record_batch(numbers([value])).await.unwrap();
    }
    let mut select = session.prepare_query("SELECT a FROM t WHERE a >= ? ORDER BY a").await.unwrap();
    assert_eq!(integers(&select.query_with_param(numbers([2])).await.unwrap()), [2, 3]);
    assert_eq!(integers(&select.query_with_param(numbers([3])).await.unwrap()), [3]);
    assert_eq!(select.dataset_schema().fields().len(), 1);
    drop(session);
    let error = select.query_with_param(numbers([1])).await.unwrap_err();
    assert!(matches!(error, Error::SessionLost { may_have_run: false, .. }), "{error}");
    drop((insert, select));
    crate::fixture::eventually("both are closed on the server", || {
        server.counters().close_prepared_statement == 2
    })
    .await;
}

#[test]
fn threads_have_the_same_methods() {
    let server = blocking_server(Config::default());
    let pool = FlightSQLPool::new(&server.url(), crate::fixture::small(4)).unwrap();
    pool.update("CREATE TABLE t (a INTEGER)").unwrap();
    pool.update_with_record_batch("INSERT INTO t VALUES (?)", numbers([1, 2])).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let pool = pool.clone();
            #[allow(clippy::disallowed_methods, reason = "threads are what is tried")]
            std::thread::spawn(move || integers(&pool.query("SELECT a FROM t ORDER BY a").unwrap()))
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), [1, 2]);
    }
    let mut session = pool.acquire_session().unwrap();
    let transaction = session.begin().unwrap();
    drop(transaction);
    let mut prepared = session.prepare_query("SELECT a FROM t WHERE a = ?").unwrap();
    assert_eq!(integers(&prepared.query_with_param(numbers([2])).unwrap()), [2]);
    let batches: Result<Vec<_>, _> = session.query_stream("SELECT a FROM t").unwrap().collect();
    assert_eq!(batches.unwrap().iter().map(|batch| batch.num_rows()).sum::<usize>(), 2);

    let mut client = FlightSQLClient::connect(server.url().as_str()).unwrap();
    assert_eq!(integers(&client.query("SELECT count(*) FROM t").unwrap()), [2]);
    client.close().unwrap();
}

#[test]
fn the_catalog_can_be_queried_from_threads() {
    let server = blocking_server(Config::default());
    let mut client = FlightSQLClient::connect(server.url().as_str()).unwrap();
    client.update("CREATE TABLE people (name TEXT PRIMARY KEY)").unwrap();
    assert_eq!(client.tables(TableFilter::default()).unwrap().row_count(), 1);
    assert!(!client.catalogs().unwrap().is_empty() && !client.schemas(None, None).unwrap().is_empty());
    assert!(!client.table_types().unwrap().is_empty());
    assert_eq!(client.primary_keys("people").unwrap().row_count(), 1);
    assert!(!client.sql_info(&[]).unwrap().is_empty() && !client.type_info(None).unwrap().is_empty());
    client.update("CREATE TABLE pets (name TEXT, owner TEXT REFERENCES people (name))").unwrap();
    assert_eq!(client.exported_keys("people").unwrap().row_count(), 1);
    assert_eq!(client.imported_keys("pets").unwrap().row_count(), 1);
    assert_eq!(client.cross_reference("people", "pets").unwrap().row_count(), 1);
    assert_eq!(client.action("GetSessionOptions", "", QueryOptions::new()).unwrap().len(), 1);
    let pool = FlightSQLPool::new(&server.url(), crate::fixture::small(1)).unwrap();
    assert_eq!((pool.endpoint().to_string(), pool.config().max_size), (server.url(), 1));
    let mut session = pool.acquire().unwrap();
    assert_eq!(session.primary_keys("people").unwrap().row_count(), 1);
    let before = server.counters().sessions_ever;
    assert!(session.age() < std::time::Duration::from_secs(3_600));
    session.mark_bad();
    drop(session);
    assert_eq!(integers(&pool.query("SELECT 7").unwrap()), [7]);
    assert_eq!(server.counters().sessions_ever, before + 1, "the bad one was not lent again");
}

#[tokio::test]
async fn the_catalog_can_be_queried() {
    let server = server().await;
    let mut session = AsyncSession::connect(server.url().as_str()).await.unwrap();
    session.update("CREATE TABLE people (name TEXT PRIMARY KEY)").await.unwrap();
    session.update("CREATE TABLE places (name TEXT)").await.unwrap();
    let some = TableFilter { table: Some("peo%".into()), with_columns: true, ..TableFilter::default() };
    let tables = session.tables(some).await.unwrap();
    assert_eq!((tables.row_count(), tables.schema().fields().len()), (1, 5));
    assert_eq!(session.tables(TableFilter::default()).await.unwrap().row_count(), 2);
    assert!(!session.catalogs().await.unwrap().is_empty());
    assert!(!session.schemas(None, None).await.unwrap().is_empty());
    assert!(!session.table_types().await.unwrap().is_empty());
    assert_eq!(session.primary_keys("people").await.unwrap().row_count(), 1);
    assert!(!session.sql_info(&[]).await.unwrap().is_empty());
    let types = session.type_info(None).await.unwrap().row_count();
    assert!(types > session.type_info(Some(12)).await.unwrap().row_count(), "VARCHAR is not all");
    session.update("CREATE TABLE pets (name TEXT, owner TEXT REFERENCES people (name))").await.unwrap();
    for (table, exported, imported) in [("people", 1, 0), ("pets", 0, 1), ("places", 0, 0)] {
        assert_eq!(session.exported_keys(table).await.unwrap().row_count(), exported, "{table}");
        assert_eq!(session.imported_keys(table).await.unwrap().row_count(), imported, "{table}");
        let references = session.cross_reference("people", table).await.unwrap();
        assert_eq!(references.row_count(), imported, "{table}");
    }
}

#[tokio::test]
async fn a_custom_action_returns_its_results_and_its_session_is_not_lent_again() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    let mut session = pool.acquire_session().await.unwrap();
    assert_eq!(session.action("GetSessionOptions", "", QueryOptions::new()).await.unwrap().len(), 1);
    let error = session.action("Unheard", "of", QueryOptions::new()).await.unwrap_err();
    assert!(matches!(error, Error::Server { .. }), "{error}");
    assert_eq!(integers(&session.query("SELECT 7").await.unwrap()), [7], "its holder goes on");
    drop(session);
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
    assert_eq!(server.counters().sessions_ever, 2);
}

#[tokio::test]
async fn a_transaction_that_failed_to_commit_leaves_a_session_that_works() {
    let server = server().await;
    let pool = pool(&server, 1).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    let mut session = pool.acquire_session().await.unwrap();
    let mut transaction = session.begin().await.unwrap();
    transaction.update("INSERT INTO t VALUES (1)").await.unwrap();
    // Ended behind the transaction's back, so that neither commit nor rollback find it.
    transaction.update("ROLLBACK").await.unwrap();
    let error = transaction.commit().await.unwrap_err();
    assert!(matches!(error, Error::Server { .. }), "{error}");
    assert_eq!(
        integers(&session.query("SELECT count(*) FROM t").await.unwrap()),
        [0],
        "it can still be used"
    );
    drop(session);
    assert_eq!(integers(&pool.query("SELECT count(*) FROM t").await.unwrap()), [0]);
}
