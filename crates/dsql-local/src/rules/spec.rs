//! What the narrower rules of the specification refuse in addition. Where the text is not known, it follows
//! the others.

use super::clauses::refuse;
use crate::error::SqlError;
use crate::statement::has;
use crate::statement::{Kind, Statement};

/// Clauses that the service supports only since later, and the errors.
const LATER: &[(&[&str], &str)] = &[
    (&["CHECK", "("], "CHECK constraint not supported"),
    (&["REFERENCES"], "FOREIGN KEY constraint not supported"),
    (&["FOREIGN", "KEY"], "FOREIGN KEY constraint not supported"),
    (&["AS", "IDENTITY"], "identity column not supported"),
    (&["COLLATE"], "COLLATE clause not supported"),
];

pub(super) fn check(statement: &Statement, tokens: &[String]) -> Result<(), SqlError> {
    match statement.kind() {
        Kind::Ddl => definition(statement, tokens),
        Kind::Set if statement.begins(&["RESET", "ALL"]) => refuse("RESET ALL not supported"),
        Kind::Other if statement.begins(&["DEALLOCATE"]) => refuse("unsupported statement: Deallocate"),
        Kind::Other if statement.begins(&["SET", "CONSTRAINTS"]) => {
            refuse("unsupported statement: ConstraintsSet")
        }
        _ => Ok(()),
    }
}

fn definition(statement: &Statement, tokens: &[String]) -> Result<(), SqlError> {
    match (statement.word(0), statement.word(1)) {
        ("CREATE" | "ALTER", "SEQUENCE") => refuse(format!("{} SEQUENCE not supported", statement.word(0))),
        ("CREATE" | "ALTER", "TABLE" | "DOMAIN") => {
            if let Some((_, message)) = LATER.iter().find(|(words, _)| has(tokens, words)) {
                return refuse(*message);
            }
            // Whatever is not one of these is a column, with or without the word COLUMN.
            match tokens.windows(2).skip(2).find(|pair| pair[0] == "DROP") {
                _ if statement.word(0) != "ALTER" || statement.word(1) != "TABLE" => Ok(()),
                Some([_, what]) if what == "CONSTRAINT" => {
                    refuse("unsupported ALTER TABLE DROP CONSTRAINT statement")
                }
                Some([_, what]) if !["DEFAULT", "NOT", "EXPRESSION", "IDENTITY"].contains(&what.as_str()) => {
                    refuse("unsupported ALTER TABLE DROP COLUMN statement")
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Rules;
    use crate::rules::refusal_by;

    #[test]
    fn newer_features_are_refused_only_by_the_narrower_rules() {
        for sql in [
            "CREATE TABLE t (n int CHECK (n > 0))",
            "CREATE TABLE t (n int REFERENCES p (id))",
            "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY (CACHE 1))",
            "CREATE TABLE t (v text COLLATE \"C\")",
            "CREATE SEQUENCE s CACHE 1",
            "ALTER TABLE t DROP COLUMN v",
            "ALTER TABLE t DROP v",
            "RESET ALL",
            "DEALLOCATE ALL",
            "SELECT 1 FROM t FOR KEY SHARE",
        ] {
            assert_eq!(refusal_by(Rules::Today, sql), None, "{sql}");
            assert!(refusal_by(Rules::Spec, sql).is_some_and(|error| error.contains("supported")), "{sql}");
        }
        for fine in
            ["ALTER TABLE t ALTER COLUMN v DROP DEFAULT", "SELECT 1 FROM t FOR UPDATE", "RESET TimeZone"]
        {
            assert_eq!(refusal_by(Rules::Spec, fine), None, "{fine}");
        }
    }
}
