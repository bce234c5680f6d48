//! The statements of a text, one by one: where each begins and ends, and what its first words say.

use std::ops::Range;

use super::lexer::{Lexer, Token, lower};
use super::{Effect, Flags, command, create, expressions};
use crate::session::min_messages;

/// A statement of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) struct Piece {
    /// Where it is in the text, without what surrounds it.
    pub(in crate::session) range: Range<usize>,
    pub(in crate::session) flags: Flags,
    pub(in crate::session) effect: Effect,
}

/// Cuts a text into its statements.
pub(super) struct Pieces<'a> {
    lexer: Lexer<'a>,
}

impl<'a> Pieces<'a> {
    /// `escapes`: whether a backslash escapes in plain strings.
    pub(super) const fn new(sql: &'a [u8], escapes: bool) -> Self {
        Self { lexer: Lexer::new(sql, escapes) }
    }

    /// One that may have expressions.
    fn general(&mut self, first: Token, range: Range<usize>, flags: Flags) -> Piece {
        expressions::read(&mut self.lexer, first, range, flags)
    }

    /// Up to the end of the statement, without a look at it.
    fn rest(&mut self, mut range: Range<usize>, flags: Flags, effect: Effect) -> Piece {
        let mut depth = 0_usize;
        while let Some((token, at)) = self.lexer.next() {
            match token {
                Token::Semicolon if depth == 0 => break,
                Token::Open => depth += 1,
                Token::Close => depth = depth.saturating_sub(1),
                _ => {}
            }
            range.end = at.end;
        }
        Piece { range, flags, effect }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let (token, range) = loop {
            let next = self.lexer.next()?;
            if next.0 != Token::Semicolon {
                break next;
            }
        };
        if token != Token::Word {
            return Some(self.general(token, range, Flags::WRITES));
        }
        let mut buffer = [0; 12];
        let word = lower(self.lexer.text(&range), &mut buffer);
        Some(match word {
            b"select" | b"values" | b"table" | b"fetch" | b"with" | b"explain" => {
                self.general(token, range, Flags::default())
            }
            b"show" => {
                let mut piece = self.general(token, range, Flags::default());
                if command::shows(self.lexer.text(&piece.range), min_messages::NAME) {
                    piece.effect = Effect::ShowMinMessages;
                }
                piece
            }
            b"insert" | b"update" | b"delete" | b"merge" | b"copy" => {
                self.general(token, range, Flags::WRITES)
            }
            b"begin" | b"start" => self.rest(range, Flags::default(), Effect::Begin),
            b"commit" | b"end" | b"set" | b"reset" | b"rollback" | b"abort" | b"savepoint" | b"release"
            | b"deallocate" | b"discard" | b"unlisten" | b"close" => {
                command::read(&mut self.lexer, word, range)
            }
            b"listen" | b"prepare" | b"declare" | b"load" => self.rest(range, Flags::WRITES, Effect::Pin),
            // It may be any statement that the client has prepared.
            b"execute" => self.rest(range, Flags::WRITES, Effect::Pin),
            b"do" | b"call" => {
                let mut flags = Flags::WRITES;
                flags.add(Flags::UNSURE);
                self.rest(range, flags, Effect::None)
            }
            b"create" => create::read(&mut self.lexer, range),
            b"alter" | b"drop" | b"grant" | b"revoke" | b"comment" => {
                self.rest(range, Flags::CHANGES_SCHEMA, Effect::None)
            }
            b"analyze" | b"vacuum" | b"truncate" => self.rest(range, Flags::WRITES, Effect::None),
            _ => self.general(token, range, Flags::WRITES),
        })
    }
}
