//! CREATE INDEX.

use std::collections::BTreeMap;

use super::{Known, Refusal, Rules, tables};
use crate::sql::{Statement, Word};

/// What may follow a key. Anything else is an operator class.
const AFTER_KEY: [&str; 3] = ["ASC", "DESC", "NULLS"];

pub(super) fn check(statement: &Statement, rules: Rules, known: &Known) -> Vec<Refusal> {
    let words = statement.words();
    let refuse = |word: &Word, message: &str, remedy: &str| {
        Refusal::new(statement, message, remedy).at(statement, word)
    };
    let at = 1 + usize::from(statement.key(1) == "UNIQUE");
    let mut refusals = Vec::new();
    match words.get(at + 1).map(Word::key) {
        Some("ASYNC") | None => {}
        Some("CONCURRENTLY") => {
            let message = "CONCURRENTLY not supported for CREATE INDEX";
            refusals.push(refuse(&words[at + 1], message, "write CREATE INDEX ASYNC").fixable());
        }
        Some(_) => {
            let message = "unsupported mode. please use CREATE INDEX ASYNC.";
            refusals.push(refuse(&words[at], message, "write CREATE INDEX ASYNC").fixable());
        }
    }
    let using = words.windows(2).find(|pair| pair[0].depth == 0 && pair[0].is("USING"));
    if let Some([using, method]) = using {
        let message = "USING not supported for CREATE INDEX";
        refusals.push(if method.is("BTREE") {
            refuse(using, message, "remove USING btree: there is no other").fixable()
        } else {
            refuse(
                using,
                message,
                "there are only ordered indexes: remove the index, or index a column or expression",
            )
        });
    }
    for word in words.iter().filter(|word| word.depth == 1) {
        let message = "specifying sort order not supported for index keys";
        match word.key() {
            "ASC" => refusals.push(refuse(word, message, "remove ASC: it is the order").fixable()),
            "DESC" => {
                refusals.push(refuse(word, message, "remove DESC: an index is read in both directions"))
            }
            _ => {}
        }
    }
    if let Some(word) = words.iter().find(|word| word.depth == 0 && word.is("WHERE"))
        && rules == Rules::Spec
    {
        refusals.push(refuse(word, "WHERE not supported for CREATE INDEX", "index all rows"));
    }
    refusals.extend(keys(statement, rules, known));
    refusals
}

/// The columns and expressions of the key.
fn keys(statement: &Statement, rules: Rules, known: &Known) -> Vec<Refusal> {
    let words = statement.words();
    let Some(open) = words.iter().position(|word| word.is("(")) else { return Vec::new() };
    let end =
        words[open + 1..].iter().position(|word| word.depth == 0).map_or(words.len(), |end| open + 1 + end);
    let inner = &words[open + 1..end];
    let keys: Vec<&[Word]> =
        inner.split(|word| word.depth == 1 && word.is(",")).filter(|key| !key.is_empty()).collect();
    let mut refusals = Vec::new();
    let mut columns = Vec::new();
    for key in &keys {
        let is_expression = key[0].is("(") || key.get(1).is_some_and(|word| word.is("("));
        if is_expression && rules == Rules::Spec {
            let message = "expressions not supported for index keys";
            refusals.push(Refusal::new(statement, message, "index a column").at(statement, &key[0]));
        }
        columns.push(if is_expression { None } else { Some(&key[0]) });
        let class = class(key, is_expression);
        if let Some(word) = class.filter(|word| !is_default_class(statement, word)) {
            let message = "opclass not supported for index keys";
            refusals.push(Refusal::new(statement, message, "remove it").at(statement, word));
        }
    }
    let none = BTreeMap::new();
    let types = table(statement).and_then(|table| known.tables.get(&table)).unwrap_or(&none);
    let key = &words[open];
    if columns.len() > tables::KEY_COLUMNS {
        let message = "more than 8 column keys in an index are not supported";
        refusals.push(Refusal::new(statement, message, "use fewer columns").at(statement, key));
    } else {
        let columns: Vec<&Word> = columns.into_iter().flatten().collect();
        refusals.extend(tables::key_columns(statement, key, &columns, types, rules));
    }
    refusals
}

/// The operator class of a key: what follows the column or expression, and its collation.
fn class(key: &[Word], is_expression: bool) -> Option<&Word> {
    let mut at = 1;
    if is_expression {
        at = key.iter().position(|word| word.is(")") && word.depth == key[0].depth)? + 1;
    }
    if key.get(at).is_some_and(|word| word.is("COLLATE")) {
        at += 2;
        while key.get(at).is_some_and(|word| word.is(".")) {
            at += 2;
        }
    }
    key.get(at).filter(|word| word.is_name() && !AFTER_KEY.contains(&word.key()))
}

/// Whether an operator class is the one that a type has anyway, such as `text_ops`.
fn is_default_class(statement: &Statement, word: &Word) -> bool {
    let name = statement.name(word).unwrap_or_default();
    let kind = name.strip_suffix("_ops").unwrap_or("pattern");
    kind != "varchar" && !kind.contains("pattern") && !kind.contains('_')
}

fn table(statement: &Statement) -> Option<String> {
    let words = statement.words();
    let on = words.iter().position(|word| word.depth == 0 && word.is("ON"))?;
    let mut at = on + 1 + usize::from(statement.key(on + 1) == "ONLY");
    while statement.key(at + 1) == "." {
        at += 2;
    }
    statement.name(words.get(at)?)
}

#[cfg(test)]
mod tests {
    use crate::rules::{Rules, refusals};

    #[test]
    fn an_index_is_plain_and_built_in_the_background() {
        for (sql, message) in [
            ("CREATE INDEX i ON t (a)", "unsupported mode. please use CREATE INDEX ASYNC."),
            ("CREATE UNIQUE INDEX CONCURRENTLY i ON t (a)", "CONCURRENTLY not supported for CREATE INDEX"),
            ("CREATE INDEX \"async\" ON t (a)", "unsupported mode. please use CREATE INDEX ASYNC."),
            ("CREATE INDEX ASYNC i ON t USING gin (a)", "USING not supported for CREATE INDEX"),
            ("CREATE INDEX ASYNC i ON t (a DESC)", "specifying sort order not supported for index keys"),
            ("CREATE INDEX ASYNC i ON t (a text_pattern_ops)", "opclass not supported for index keys"),
            (
                "CREATE INDEX ASYNC i ON t (a COLLATE \"C\" text_pattern_ops)",
                "opclass not supported for index keys",
            ),
            ("CREATE INDEX ASYNC i ON t (lower(a) text_pattern_ops)", "opclass not supported for index keys"),
            ("CREATE INDEX ASYNC i ON t ((a || b) text_pattern_ops)", "opclass not supported for index keys"),
            (
                "CREATE TABLE t (d jsonb); CREATE INDEX ASYNC ON t (d)",
                "datatype jsonb is not supported in a key",
            ),
            (
                "CREATE INDEX ASYNC ON t (a, b, c, d, e, f, g, h, i)",
                "more than 8 column keys in an index are not supported",
            ),
        ] {
            assert_eq!(refusals(sql, Rules::Today), [message], "{sql}");
        }
        for fine in [
            "CREATE UNIQUE INDEX ASYNC IF NOT EXISTS i ON t (a NULLS FIRST, b COLLATE \"C\") INCLUDE (w)",
            "CREATE INDEX ASYNC ON ONLY s.t (a int4_ops)",
            "CREATE INDEX ASYNC ON t (lower(a) COLLATE pg_catalog.\"C\" NULLS FIRST, (a || b))",
            "CREATE TABLE t (d jsonb); CREATE INDEX ASYNC ON t ((d->>'a'))",
        ] {
            assert_eq!(refusals(fine, Rules::Today), [""; 0], "{fine}");
        }
        for newer in [
            "CREATE INDEX ASYNC ON t ((lower(v)))",
            "CREATE INDEX ASYNC ON t (lower(v))",
            "CREATE INDEX ASYNC ON t (v) WHERE v > 1",
        ] {
            assert_eq!(refusals(newer, Rules::Today), [""; 0], "{newer}");
            assert_eq!(refusals(newer, Rules::Spec).len(), 1, "{newer}");
        }
    }
}
