//! One test body, both modes, both clients.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dsql_local::Cluster;
use forebay::CheckoutError;
use forebay_dsql::{
    ConnectionState, Driver, DsqlPool, ErrorKind, PoolMode, PooledConnection, Postgres, PostgresConnection,
    Session, Sqlx, SqlxConnection, Transaction,
};

use super::cluster::{PATIENCE, eventually, fault, pool, start};

/// What a test must be able to do with either client.
pub(crate) trait Speak: Session + Sync + std::fmt::Debug {
    fn execute(&mut self, sql: &'static str) -> impl Future<Output = Result<(), String>> + Send;
    fn number(&mut self, sql: &'static str) -> impl Future<Output = Result<i64, String>> + Send;
    /// Until the client has noticed that its socket is cut: by itself, or by using it.
    fn notice(&mut self) -> impl Future<Output = ()> + Send;
}

impl Speak for PostgresConnection {
    async fn execute(&mut self, sql: &'static str) -> Result<(), String> {
        self.batch_execute(sql).await.map_err(|error| format!("{error:?}"))
    }

    async fn number(&mut self, sql: &'static str) -> Result<i64, String> {
        let row = self.query_one(sql, &[]).await.map_err(|error| format!("{error:?}"))?;
        row.try_get(0).map_err(|error| error.to_string())
    }

    async fn notice(&mut self) {
        eventually("it is noticed", || self.state() == ConnectionState::Broken).await;
    }
}

impl Speak for SqlxConnection {
    async fn execute(&mut self, sql: &'static str) -> Result<(), String> {
        let done = sqlx::Executor::execute(&mut *self, sql).await;
        done.map(drop).map_err(|error| error.to_string())
    }

    async fn number(&mut self, sql: &'static str) -> Result<i64, String> {
        sqlx::query_scalar(sql).fetch_one(&mut *self).await.map_err(|error| error.to_string())
    }

    async fn notice(&mut self) {
        let used = async { while self.execute("SELECT 1").await.is_ok() {} };
        tokio::time::timeout(PATIENCE, used).await.unwrap();
    }
}

async fn a_pool_serves<C: Driver<Connection: Speak>>(reservoir: bool) {
    let cluster = start();
    let pool: DsqlPool<C> = pool(&cluster, 3, reservoir).await;
    let mode = if reservoir { PoolMode::Reservoir } else { PoolMode::Standard };
    assert_eq!((pool.status().mode, pool.status().max_open), (mode, 3));
    assert_eq!(pool.status().open, 3, "it is warm");
    eventually("nobody uses any", || (pool.status().idle, pool.status().in_use) == (3, 0)).await;
    assert_eq!(cluster.counters().live, 3);

    let mut first = pool.acquire().await.unwrap();
    first.execute("CREATE TABLE t (a bigint)").await.unwrap();
    first.execute("INSERT INTO t VALUES (42)").await.unwrap();
    let mut second = pool.acquire().await.unwrap().into_owned();
    assert_ne!(first.id(), second.id());
    assert_eq!(second.number("SELECT a FROM t").await.unwrap(), 42);
    assert_eq!(pool.status().in_use, 2);
    let third = pool.acquire().await.unwrap();
    let refused = pool.acquire_within(Duration::from_millis(20)).await;
    assert!(matches!(refused, Err(CheckoutError::Exhausted { max_open: 3, .. })), "{refused:?}");

    // Whoever waits gets the next one that comes back.
    let (waiter, ()) = tokio::join!(pool.acquire_within(PATIENCE), async {
        eventually("in line", || pool.status().waiting == 1).await;
        drop(second);
    });
    drop((waiter.unwrap(), third, first));
    eventually("all back", || pool.status().idle == 3).await;

    let drained = pool.drain(PATIENCE).await;
    assert!(drained.is_complete(), "{drained:?}");
    assert!(matches!(pool.acquire().await, Err(CheckoutError::Closed)));
    eventually("all closed", || cluster.counters().live == 0).await;
    assert_eq!((pool.registry().count(), pool.status().closed), (0, true));
}

async fn transactions_commit_and_roll_back<C: Driver<Connection: Speak>>(reservoir: bool) {
    let cluster = start();
    let pool: DsqlPool<C> = pool(&cluster, 1, reservoir).await;
    let mut lent = pool.acquire().await.unwrap();
    lent.execute("CREATE TABLE t (a bigint)").await.unwrap();
    lent.begin().await.unwrap();
    lent.execute("INSERT INTO t VALUES (1)").await.unwrap();
    lent.commit().await.unwrap();
    lent.begin().await.unwrap();
    lent.execute("INSERT INTO t VALUES (2)").await.unwrap();
    lent.rollback().await.unwrap();
    lent.begin().await.unwrap();
    lent.execute("INSERT INTO t VALUES (3)").await.unwrap();
    lent.execute("SELECT no_such_column FROM t").await.unwrap_err();
    let error = lent.commit().await.unwrap_err();
    assert!(error.to_string().contains("rolled back"), "{error}");
    drop(lent);
    let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
    assert_eq!(lent.number("SELECT count(*) FROM t").await.unwrap(), 1);
}

async fn what_is_dirty_comes_back_clean<C: Driver<Connection: Speak>>(reservoir: bool) {
    let cluster = start();
    let pool: DsqlPool<C> = pool(&cluster, 1, reservoir).await;
    let mut lent = pool.acquire().await.unwrap();
    lent.execute("CREATE TABLE t (a bigint)").await.unwrap();
    let id = lent.id();
    lent.execute("BEGIN").await.unwrap();
    lent.execute("INSERT INTO t VALUES (1)").await.unwrap();
    drop(lent);
    let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
    assert_eq!(lent.id(), id, "it was cleaned, not replaced");
    assert_eq!(lent.number("SELECT count(*) FROM t").await.unwrap(), 0);
    // Not in a transaction: what it writes now is there for others.
    lent.execute("INSERT INTO t VALUES (2)").await.unwrap();
    assert_eq!(cluster.counters().commits, 2);
}

async fn connections_can_be_listed_and_retired<C: Driver<Connection: Speak>>(reservoir: bool) {
    let cluster = start();
    let pool: DsqlPool<C> = pool(&cluster, 3, reservoir).await;
    let listed = pool.registry().list();
    assert_eq!((listed.len(), pool.registry().count()), (3, 3));
    assert!(listed.windows(2).all(|pair| pair[0].id < pair[1].id && pair[0].age >= pair[1].age));

    // One in use goes when it comes back.
    let lent = pool.acquire().await.unwrap();
    let id = lent.id();
    assert!(pool.registry().retire(id));
    assert!(pool.registry().list().iter().any(|listed| listed.id == id && listed.retired));
    drop(lent);
    eventually("gone", || pool.registry().list().iter().all(|listed| listed.id != id)).await;
    assert!(!pool.registry().retire(id));

    let before = pool.registry().list();
    assert_eq!(pool.registry().retire_all(), before.len());
    let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
    assert!(before.iter().all(|listed| listed.id != lent.id()), "a retired one was lent");
    assert_eq!(lent.number("SELECT CAST(7 AS bigint)").await.unwrap(), 7);
    drop(lent);
    eventually("three new ones", || {
        let now = pool.registry().list();
        now.len() == 3 && now.iter().all(|listed| !listed.retired)
    })
    .await;
}

async fn the_last_handle_closes_all<C: Driver<Connection: Speak>>(reservoir: bool) {
    let cluster: Arc<Cluster> = start();
    let pool: DsqlPool<C> = pool(&cluster, 2, reservoir).await;
    let clone = pool.clone();
    let mut kept = clone.acquire().await.unwrap().into_owned();
    drop(pool);
    assert_eq!(kept.number("SELECT CAST(1 AS bigint)").await.unwrap(), 1);
    drop(clone);
    eventually("the idle one is closed", || cluster.counters().live == 1).await;
    assert_eq!(kept.number("SELECT CAST(1 AS bigint)").await.unwrap(), 1);
    drop(kept);
    eventually("the other, too", || cluster.counters().live == 0).await;
}

/// A mistake of the test's own, or one of the database.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failed(String, #[source] Option<forebay_dsql::Error>);

impl From<forebay_dsql::Error> for Failed {
    fn from(error: forebay_dsql::Error) -> Self {
        Self(error.to_string(), Some(error))
    }
}

fn class_of(error: &Failed) -> Option<ErrorKind> {
    error.1.as_ref().map(forebay_dsql::Error::kind)
}

async fn transactions_are_run_until_they_are_through<C: Driver<Connection: Speak>>(reservoir: bool) {
    let cluster = start();
    let pool: DsqlPool<C> = pool(&cluster, 2, reservoir).await;
    pool.acquire().await.unwrap().execute("CREATE TABLE t (a bigint)").await.unwrap();
    let attempts = Arc::new(AtomicUsize::new(0));
    let insert = async || {
        pool.run("insert", |mut tx| {
            let attempts = Arc::clone(&attempts);
            async move {
                attempts.fetch_add(1, Ordering::SeqCst);
                tx.execute("INSERT INTO t VALUES (1)").await.map_err(|error| Failed(error, None))
            }
        })
        .await
    };
    let rows = async || {
        let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
        lent.number("SELECT count(*) FROM t").await.unwrap()
    };
    insert().await.unwrap();
    assert_eq!((rows().await, attempts.swap(0, Ordering::SeqCst)), (1, 1));

    // Two conflicts at COMMIT, and then none.
    cluster.inject(fault("conflict:n=2"));
    insert().await.unwrap();
    assert_eq!((rows().await, attempts.swap(0, Ordering::SeqCst)), (2, 3));

    // Lost in COMMIT, before it was done or after: told as unknown, and never run again.
    for (text, expected) in [("drop:at=before-commit,n=1", 2), ("drop:at=after-commit,n=1", 3)] {
        cluster.inject(fault(text));
        let error = insert().await.unwrap_err();
        assert_eq!(class_of(&error), Some(ErrorKind::CommitUnknown), "{error}");
        assert_eq!((rows().await, attempts.swap(0, Ordering::SeqCst)), (expected, 1), "{text}");
    }

    // A body that swallows the error of a statement does not commit the rest.
    let swallowed = pool.run("swallow", async |mut tx: Transaction<PooledConnection<'static, C>>| {
        tx.execute("INSERT INTO t VALUES (2)").await.unwrap();
        tx.execute("SELECT no_such_column FROM t").await.unwrap_err();
        Ok::<_, Failed>(())
    });
    let error = swallowed.await.unwrap_err();
    assert!(error.to_string().contains("rolled back"), "{error}");
    assert_eq!(rows().await, 3);
}

async fn a_commit_that_never_left_is_run_again<C: Driver<Connection: Speak>>(reservoir: bool) {
    let cluster = start();
    let pool: DsqlPool<C> = pool(&cluster, 2, reservoir).await;
    pool.acquire().await.unwrap().execute("CREATE TABLE t (a bigint)").await.unwrap();
    // Cut in the middle of being made clean, it would not count as cut.
    eventually("it is back", || pool.status().in_use == 0).await;
    let attempts = Arc::new(AtomicUsize::new(0));
    let run = pool.run("insert", |mut tx| {
        let (attempts, cluster) = (Arc::clone(&attempts), Arc::clone(&cluster));
        async move {
            tx.execute("INSERT INTO t VALUES (1)").await.map_err(|error| Failed(error, None))?;
            if attempts.fetch_add(1, Ordering::SeqCst) == 0 {
                // One that is asked just then counts as expired.
                let gone = || cluster.counters().severed + cluster.counters().expired;
                let cut = gone() + cluster.sever(1.0);
                eventually("the sockets are cut", || gone() >= cut).await;
                tx.notice().await;
            }
            Ok::<_, Failed>(())
        }
    });
    run.await.unwrap();
    assert_eq!(attempts.load(Ordering::SeqCst), 2);
    // sqlx may have more dead ones, which it finds out by using them.
    let count = async || pool.acquire_within(PATIENCE).await.unwrap().number("SELECT count(*) FROM t").await;
    let mut rows = count().await;
    while rows.is_err() {
        rows = count().await;
    }
    assert_eq!(rows, Ok(1));
}

macro_rules! everywhere {
    ($($test:ident)*) => {
        mod reservoir {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test::<Postgres>(true).await;
            })*
        }
        mod standard {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test::<Postgres>(false).await;
            })*
        }
        mod sqlx_reservoir {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test::<Sqlx>(true).await;
            })*
        }
        mod sqlx_standard {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test::<Sqlx>(false).await;
            })*
        }
    };
}

everywhere! {
    a_pool_serves
    transactions_commit_and_roll_back
    what_is_dirty_comes_back_clean
    connections_can_be_listed_and_retired
    the_last_handle_closes_all
    transactions_are_run_until_they_are_through
    a_commit_that_never_left_is_run_again
}
