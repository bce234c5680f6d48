//! What a statement does, judged by its words: may it be run twice, and does it leave something behind in its session?
//!
//! No grammar is known here, since every server has its own. Words are told apart from strings, names and comments, and a
//! statement is read-only only if nothing in it is in doubt. A doubt costs a retry; a mistake would run an INSERT twice.

mod leaves;
mod lexer;
mod reads;
mod vocabulary;
mod words;

pub use lexer::{Dialect, Lexer, Token, TokenKind, Unfinished};
use words::{Word, dialects, words};

/// What is known of a text of one or more statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    /// Every statement of it is known to change nothing: it may be run twice.
    pub(crate) is_read_only: bool,
    /// It may change what later statements of the session see: settings, temporary tables, the current schema.
    pub(crate) alters_session: bool,
    /// Some statement of it may begin a transaction, even if another ends it: it may fail in between.
    pub(crate) begins: bool,
    /// It is one statement, and ends the transaction.
    pub(crate) ends: bool,
    /// The last that it does to a transaction is to end it.
    pub(crate) ends_last: bool,
    /// If the server refuses it, it has left nothing in the session.
    pub(crate) is_all_or_nothing: bool,
}

impl Traits {
    pub(crate) fn of(sql: &str) -> Self {
        // As the dialect is not known, it must be harmless in each that it makes sense in.
        let readings: Vec<_> = dialects(sql).into_iter().map(|dialect| Self::read(sql, dialect)).collect();
        let is_certain = readings.iter().all(Option::is_some);
        let sum = readings.into_iter().flatten().reduce(|one, other| Self {
            is_read_only: one.is_read_only && other.is_read_only,
            alters_session: one.alters_session || other.alters_session,
            begins: one.begins || other.begins,
            ends: one.ends && other.ends,
            ends_last: one.ends_last && other.ends_last,
            is_all_or_nothing: false,
        });
        let sum = sum.unwrap_or(Self::UNREADABLE);
        Self {
            is_read_only: sum.is_read_only && is_certain,
            ends: sum.ends && is_certain,
            is_all_or_nothing: leaves::is_all_or_nothing(sql),
            ..sum
        }
    }

    /// One that cannot be read may do anything; its session is not lent again, whatever else it left there.
    const UNREADABLE: Self = Self {
        is_read_only: false,
        alters_session: true,
        begins: false,
        ends: false,
        ends_last: false,
        is_all_or_nothing: false,
    };

    fn read(sql: &str, dialect: Dialect) -> Option<Self> {
        let words = words(sql, dialect)?;
        let mut traits = Self { is_read_only: true, ..Self::default() };
        let mut statements = 0;
        for statement in words.split(|word| *word == Word::End) {
            // What is in doubt is no part of the statement for most, and must not come between its words.
            let plain: Vec<_> = statement.iter().copied().filter(|word| *word != Word::Doubt).collect();
            traits.is_read_only &= plain.len() == statement.len();
            if plain.is_empty() {
                continue;
            }
            statements += 1;
            traits.is_read_only &= reads::is_read_only(&plain);
            traits.alters_session |= leaves::alters_session(&plain);
            let (begins, ends) = (leaves::begins(&plain), leaves::ends(&plain));
            traits.begins |= begins;
            traits.ends = ends;
            traits.ends_last = ends || traits.ends_last && !begins;
        }
        // Servers differ in what they make of several statements in one.
        traits.is_read_only &= statements == 1;
        traits.ends &= statements == 1;
        Some(traits)
    }
}

/// Whether a table so named is gone with its session. A server may put the names into SQL as they are.
pub(crate) fn is_temporary(catalog: &Option<String>, schema: &Option<String>, table: &str) -> bool {
    let before = table.rsplit_once('.').map(|(before, _)| before);
    let qualifiers = [catalog.as_deref(), schema.as_deref(), before].into_iter().flatten();
    qualifiers.flat_map(|names| names.split('.')).any(leaves::is_temporary_schema) || table.starts_with('#')
}

/// The word it begins with, parentheses apart.
fn first_word<'a>(statement: &[Word<'a>]) -> Option<&'a str> {
    statement.iter().find(|word| !matches!(word, Word::Open)).and_then(Word::keyword)
}

fn is_in(sorted: &[&str], word: &str) -> bool {
    sorted.binary_search(&word).is_ok()
}

fn is_any(word: &str, of: &[&str]) -> bool {
    of.iter().any(|other| other.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests;
