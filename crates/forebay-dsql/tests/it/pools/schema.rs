//! Schemas that change under open connections.

use std::sync::Arc;

use dsql_local::{Cluster, EngineKind, Limits};
use forebay::{Connect, ConnectionMonitor};
use forebay_dsql::{
    Conflict, ConnectorParts, Driver, Dsql, Error, ErrorKind, Postgres, Sqlx, SqlxDsql, TokenCache,
};
use sqlx::Executor;

use super::cluster::{Keys, PATIENCE, fault, options, pool, start, start_over};

async fn opened<C: Driver>(cluster: &Arc<Cluster>) -> (C, C::Connection) {
    let runtime = forebay::rt::TokioRuntime::current().unwrap();
    let tokens = TokenCache::new(Keys::of(cluster), runtime.clone(), "test");
    let parts = ConnectorParts::new(options(cluster, 1).build().unwrap(), tokens, Arc::new(runtime));
    let connector = C::new(parts).unwrap();
    let connection =
        connector.open(ConnectionMonitor::unattached()).await.unwrap_or_else(|error| panic!("{error}"));
    (connector, connection)
}

/// Each open connection meets a changed schema once, and lives.
#[tokio::test]
async fn a_changed_schema_is_no_death() {
    let cluster = start();
    let (connector, mut connection) = opened::<Postgres>(&cluster).await;
    for conflicts in [1, 2] {
        cluster.inject(fault(&format!("stale-schema:n={conflicts}")));
        connector.check(&mut connection).await.unwrap();
        connection.batch_execute("SELECT 1").await.unwrap();
        cluster.heal_all();
    }
    connection.batch_execute("SET application_name = 'another'").await.unwrap();
    cluster.inject(fault("stale-schema:n=1"));
    connector.reset(&mut connection).await.unwrap();
    assert!(connector.is_clean(&connection));
    let (connector, mut connection) = opened::<Sqlx>(&cluster).await;
    cluster.inject(fault("stale-schema:n=1"));
    connector.check(&mut connection).await.unwrap();
}

/// A pool of one connection of sqlx, and another one to change the schema with.
async fn two() -> (SqlxDsql, Dsql) {
    let cluster = start_over(EngineKind::Postgres, Limits::default());
    let ddl: Dsql = pool(&cluster, 1, true).await;
    ddl.acquire().await.unwrap().batch_execute("CREATE TABLE t (id bigint PRIMARY KEY)").await.unwrap();
    (pool(&cluster, 1, true).await, ddl)
}

/// How many bodies it took to read the table.
async fn read(dsql: &SqlxDsql) -> Result<u32, Error> {
    let mut bodies = 0;
    let read = dsql.run("read", |mut tx| {
        bodies += 1;
        async move {
            sqlx::query("SELECT * FROM t WHERE id > $1").bind(0_i64).fetch_all(tx.pg()).await?;
            Ok::<_, Error>(())
        }
    });
    read.await?;
    Ok(bodies)
}

#[tokio::test]
async fn statements_of_sqlx_are_prepared_again_after_a_change() {
    let (dsql, ddl) = two().await;
    read(&dsql).await.unwrap();
    assert_eq!(read(&dsql).await.unwrap(), 1);
    ddl.acquire().await.unwrap().batch_execute("ALTER TABLE t ADD COLUMN b bigint").await.unwrap();
    assert!(read(&dsql).await.unwrap() > 1, "it meets the change");
    assert_eq!(read(&dsql).await.unwrap(), 1);
}

#[tokio::test]
async fn cached_statements_of_tokio_postgres_are_prepared_again_after_a_change() {
    let cluster = start_over(EngineKind::Postgres, Limits::default());
    let ddl: Dsql = pool(&cluster, 1, true).await;
    ddl.acquire().await.unwrap().batch_execute("CREATE TABLE t (id bigint PRIMARY KEY)").await.unwrap();
    let dsql: Dsql = pool(&cluster, 1, true).await;
    let columns = async || {
        let columns = dsql.run("read", async |tx| {
            let statement = tx.prepare_cached("SELECT * FROM t WHERE id > $1").await?;
            tx.query(&statement, &[&0_i64]).await?;
            Ok::<_, Error>(statement.columns().len())
        });
        columns.await.unwrap()
    };
    assert_eq!(columns().await, 1);
    ddl.acquire().await.unwrap().batch_execute("ALTER TABLE t ADD COLUMN b bigint").await.unwrap();
    assert_eq!(columns().await, 2, "not the statement that was kept");
    dsql.acquire().await.unwrap().clear_cached_statements();
    assert_eq!(columns().await, 2);
}

#[tokio::test]
async fn deallocated_statements_are_prepared_again() {
    let (dsql, _ddl) = two().await;
    read(&dsql).await.unwrap();
    let mut lent = dsql.acquire_within(PATIENCE).await.unwrap();
    lent.pg().execute("DEALLOCATE ALL").await.unwrap();
    drop(lent);
    assert_eq!(read(&dsql).await.unwrap(), 2);
    assert_eq!(read(&dsql).await.unwrap(), 1);
}

/// The statement is the body's own: it is told what to do.
#[tokio::test]
async fn a_statement_with_other_columns_is_a_conflict() {
    let (_dsql, ddl) = two().await;
    let lent = ddl.acquire().await.unwrap();
    let statement = lent.prepare("SELECT * FROM t").await.unwrap();
    lent.query(&statement, &[]).await.unwrap();
    lent.batch_execute("ALTER TABLE t ADD COLUMN b bigint").await.unwrap();
    let error = Error::from(lent.query(&statement, &[]).await.unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Conflict(Conflict::Schema), "{error}");
}

/// The driver's own error, by `?` and under a context of `anyhow`.
#[tokio::test]
async fn a_conflict_inside_anyhow_is_run_again_with_both_clients() {
    use anyhow::Context;
    let cluster = start();
    let (plain, sqlx): (Dsql, SqlxDsql) = (pool(&cluster, 1, true).await, pool(&cluster, 1, true).await);
    let mut attempts = 0;
    let run = plain.run_mut("look", async |tx| {
        attempts += 1;
        // At a statement of the body, and not at BEGIN.
        if attempts == 1 {
            cluster.inject(fault("stale-schema:n=1"));
        }
        tx.batch_execute("SELECT 1").await.context("looking")?;
        anyhow::Ok(())
    });
    run.await.unwrap();
    let run = sqlx.run_mut("look", async |mut tx| {
        attempts += 1;
        if attempts == 3 {
            cluster.inject(fault("stale-schema:n=1"));
        }
        sqlx::query("SELECT 1").execute(tx.pg()).await.context("looking")?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    });
    run.await.unwrap();
    assert_eq!(attempts, 4, "each twice");
    let failed = plain.run("fail", async |tx| {
        tx.batch_execute("SELECT no_such_column").await.context("failing")?;
        anyhow::Ok(())
    });
    let error = failed.await.unwrap_err();
    assert!(error.chain().any(|cause| cause.is::<tokio_postgres::Error>()), "{error:#}");
    assert_eq!(error.to_string(), "failing");
}
