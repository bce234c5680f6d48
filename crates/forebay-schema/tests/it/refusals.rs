//! Databases and files that are refused before anything runs.

use dsql_local::Rules;
use forebay_schema::{Error, Migrator, Version};

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
    let gone = files(&[("1.sql", "CREATE TABLE a (i int);")]);
    assert_eq!(Migrator::new(dsql, gone).verify().await.unwrap().missing, ["2.sql"]);
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
