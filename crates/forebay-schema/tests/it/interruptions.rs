//! Runs that end anywhere, and those that continue after them.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dsql_local::{Cluster, Rules};
use forebay_schema::{Error, Event, Migrations, Migrator};

use super::cluster::{connect, fault, files, rows, setup, start, state};
use super::setup::orders;

/// Short, so that a run that was killed is soon replaced.
const LEASE: Duration = Duration::from_millis(120);
/// Longer than any test takes.
const HOURS: Duration = Duration::from_secs(36_000);

/// What happens to each statement, once.
#[derive(Clone, Copy, Debug)]
enum Mishap {
    /// The process dies before it sends the statement.
    Die,
    /// This fault strikes the commit.
    Lose(&'static str),
    /// The same, and the process dies before it records what it has found out.
    LoseAndDie(&'static str),
}

/// A process that was killed.
struct Killed;

fn die() {
    resume_unwind(Box::new(Killed));
}

/// What was told about the runs.
#[derive(Debug, Default)]
struct Heard {
    statements: BTreeSet<(String, usize)>,
    /// Statements that were recovered, with their lines, and whether they had been applied.
    recovered: BTreeSet<(String, usize, bool)>,
    runs: usize,
}

/// Runs `setup` with a mishap at each statement that has had none, until it is complete.
async fn run_with(cluster: &Arc<Cluster>, migrations: &Migrations, mishap: Mishap) -> Heard {
    let heard: Arc<Mutex<Heard>> = Arc::default();
    loop {
        let (telling, injected) = (Arc::clone(&heard), Arc::clone(cluster));
        let observer = move |event: &Event| match event {
            Event::Statement { file, number, .. } => {
                if !telling.lock().unwrap().statements.insert((file.clone(), *number)) {
                    return;
                }
                match mishap {
                    Mishap::Die => die(),
                    Mishap::Lose(text) | Mishap::LoseAndDie(text) => drop(injected.inject(fault(text))),
                }
            }
            Event::Recovered { file, line, applied, .. } => {
                let is_new = telling.lock().unwrap().recovered.insert((file.clone(), *line, *applied));
                if let Mishap::LoseAndDie(_) = mishap
                    && is_new
                {
                    die();
                }
            }
            _ => {}
        };
        // No heartbeat comes before the end: the fault strikes the statement.
        let migrator =
            Migrator::new(connect(cluster).await, migrations.clone()).lease(HOURS).observer(observer);
        heard.lock().unwrap().runs += 1;
        assert!(heard.lock().unwrap().runs < 30, "it never ends: {mishap:?}");
        // A panic drops the future where it is, as the end of a process would.
        match tokio::spawn(async move { migrator.setup().await }).await {
            Ok(outcome) => {
                outcome.unwrap();
                return std::mem::take(&mut *heard.lock().unwrap());
            }
            Err(error) => assert!(error.into_panic().is::<Killed>(), "another panic"),
        }
        expire(cluster).await;
    }
}

/// As if the lease of a run that was killed were over.
async fn expire(cluster: &Arc<Cluster>) {
    let dsql = connect(cluster).await;
    dsql.run("expire", async |tx| {
        Ok::<_, forebay_dsql::Error>(tx.batch_execute("UPDATE forebay_schema_lock SET holder = NULL").await?)
    })
    .await
    .unwrap();
}

/// The state after a run that nothing interrupts.
async fn expected() -> Vec<String> {
    let cluster = start(Rules::Today);
    setup(&cluster, &orders()).await.unwrap();
    state(&connect(&cluster).await).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_continues_after_an_interruption_at_any_statement() {
    let expected = expected().await;
    for (mishap, recovered) in [
        (Mishap::Die, Some(false)),
        (Mishap::Lose("drop:at=before-commit,n=1"), Some(false)),
        (Mishap::Lose("drop:at=after-commit,n=1"), Some(true)),
        (Mishap::Lose("unavailable:at=commit,n=1"), Some(false)),
        (Mishap::Lose("unavailable:at=after-commit,n=1"), Some(true)),
        (Mishap::Lose("conflict:n=1"), None),
        (Mishap::LoseAndDie("drop:at=before-commit,n=1"), Some(false)),
        (Mishap::LoseAndDie("drop:at=after-commit,n=1"), Some(true)),
    ] {
        let cluster = start(Rules::Today);
        let heard = run_with(&cluster, &orders(), mishap).await;
        assert_eq!(heard.statements.len(), 7, "{mishap:?}");
        // The four changes of the schema; what changes rows is committed together with its record.
        let outcomes: Vec<bool> = heard.recovered.iter().map(|(.., applied)| *applied).collect();
        assert_eq!(
            outcomes,
            recovered.map_or_else(Vec::new, |applied| vec![applied; 4]),
            "{mishap:?}: {heard:?}"
        );
        let runs = match mishap {
            Mishap::Die => 8,
            Mishap::Lose(_) => 1,
            Mishap::LoseAndDie(_) => 5,
        };
        assert_eq!(heard.runs, runs, "{mishap:?}");
        let dsql = connect(&cluster).await;
        assert_eq!(state(&dsql).await, expected, "{mishap:?}");
        let verification = Migrator::new(dsql, orders()).verify().await.unwrap();
        assert!(verification.is_clean(), "{mishap:?}: {verification:?}");
    }
}

/// Faults at random commits and statements, of all transactions, also those that record what was done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_survives_faults_anywhere() {
    let expected = expected().await;
    let cluster = start(Rules::Today);
    for text in [
        "stale-schema:after=ddl",
        "conflict:p=0.2",
        "drop:at=before-commit,p=0.05",
        "drop:at=after-commit,p=0.05",
        "unavailable:at=statement,p=0.02",
    ] {
        cluster.inject(fault(text));
    }
    let mut runs = 0;
    loop {
        runs += 1;
        assert!(runs < 30, "it never ends");
        let migrator = Migrator::new(connect(&cluster).await, orders()).lease(LEASE);
        match migrator.setup().await {
            Ok(_) => break,
            // A run may give up, but never for another reason.
            Err(Error::Database(_) | Error::Statement { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    cluster.heal_all();
    assert_eq!(state(&connect(&cluster).await).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_may_be_dropped_at_any_moment() {
    let expected = expected().await;
    let cluster = start(Rules::Today);
    let mut polls = 5;
    loop {
        let migrator = Migrator::new(connect(&cluster).await, orders()).lease(LEASE);
        let mut run = Box::pin(async move { migrator.setup().await });
        let mut left = polls;
        let outcome = std::future::poll_fn(|context| match run.as_mut().poll(context) {
            std::task::Poll::Ready(outcome) => std::task::Poll::Ready(Some(outcome)),
            std::task::Poll::Pending if left == 0 => std::task::Poll::Ready(None),
            std::task::Poll::Pending => {
                left -= 1;
                std::task::Poll::Pending
            }
        })
        .await;
        drop(run);
        if let Some(outcome) = outcome {
            outcome.unwrap();
            break;
        }
        polls += 13;
    }
    assert_eq!(state(&connect(&cluster).await).await, expected);
}

#[tokio::test]
async fn a_failed_statement_can_be_corrected() {
    let cluster = start(Rules::Today);
    let broken =
        files(&[("1.sql", "CREATE TABLE orders (id int PRIMARY KEY);\nINSERT INTO orders VALUES ('x');")]);
    let error = setup(&cluster, &broken).await.unwrap_err();
    assert!(matches!(&error, Error::Statement { line: 2, done: 1, .. }), "{error}");
    let other = files(&[("1.sql", "CREATE TABLE others (id int PRIMARY KEY);")]);
    let error = setup(&cluster, &other).await.unwrap_err();
    assert!(matches!(error, Error::ChangedPart { done: 1, .. }), "{error}");
    let corrected =
        files(&[("1.sql", "CREATE TABLE orders (id int PRIMARY KEY);\nINSERT INTO orders VALUES (7);")]);
    assert_eq!(setup(&cluster, &corrected).await.unwrap().statements, 1);
    assert_eq!(rows(&connect(&cluster).await, "SELECT id FROM orders").await, ["7"]);
}

#[tokio::test]
async fn an_index_that_cannot_be_built_is_built_again() {
    let cluster = start(Rules::Today);
    let migrations = files(&[(
        "1.sql",
        "CREATE TABLE orders (id int PRIMARY KEY, v int);
         INSERT INTO orders VALUES (1, 1), (2, 1);
         CREATE UNIQUE INDEX ASYNC unique_v ON orders (v);",
    )]);
    for _ in 0..2 {
        let error = setup(&cluster, &migrations).await.unwrap_err();
        let Error::Job { object, details, .. } = &error else { panic!("{error}") };
        assert_eq!(object, "public.unique_v");
        assert!(details.contains("could not create unique index"), "{details}");
    }
    let dsql = connect(&cluster).await;
    dsql.run("repair", async |tx| {
        Ok::<_, forebay_dsql::Error>(tx.execute("DELETE FROM orders WHERE id = 2", &[]).await?)
    })
    .await
    .unwrap();
    assert_eq!(setup(&cluster, &migrations).await.unwrap().statements, 1);
    assert!(state(&dsql).await.contains(&"unique_v t".to_owned()));
}

/// What another client has made of the table in the meantime is not taken for the statement's own.
#[tokio::test]
async fn a_table_with_other_columns_is_in_doubt() {
    let cluster = start(Rules::Today);
    let migrations = files(&[("1.sql", "CREATE TABLE orders (id int PRIMARY KEY, v int);")]);
    let observer = |event: &Event| {
        if matches!(event, Event::Statement { .. }) {
            die();
        }
    };
    let migrator = Migrator::new(connect(&cluster).await, migrations.clone()).lease(LEASE).observer(observer);
    assert!(tokio::spawn(async move { migrator.setup().await }).await.is_err());
    let dsql = connect(&cluster).await;
    dsql.acquire().await.unwrap().batch_execute("CREATE TABLE orders (other int)").await.unwrap();
    let error = Migrator::new(dsql.clone(), migrations).lease(LEASE).setup().await.unwrap_err();
    assert!(
        matches!(&error, Error::Doubt { what, .. } if what.contains("other columns now: other")),
        "{error}"
    );
}

/// Lets a run end with the outcome of its last statement unknown, although that was applied.
async fn lose_the_answer(cluster: &Arc<Cluster>, migrations: &Migrations, at: usize) {
    let injected = Arc::clone(cluster);
    let observer = move |event: &Event| match event {
        Event::Statement { number, .. } if *number == at => {
            injected.inject(fault("drop:at=after-commit,n=1"));
        }
        Event::Recovered { .. } => die(),
        _ => {}
    };
    // No heartbeat takes the fault.
    let migrator = Migrator::new(connect(cluster).await, migrations.clone()).lease(HOURS).observer(observer);
    let ended = tokio::spawn(async move { migrator.setup().await }).await;
    assert!(ended.unwrap_err().into_panic().is::<Killed>());
    expire(cluster).await;
}

/// A table of another schema with the same name is not taken for the one that the file has made.
#[tokio::test]
async fn a_table_is_looked_for_on_the_path_of_the_file() {
    let cluster = start(Rules::Today);
    let migrations = files(&[(
        "1.sql",
        "CREATE TABLE orders (old int); CREATE SCHEMA s; SET search_path = s; CREATE TABLE orders (id int, v int);",
    )]);
    lose_the_answer(&cluster, &migrations, 4).await;
    let summary = setup(&cluster, &migrations).await.unwrap();
    assert_eq!(summary.applied, ["1.sql"]);
}

/// An index that could not be built and is nobody's business here stays as it is.
#[tokio::test]
async fn only_the_index_of_the_statement_is_built_again() {
    let cluster = start(Rules::Today);
    let migrations = files(&[(
        "1.sql",
        "CREATE TABLE orders (id int PRIMARY KEY, v int);
         INSERT INTO orders VALUES (1, 1), (2, 1);
         CREATE INDEX ASYNC mine ON orders (v);",
    )]);
    let first = files(&[(
        "1.sql",
        "CREATE TABLE orders (id int PRIMARY KEY, v int);
         INSERT INTO orders VALUES (1, 1), (2, 1);
         SELECT 1/0;",
    )]);
    setup(&cluster, &first).await.unwrap_err();
    let dsql = connect(&cluster).await;
    let connection = dsql.acquire().await.unwrap();
    let job = loop {
        if let Ok(row) = connection.query_one("CREATE UNIQUE INDEX ASYNC theirs ON orders (v)", &[]).await {
            break row.get::<_, String>("job_id");
        }
    };
    connection.batch_execute(&format!("CALL sys.wait_for_job('{job}')")).await.unwrap();
    lose_the_answer(&cluster, &migrations, 3).await;
    let summary = setup(&cluster, &migrations).await.unwrap();
    assert_eq!(summary.applied, ["1.sql"]);
    let indexes = rows(&dsql, "SELECT format('%s %s', indexrelid::regclass, indisvalid) FROM pg_index WHERE indrelid = 'orders'::regclass ORDER BY 1").await;
    assert_eq!(indexes, ["mine t", "orders_pkey t", "theirs f"]);
}

/// What fails only at the commit has its place in a file, too.
#[tokio::test]
async fn a_transaction_that_fails_at_its_commit_is_named() {
    let cluster = start(Rules::Today);
    let migrations = files(&[(
        "1.sql",
        "CREATE TABLE orders (id int PRIMARY KEY, v text);\nINSERT INTO orders SELECT n, repeat(md5(n::text), 40000) FROM generate_series(1, 12) n;",
    )]);
    let error = setup(&cluster, &migrations).await.unwrap_err();
    assert!(matches!(&error, Error::Statement { line: 2, .. }), "{error}");
    assert!(error.to_string().contains("10mb exceeded"), "{error}");
}

/// Also if the table was changed in the meantime, by somebody who corrects it.
#[tokio::test]
async fn a_constraint_that_could_not_be_validated_is_validated_again() {
    let cluster = start(Rules::Today);
    let migrations = files(&[(
        "1.sql",
        "CREATE TABLE orders (id int PRIMARY KEY, v int);
         INSERT INTO orders VALUES (1, -1);
         ALTER TABLE orders ADD CONSTRAINT positive CHECK (v > 0) NOT VALID;
         ALTER TABLE ASYNC orders VALIDATE CONSTRAINT positive;",
    )]);
    let error = setup(&cluster, &migrations).await.unwrap_err();
    assert!(matches!(&error, Error::Job { line: 4, .. }), "{error}");
    let dsql = connect(&cluster).await;
    for sql in ["ALTER TABLE orders ADD COLUMN note text", "UPDATE orders SET v = 1"] {
        let connection = dsql.acquire().await.unwrap();
        while connection.batch_execute(sql).await.is_err() {}
    }
    assert_eq!(setup(&cluster, &migrations).await.unwrap().statements, 1);
    let valid = "SELECT convalidated FROM pg_constraint WHERE conname = 'positive'";
    assert_eq!(rows(&dsql, valid).await, ["true"]);
}
