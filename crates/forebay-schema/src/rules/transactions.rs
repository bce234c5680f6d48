//! Transactions that a file writes itself.

use super::{Refusal, find};
use crate::sql::{Kind, Statement};
use crate::steps::{group, is_one_transaction};

const LEVELS: [&[&str]; 3] = [&["SERIALIZABLE"], &["READ", "COMMITTED"], &["READ", "UNCOMMITTED"]];

pub(super) fn check(statements: &[Statement], done: usize) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut at = 0;
    while let Some(statement) = statements.get(at) {
        let end = if statement.kind() == Kind::Begin { group(statements, at) } else { None };
        let next = end.unwrap_or(at) + 1;
        let mut refuse = |refusal: Refusal| {
            // What is applied was accepted, as it was or with a fix.
            if next > done {
                refusals.push(refusal);
            }
        };
        match statement.kind() {
            Kind::Begin => {
                isolation(statement).into_iter().for_each(&mut refuse);
                match end {
                    Some(end) if !is_one_transaction(&statements[at + 1..end]) => {
                        refuse(several(statement, &statements[at + 1..end]));
                    }
                    Some(_) => {}
                    None => {
                        let remedy =
                            "end it with COMMIT, or remove BEGIN: each statement is a transaction of its own";
                        refuse(Refusal::new(statement, "a transaction that does not end", remedy));
                    }
                }
            }
            Kind::Commit => {
                let remedy = "remove it: each statement is a transaction of its own";
                refuse(Refusal::new(statement, "there is no transaction to commit", remedy));
            }
            Kind::Rollback => {
                let remedy = "remove it, and what it would undo";
                refuse(Refusal::new(statement, "a migration that is rolled back", remedy));
            }
            _ => {}
        }
        at = next;
    }
    refusals
}

fn several(begin: &Statement, inner: &[Statement]) -> Refusal {
    let is_ddl = |statement: &&Statement| matches!(statement.kind(), Kind::Ddl | Kind::Other);
    let message = match inner.iter().filter(is_ddl).count() {
        1 => "ddl and dml are not supported in the same transaction",
        _ => "multiple ddl statements not supported in a transaction",
    };
    let remedy = "remove BEGIN and COMMIT: each statement is a transaction of its own, and a run that is interrupted continues";
    Refusal::new(begin, message, remedy).fixable()
}

/// There is one isolation level, repeatable read.
pub(super) fn isolation(statement: &Statement) -> Option<Refusal> {
    let words = statement.words();
    let (level, word) = LEVELS.iter().find_map(|level| Some((level, find(words, level)?)))?;
    let message = format!("Unsupported isolation level: {}", level.join(" "));
    Some(
        Refusal::new(statement, message, "remove it: every transaction has repeatable read")
            .at(statement, word),
    )
}

#[cfg(test)]
mod tests {
    use crate::files::Migrations;
    use crate::rules::{Rules, refusals};

    /// What an earlier run has taken apart with a fix is not refused again.
    #[test]
    fn what_is_applied_is_not_refused() {
        let text = "BEGIN; CREATE TABLE a (i int); CREATE TABLE b (i int); COMMIT; SELECT 1";
        let migrations = Migrations::embedded(&[("1.sql", text)]).unwrap();
        let refused = |done| super::check(migrations.files()[0].statements(), done).len();
        assert_eq!((refused(0), refused(2), refused(4)), (1, 1, 0));
    }

    #[test]
    fn transactions_contain_rows_or_one_change_of_the_schema() {
        for (sql, message) in [
            (
                "BEGIN; CREATE TABLE a (i int); CREATE TABLE b (i int); COMMIT",
                "multiple ddl statements not supported in a transaction",
            ),
            (
                "BEGIN; CREATE TABLE a (i int); INSERT INTO a VALUES (1); COMMIT",
                "ddl and dml are not supported in the same transaction",
            ),
            ("BEGIN; SELECT 1", "a transaction that does not end"),
            ("SELECT 1; COMMIT", "there is no transaction to commit"),
            (
                "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT 1; END",
                "Unsupported isolation level: SERIALIZABLE",
            ),
        ] {
            assert_eq!(refusals(sql, Rules::Today), [message], "{sql}");
        }
        for fine in ["BEGIN; CREATE TABLE a (i int); COMMIT", "BEGIN; SELECT 1; DELETE FROM t; COMMIT;"] {
            assert_eq!(refusals(fine, Rules::Today), [""; 0], "{fine}");
        }
    }
}
