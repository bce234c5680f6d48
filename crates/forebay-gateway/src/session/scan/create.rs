//! CREATE: what is executed begins with a SELECT or the like, if there is such a thing. A body may have semicolons.

use std::ops::Range;

use super::lexer::{Lexer, Token, lower};
use super::{Effect, Flags, Piece};

/// Reads the statement whose first word is there.
pub(super) fn read(lexer: &mut Lexer<'_>, first: Range<usize>) -> Piece {
    let (mut range, mut flags, mut effect) = (first, Flags::CHANGES_SCHEMA, Effect::None);
    let (mut depth, mut blocks, mut words) = (0_usize, 0_usize, 0_usize);
    let mut routine = false;
    let mut begin = false;
    while let Some((token, at)) = lexer.next() {
        match token {
            Token::Semicolon if depth == 0 && blocks == 0 => break,
            Token::Open => depth += 1,
            Token::Close => depth = depth.saturating_sub(1),
            Token::Word => {
                words += 1;
                let mut buffer = [0; 12];
                let was_begin = std::mem::take(&mut begin);
                match lower(lexer.text(&at), &mut buffer) {
                    b"temp" | b"temporary" if words <= 4 => effect = Effect::Pin,
                    b"function" | b"procedure" => routine = true,
                    b"begin" if routine && blocks == 0 => begin = true,
                    b"atomic" if was_begin => blocks = 1,
                    b"case" | b"begin" if blocks > 0 => blocks += 1,
                    b"end" if blocks > 0 => blocks -= 1,
                    // It may call anything, and is rare.
                    b"select" | b"execute" if !routine => flags.add(Flags::UNSURE),
                    _ => {}
                }
            }
            _ => {}
        }
        range.end = at.end;
    }
    Piece { range, flags, effect }
}
