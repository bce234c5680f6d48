//! Names that the emulator itself uses.

use crate::error::SqlError;
use crate::statement::{Kind, Statement, names, spans};

/// The prefix of the emulator's own names.
const OWN: &str = "dsql_local";

pub(super) fn check(statement: &Statement) -> Result<(), SqlError> {
    let text = statement.text();
    // Also in string literals: the body of a function is one.
    if statement.contains_ignore_case(OWN) {
        return Err(SqlError::new("42501", "names that contain dsql_local are the emulator's own"));
    }
    if escapes(text) {
        return Err(SqlError::unsupported("unicode escapes (U&) are not supported by dsql-local"));
    }
    let temporary = |name: &String| name == "pg_temp" || name.starts_with("pg_temp_");
    let names_one = || statement.kind() == Kind::Set || names(text).iter().any(temporary);
    if statement.contains_ignore_case("pg_temp") && names_one() {
        return Err(SqlError::unsupported("temporary schemas are not supported"));
    }
    Ok(())
}

/// Whether a name or string is written with unicode escapes, as in `U&"d\0061t"`.
fn escapes(text: &str) -> bool {
    // A cheap check first: hardly any statement has these.
    text.contains("&\"") && written(text, "\"") || text.contains("&'") && written(text, "'")
}

fn written(text: &str, quote: &str) -> bool {
    spans(text).windows(3).any(|window| {
        let [(word, at), (sign, then), (quoted, last)] = window else { return false };
        let adjacent = at.end == then.start && then.end == last.start;
        adjacent && word == "U" && sign == "&" && quoted == quote
    })
}

#[cfg(test)]
mod tests {
    use crate::rules::refusal;

    #[test]
    fn clients_cannot_use_the_emulators_own_names() {
        for sql in [
            "SELECT dsql_local_validate('x', 'y', 'z')",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT DSQL_local_x()'",
            "SELECT U&\"d\\0061t\" FROM t",
            "SELECT u&'\\0061'",
            "CREATE TABLE pg_temp.t (id int)",
            "CREATE TABLE \"pg_temp\".t (id int)",
            "SET search_path = 'pg_temp, public'",
            "CREATE LOCAL TEMP TABLE t (id int)",
            "CREATE TEMP SEQUENCE s CACHE 1",
            "(SELECT 1 AS a INTO t)",
            "WITH a AS (SELECT 1) SELECT * INTO t FROM a",
            "SELECT \"pg_advisory_lock\"(1)",
            "CREATE FUNCTION f() RETURNS int LANGUAGE/**/plpgsql AS 'x'",
            "CREATE FUNCTION f() RETURNS int LANGUAGE \"plpgsql\" AS 'x'",
        ] {
            assert!(refusal(sql).is_some(), "{sql}");
        }
        for sql in [
            "SELECT 'u' & 'x'",
            "SELECT a&\"b\" FROM t",
            "SELECT 'pg_temp'",
            "WITH a AS (INSERT INTO t VALUES (1) RETURNING id) SELECT * FROM a",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        ] {
            assert_eq!(refusal(sql), None, "{sql}");
        }
    }
}
