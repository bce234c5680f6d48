//! Queries, and statements that change rows.

use super::{Refusal, Rules, find};
use crate::sql::Statement;

const LOCKS: &str =
    "use FOR UPDATE, or no lock: of two transactions that conflict, the second fails at COMMIT";

pub(super) fn check(statement: &Statement, rules: Rules) -> Option<Refusal> {
    let words = statement.words();
    let refuse = |message: &str, remedy: &str| Refusal::new(statement, message, remedy);
    if statement.key(0) == "COPY" {
        return copy(statement);
    }
    let locks: &[&[&str]] = match rules {
        Rules::Spec => &[&["FOR", "SHARE"], &["FOR", "NO", "KEY", "UPDATE"], &["FOR", "KEY", "SHARE"]],
        Rules::Today => &[&["FOR", "SHARE"], &["FOR", "NO", "KEY", "UPDATE"]],
    };
    if let Some(word) = locks.iter().find_map(|keys| find(words, keys)) {
        let message = match rules {
            Rules::Spec => "locking clauses other than FOR UPDATE are not supported",
            Rules::Today => "locking clauses other than FOR UPDATE/FOR KEY SHARE are not supported",
        };
        return Some(refuse(message, LOCKS).at(statement, word));
    }
    for word in words {
        let Some(name) = statement.name(word) else { continue };
        if name.starts_with("pg_advisory_") || name.starts_with("pg_try_advisory_") {
            let message = format!("function {name} not supported");
            let remedy = "there are no advisory locks; migrations need none here: one run at a time works";
            return Some(Refusal::new(statement, message, remedy).at(statement, word));
        }
    }
    let is_query = matches!(statement.key(0), "SELECT" | "WITH" | "(" | "VALUES" | "TABLE");
    let into = words.windows(2).find(|pair| pair[1].is("INTO") && !pair[0].is("INSERT"));
    if let Some(pair) = into.filter(|_| is_query) {
        let remedy = "create the table, then INSERT INTO it";
        return Some(refuse("unsupported statement: CreateTableAs", remedy).at(statement, &pair[1]));
    }
    if let Some(window) = words.windows(3).find(|window| window[0].is("TABLESAMPLE") && window[2].is("(")) {
        let remedy = "use a condition on a random value";
        return Some(refuse("TABLESAMPLE clause not supported", remedy).at(statement, &window[0]));
    }
    None
}

/// Rows come from a client, and a migration has none to send.
fn copy(statement: &Statement) -> Option<Refusal> {
    let words = statement.words();
    let outside = |keys: &[&str]| {
        words.windows(2).any(|pair| pair[0].depth == 0 && pair[0].is(keys[0]) && pair[1].is(keys[1]))
    };
    if outside(&["TO", "STDOUT"]) {
        let message = "a migration has no place for the rows of COPY ... TO STDOUT";
        return Some(Refusal::new(statement, message, "remove it"));
    }
    let message = match outside(&["FROM", "STDIN"]) {
        true => "a migration has no rows to send for COPY ... FROM STDIN",
        false => "unsupported statement: Copy",
    };
    Some(Refusal::new(
        statement,
        message,
        "write INSERT statements, or load the rows with psql's \\copy afterwards",
    ))
}

#[cfg(test)]
mod tests {
    use crate::rules::{Rules, refusals};

    #[test]
    fn clauses_are_found_at_any_depth_and_not_in_strings() {
        let locking = "locking clauses other than FOR UPDATE/FOR KEY SHARE are not supported";
        for (sql, message) in [
            ("SELECT 1 FROM (SELECT 1 FROM t FOR SHARE) x", locking),
            ("SELECT \"pg_advisory_lock\"(1)", "function pg_advisory_lock not supported"),
            ("WITH a AS (SELECT 1) SELECT * INTO t FROM a", "unsupported statement: CreateTableAs"),
            ("SELECT 1 FROM t TABLESAMPLE SYSTEM (1)", "TABLESAMPLE clause not supported"),
            ("COPY t FROM '/x'", "unsupported statement: Copy"),
            ("COPY t FROM STDIN", "a migration has no rows to send for COPY ... FROM STDIN"),
        ] {
            assert_eq!(refusals(sql, Rules::Today), [message], "{sql}");
        }
        for fine in [
            "SELECT 'for share' -- for share",
            "SELECT 1 FROM t FOR KEY SHARE",
            "WITH w AS (INSERT INTO t VALUES (1) RETURNING a) SELECT a FROM w",
            "INSERT INTO t SELECT 1",
        ] {
            assert_eq!(refusals(fine, Rules::Today), [""; 0], "{fine}");
        }
    }
}
