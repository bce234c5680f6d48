//! CREATE: what is executed begins with a SELECT or the like, if there is such a thing. A body may have semicolons.

use std::ops::Range;

use super::lexer::{Lexer, Token, lower};
use super::{Effect, Flags, Piece};

/// Reads the statement whose first word is there.
pub(super) fn read(lexer: &mut Lexer<'_>, first: Range<usize>) -> Piece {
    let (mut range, mut flags, mut effect) = (first, Flags::CHANGES_SCHEMA, Effect::None);
    let (mut depth, mut words) = (0_usize, 0_usize);
    let mut replaces = false;
    let mut body = Body::None;
    let mut previous = Token::Word;
    while let Some((token, at)) = lexer.next() {
        let mut buffer = [0; 12];
        // Behind a dot, any word is a name.
        let word = match token {
            Token::Word if previous != Token::Dot => lower(lexer.text(&at), &mut buffer),
            _ => b"",
        };
        words += usize::from(token == Token::Word);
        match token {
            Token::Semicolon if depth == 0 && !body.is_open() => break,
            Token::Open => depth += 1,
            Token::Close => depth = depth.saturating_sub(1),
            _ => {}
        }
        body = match (body, word) {
            // Directly behind CREATE [OR REPLACE]: elsewhere these are names.
            (Body::None, b"function" | b"procedure") if words == if replaces { 3 } else { 1 } => Body::Plain,
            (Body::Plain | Body::Begins, b"begin") if depth == 0 => Body::Begins,
            (Body::Begins, b"atomic") => Body::Between,
            (Body::Begins, _) => Body::Plain,
            (Body::Between, b"end") => Body::Plain,
            (Body::Between | Body::Within, _) if token == Token::Semicolon && depth == 0 => Body::Between,
            (Body::Between, _) => Body::Within,
            (body, _) => body,
        };
        match word {
            b"or" if words == 1 => replaces = true,
            b"temp" | b"temporary" if words <= 4 => effect = Effect::Pin,
            // It may call anything, and is rare.
            b"select" | b"values" if matches!(body, Body::None) => flags.add(Flags::UNSURE),
            // Any statement that the client has prepared.
            b"execute" if matches!(body, Body::None) => effect = Effect::Pin,
            _ => {}
        }
        previous = token;
        range.end = at.end;
    }
    if body.is_open() {
        // PostgreSQL has found its end, or an error.
        flags.add(Flags::UNSURE);
        effect = Effect::Pin;
    }
    Piece { range, flags, effect }
}

/// The body of a function or a procedure, if it is `BEGIN ATOMIC ...; ...; END`. Each statement in it ends with a semicolon, and END follows
/// the last one: any other END is a name, or that of a CASE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// It is neither a function nor a procedure.
    None,
    /// It is one, in front of the body or behind it, or without one of this kind.
    Plain,
    /// Behind BEGIN, which may be a name.
    Begins,
    /// At the begin of a statement, or at the end.
    Between,
    /// Within a statement.
    Within,
}

impl Body {
    const fn is_open(self) -> bool {
        matches!(self, Self::Between | Self::Within)
    }
}
