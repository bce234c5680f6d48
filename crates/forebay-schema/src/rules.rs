//! What Aurora DSQL refuses, found before anything runs.
//!
//! The messages are the server's, as far as they were recorded. What depends on the data, or on what is in the database, is not
//! found here: the server reports it when the statement runs.

mod alterations;
mod commands;
mod indexes;
mod queries;
mod settings;
mod tables;
mod transactions;
mod types;

use std::collections::{BTreeMap, BTreeSet};

use crate::files::MigrationFile;
use crate::finding::Finding;
use crate::sql::{Kind, Statement, Word};
pub(crate) use settings::can_be_left_out;

/// What a cluster accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rules {
    /// What the service accepts today.
    #[default]
    Today,
    /// The smaller set of older clusters: no CHECK, no foreign keys, no sequences, no `jsonb`, no partial or expression indexes, no DROP
    /// COLUMN.
    Spec,
}

/// Why a statement is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    message: String,
    remedy: String,
    /// The line of what is wrong.
    line: usize,
    /// Rewriting the statement, or leaving it out, is all that is needed.
    fixable: bool,
}

impl Refusal {
    fn new(statement: &Statement, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: remedy.into(), line: statement.line(), fixable: false }
    }

    fn at(mut self, statement: &Statement, word: &Word) -> Self {
        self.line = statement.line_of(word);
        self
    }

    fn fixable(self) -> Self {
        Self { fixable: true, ..self }
    }
}

/// What is known of the schema from the files, and from the database.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Domains by their names: columns may have these types.
    domains: BTreeSet<String>,
    /// Functions that the files create.
    functions: BTreeSet<String>,
    /// The types of columns, by table.
    tables: BTreeMap<String, BTreeMap<String, String>>,
}

impl Known {
    /// With the domains that the database has.
    pub(crate) fn with_domains(domains: impl IntoIterator<Item = String>) -> Self {
        Self { domains: domains.into_iter().collect(), ..Self::default() }
    }
}

/// Checks statements of a file, from number `done` on. `known` learns from all of them.
pub(crate) fn check(file: &MigrationFile, done: usize, rules: Rules, known: &mut Known) -> Vec<Finding> {
    let mut refusals = Vec::new();
    for (number, statement) in file.statements().iter().enumerate() {
        learn(statement, known);
        if number >= done {
            refusals.extend(check_one(statement, rules, known));
        }
    }
    refusals.extend(transactions::check(file.statements(), done));
    refusals.sort_by_key(|refusal| refusal.line);
    if let Some(problem) = file.problem() {
        refusals.push(Refusal {
            message: problem.message.clone(),
            remedy: "close it".to_owned(),
            line: problem.line,
            fixable: false,
        });
    }
    let finding = |Refusal { message, remedy, line, fixable }| Finding {
        file: file.path().to_owned(),
        line,
        message,
        remedy,
        fixable,
    };
    refusals.into_iter().map(finding).collect()
}

/// Everything that is wrong with one statement.
fn check_one(statement: &Statement, rules: Rules, known: &Known) -> Vec<Refusal> {
    if let Some(refusal) = commands::check(statement) {
        return vec![refusal];
    }
    match (statement.kind(), statement.key(0), statement.key(1)) {
        (Kind::Set, ..) => settings::check(statement, rules).into_iter().collect(),
        (_, "EXPLAIN", _) => {
            explained(statement).map_or_else(Vec::new, |inner| check_one(&inner, rules, known))
        }
        (_, "DEALLOCATE", _) if rules == Rules::Spec => {
            vec![Refusal::new(statement, "unsupported statement: Deallocate", "remove it")]
        }
        (Kind::Dml | Kind::Repeatable, ..) => queries::check(statement, rules).into_iter().collect(),
        (_, "CREATE", "TABLE") => tables::check(statement, rules, known),
        (_, "CREATE", "INDEX" | "UNIQUE") => indexes::check(statement, rules, known),
        (_, "CREATE", "DOMAIN") => tables::domain(statement, rules, known),
        (_, "CREATE" | "ALTER", "SEQUENCE") => tables::sequence(statement, rules),
        (_, "ALTER", "TABLE") => alterations::check(statement, rules, known),
        _ => Vec::new(),
    }
}

/// The statement inside an EXPLAIN.
fn explained(statement: &Statement) -> Option<Statement> {
    let options = ["ANALYZE", "VERBOSE", "(", ")"];
    let is_inner = |word: &&Word| word.depth == 0 && !options.contains(&word.key());
    let first = statement.words().iter().skip(1).find(is_inner)?;
    let inner = Statement::parse(&statement.text()[first.range.start..]);
    Some(inner.at_line(statement.line_of(first)))
}

fn learn(statement: &Statement, known: &mut Known) {
    let name = |at: usize| {
        let mut at = at;
        while statement.key(at + 1) == "." {
            at += 2;
        }
        statement.words().get(at).and_then(|word| statement.name(word))
    };
    let replaces = 2 * usize::from(statement.key(1) == "OR");
    match (statement.key(0), statement.key(1 + replaces)) {
        ("CREATE", "DOMAIN") => known.domains.extend(name(2)),
        ("CREATE", "FUNCTION") => known.functions.extend(name(2 + replaces)),
        ("CREATE", "TABLE") => {
            if let Some(name) = name(if statement.key(2) == "IF" { 5 } else { 2 }) {
                known.tables.insert(name, tables::column_types(statement));
            }
        }
        ("ALTER", "TABLE") => alterations::learn(statement, known),
        _ => {}
    }
}

/// Whether these words follow each other.
fn has(words: &[Word], keys: &[&str]) -> bool {
    find(words, keys).is_some()
}

/// The first of these words, where they follow each other.
fn find<'a>(words: &'a [Word], keys: &[&str]) -> Option<&'a Word> {
    let matches = |window: &&[Word]| window.iter().zip(keys).all(|(word, key)| word.is(key));
    words.windows(keys.len()).find(matches).map(|window| &window[0])
}

#[cfg(test)]
pub(crate) fn refusals(sql: &str, rules: Rules) -> Vec<String> {
    let migrations = crate::files::Migrations::embedded(&[("1.sql", sql)]).unwrap();
    let findings = check(&migrations.files()[0], 0, rules, &mut Known::default());
    findings.into_iter().map(|finding| finding.message).collect()
}
