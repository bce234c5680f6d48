//! What the service refuses with either engine, in its recorded texts.

mod checker;
mod clauses;
mod indexes;
mod lateral;
mod reserved;
mod spec;

use crate::config::Rules;
use crate::error::SqlError;
use crate::statement::{Statement, tokens};
pub(crate) use checker::RuleChecker;

/// Statements by their first words, and the errors. The texts have PostgreSQL's names of parse nodes.
const UNSUPPORTED: &[(&[&str], &str)] = &[
    (&["TRUNCATE"], "unsupported statement: Truncate"),
    (&["CREATE", "EXTENSION"], "unsupported statement: CreateExtension"),
    (&["CREATE", "TRIGGER"], "CREATE TRIGGER not supported"),
    (&["CREATE", "DATABASE"], "unsupported statement: Createdb"),
    (&["CREATE", "TEMPORARY", "TABLE"], "TEMPORARY or TEMP table not supported for CREATE TABLE"),
    (&["CREATE", "TEMP", "TABLE"], "TEMPORARY or TEMP table not supported for CREATE TABLE"),
    (&["CREATE", "LOCAL"], "TEMPORARY or TEMP table not supported for CREATE TABLE"),
    (&["CREATE", "GLOBAL"], "TEMPORARY or TEMP table not supported for CREATE TABLE"),
    (&["CREATE", "TEMP", "SEQUENCE"], "TEMPORARY or TEMP sequence not supported for CREATE SEQUENCE"),
    (&["CREATE", "TEMPORARY", "SEQUENCE"], "TEMPORARY or TEMP sequence not supported for CREATE SEQUENCE"),
    (&["CREATE", "UNLOGGED", "TABLE"], "UNLOGGED table not supported for CREATE TABLE"),
    (&["CREATE", "MATERIALIZED"], "unsupported statement: CreateTableAs"),
    (&["CREATE", "TABLESPACE"], "unsupported statement: CreateTableSpace"),
    (&["CREATE", "FOREIGN", "TABLE"], "unsupported statement: CreateForeignTable"),
    (&["VACUUM"], "unsupported VACUUM statement"),
    (&["LISTEN"], "unsupported statement: Listen"),
    (&["NOTIFY"], "unsupported statement: Notify"),
    (&["UNLISTEN"], "unsupported statement: Unlisten"),
    (&["ALTER", "SYSTEM"], "unsupported statement: AlterSystem"),
    (&["ALTER", "DATABASE"], "unsupported statement: AlterDatabase"),
    (&["SAVEPOINT"], "unsupported transaction statement: SAVEPOINT"),
    (&["RELEASE"], "unsupported transaction statement: RELEASE"),
    (&["ROLLBACK", "TO"], "unsupported transaction statement: ROLLBACK TO"),
    (&["ROLLBACK", "WORK", "TO"], "unsupported transaction statement: ROLLBACK TO"),
    (&["ROLLBACK", "TRANSACTION", "TO"], "unsupported transaction statement: ROLLBACK TO"),
    (&["PREPARE", "TRANSACTION"], "unsupported transaction statement: PREPARE TRANSACTION"),
    (&["PREPARE"], "unsupported statement: Prepare"),
    (&["EXECUTE"], "unsupported statement: Execute"),
    (&["DECLARE"], "unsupported statement: DeclareCursor"),
    (&["FETCH"], "unsupported statement: Fetch"),
    (&["MOVE"], "unsupported statement: Fetch"),
    (&["CLOSE"], "unsupported statement: ClosePortal"),
    (&["LOCK"], "unsupported statement: Lock"),
    (&["MERGE"], "unsupported statement type: MERGE"),
    (&["DO"], "unsupported statement: Do"),
    (&["LOAD"], "unsupported statement: Load"),
    (&["CHECKPOINT"], "unsupported statement: CheckPoint"),
    (&["CLUSTER"], "unsupported statement: Cluster"),
    (&["REINDEX"], "unsupported statement: Reindex"),
    (&["CREATE", "POLICY"], "unsupported statement: CreatePolicy"),
    (&["CREATE", "PUBLICATION"], "unsupported statement: CreatePublication"),
    (&["CREATE", "RULE"], "unsupported statement: Rule"),
    (&["CREATE", "OR", "REPLACE", "RULE"], "unsupported statement: Rule"),
    (&["CREATE", "PROCEDURE"], "PROCEDURE is not supported"),
    (&["CREATE", "OR", "REPLACE", "PROCEDURE"], "PROCEDURE is not supported"),
    (&["CREATE", "TEMPORARY", "VIEW"], "TEMPORARY or TEMP view not supported for CREATE VIEW"),
    (&["CREATE", "TEMP", "VIEW"], "TEMPORARY or TEMP view not supported for CREATE VIEW"),
    (
        &["CREATE", "OR", "REPLACE", "TEMPORARY", "VIEW"],
        "TEMPORARY or TEMP view not supported for CREATE VIEW",
    ),
    (&["CREATE", "OR", "REPLACE", "TEMP", "VIEW"], "TEMPORARY or TEMP view not supported for CREATE VIEW"),
    (&["DROP", "DATABASE"], "unsupported statement: Dropdb"),
    (&["DROP", "TYPE"], "unsupported object in DROP statement"),
    (&["DISCARD"], "unsupported statement: Discard"),
    (
        &["SET", "TRANSACTION", "ISOLATION", "LEVEL", "SERIALIZABLE"],
        "Unsupported isolation level: SERIALIZABLE",
    ),
    (&["SET", "TRANSACTION"], "setting configuration parameter \"TRANSACTION\" not supported"),
];

/// Checks a statement.
fn check(statement: &Statement, rules: Rules) -> Result<(), SqlError> {
    match UNSUPPORTED.iter().find(|(words, _)| statement.begins(words)) {
        Some((_, message)) => Err(SqlError::unsupported(*message)),
        None if is_analyze_of_everything(statement) => {
            Err(SqlError::unsupported("ANALYZE without a table not supported"))
        }
        None => reserved::check(statement).and_then(|()| clauses::check(statement, rules)),
    }
}

fn is_analyze_of_everything(statement: &Statement) -> bool {
    let is_analyze = statement.begins(&["ANALYZE"]) || statement.begins(&["ANALYSE"]);
    // Its options are in parentheses.
    is_analyze && matches!(statement.word(1), "" | "VERBOSE") && statement.word(2).is_empty() && {
        let tokens = tokens(statement.text());
        tokens.last().is_some_and(|last| ["ANALYZE", "ANALYSE", "VERBOSE", ")"].contains(&last.as_str()))
            && !tokens.iter().any(|token| token == "\"")
    }
}

#[cfg(test)]
fn refusal(sql: &str) -> Option<String> {
    refusal_by(Rules::Today, sql)
}

#[cfg(test)]
fn refusal_by(rules: Rules, sql: &str) -> Option<String> {
    check(&Statement::split(sql)[0], rules).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_refused_in_the_recorded_words() {
        for file in [
            "copy t from '/a'",
            "COPY (SELECT 1) TO PROGRAM 'x'",
            "COPY t",
            "COPY (SELECT 1 FROM stdin) TO 'x'",
        ] {
            assert_eq!(refusal(file).unwrap(), "0A000: unsupported statement: Copy", "{file}");
        }
        let inner = "COPY (WITH a AS (SELECT 1 FROM t FOR SHARE) SELECT 1) TO STDOUT";
        assert!(refusal(inner).unwrap().starts_with("0A000: locking clauses"));
        assert_eq!(refusal("TRUNCATE TABLE t").unwrap(), "0A000: unsupported statement: Truncate");
        assert_eq!(
            refusal("ROLLBACK TO SAVEPOINT a").unwrap(),
            "0A000: unsupported transaction statement: ROLLBACK TO"
        );
        assert_eq!(
            refusal("SET TRANSACTION READ ONLY").unwrap(),
            "0A000: setting configuration parameter \"TRANSACTION\" not supported"
        );
        for view in ["CREATE TEMP VIEW v AS SELECT 1", "create or replace temporary view v AS SELECT 1"] {
            assert!(refusal(view).unwrap().contains("TEMP view not supported"), "{view}");
        }
        for system in ["GRANT USAGE ON SCHEMA public TO r", "REVOKE ALL ON SCHEMA public FROM PUBLIC"] {
            assert_eq!(refusal(system).unwrap(), "0A000: feature not supported on system entity", "{system}");
        }
        for everything in ["analyze", "ANALYZE /* x */", "analyse VERBOSE", "ANALYZE (VERBOSE)"] {
            assert!(
                refusal(everything).unwrap().ends_with("ANALYZE without a table not supported"),
                "{everything}"
            );
        }
        for fine in [
            "ANALYZE t",
            "ANALYSE VERBOSE t (a)",
            "ANALYZE \"t\" (a)",
            "copy t (a) from stdin csv",
            "COPY (SELECT 1) TO STDOUT",
            "SELECT 1",
            "ROLLBACK",
            "CREATE TABLE copy (a int)",
            "SET application_name = 'copy'",
            // Privileges of tables, not of the schema.
            "GRANT SELECT ON ALL TABLES IN SCHEMA public TO r",
        ] {
            assert_eq!(refusal(fine), None, "{fine}");
        }
    }
}
