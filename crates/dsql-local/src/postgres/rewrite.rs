//! Translates the statements that only the service has. They call functions of `template.sql`.

use std::sync::Arc;

use super::quoting::literal;
use crate::statement::{Statement, spans};

/// The SQL for the server; `job` is the id of the job that the statement may submit.
pub(super) fn text(statement: &Statement, job: &str) -> Arc<str> {
    let text = statement.text();
    let rewritten = match (statement.word(0), statement.word(1)) {
        ("CREATE", "INDEX" | "UNIQUE") => index(text, job),
        ("ALTER", "TABLE") if statement.word(2) == "ASYNC" => validation(text, job),
        ("ALTER", "TABLE") => storage(text),
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

/// `ALTER TABLE t ADD COLUMN c text STORAGE PLAIN`. PostgreSQL before 16 needs two clauses.
fn storage(text: &str) -> Option<String> {
    let spans = spans(text);
    let word = |at: usize| spans.get(at).map_or("", |(token, _)| token.as_str());
    let at = (3..spans.len()).find(|at| word(*at) == "STORAGE" && word(at - 1) != "SET")?;
    let add = (2..at).rev().find(|at| word(*at) == "ADD")?;
    let column = (add + 1..at).find(|at| !["COLUMN", "IF", "NOT", "EXISTS"].contains(&word(*at)))?;
    let (before, name) = (&text[..spans[at].1.start], &text[spans[column].1.clone()]);
    let (kind, rest) = (&text[spans.get(at + 1)?.1.clone()], &text[spans[at + 1].1.end..]);
    Some(format!("{}, ALTER COLUMN {name} SET STORAGE {kind}{rest}", before.trim_end()))
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
                "ALTER TABLE t ADD COLUMN IF NOT EXISTS d text STORAGE PLAIN, ADD e int",
                "ALTER TABLE t ADD COLUMN IF NOT EXISTS d text, ALTER COLUMN d SET STORAGE PLAIN, ADD e int",
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
