//! The names of the settings that a text changes.

use std::collections::BTreeSet;

use super::words::{Word, dialects, words};
use super::{effects, is_any};

/// The settings that a text changes, as they follow `RESET`: `x`, `GLOBAL x`, `VARIABLE x`. None if it may change something
/// else, or a name cannot be read with certainty.
pub(crate) fn changed_settings(sql: &str) -> Option<BTreeSet<String>> {
    let mut readings = dialects(sql).into_iter().map(|dialect| {
        let words = words(sql, dialect)?;
        let mut names = BTreeSet::new();
        for statement in words.split(|word| *word == Word::End) {
            if !statement.is_empty() && effects::alters_settings(statement) {
                names.insert(changed_setting(statement)?);
            }
        }
        Some(names)
    });
    let names = readings.next()??;
    readings.all(|other| other.as_ref() == Some(&names)).then_some(names)
}

/// `SET [SESSION | GLOBAL | VARIABLE] name = value`, or with TO, and `PRAGMA name = value`.
pub(super) fn changed_setting(statement: &[Word<'_>]) -> Option<String> {
    let [Word::Keyword(verb), rest @ ..] = statement else { return None };
    let (scope, rest) = match rest {
        [Word::Keyword(scope), rest @ ..]
            if is_any(verb, &["set"])
                && is_any(scope, &["session", "global", "variable"])
                && !is_assignment(rest) =>
        {
            (format!("{} ", scope.to_ascii_uppercase()), rest)
        }
        rest => (String::new(), rest),
    };
    let [Word::Keyword(name) | Word::Quoted(name), value @ ..] = rest else { return None };
    let is_plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    // A comma may separate two settings, and a value that calls or selects something may do more.
    let is_one =
        !value.iter().any(|word| matches!(word, Word::Comma | Word::Open | Word::Assign | Word::Doubt));
    (is_any(verb, &["set", "pragma"]) && is_plain && is_one && is_assignment(value))
        .then(|| format!("{scope}{name}"))
}

/// Whether a value follows, after `=` or TO.
fn is_assignment(rest: &[Word<'_>]) -> bool {
    match rest {
        [Word::Other, _, ..] => true,
        [Word::Keyword(to), _, ..] => is_any(to, &["to"]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_or_nothing_is() {
        for (sql, names) in [
            ("SET threads = 4", &["threads"][..]),
            ("set threads to 4;", &["threads"]),
            ("SET \"TimeZone\" = 'Europe/Oslo'", &["TimeZone"]),
            ("SET GLOBAL memory_limit='1GB'", &["GLOBAL memory_limit"]),
            ("SET SESSION search_path = 'a,b'", &["SESSION search_path"]),
            ("SET VARIABLE x = 7", &["VARIABLE x"]),
            ("SET variable = 7", &["variable"]),
            ("PRAGMA threads = 4", &["threads"]),
            ("SET a = -1; SELECT 1; SET b = true", &["a", "b"]),
            ("CREATE TEMP TABLE t (a INT); SET a = 1", &["a"]),
        ] {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(changed_settings(sql), Some(names), "{sql}");
        }
        for sql in [
            "SET a = 1, b = 2",
            "SET LOCAL a = 1",
            "SET TIME ZONE 'Europe/Oslo'",
            "SET TRANSACTION READ ONLY",
            "SET ROLE me",
            "SET x.y = 1",
            "SET \"a b\" = 1",
            "SET @x = 1",
            "SET a = (SELECT setseed(0.5))",
            "SET a",
            "SET a =",
            "PRAGMA enable_profiling",
            "PRAGMA threads(4)",
            "ATTACH 'x.db' AS x",
            "CREATE SECRET s (TYPE s3)",
            "CALL everything()",
            "SET a = 1; CALL everything()",
            "SET a = 'unfinished",
            "SET a = 1 --1",
        ] {
            assert_eq!(changed_settings(sql), None, "{sql}");
        }
    }
}
