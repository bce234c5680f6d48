//! What a statement does, decided by its words: whether it may run twice, and what it leaves in its session.
//!
//! This is a lexer without a grammar, since every server has its own. A statement counts as read-only only if
//! nothing in it is in doubt. A doubt costs a retry; a mistake would run an `INSERT` twice.

mod effects;
mod lexer;
mod read_only;
mod settings;
mod vocabulary;
mod words;

pub use lexer::{Dialect, Lexer, Token, TokenKind, Unfinished};
pub(crate) use settings::changed_settings;
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
    /// It changes objects of the session, such as temporary tables, or the current schema.
    pub(crate) alters_objects: bool,
    /// It is a WITH that writes. Some servers run it to prepare it.
    pub(crate) writes_after_with: bool,
    /// It is one statement, and sets one setting by its name.
    pub(crate) sets_one_setting: bool,
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
            alters_objects: one.alters_objects || other.alters_objects,
            writes_after_with: one.writes_after_with || other.writes_after_with,
            sets_one_setting: one.sets_one_setting && other.sets_one_setting,
        });
        let sum = sum.unwrap_or(Self::UNREADABLE);
        Self {
            is_read_only: sum.is_read_only && is_certain,
            ends: sum.ends && is_certain,
            returns_nothing: sum.returns_nothing && is_certain,
            sets_one_setting: sum.sets_one_setting && is_certain,
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
        alters_objects: true,
        writes_after_with: false,
        sets_one_setting: false,
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
            let (alters_session, alters_settings) =
                (effects::alters_session(&plain), effects::alters_settings(&plain));
            traits.alters_session |= alters_session;
            traits.alters_settings |= alters_settings;
            traits.alters_objects |= alters_session && !alters_settings;
            traits.writes_after_with |= effects::writes_after_with(&plain);
            traits.sets_one_setting = alters_settings && settings::changed_setting(statement).is_some();
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
        traits.sets_one_setting &= statements == 1;
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
