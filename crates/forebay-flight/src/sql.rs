//! What a statement does, judged by its words: may it be run twice, and does it leave something behind in its session?
//!
//! No grammar is known here, since every server has its own. Words are told apart from strings, names and comments, and a
//! statement is read-only only if nothing in it is in doubt. A doubt costs a retry; a mistake would run an INSERT twice.

mod vocabulary;
mod words;

use vocabulary::{BEFORE_PARENTHESIS, PURE, READERS, STATELESS, WRITERS};
use words::{Backslash, Word, words};

/// What is known of a text of one or more statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    /// Every statement of it is known to change nothing: it may be run twice.
    pub(crate) is_read_only: bool,
    /// It may change what later statements of the session see: settings, temporary tables, the current schema.
    pub(crate) alters_session: bool,
    /// It begins a transaction, and does not end it.
    pub(crate) begins: bool,
    /// It ends the transaction.
    pub(crate) ends: bool,
}

impl Traits {
    pub(crate) fn of(sql: &str) -> Self {
        if !sql.contains('\\') {
            return Self::read(sql, Backslash::Literal).unwrap_or(Self::UNREADABLE);
        }
        // As the dialect is not known, it must be harmless in each that it makes sense in.
        let readings =
            [Backslash::Literal, Backslash::Escape, Backslash::EscapeAfterE].map(|way| Self::read(sql, way));
        let is_certain = readings.iter().all(Option::is_some);
        let sum = readings.into_iter().flatten().reduce(|one, other| Self {
            is_read_only: one.is_read_only && other.is_read_only,
            alters_session: one.alters_session || other.alters_session,
            begins: one.begins || other.begins,
            ends: one.ends && other.ends,
        });
        let sum = sum.unwrap_or(Self::UNREADABLE);
        Self { is_read_only: sum.is_read_only && is_certain, ..sum }
    }

    /// One that cannot be read may do anything.
    const UNREADABLE: Self = Self { is_read_only: false, alters_session: true, begins: false, ends: false };

    fn read(sql: &str, backslash: Backslash) -> Option<Self> {
        let words = words(sql, backslash)?;
        let mut traits = Self { is_read_only: true, ..Self::default() };
        let mut statements = 0;
        for statement in words.split(|word| *word == Word::End) {
            if statement.iter().all(|word| *word == Word::Doubt) {
                traits.is_read_only &= statement.is_empty();
                continue;
            }
            statements += 1;
            traits.is_read_only &= is_read_only(statement);
            traits.alters_session |= alters_session(statement);
            match boundary(statement) {
                Some(true) => (traits.begins, traits.ends) = (true, false),
                Some(false) => (traits.begins, traits.ends) = (false, true),
                None => {}
            }
        }
        // Servers differ in what they make of several statements in one.
        traits.is_read_only &= statements == 1;
        Some(traits)
    }
}

fn is_read_only(statement: &[Word<'_>]) -> bool {
    let Some(first) = first_word(statement) else { return false };
    // EXPLAIN reads; but EXPLAIN ANALYZE runs what it explains, and the word is among the writers.
    if !READERS.iter().any(|reader| reader.eq_ignore_ascii_case(first)) {
        return false;
    }
    statement.iter().enumerate().all(|(place, word)| match word {
        Word::Keyword(name) => {
            let lower = name.to_ascii_lowercase();
            let calls = statement.get(place + 1) == Some(&Word::Open);
            let qualified = place > 0 && statement[place - 1] == Word::Dot;
            if qualified {
                // A column of any name; or a function of some schema, of which nothing is known.
                return !calls;
            }
            if calls {
                return is_in(BEFORE_PARENTHESIS, &lower)
                    || is_in(PURE, &lower)
                    || is_named_before(statement, place);
            }
            // FOR asks for locks, but for SUBSTRING(x FROM 1 FOR 2) and the like, which are not worth telling apart.
            lower != "for" && !is_in(WRITERS, &lower)
        }
        // A quoted name may be a function's as well.
        Word::Quoted => statement.get(place + 1) != Some(&Word::Open),
        Word::Doubt => false,
        Word::Other | Word::Open | Word::Close | Word::Dot | Word::Comma | Word::End => true,
    })
}

/// The word it begins with, parentheses apart.
fn first_word<'a>(statement: &[Word<'a>]) -> Option<&'a str> {
    statement.iter().find(|word| !matches!(word, Word::Open | Word::Doubt)).and_then(Word::keyword)
}

/// Whether this is the name of a WITH query with its columns, as in `WITH t (a, b) AS (...)`.
fn is_named_before(statement: &[Word<'_>], place: usize) -> bool {
    let introduced = place > 0
        && (statement[place - 1] == Word::Comma
            || statement[place - 1].keyword().is_some_and(|word| is_any(word, &["with", "recursive"])));
    if !introduced {
        return false;
    }
    let columns = statement[place + 2..].iter().position(|word| *word == Word::Close);
    let after = columns.and_then(|end| statement.get(place + 3 + end)).and_then(Word::keyword);
    let plain = columns.is_some_and(|end| !statement[place + 2..place + 2 + end].contains(&Word::Open));
    plain && after.is_some_and(|word| is_any(word, &["as"]))
}

fn is_in(sorted: &[&str], word: &str) -> bool {
    sorted.binary_search(&word).is_ok()
}

fn is_any(word: &str, of: &[&str]) -> bool {
    of.iter().any(|other| other.eq_ignore_ascii_case(word))
}

fn alters_session(statement: &[Word<'_>]) -> bool {
    let Some(first) = first_word(statement) else { return true };
    let has = |names: &[&str]| statement.iter().filter_map(Word::keyword).any(|word| is_any(word, names));
    // SELECT ... INTO TEMP t, and INTO #t.
    let into_temporary = statement.windows(2).any(|pair| {
        let (into, name) = (pair[0].keyword(), pair[1].keyword());
        into.is_some_and(|word| is_any(word, &["into"]))
            && name.is_some_and(|word| is_any(word, &["temp", "temporary"]) || word.starts_with('#'))
    });
    if into_temporary || has(&["set_config"]) {
        return true;
    }
    if is_any(first, &["create"]) {
        let hash = statement.iter().filter_map(Word::keyword).any(|word| word.starts_with('#'));
        return hash || has(&["temp", "temporary", "secret", "macro"]);
    }
    if is_any(first, &["alter"]) {
        return has(&["session", "system"]);
    }
    if is_any(first, &["start"]) {
        return !has(&["transaction"]);
    }
    !is_any(first, STATELESS)
}

/// Whether it begins (true) or ends (false) a transaction.
fn boundary(statement: &[Word<'_>]) -> Option<bool> {
    let first = first_word(statement)?;
    let second = statement.get(1).and_then(Word::keyword);
    if is_any(first, &["begin"])
        || is_any(first, &["start"]) && second.is_some_and(|word| is_any(word, &["transaction"]))
    {
        return Some(true);
    }
    if is_any(first, &["rollback"])
        && statement.iter().filter_map(Word::keyword).any(|word| is_any(word, &["to"]))
    {
        // To a savepoint: it goes on.
        return None;
    }
    // COMMIT AND CHAIN begins the next one.
    let chains = statement.iter().filter_map(Word::keyword).any(|word| is_any(word, &["chain"]))
        && !statement.iter().filter_map(Word::keyword).any(|word| is_any(word, &["no"]));
    is_any(first, &["commit", "rollback", "end", "abort"]).then_some(chains)
}

#[cfg(test)]
mod tests;
