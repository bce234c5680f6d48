//! Reads SQL as far as a session must understand it: what each statement of a text does to the session.
//!
//! What is not understood is never guessed. It is passed on, and the session is marked as unsure of its settings.
//!
//! ```text
//!  text ──▶ lexer ──▶ pieces ──┬──▶ command        SET, RESET, ROLLBACK, DEALLOCATE ...       ──▶ Effect, Flags
//!                              ├──▶ create         CREATE, whose body may have semicolons
//!                              └──▶ expressions    all that may call a function
//!                                     ├ name, functions    which one
//!                                     └ set_config         which setting
//! ```

mod command;
mod create;
mod effect;
mod expressions;
mod flags;
mod functions;
mod lexer;
mod name;
mod pieces;
mod set_config;
#[cfg(test)]
mod tests;

pub(super) use self::effect::Effect;
pub(super) use self::flags::Flags;
pub(super) use self::pieces::Piece;
pub(super) use self::set_config::of as set_config;

use self::pieces::Pieces;

/// What a text means to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It leaves nothing behind. Nearly all are.
    Plain(Flags),
    /// Statement by statement.
    Pieces(Vec<Piece>),
}

/// Of a longer text, nobody gets more statements than these and one. It is refused, unless none of them leaves anything.
pub(super) const MOST_STATEMENTS: usize = 10_000;

/// Reads a text. `escapes`: whether a backslash escapes in plain strings.
pub(super) fn read(sql: &[u8], escapes: bool) -> Meaning {
    let mut rest = Pieces::new(sql, escapes);
    let Some(first) = rest.next() else { return Meaning::Plain(Flags::default()) };
    // BEGIN and COMMIT alone need no step: the status that follows says all.
    let light = matches!(first.effect, Effect::Begin | Effect::Commit);
    let mut flags = first.flags;
    let mut pieces = Vec::new();
    if !light && first.effect != Effect::None {
        pieces.push(first.clone());
    }
    if pieces.is_empty() {
        let second = loop {
            match rest.next() {
                Some(next) if !light && next.effect == Effect::None => flags.add(next.flags),
                other => break other,
            }
        };
        if second.is_none() {
            return Meaning::Plain(flags);
        }
        rest = Pieces::new(sql, escapes);
    }
    pieces.extend(rest.take(MOST_STATEMENTS + 1 - pieces.len()));
    Meaning::Pieces(pieces)
}

/// A text as a prepared statement has it: what its only statement does.
pub(super) fn single(sql: &[u8], escapes: bool) -> (Flags, Effect) {
    let mut pieces = Pieces::new(sql, escapes);
    match (pieces.next(), pieces.next()) {
        (Some(only), None) => (only.flags, only.effect),
        (None, _) => (Flags::default(), Effect::None),
        // The server refuses several in one prepared statement. If it does not, it has read another text than this.
        _ => (Flags::UNSURE, Effect::Pin),
    }
}

/// The statements of a text.
pub(super) fn pieces(sql: &[u8], escapes: bool) -> Vec<Piece> {
    Pieces::new(sql, escapes).take(MOST_STATEMENTS + 1).collect()
}
