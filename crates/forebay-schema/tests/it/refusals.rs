//! Databases and files that are refused before anything runs.

use std::sync::{Arc, Mutex};

use dsql_local::Rules;
use forebay_schema::{Error, Event, Migrator, Version};

use super::cluster::{connect, files, rows, setup, start};
use super::setup::orders;

#[tokio::test]
async fn an_unknown_database_is_refused_unless_it_is_declared() {
    let cluster = start(Rules::Today);
    let dsql = connect(&cluster).await;
    dsql.acquire()
        .await
        .unwrap()
        .batch_execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
        .await
        .unwrap();
    let migrator = Migrator::new(dsql.clone(), orders());
    let error = migrator.setup().await.unwrap_err();
    assert!(matches!(&error, Error::UnknownDatabase { tables } if tables == &["public.orders"]), "{error}");
    assert!(error.to_string().contains("`setup --baseline VERSION`"), "{error}");
    assert!(matches!(migrator.update().await.unwrap_err(), Error::NotSetUp { .. }));
    assert!(rows(&dsql, "SELECT relname FROM pg_class WHERE relname ~ '^forebay'").await.is_empty());
    let unknown = migrator.setup_from(&Version::parse("9").unwrap()).await.unwrap_err();
    assert!(matches!(unknown, Error::NoVersion { .. }), "{unknown}");
    let broken = migrator.setup_from(&Version::parse("2").unwrap()).await.unwrap_err();
    // The view names a column that this table does not have.
    assert!(matches!(broken, Error::Statement { .. }), "{broken}");
    dsql.acquire().await.unwrap().batch_execute("ALTER TABLE orders ADD COLUMN customer text").await.unwrap();
    let summary = migrator.setup_from(&Version::parse("2").unwrap()).await.unwrap();
    assert_eq!(summary.applied, ["0003_view.sql"]);
    assert!(migrator.verify().await.unwrap().is_clean());
}

#[tokio::test]
async fn two_applications_share_a_database() {
    let cluster = start(Rules::Today);
    setup(&cluster, &orders()).await.unwrap();
    let others = files(&[("1.sql", "CREATE TABLE users (id int PRIMARY KEY);")]).named("users");
    assert_eq!(setup(&cluster, &others).await.unwrap().applied, ["1.sql"]);
    let dsql = connect(&cluster).await;
    for migrations in [orders(), others] {
        let verification = Migrator::new(dsql.clone(), migrations).verify().await.unwrap();
        assert!(verification.is_clean() && verification.other_tables.is_empty(), "{verification:?}");
    }
    let rival = files(&[("1.sql", "CREATE TABLE users (id int PRIMARY KEY);")]).named("rival");
    let error = setup(&cluster, &rival).await.unwrap_err();
    assert!(matches!(&error, Error::UnknownDatabase { tables } if tables == &["public.users"]), "{error}");
}

#[tokio::test]
async fn statements_that_are_refused_are_listed_and_nothing_runs() {
    let cluster = start(Rules::Today);
    let migrations = files(&[
        ("1.sql", "CREATE TABLE orders (\n id serial PRIMARY KEY,\n v int\n);\nCREATE INDEX ON orders (v);"),
        ("2.sql", "BEGIN;\nCREATE TABLE a (i int);\nCREATE TABLE b (i int);\nCOMMIT;\nTRUNCATE orders;"),
    ]);
    let error = setup(&cluster, &migrations).await.unwrap_err();
    let Error::Refused(findings) = &error else { panic!("{error}") };
    let found: Vec<String> =
        findings.iter().map(|one| format!("{}:{} {}", one.file, one.line, one.fixable)).collect();
    assert_eq!(found, ["1.sql:2 false", "1.sql:5 true", "2.sql:1 true", "2.sql:5 false"]);
    let dsql = connect(&cluster).await;
    assert!(rows(&dsql, "SELECT relname FROM pg_class WHERE relname ~ 'orders|forebay'").await.is_empty());
    let migrations = files(&[
        (
            "1.sql",
            "SET statement_timeout = 0; CREATE TABLE orders (id int, v int); CREATE INDEX ON orders USING btree (v ASC);",
        ),
        (
            "2.sql",
            "BEGIN;\nCREATE TABLE a (i int);\nCREATE TABLE b (i int);\nINSERT INTO a VALUES (1);\nCOMMIT;",
        ),
    ]);
    let migrator = Migrator::new(dsql.clone(), migrations).fix(true);
    let plan = migrator.plan().await.unwrap();
    let planned: Vec<String> = plan.transactions.iter().map(|one| one.statements.join("; ")).collect();
    assert_eq!(
        planned,
        [
            "CREATE TABLE orders (id int, v int)",
            "CREATE INDEX ASYNC ON orders (v)",
            "CREATE TABLE a (i int)",
            "CREATE TABLE b (i int)",
            "INSERT INTO a VALUES (1)"
        ]
    );
    migrator.setup().await.unwrap();
    assert!(migrator.plan().await.unwrap().transactions.is_empty());
}

#[tokio::test]
async fn files_that_were_changed_are_named() {
    let cluster = start(Rules::Today);
    let old = files(&[("1.sql", "CREATE TABLE a (i int);"), ("2.sql", "CREATE TABLE b (i int);")]);
    setup(&cluster, &old).await.unwrap();
    let new = files(&[("1.sql", "CREATE TABLE a (i int); -- note"), ("2.sql", "CREATE TABLE b (i int);")]);
    let error = setup(&cluster, &new).await.unwrap_err();
    assert!(matches!(&error, Error::Changed { files } if files == &["1.sql"]), "{error}");
    let dsql = connect(&cluster).await;
    assert_eq!(Migrator::new(dsql.clone(), new.clone()).verify().await.unwrap().changed, ["1.sql"]);
    let summary = Migrator::new(dsql.clone(), new.clone()).accept_changed(true).update().await.unwrap();
    assert_eq!(summary.statements, 0);
    assert!(Migrator::new(dsql.clone(), new).verify().await.unwrap().is_clean());
    let gone = files(&[("1.sql", "CREATE TABLE a (i int);"), ("3.sql", "SELECT 1;")]);
    let migrator = Migrator::new(dsql, gone);
    assert_eq!(migrator.verify().await.unwrap().missing, ["2.sql"]);
    let listed = migrator.status().await.unwrap().files;
    let listed: Vec<(&str, bool)> = listed.iter().map(|one| (one.file.as_str(), one.is_missing)).collect();
    assert_eq!(listed, [("1.sql", false), ("2.sql", true), ("3.sql", false)]);
}

#[tokio::test]
async fn what_is_changed_by_hand_is_found() {
    let cluster = start(Rules::Today);
    setup(&cluster, &orders()).await.unwrap();
    let dsql = connect(&cluster).await;
    let migrator = Migrator::new(dsql.clone(), orders());
    assert!(migrator.verify().await.unwrap().is_clean());
    for sql in [
        "ALTER TABLE orders ADD COLUMN more int",
        "ALTER TABLE orders ALTER COLUMN total DROP DEFAULT",
        "DROP INDEX orders_customer",
        "DROP VIEW ada",
        "CREATE TABLE mine (id int)",
    ] {
        let connection = dsql.acquire().await.unwrap();
        while connection.batch_execute(sql).await.is_err() {}
    }
    let found = migrator.verify().await.unwrap();
    assert!(!found.is_clean());
    assert_eq!(found.other_tables, ["public.mine"]);
    let shown: Vec<String> = found
        .differences
        .iter()
        .map(|one| format!("{} | -{} | +{}", one.object, one.missing.join(", "), one.extra.join(", ")))
        .collect();
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown[0].starts_with("public.ada | -view owned by admin"), "{shown:?}");
    assert!(
        shown[1].contains("-column total numeric(10,2) default 0, index CREATE INDEX orders_customer"),
        "{shown:?}"
    );
    assert!(shown[1].contains("+column total numeric(10,2), column more integer"), "{shown:?}");
}

/// A file that could not be applied as a whole, and was finished by hand.
#[tokio::test]
async fn a_baseline_also_covers_a_file_of_which_a_part_is_applied() {
    let cluster = start(Rules::Today);
    let broken =
        files(&[("1.sql", "CREATE TABLE a (i int);\nINSERT INTO a VALUES ('x');"), ("2.sql", "SELECT 1;")]);
    setup(&cluster, &broken).await.unwrap_err();
    let edited = files(&[("1.sql", "CREATE TABLE other (i int);"), ("2.sql", "SELECT 1;")]);
    let dsql = connect(&cluster).await;
    let migrator = Migrator::new(dsql.clone(), edited);
    let baseline = Version::parse("1").unwrap();
    let plan = migrator.plan_from(Some(&baseline)).await.unwrap();
    assert_eq!((plan.recorded, plan.transactions.len()), (vec!["1.sql".to_owned()], 1));
    let summary = migrator.setup_from(&baseline).await.unwrap();
    assert_eq!((summary.recorded, summary.applied), (vec!["1.sql".to_owned()], vec!["2.sql".to_owned()]));
    assert!(rows(&dsql, "SELECT relname FROM pg_class WHERE relname = 'other'").await.is_empty());
    assert!(migrator.setup_from(&baseline).await.unwrap().recorded.is_empty());
}

#[tokio::test]
async fn a_baseline_changes_nothing_if_a_later_file_is_refused() {
    let cluster = start(Rules::Today);
    let migrations = files(&[("1.sql", "CREATE TABLE a (i int);"), ("2.sql", "TRUNCATE a;")]);
    let dsql = connect(&cluster).await;
    let error =
        Migrator::new(dsql.clone(), migrations).setup_from(&Version::parse("1").unwrap()).await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert!(rows(&dsql, "SELECT relname FROM pg_class WHERE relname ~ '^forebay'").await.is_empty());
}

/// Applications may have tables of the same name in schemas of their own.
#[tokio::test]
async fn tables_of_other_schemas_are_not_in_the_way() {
    let cluster = start(Rules::Today);
    setup(&cluster, &orders()).await.unwrap();
    let others = files(&[("1.sql", "CREATE SCHEMA mine; CREATE TABLE mine.orders (id int);")]).named("mine");
    assert_eq!(setup(&cluster, &others).await.unwrap().statements, 2);
    // What one of them does is no difference for the other.
    let more = [
        ("1.sql", "CREATE SCHEMA mine; CREATE TABLE mine.orders (id int);"),
        ("2.sql", "ALTER TABLE mine.orders ADD COLUMN v int;"),
    ];
    setup(&cluster, &files(&more).named("mine")).await.unwrap();
    let dsql = connect(&cluster).await;
    for migrations in [orders(), files(&more).named("mine")] {
        let found = Migrator::new(dsql.clone(), migrations).verify().await.unwrap();
        assert!(found.is_clean(), "{found:?}");
    }
    let rival = files(&[("1.sql", "CREATE TABLE public.orders (id int);")]).named("rival");
    assert!(matches!(setup(&cluster, &rival).await.unwrap_err(), Error::UnknownDatabase { .. }));
}

#[tokio::test]
async fn a_changed_file_stays_applied_since_it_was() {
    let cluster = start(Rules::Today);
    setup(&cluster, &files(&[("1.sql", "SELECT 1;")])).await.unwrap();
    let dsql = connect(&cluster).await;
    let since = rows(&dsql, "SELECT applied FROM forebay_schema_files").await;
    let changed = files(&[("1.sql", "SELECT 1; -- note")]);
    let summary = Migrator::new(dsql.clone(), changed).accept_changed(true).update().await.unwrap();
    assert_eq!(summary.recorded, ["1.sql"]);
    assert_eq!(rows(&dsql, "SELECT applied FROM forebay_schema_files").await, since);
}

#[tokio::test]
async fn only_what_is_still_to_be_applied_is_fixed() {
    let cluster = start(Rules::Today);
    let first = ("1.sql", "CREATE TABLE a (i int); CREATE INDEX a_i ON a (i);");
    let dsql = connect(&cluster).await;
    Migrator::new(dsql.clone(), files(&[first])).fix(true).setup().await.unwrap();
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let telling = Arc::clone(&told);
    let both = files(&[first, ("2.sql", "CREATE INDEX a_j ON a (i);")]);
    let migrator = Migrator::new(dsql, both).fix(true).observer(move |event| {
        if let Event::Fixed(finding) = event {
            telling.lock().unwrap().push(finding.file.clone());
        }
    });
    migrator.plan().await.unwrap();
    migrator.update().await.unwrap();
    migrator.update().await.unwrap();
    assert_eq!(*told.lock().unwrap(), ["2.sql", "2.sql"]);
}

/// A constraint that is meant to hold for new rows only is no difference, and neither is anything of somebody else.
#[tokio::test]
async fn what_the_files_leave_so_is_no_difference() {
    let cluster = start(Rules::Today);
    let mine = files(&[(
        "1.sql",
        "CREATE TABLE mine (i int);
         ALTER TABLE mine ADD CONSTRAINT positive CHECK (i > 0) NOT VALID;
         CREATE FUNCTION twice(i int) RETURNS int LANGUAGE sql AS 'SELECT i * 2';",
    )]);
    setup(&cluster, &mine).await.unwrap();
    let dsql = connect(&cluster).await;
    for sql in [
        "CREATE TABLE theirs (i int)",
        "INSERT INTO theirs VALUES (1), (1)",
        "ALTER TABLE theirs ADD CONSTRAINT high CHECK (i > 9) NOT VALID",
        "CREATE UNIQUE INDEX ASYNC theirs_i ON theirs (i)",
    ] {
        let connection = dsql.acquire().await.unwrap();
        while connection.batch_execute(sql).await.is_err() {}
    }
    let migrator = Migrator::new(dsql.clone(), mine);
    let found = migrator.verify().await.unwrap();
    assert!(found.is_clean(), "{found:?}");
    for sql in [
        "ALTER TABLE mine ADD CONSTRAINT even CHECK (i % 2 = 0) NOT VALID",
        "ALTER FUNCTION twice(int) SECURITY DEFINER",
    ] {
        let connection = dsql.acquire().await.unwrap();
        while connection.batch_execute(sql).await.is_err() {}
    }
    let found = migrator.verify().await.unwrap();
    assert_eq!(found.unvalidated_constraints, ["public.mine.even"]);
    let objects: Vec<&str> = found.differences.iter().map(|one| one.object.as_str()).collect();
    assert_eq!(objects, ["public.mine", "public.twice(i integer)"], "{found:?}");
}

/// A database that is just being set up has the table of the lock, and no row in it.
#[tokio::test]
async fn the_status_is_known_before_there_is_a_lock() {
    let cluster = start(Rules::Today);
    setup(&cluster, &orders()).await.unwrap();
    let dsql = connect(&cluster).await;
    dsql.run("delete", async |tx| {
        Ok::<_, forebay_dsql::Error>(tx.batch_execute("DELETE FROM forebay_schema_lock").await?)
    })
    .await
    .unwrap();
    assert_eq!(Migrator::new(dsql, orders()).status().await.unwrap().holder, None);
}
