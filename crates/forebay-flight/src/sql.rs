//! What a statement does, decided by its words: whether it may run twice, and what it leaves in its session.
//!
//! This is a lexer without a grammar, since every server has its own. A statement counts as read-only only if
//! nothing in it is in doubt. A doubt costs a retry; a mistake would run an `INSERT` twice.

mod effects;
mod lexer;
mod read_only;
mod vocabulary;
mod words;

pub use lexer::{Dialect, Lexer, Token, TokenKind, Unfinished};
use words::{Word, dialects, words};

/// What is known about a text of one or more statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatementTraits {
    /// It certainly changes nothing, and may run twice.
    pub(crate) is_read_only: bool,
    /// It may change what later statements of the session see: settings, temporary tables, the current
    /// schema.
    pub(crate) alters_session: bool,
    /// A statement of it may begin a transaction, even if another ends it: it may fail in between.
    pub(crate) begins: bool,
    /// It is one statement, and ends the transaction.
    pub(crate) ends: bool,
    /// It is one statement, and commits the transaction.
    pub(crate) commits: bool,
    /// The last thing it does to a transaction is to end it.
    pub(crate) ends_last: bool,
    /// If the server refuses it, it has left nothing in the session.
    pub(crate) is_all_or_nothing: bool,
    /// It certainly returns no rows: each of its statements only changes something.
    pub(crate) returns_nothing: bool,
    /// It creates, changes or drops something, such as a table.
    pub(crate) is_ddl: bool,
    /// What it changes in the session is not only objects and the current schema: a setting, a lock, an attached database.
    pub(crate) alters_settings: bool,
}

impl StatementTraits {
    pub(crate) fn of(sql: &str) -> Self {
        // The dialect is unknown, so the result must hold in each that can read the text.
        let readings: Vec<_> = dialects(sql).into_iter().map(|dialect| Self::read(sql, dialect)).collect();
        let is_certain = readings.iter().all(Option::is_some);
        let sum = readings.into_iter().flatten().reduce(|one, other| Self {
            is_read_only: one.is_read_only && other.is_read_only,
            alters_session: one.alters_session || other.alters_session,
            begins: one.begins || other.begins,
            ends: one.ends && other.ends,
            commits: one.commits || other.commits,
            ends_last: one.ends_last && other.ends_last,
            is_all_or_nothing: false,
            returns_nothing: one.returns_nothing && other.returns_nothing,
            is_ddl: one.is_ddl || other.is_ddl,
            alters_settings: one.alters_settings || other.alters_settings,
        });
        let sum = sum.unwrap_or(Self::UNREADABLE);
        Self {
            is_read_only: sum.is_read_only && is_certain,
            ends: sum.ends && is_certain,
            returns_nothing: sum.returns_nothing && is_certain,
            is_all_or_nothing: effects::is_all_or_nothing(sql),
            ..sum
        }
    }

    /// A text that cannot be read may do anything. Its session is not lent again.
    const UNREADABLE: Self = Self {
        is_read_only: false,
        alters_session: true,
        begins: false,
        ends: false,
        commits: false,
        ends_last: false,
        is_all_or_nothing: false,
        returns_nothing: false,
        is_ddl: true,
        alters_settings: true,
    };

    fn read(sql: &str, dialect: Dialect) -> Option<Self> {
        let words = words(sql, dialect)?;
        let mut traits = Self { is_read_only: true, returns_nothing: true, ..Self::default() };
        let mut statements = 0;
        for statement in words.split(|word| *word == Word::End) {
            // For most dialects a doubtful part is a comment, which must not separate the words.
            let plain: Vec<_> = statement.iter().copied().filter(|word| *word != Word::Doubt).collect();
            traits.is_read_only &= plain.len() == statement.len();
            if plain.is_empty() {
                continue;
            }
            statements += 1;
            traits.is_read_only &= read_only::is_read_only(&plain);
            traits.alters_session |= effects::alters_session(&plain);
            traits.alters_settings |= effects::alters_settings(&plain);
            traits.is_ddl |= effects::is_ddl(&plain);
            traits.returns_nothing &= effects::returns_nothing(&plain);
            let (begins, ends) = (effects::begins(&plain), effects::ends(&plain));
            traits.begins |= begins;
            traits.ends = ends;
            traits.commits = ends && effects::commits(&plain);
            traits.ends_last = ends || traits.ends_last && !begins;
        }
        // Servers differ in how they run several statements in one text.
        traits.is_read_only &= statements == 1;
        traits.returns_nothing &= statements > 0;
        traits.ends &= statements == 1;
        traits.commits &= statements == 1;
        Some(traits)
    }
}

/// Whether a table with this name ends with its session. A server may put the names into SQL unchanged.
pub(crate) fn is_temporary(catalog: &Option<String>, schema: &Option<String>, table: &str) -> bool {
    let before = table.rsplit_once('.').map(|(before, _)| before);
    let qualifiers = [catalog.as_deref(), schema.as_deref(), before].into_iter().flatten();
    qualifiers.flat_map(|names| names.split('.')).any(effects::is_temporary_schema) || table.starts_with('#')
}

/// The first word, without parentheses before it.
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
