//! The table of what Aurora DSQL does with a statement: what it refuses is reported beforehand, in the same words, and nothing else
//! is.

use std::fs;
use std::path::Path;

use forebay_schema::{Migrations, Migrator, Rules};

#[path = "../../../dsql-local/tests/it/conformance/tree.rs"]
mod tree;

use tree::Node;

/// The parts of the table about statements that migrations consist of.
const PARTS: [&str; 8] =
    ["ddl", "refusals", "indexes", "sequences", "types", "commands", "settings", "transactions"];

/// Refusals that depend on what is in the database, or on how a query is planned: the server reports them when the statement runs.
const ONLY_THE_SERVER_KNOWS: [&str; 7] = [
    "cannot drop primary key column id",
    "unsupported ALTER TABLE DROP CONSTRAINT statement",
    "datatype circle not supported",
    "cannot use subquery in CALL argument",
    // About the statements before it.
    "multiple ddl statements not supported in a transaction",
    "ddl and dml are not supported in the same transaction",
    "unrecognized configuration parameter",
];

/// What is reported although the server accepts it, because a migration cannot do it.
const NOT_IN_A_MIGRATION: [&str; 5] = [
    "a migration has no place for the rows of COPY ... TO STDOUT",
    "a migration has no rows to send for COPY ... FROM STDIN",
    "a transaction that does not end",
    "there is no transaction to commit",
    "a migration that is rolled back",
];

/// What is reported about a statement after others.
fn reported(fixture: &[String], sql: &str, rules: Rules) -> Vec<String> {
    let before = fixture.join(";\n");
    let migrations = Migrations::embedded(&[("1.sql", &before), ("2.sql", sql)]).unwrap();
    let findings = Migrator::check(&migrations, rules);
    findings.into_iter().filter(|finding| finding.file == "2.sql").map(|finding| finding.message).collect()
}

/// The server refuses it for what it is, and not for what it does.
fn is_refusal(step: &Node) -> bool {
    let (code, message) =
        (step.text("sqlstate").unwrap_or_default(), step.text("message").unwrap_or_default());
    match code {
        "0A000" => true,
        "42704" => message.starts_with("type \""),
        "22023" => step.text("sql").is_some_and(|sql| sql.contains("SEQUENCE") || sql.contains("CACHE")),
        _ => false,
    }
}

#[test]
fn what_the_service_refuses_is_reported_beforehand_and_nothing_else() {
    let mut compared = [0, 0];
    let mut wrong = Vec::new();
    for part in PARTS {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../dsql-local/conformance/{part}.yaml"));
        let text = fs::read_to_string(&path).unwrap();
        for row in Node::parse(&text).items() {
            let rules = match row.text("rules") {
                Some("today") => &[Rules::Today][..],
                Some("spec") => &[Rules::Spec],
                _ => &[Rules::Today, Rules::Spec],
            };
            let name = row.text("name").unwrap();
            let fixture: Vec<String> =
                row.list("fixture").iter().filter_map(Node::as_text).map(str::to_owned).collect();
            for (step, rules) in
                row.list("steps").iter().flat_map(|step| rules.iter().map(move |rules| (step, *rules)))
            {
                let Some(sql) = step.text("sql").filter(|_| step.get("results").is_none()) else { continue };
                if sql.contains("; ") || sql.contains("${") || step.get("params").is_some() {
                    continue;
                }
                let reported = reported(&fixture, sql, rules);
                let expected = step.text("message").or(step.text("contains")).unwrap_or_default();
                let is_accepted = step.get("sqlstate").is_none();
                let said = |message: &String| {
                    let is_same = step.text("message") == Some(message);
                    is_same
                        || step.get("message").is_none()
                            && message.to_lowercase().contains(&expected.to_lowercase())
                };
                if is_accepted {
                    compared[0] += 1;
                    if reported.iter().any(|message| !NOT_IN_A_MIGRATION.contains(&message.as_str())) {
                        wrong.push(format!(
                            "{part} {name} {rules:?}: accepted, but reported: {sql}: {reported:?}"
                        ));
                    }
                } else if is_refusal(step)
                    && !ONLY_THE_SERVER_KNOWS.iter().any(|known| expected.contains(known))
                {
                    compared[1] += 1;
                    if !reported.iter().any(said) {
                        wrong.push(format!(
                            "{part} {name} {rules:?}: {sql}: expected {expected}, reported {reported:?}"
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{compared:?}", wrong.join("\n"));
    assert!(compared[0] > 300 && compared[1] > 200, "{compared:?}");
}
