//! Compares answers with the expected ones.

use std::collections::BTreeMap;

use super::client::{Answer, End, Exchange};
use super::tree::Node;

/// Texts that later steps use.
pub(super) type Saved = BTreeMap<String, String>;

/// A pattern of the table and the actual text; the database compares them.
pub(super) type Match = (String, String);

/// Compares patterns in the database, which has regular expressions.
pub(super) async fn compare(database: &tokio_postgres::Client, matches: Vec<Match>) -> Result<(), String> {
    for (pattern, got) in matches {
        let found = database.query_one("SELECT $2::text ~ $1::text", &[&pattern, &got]).await;
        if !found.unwrap().get::<_, bool>(0) {
            return Err(format!("expected /{pattern}/, got {got:?}"));
        }
    }
    Ok(())
}

/// Compares the answers to a step. Returns the patterns that are still to be compared.
pub(super) fn exchange(expected: &Node, got: &Exchange, saved: &Saved) -> Result<Vec<Match>, String> {
    let mut check = Check { saved, matches: Vec::new() };
    if expected.get("closed").is_some() {
        let closed = got.answers.is_empty() && got.status.is_none();
        return if closed { Ok(Vec::new()) } else { Err(format!("expected a close, got {got:?}")) };
    }
    let status = got.status.ok_or_else(|| format!("the socket was closed after {:?}", got.answers))?;
    if expected.text("status").is_some_and(|expected| expected != status.to_string()) {
        return Err(format!("expected status {:?}, got {status}", expected.text("status")));
    }
    if let Some(results) = expected.get("results") {
        let results = results.items();
        if results.len() != got.answers.len() {
            return Err(format!("expected {} answers, got {:?}", results.len(), got.answers));
        }
        for (expected, got) in results.iter().zip(&got.answers) {
            check.answer(expected, got)?;
        }
    } else if let Some(last) = got.answers.last() {
        check.answer(expected, last)?;
    } else if expected.get("prepare").is_none() || fails(expected) {
        return Err("no answer".to_owned());
    }
    Ok(check.matches)
}

/// Compares a single answer.
pub(super) fn answer(expected: &Node, got: &Answer) -> Result<Vec<Match>, String> {
    let saved = Saved::new();
    let mut check = Check { saved: &saved, matches: Vec::new() };
    check.answer(expected, got)?;
    Ok(check.matches)
}

/// Whether an error is expected.
pub(super) fn fails(expected: &Node) -> bool {
    ["sqlstate", "message", "contains"].iter().any(|key| expected.get(key).is_some())
}

/// A text of the table with the saved texts filled in.
pub(super) fn fill(text: &str, saved: &Saved) -> String {
    saved.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

struct Check<'a> {
    saved: &'a Saved,
    matches: Vec<Match>,
}

impl Check<'_> {
    fn answer(&mut self, expected: &Node, got: &Answer) -> Result<(), String> {
        match &got.end {
            End::Error(fields) if fails(expected) => self.error(expected, fields),
            End::Empty if expected.get("empty").is_some() => Ok(()),
            End::Tag(tag) if !fails(expected) && expected.get("empty").is_none() => {
                let wanted = expected.text("ok").unwrap_or("any");
                if wanted != "any" && wanted != tag {
                    return Err(format!("expected {wanted}, got {tag}"));
                }
                self.columns(expected, got)?;
                self.rows(expected, got)
            }
            other => Err(format!("expected {}, got {other:?}", brief(expected))),
        }
    }

    fn error(&mut self, expected: &Node, fields: &BTreeMap<char, String>) -> Result<(), String> {
        for (key, field) in [("sqlstate", 'C'), ("message", 'M'), ("detail", 'D'), ("hint", 'H')] {
            let Some(wanted) = expected.get(key) else { continue };
            let got = fields.get(&field).map(String::as_str);
            if !self.same(wanted, got) {
                return Err(format!("expected {key} {wanted:?}, got {fields:?}"));
            }
        }
        let message = fields.get(&'M').map(|message| message.to_lowercase()).unwrap_or_default();
        match expected.text("contains") {
            Some(part) if !message.contains(&part.to_lowercase()) => {
                Err(format!("expected a message with {part:?}, got {fields:?}"))
            }
            _ => Ok(()),
        }
    }

    fn columns(&mut self, expected: &Node, got: &Answer) -> Result<(), String> {
        let Some(wanted) = expected.get("columns") else { return Ok(()) };
        let same =
            wanted.items().iter().map(Node::as_text).eq(got.columns.iter().map(|name| Some(name.as_str())));
        if same { Ok(()) } else { Err(format!("expected columns {wanted:?}, got {:?}", got.columns)) }
    }

    fn rows(&mut self, expected: &Node, got: &Answer) -> Result<(), String> {
        let Some(Node::List(wanted)) = expected.get("rows") else { return Ok(()) };
        let same = wanted.len() == got.rows.len()
            && wanted.iter().zip(&got.rows).all(|(wanted, got)| {
                wanted.items().len() == got.len()
                    && wanted.items().iter().zip(got).all(|(wanted, got)| self.same(wanted, got.as_deref()))
            });
        if same { Ok(()) } else { Err(format!("expected rows {wanted:?}, got {:?}", got.rows)) }
    }

    /// Compares a value; patterns are compared later.
    fn same(&mut self, wanted: &Node, got: Option<&str>) -> bool {
        let (Node::Text(wanted), Some(got)) = (wanted, got) else {
            return *wanted == Node::Nothing && got.is_none();
        };
        let wanted = fill(wanted, self.saved);
        let pattern = wanted.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
        match pattern {
            Some(pattern) => {
                self.matches.push((pattern.to_owned(), got.to_owned()));
                true
            }
            None => wanted == got,
        }
    }
}

/// The expectation without the action.
fn brief(expected: &Node) -> String {
    let kept = ["ok", "sqlstate", "message", "contains", "columns", "rows", "empty"];
    let kept = expected.entries().iter().filter(|(key, _)| kept.contains(&key.as_str()));
    kept.map(|(key, node)| format!("{key} {node:?}")).collect::<Vec<_>>().join(", ")
}
