//! What the service refuses, whichever engine is behind it, in the words recorded of it.

use crate::error::SqlError;
use crate::statement::Statement;

/// Statements by their first words, and what is said about them. The texts follow PostgreSQL's names of parse nodes.
const UNSUPPORTED: &[(&[&str], &str)] = &[
    (&["COPY"], "unsupported statement: Copy"),
    (&["TRUNCATE"], "unsupported statement: Truncate"),
    (&["CREATE", "EXTENSION"], "unsupported statement: CreateExtension"),
    (&["CREATE", "TRIGGER"], "CREATE TRIGGER not supported"),
    (&["CREATE", "DATABASE"], "unsupported statement: Createdb"),
    (&["CREATE", "TEMPORARY", "TABLE"], "TEMPORARY or TEMP table not supported for CREATE TABLE"),
    (&["CREATE", "TEMP", "TABLE"], "TEMPORARY or TEMP table not supported for CREATE TABLE"),
    (&["CREATE", "UNLOGGED", "TABLE"], "UNLOGGED table not supported for CREATE TABLE"),
    (&["CREATE", "MATERIALIZED"], "unsupported statement: CreateTableAs"),
    (&["CREATE", "TABLESPACE"], "unsupported statement: CreateTableSpace"),
    (&["CREATE", "FOREIGN", "TABLE"], "unsupported statement: CreateForeignTable"),
    (&["VACUUM"], "unsupported VACUUM statement"),
    (&["LISTEN"], "unsupported statement: Listen"),
    (&["NOTIFY"], "unsupported statement: Notify"),
    (&["UNLISTEN"], "unsupported statement: Unlisten"),
    (&["ALTER", "SYSTEM"], "unsupported statement: AlterSystem"),
    (&["SAVEPOINT"], "unsupported transaction statement: SAVEPOINT"),
    (&["RELEASE"], "unsupported transaction statement: RELEASE"),
    (&["ROLLBACK", "TO"], "unsupported transaction statement: ROLLBACK TO"),
    (&["ROLLBACK", "WORK", "TO"], "unsupported transaction statement: ROLLBACK TO"),
    (&["ROLLBACK", "TRANSACTION", "TO"], "unsupported transaction statement: ROLLBACK TO"),
    (&["PREPARE"], "unsupported statement: Prepare"),
    (&["DECLARE"], "unsupported statement: DeclareCursor"),
    (&["LOCK"], "unsupported statement: Lock"),
    (&["MERGE"], "unsupported statement: Merge"),
    (&["DISCARD"], "unsupported statement: Discard"),
    (&["SET", "TRANSACTION"], "setting configuration parameter \"TRANSACTION\" not supported"),
];

/// Whether the service refuses a statement, and how.
///
/// # Errors
/// The refusal.
pub(crate) fn check(statement: &Statement) -> Result<(), SqlError> {
    match UNSUPPORTED.iter().find(|(words, _)| statement.begins(words)) {
        Some((_, message)) => Err(SqlError::unsupported(*message)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(sql: &str) -> Option<String> {
        check(&Statement::split(sql)[0]).err().map(|error| error.to_string())
    }

    #[test]
    fn what_was_recorded_is_refused_in_the_recorded_words() {
        assert_eq!(refusal("copy t from stdin").unwrap(), "0A000: unsupported statement: Copy");
        assert_eq!(refusal("TRUNCATE TABLE t").unwrap(), "0A000: unsupported statement: Truncate");
        assert_eq!(
            refusal("ROLLBACK TO SAVEPOINT a").unwrap(),
            "0A000: unsupported transaction statement: ROLLBACK TO"
        );
        assert_eq!(
            refusal("SET TRANSACTION READ ONLY").unwrap(),
            "0A000: setting configuration parameter \"TRANSACTION\" not supported"
        );
        for fine in ["SELECT 1", "ROLLBACK", "CREATE TABLE copy (a int)", "SET application_name = 'copy'"] {
            assert_eq!(refusal(fine), None, "{fine}");
        }
    }
}
