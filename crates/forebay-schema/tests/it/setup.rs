//! What a run does when nothing goes wrong.

use dsql_local::Rules;
use forebay_schema::Migrations;

use super::cluster::{connect, files, rows, setup, start};

pub(crate) fn orders() -> Migrations {
    files(&[
        (
            "0001_orders.sql",
            "CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL, total numeric(10, 2) DEFAULT 0);
             CREATE INDEX ASYNC orders_customer ON orders (customer);
             INSERT INTO orders VALUES (1, 'ada', 1), (2, 'bob', 2);
             INSERT INTO orders VALUES (3, 'ada', 3);",
        ),
        ("0002_names.sql", "ALTER TABLE orders ADD COLUMN note text; UPDATE orders SET note = 'old';"),
        ("0003_view.sql", "CREATE VIEW ada AS SELECT id FROM orders WHERE customer = 'ada';"),
    ])
}

#[tokio::test]
async fn all_files_are_applied_once() {
    for rules in [Rules::Today, Rules::Spec] {
        let cluster = start(rules);
        let summary = setup(&cluster, &orders()).await.unwrap();
        assert_eq!(summary.applied, ["0001_orders.sql", "0002_names.sql", "0003_view.sql"]);
        assert_eq!((summary.statements, summary.version.as_deref()), (7, Some("0003")));
        let dsql = connect(&cluster).await;
        assert_eq!(rows(&dsql, "SELECT id FROM ada ORDER BY id").await, ["1", "3"]);
        assert_eq!(rows(&dsql, "SELECT count(*) FROM orders WHERE note = 'old'").await, ["3"]);
        let valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'orders_customer'::regclass";
        assert_eq!(rows(&dsql, valid).await, ["true"]);
        let again = setup(&cluster, &orders()).await.unwrap();
        assert_eq!((again.applied.len(), again.statements), (0, 0));
        assert_eq!(again.version.as_deref(), Some("0003"));
    }
}

/// The manual page says so.
#[tokio::test]
async fn a_transaction_has_room_for_2998_rows() {
    let cluster = start(Rules::Today);
    let insert = |table: &str, rows: usize| {
        format!("CREATE TABLE {table} (id int); INSERT INTO {table} SELECT generate_series(1, {rows});")
    };
    let fits = files(&[("1.sql", &insert("fits", 2_998))]).named("fits");
    assert_eq!(setup(&cluster, &fits).await.unwrap().statements, 2);
    let many = files(&[("1.sql", &insert("many", 2_999))]).named("many");
    let error = setup(&cluster, &many).await.unwrap_err();
    assert!(error.to_string().contains("transaction row limit exceeded"), "{error}");
}
