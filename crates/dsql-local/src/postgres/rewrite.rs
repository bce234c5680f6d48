//! Translates the statements that only the service has. They call functions of `template.sql`.

use std::sync::Arc;

use super::quoting::{self, literal};
use crate::statement::{Statement, spans};

/// The SQL for the server; `job` is the id of the job that the statement may submit.
pub(super) fn text(statement: &Statement, job: &str) -> Arc<str> {
    let text = statement.text();
    let rewritten = match (statement.word(0), statement.word(1)) {
        ("CREATE", "INDEX" | "UNIQUE") => index(text, job),
        ("ALTER", "TABLE") if statement.word(2) == "ASYNC" => validation(text, job),
        ("ALTER", "TABLE") => alteration(text),
        ("CREATE", "TABLE") => table(text),
        ("CREATE", "STATISTICS") => statistics(text),
        ("AWS", "IAM") => mapping(text),
        _ => None,
    };
    rewritten.map_or_else(|| text.clone(), Arc::from)
}

/// Whether a statement submits a job.
pub(super) fn submits(statement: &Statement) -> bool {
    let words: &[&[&str]] = &[
        &["CREATE", "INDEX", "ASYNC"],
        &["CREATE", "UNIQUE", "INDEX", "ASYNC"],
        &["ALTER", "TABLE", "ASYNC"],
    ];
    words.iter().any(|words| statement.begins(words))
}

/// `CREATE [UNIQUE] INDEX ASYNC ...`. The index is not unique at first: that would be checked at once.
fn index(text: &str, job: &str) -> Option<String> {
    let spans = spans(text);
    let unique = spans.get(1).is_some_and(|(token, _)| token == "UNIQUE");
    let (_, place) = spans.get(2 + usize::from(unique)).filter(|(token, _)| token == "ASYNC")?;
    let definition = literal(&format!("CREATE INDEX{}", &text[place.end..]));
    Some(format!("SELECT job_id FROM pg_catalog.dsql_local_create_index('{job}', {definition}, {unique})"))
}

/// `ALTER TABLE ASYNC t VALIDATE CONSTRAINT c`.
fn validation(text: &str, job: &str) -> Option<String> {
    let spans = spans(text);
    let (_, place) = spans.get(2).filter(|(token, _)| token == "ASYNC")?;
    let verb = spans.windows(2).find(|pair| pair[0].0 == "VALIDATE" && pair[1].0 == "CONSTRAINT")?;
    let table = literal(text.get(place.end..verb[0].1.start)?.trim());
    let constraint = literal(text[verb[1].1.end..].trim());
    Some(format!("SELECT job_id FROM pg_catalog.dsql_local_validate('{job}', {table}, {constraint})"))
}

/// How PostgreSQL may store a column.
const STORAGES: [&str; 5] = ["PLAIN", "EXTERNAL", "EXTENDED", "MAIN", "DEFAULT"];

/// Clauses of ALTER TABLE that PostgreSQL before 16 does not have, and those about triggers. Tables have none but the
/// emulator's own, which stay as they are. Each becomes a clause without an effect.
fn alteration(text: &str) -> Option<String> {
    let spans = spans(text);
    let token = |at: usize| spans.get(at).map_or("", |(token, _)| token.as_str());
    for at in 3..spans.len() {
        let (end, replacement) = match [token(at), token(at + 1), token(at + 2)] {
            ["ENABLE" | "DISABLE", "TRIGGER", "ALL" | "USER"] => (at + 2, "RESET (fillfactor)"),
            ["SET", "STORAGE", "DEFAULT"] => (at + 2, "SET STATISTICS -1"),
            ["STORAGE", kind, _] if STORAGES.contains(&kind) && token(at - 1) != "SET" => (at + 1, ""),
            _ => continue,
        };
        let (before, after) = (&text[..spans[at].1.start], &text[spans[end].1.end..]);
        let rewritten = match replacement {
            "" => format!("{}{after}", before.trim_end()),
            clause => format!("{before}{clause}{after}"),
        };
        // There may be more of them.
        return Some(alteration(&rewritten).unwrap_or(rewritten));
    }
    None
}

/// `CREATE TABLE t (c text STORAGE PLAIN)`. PostgreSQL before 16 does not have the clause.
fn table(text: &str) -> Option<String> {
    let spans = spans(text);
    let token = |at: usize| spans.get(at).map_or("", |(token, _)| token.as_str());
    // A column may have this name.
    let is_clause = |at: &usize| {
        token(*at) == "STORAGE" && STORAGES.contains(&token(at + 1)) && !["(", ","].contains(&token(at - 1))
    };
    let at = (3..spans.len()).find(is_clause)?;
    let rewritten = format!("{}{}", text[..spans[at].1.start].trim_end(), &text[spans[at + 1].1.end..]);
    Some(table(&rewritten).unwrap_or(rewritten))
}

/// `CREATE STATISTICS ON a, b FROM t`. PostgreSQL before 16 does not choose a name. This is how later versions do it.
fn statistics(text: &str) -> Option<String> {
    let spans = spans(text);
    let token = |at: usize| spans.get(at).map_or("", |(token, _)| token.as_str());
    if !["(", "ON"].contains(&token(2)) {
        return None;
    }
    let on = (2..spans.len()).find(|at| token(*at) == "ON")?;
    let from = (on..spans.len()).rfind(|at| token(*at) == "FROM")?;
    let name = |at: usize| text[spans[at].1.clone()].trim_matches('"').to_ascii_lowercase();
    let mut parts = vec![name(spans.len() - 1)];
    let mut depth = 0_usize;
    for at in on + 1..from {
        match token(at) {
            "(" if depth == 0 => {
                parts.push("expr".to_owned());
                depth += 1;
            }
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            "," => {}
            _ if depth == 0 => parts.push(name(at)),
            _ => {}
        }
    }
    parts.push("stat".to_owned());
    let at = spans[1].1.end;
    Some(format!("{} {}{}", &text[..at], quoting::name(&parts.join("_")), &text[at..]))
}

/// `AWS IAM GRANT role TO 'arn'`, `AWS IAM REVOKE role FROM 'arn'`.
fn mapping(text: &str) -> Option<String> {
    let spans = spans(text);
    let words: Vec<&str> = spans.iter().map(|(token, _)| token.as_str()).collect();
    let verb = match words[..] {
        ["AWS", "IAM", "GRANT", _, "TO", "'"] => "GRANT",
        ["AWS", "IAM", "REVOKE", _, "FROM", "'"] => "REVOKE",
        _ => return None,
    };
    let (role, arn) = (literal(&text[spans[3].1.clone()]), &text[spans[5].1.clone()]);
    Some(format!("CALL pg_catalog.dsql_local_iam_change('{verb}', {role}, {arn})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rewritten(sql: &str) -> String {
        text(&Statement::split(sql)[0], "j").to_string()
    }

    #[test]
    fn statements_of_the_service_are_translated() {
        for (sql, expected) in [
            (
                "create unique index async \"a'b\" on t (v)",
                "SELECT job_id FROM pg_catalog.dsql_local_create_index('j', E'CREATE INDEX \"a''b\" on t (v)', true)",
            ),
            (
                "CREATE INDEX ASYNC ON t (v) WHERE v <> 'x'",
                "SELECT job_id FROM pg_catalog.dsql_local_create_index('j', E'CREATE INDEX ON t (v) WHERE v <> ''x''', false)",
            ),
            (
                "ALTER TABLE ASYNC s.\"T\" VALIDATE CONSTRAINT c",
                "SELECT job_id FROM pg_catalog.dsql_local_validate('j', E's.\"T\"', E'c')",
            ),
            (
                "AWS IAM REVOKE app FROM 'arn:x'",
                "CALL pg_catalog.dsql_local_iam_change('REVOKE', E'app', 'arn:x')",
            ),
            (
                "ALTER TABLE t ADD COLUMN IF NOT EXISTS d text STORAGE PLAIN, ADD e text STORAGE DEFAULT",
                "ALTER TABLE t ADD COLUMN IF NOT EXISTS d text, ADD e text",
            ),
            (
                "CREATE STATISTICS (mcv) ON id, (id + 1) FROM s.t",
                "CREATE STATISTICS \"t_id_expr_stat\" (mcv) ON id, (id + 1) FROM s.t",
            ),
            ("ALTER TABLE t ALTER a SET STORAGE default", "ALTER TABLE t ALTER a SET STATISTICS -1"),
            ("alter table t disable trigger user", "alter table t RESET (fillfactor)"),
            (
                "CREATE TABLE t (storage text, d text STORAGE MAIN NOT NULL, e text STORAGE DEFAULT)",
                "CREATE TABLE t (storage text, d text NOT NULL, e text)",
            ),
        ] {
            assert_eq!(rewritten(sql), expected, "{sql}");
        }
        for same in [
            "SELECT 1",
            "ALTER TABLE t ALTER COLUMN a SET STORAGE PLAIN",
            "ALTER TABLE ASYNC",
            "ALTER TABLE storage ADD COLUMN a text",
            "AWS IAM GRANT app",
            "CREATE STATISTICS s ON a, b FROM t",
            "CREATE INDEX \"async\" ON t (v)",
        ] {
            assert_eq!(rewritten(same), same);
        }
    }

    proptest! {
        #[test]
        fn no_statement_makes_it_panic(
            head in prop::sample::select(vec!["CREATE INDEX", "ALTER TABLE", "ALTER TABLE ASYNC", "AWS IAM GRANT"]),
            words in prop::collection::vec(
                prop::sample::select(vec![
                    "ASYNC", "ADD", "COLUMN", "STORAGE", "VALIDATE", "CONSTRAINT", "TO", "a", "é", "'x'", "'", "\"", "(", ")", "$1", ".",
                ]),
                0..8,
            ),
        ) {
            let sql = format!("{head} {}", words.join(" "));
            prop_assert!(!rewritten(&sql).is_empty());
        }
    }
}
