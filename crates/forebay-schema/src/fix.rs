//! Statements that Aurora DSQL needs otherwise, where only one other way means the same.

use crate::sql::Statement;

/// An index as Aurora DSQL builds it: in the background, of its only kind, in its only order.
pub(crate) fn rewrite(statement: &Statement) -> Option<Statement> {
    let at = 1 + usize::from(statement.key(1) == "UNIQUE");
    if statement.key(0) != "CREATE" || statement.key(at) != "INDEX" {
        return None;
    }
    let words = statement.words();
    let text = statement.text();
    // What is cut out of the text, and what is put in its place.
    let mut edits = Vec::new();
    match statement.key(at + 1) {
        "ASYNC" => {}
        "CONCURRENTLY" => edits.push((words[at + 1].range.clone(), "ASYNC")),
        _ => edits.push((words[at].range.end..words[at].range.end, " ASYNC")),
    }
    for pair in words.windows(2) {
        if pair[0].depth == 0 && pair[0].is("USING") && pair[1].is("BTREE") {
            edits.push((pair[0].range.start..pair[1].range.end, ""));
        }
    }
    edits.extend(
        words.iter().filter(|word| word.depth == 1 && word.is("ASC")).map(|word| (word.range.clone(), "")),
    );
    if edits.is_empty() {
        return None;
    }
    let (mut fixed, mut from) = (String::new(), 0);
    for (range, replacement) in edits {
        fixed += &text[from..range.start];
        if replacement.is_empty() {
            fixed.truncate(fixed.trim_end().len());
        }
        fixed += replacement;
        from = range.end;
    }
    fixed += &text[from..];
    Some(Statement::parse(&fixed).at_line(statement.line()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_built_in_the_background() {
        for (sql, expected) in [
            ("CREATE INDEX i ON t (a)", Some("CREATE INDEX ASYNC i ON t (a)")),
            ("create unique index on t (a asc, b)", Some("create unique index ASYNC on t (a, b)")),
            (
                "CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON t USING btree (a)",
                Some("CREATE INDEX ASYNC IF NOT EXISTS i ON t (a)"),
            ),
            ("CREATE INDEX ASYNC i ON t (a)", None),
            ("CREATE INDEX ASYNC i ON t (a DESC)", None),
            ("CREATE TABLE t (a int)", None),
        ] {
            let fixed = rewrite(&Statement::parse(sql));
            assert_eq!(fixed.as_ref().map(Statement::text), expected, "{sql}");
        }
    }
}
