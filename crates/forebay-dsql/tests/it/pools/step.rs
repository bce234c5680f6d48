//! Answers that belong to other statements, as sqlx leaves them behind when a COPY is given up.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use dsql_local::{EngineKind, Limits};
use forebay_dsql::{Dsql, Error, ErrorKind, Session, SqlxDsql};
use sqlx::{Executor, Row};

use super::cluster::{PATIENCE, fault, pool, start_over};

/// Polls a future once, and drops it.
pub(crate) async fn give_up<T>(future: impl Future<Output = T>) {
    let mut future = pin!(future);
    poll_fn(|context| {
        drop(future.as_mut().poll(context));
        Poll::Ready(())
    })
    .await;
}

async fn everybody_gets_their_own_answers(pool: &SqlxDsql) {
    for number in 0..6 {
        let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
        let asked = sqlx::AssertSqlSafe(format!("SELECT CAST({number} AS bigint)"));
        let row = sqlx::raw_sql(asked).fetch_one(lent.pg()).await.unwrap();
        assert_eq!(row.try_get_raw(0).unwrap().as_str().unwrap(), number.to_string());
    }
}

#[tokio::test]
async fn a_copy_that_was_given_up_reaches_nobody_else() {
    for engine in [EngineKind::Builtin, EngineKind::Postgres] {
        for reservoir in [true, false] {
            let cluster = start_over(engine, Limits::default());
            let pool: SqlxDsql = pool(&cluster, 1, reservoir).await;
            let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
            give_up(lent.pg().copy_in_raw("COPY nosuch FROM STDIN")).await;
            drop(lent.pg().execute("SELECT 'a secret'").await);
            drop(lent);
            everybody_gets_their_own_answers(&pool).await;
            let mut bodies = 0;
            let outcome: Result<(), Error> = pool
                .run("copy", |mut tx| {
                    bodies += 1;
                    let first = bodies == 1;
                    async move {
                        if first {
                            give_up(tx.pg().copy_in_raw("COPY nosuch FROM STDIN")).await;
                        }
                        Ok(())
                    }
                })
                .await;
            // What the given-up COPY answers may be heard as an error of the transaction, or not be heard.
            assert!(outcome.is_ok() || outcome.unwrap_err().kind() != ErrorKind::CommitUnknown);
            everybody_gets_their_own_answers(&pool).await;
            // Of a body that failed after it, too: its ROLLBACK hears another statement's answer.
            let outcome = pool.run("copy", async |mut tx| {
                give_up(tx.pg().copy_in_raw("COPY nosuch FROM STDIN")).await;
                Err::<(), _>(Error::new(ErrorKind::ConditionFailed, "as planned"))
            });
            assert_eq!(outcome.await.unwrap_err().kind(), ErrorKind::ConditionFailed);
            everybody_gets_their_own_answers(&pool).await;
        }
    }
}

/// The COMMIT of a later caller is not taken for done because an earlier statement was.
#[tokio::test]
async fn a_commit_that_conflicts_is_not_taken_for_done() {
    let cluster = start_over(EngineKind::Postgres, Limits::default());
    let ddl: Dsql = pool(&cluster, 1, true).await;
    ddl.acquire().await.unwrap().batch_execute("CREATE TABLE t (a bigint)").await.unwrap();
    let pool: SqlxDsql = pool(&cluster, 1, true).await;
    let given_up: Result<(), Error> = pool
        .run("copy", async |mut tx| {
            give_up(tx.pg().copy_in_raw("COPY nosuch FROM STDIN")).await;
            Ok(())
        })
        .await;
    assert!(given_up.is_err(), "it failed the transaction");
    cluster.inject(fault("conflict:n=1"));
    let mut bodies = 0;
    pool.run("insert", |mut tx| {
        bodies += 1;
        async move {
            tx.pg().execute("INSERT INTO t VALUES (1)").await?;
            Ok::<_, Error>(())
        }
    })
    .await
    .unwrap();
    let lent = ddl.acquire().await.unwrap();
    let rows = lent.query_typed("SELECT count(*) FROM t", &[]).await.unwrap();
    assert_eq!(rows[0].get::<_, i64>(0), 1, "what was reported is there");
    assert!(bodies >= 2, "{bodies}");
}

#[tokio::test]
async fn settings_of_a_transaction_are_not_the_next_ones() {
    for reservoir in [true, false] {
        let cluster = start_over(EngineKind::Postgres, Limits::default());
        let pool: SqlxDsql = pool(&cluster, 1, reservoir).await;
        let path = async || {
            let path = pool.run("look", async |mut tx| {
                Ok::<String, Error>(sqlx::query_scalar("SHOW search_path").fetch_one(tx.pg()).await?)
            });
            path.await.unwrap()
        };
        let before = path().await;
        let set = pool.run("set", async |mut tx| {
            tx.pg().execute("SET search_path = other").await?;
            Ok::<_, Error>(())
        });
        set.await.unwrap();
        assert_eq!(path().await, before);
        assert_eq!(cluster.counters().accepted, 1, "and it is the same connection");
    }
}

/// A connection that is being made clean meets a changed schema as any other statement does, and is not lost for it.
#[tokio::test]
async fn a_changed_schema_costs_no_connection() {
    let cluster = start_over(EngineKind::Builtin, Limits::default());
    let pool: SqlxDsql = pool(&cluster, 1, true).await;
    for touched_only in [true, false] {
        let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
        if touched_only {
            lent.pg();
        } else {
            lent.begin().await.unwrap();
            lent.pg().execute("SELECT 1").await.unwrap();
            lent.commit().await.unwrap();
        }
        cluster.inject(fault("stale-schema:n=1"));
        drop(lent);
        drop(pool.acquire_within(PATIENCE).await.unwrap());
        cluster.heal_all();
    }
    assert_eq!(cluster.counters().accepted, 1);
}

/// Nobody waited for its answer, which is then the first that a ROLLBACK hears.
#[tokio::test]
async fn a_statement_that_failed_unheard_costs_no_connection() {
    let cluster = start_over(EngineKind::Builtin, Limits::default());
    let pool: SqlxDsql = pool(&cluster, 1, true).await;
    let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
    give_up(lent.pg().execute("SELECT no_such_column")).await;
    drop(lent);
    everybody_gets_their_own_answers(&pool).await;
    let failed = pool.run("fails", async |mut tx| {
        give_up(tx.pg().execute("SELECT no_such_column")).await;
        Err::<(), _>(Error::new(ErrorKind::ConditionFailed, "as planned"))
    });
    assert_eq!(failed.await.unwrap_err().kind(), ErrorKind::ConditionFailed);
    everybody_gets_their_own_answers(&pool).await;
    assert_eq!(cluster.counters().accepted, 1);
}
