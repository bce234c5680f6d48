//! Bodies that begin, commit or roll back by themselves.

use std::sync::Arc;

use dsql_local::{Cluster, EngineKind, Limits};
use forebay_dsql::{Conflict, ConnectionState, Dsql, Error, ErrorKind, SqlxDsql};
use sqlx::{Connection, Executor};

use super::cluster::{eventually, fault, pool, start_over};
use super::step::give_up;

/// A cluster with one counter at zero.
async fn counter(engine: EngineKind) -> (Arc<Cluster>, Dsql) {
    let cluster = start_over(engine, Limits::default());
    let dsql: Dsql = pool(&cluster, 2, true).await;
    dsql.acquire().await.unwrap().batch_execute("CREATE TABLE t (id bigint, n bigint)").await.unwrap();
    let seed = dsql.run("seed", async |tx| {
        tx.batch_execute("INSERT INTO t VALUES (1, 0)").await?;
        Ok::<_, Error>(())
    });
    seed.await.unwrap();
    (cluster, dsql)
}

async fn count(dsql: &Dsql) -> i64 {
    let look = dsql.run("look", async |tx| {
        Ok::<_, Error>(tx.query_typed("SELECT n FROM t WHERE id = 1", &[]).await?[0].get(0))
    });
    look.await.unwrap()
}

const ADD: &str = "UPDATE t SET n = n + 1 WHERE id = 1";

#[tokio::test]
async fn a_body_that_commits_by_itself_is_never_run_twice() {
    for engine in [EngineKind::Builtin, EngineKind::Postgres] {
        let (cluster, dsql) = counter(engine).await;
        for how in ["transaction", "text", "prepared"] {
            let before = count(&dsql).await;
            let mut bodies = 0;
            let mut nest = async || {
                let run = dsql.run("nested", |mut tx| {
                    bodies += 1;
                    async move {
                        if how == "transaction" {
                            let inner = tx.transaction().await?;
                            inner.execute(ADD, &[]).await?;
                            inner.commit().await?;
                            return Ok::<_, Error>(());
                        }
                        tx.execute(ADD, &[]).await?;
                        if how == "text" {
                            tx.batch_execute("/* by myself */ COMMIT").await?;
                        } else {
                            tx.execute("COMMIT", &[]).await?;
                        }
                        Ok(())
                    }
                });
                run.await.unwrap_err()
            };
            // It comes through, and is told what it did.
            let error = nest().await;
            assert_eq!(error.kind(), ErrorKind::Permanent, "{how}: {error}");
            assert!(error.to_string().contains("ended its transaction by itself"), "{error}");
            // It is lost behind the COMMIT.
            cluster.inject(fault("drop:at=after-commit,n=1"));
            let error = nest().await;
            cluster.heal_all();
            assert_eq!(error.kind(), ErrorKind::CommitUnknown, "{how}: {error}");
            assert_eq!((bodies, count(&dsql).await), (2, before + 2), "{how}: each was run once");
        }
    }
}

#[tokio::test]
async fn a_body_that_rolls_back_by_itself_has_not_succeeded() {
    let (_cluster, dsql) = counter(EngineKind::Postgres).await;
    for how in ["text", "dropped"] {
        let run = dsql.run("rolled back", async |mut tx| {
            tx.execute(ADD, &[]).await?;
            if how == "text" {
                tx.batch_execute("ROLLBACK").await?;
            } else {
                drop(tx.transaction().await?);
            }
            Ok::<_, Error>(())
        });
        let error = run.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permanent, "{how}: {error}");
        assert_eq!(count(&dsql).await, 0, "{how}");
    }
}

/// What comes after a ROLLBACK is not part of a transaction: it is committed by itself.
#[tokio::test]
async fn a_body_that_rolled_back_and_went_on_is_never_run_twice() {
    for engine in [EngineKind::Builtin, EngineKind::Postgres] {
        let (cluster, dsql) = counter(engine).await;
        for (how, answered) in
            [("conflict", true), ("given up", false), ("lost", false), ("lost unheard", false)]
        {
            let (before, mut bodies) = (count(&dsql).await, 0);
            let run = dsql.run("went on", |mut tx| {
                bodies += 1;
                let cluster = Arc::clone(&cluster);
                async move {
                    drop(tx.transaction().await?);
                    match how {
                        "conflict" => tx.batch_execute(ADD).await?,
                        "given up" => give_up(tx.batch_execute(ADD)).await,
                        "lost unheard" => {
                            cluster.inject(fault("drop:at=after-commit,n=1"));
                            give_up(tx.batch_execute(ADD)).await;
                            eventually("it is lost", || tx.state() == ConnectionState::Broken).await;
                            return Ok(());
                        }
                        _ => {
                            cluster.inject(fault("drop:at=after-commit,n=1"));
                            tx.batch_execute(ADD).await?;
                        }
                    }
                    Err::<(), _>(Error::new(
                        ErrorKind::Conflict(Conflict::Change),
                        "as another statement may",
                    ))
                }
            });
            let error = run.await.unwrap_err();
            cluster.heal_all();
            assert_eq!((error.kind(), bodies), (ErrorKind::CommitUnknown, 1), "{how}: {error}");
            if answered {
                assert_eq!(count(&dsql).await, before + 1, "{how}");
            }
        }
    }
}

/// Whatever it then fails with: a conflict that it overlooked, another pool that had no connection for it, or the COMMIT, of which
/// nobody knows then what became of it.
#[tokio::test]
async fn a_body_that_committed_is_never_run_twice_for_what_comes_after() {
    for how in ["overlooked", "no connection", "failed inside"] {
        let (cluster, dsql) = counter(EngineKind::Builtin).await;
        let mut bodies = 0;
        let run = dsql.run("after", |tx| {
            bodies += 1;
            let (cluster, first) = (Arc::clone(&cluster), bodies == 1);
            async move {
                if how == "no connection" {
                    if first {
                        return Err(Error::new(
                            ErrorKind::Conflict(Conflict::Change),
                            "so that it is a retry",
                        ));
                    }
                    tx.batch_execute(ADD).await?;
                    tx.batch_execute("COMMIT").await?;
                    return Err(Error::new(ErrorKind::NoConnection, "of another pool"));
                }
                tx.batch_execute(ADD).await?;
                if how == "failed inside" {
                    cluster.inject(fault("unavailable:at=after-commit,n=1"));
                }
                tx.batch_execute("COMMIT; BEGIN").await?;
                cluster.inject(fault("stale-schema:n=1"));
                tx.batch_execute(ADD).await.unwrap_err();
                Ok(tx.batch_execute(ADD).await?)
            }
        });
        let error = run.await.unwrap_err();
        cluster.heal_all();
        let expected =
            if how == "no connection" { (ErrorKind::NoConnection, 2) } else { (ErrorKind::CommitUnknown, 1) };
        assert_eq!((error.kind(), bodies), expected, "{how}: {error}");
        assert_eq!(count(&dsql).await, 1, "{how}");
    }
}

/// What was rolled back is lost, and nobody may take it for done.
#[tokio::test]
async fn a_body_that_began_another_transaction_has_not_succeeded() {
    let (_cluster, dsql) = counter(EngineKind::Postgres).await;
    for how in [&["ROLLBACK", "BEGIN"][..], &["ROLLBACK; BEGIN"]] {
        let run = dsql.run("anew", async |tx| {
            tx.batch_execute(ADD).await?;
            for text in how {
                tx.batch_execute(text).await?;
            }
            tx.batch_execute(ADD).await?;
            Ok::<_, Error>(())
        });
        let error = run.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permanent, "{how:?}: {error}");
        assert!(error.to_string().contains("ended its transaction by itself"), "{error}");
        assert_eq!(count(&dsql).await, 0, "{how:?}");
    }
}

/// A transaction of the client's own that meets a conflict rolls back when it is dropped, and nothing else was done.
#[tokio::test]
async fn a_body_that_only_rolled_back_is_run_again() {
    let (_cluster, dsql) = counter(EngineKind::Postgres).await;
    let mut bodies = 0;
    let run = dsql.run("again", |mut tx| {
        bodies += 1;
        let first = bodies == 1;
        async move {
            if first {
                let inner = tx.transaction().await?;
                inner.execute(ADD, &[]).await?;
                return Err(Error::new(ErrorKind::Conflict(Conflict::Change), "as its statement may"));
            }
            tx.execute(ADD, &[]).await?;
            Ok(())
        }
    });
    run.await.unwrap();
    assert_eq!((bodies, count(&dsql).await), (2, 1));
}

/// sqlx makes a SAVEPOINT of a transaction inside another, which a cluster does not know.
#[tokio::test]
async fn a_transaction_inside_another_is_refused_with_sqlx() {
    let (cluster, dsql) = counter(EngineKind::Builtin).await;
    let pool: SqlxDsql = pool(&cluster, 1, true).await;
    cluster.inject(fault("drop:at=after-commit,n=1"));
    let mut bodies = 0;
    let run = pool.run("nested", |mut tx| {
        bodies += 1;
        async move {
            let mut inner = tx.pg().begin().await?;
            inner.execute(ADD).await?;
            inner.commit().await?;
            Ok::<_, Error>(())
        }
    });
    let error = run.await.unwrap_err();
    cluster.heal_all();
    assert_eq!((error.kind(), bodies, count(&dsql).await), (ErrorKind::Unsupported, 1, 0), "{error}");
    // Outside of `run`, and after it, a caller's own transaction is one.
    let mut lent = pool.acquire().await.unwrap();
    let mut own = lent.pg().begin().await.unwrap();
    own.execute(ADD).await.unwrap();
    own.commit().await.unwrap();
    assert_eq!(count(&dsql).await, 1);
}
