//! A statement with expressions, such as SELECT or INSERT. Each call in it may do something to the session.

use std::ops::Range;

use super::functions::Call;
use super::lexer::{Lexer, Token, lower};
use super::name::{self, Name};
use super::set_config::{self, Setting};
use super::{Effect, Flags, Piece};

/// Reads the statement whose first token is there, and whose first word says these flags.
pub(super) fn read(lexer: &mut Lexer<'_>, first: Token, mut range: Range<usize>, mut flags: Flags) -> Piece {
    let reads = !flags.has(Flags::WRITES);
    let begin = lexer.clone();
    let is_select = lexer.text(&range).eq_ignore_ascii_case(b"select");
    let explains = lexer.text(&range).eq_ignore_ascii_case(b"explain");
    // Whether a call may follow a parenthesis, and whether there are calls that `set_config` is not alone with.
    let (mut sets, mut operates, mut others) = (false, false, false);
    let mut effect = Effect::None;
    let mut depth = 0_usize;
    let mut count = 1_usize;
    // Up to here, the arguments of a call of `set_config` were read.
    let mut arguments_end = 0;
    // The token before this one, and the name that it ends.
    let mut previous = first;
    let mut name = Name::new(range.clone());
    if first == Token::Open {
        depth = 1;
    }
    while let Some((token, at)) = lexer.next() {
        match token {
            Token::Semicolon if depth == 0 => break,
            Token::Open => {
                depth += 1;
                if matches!(previous, Token::Word | Token::Quoted) {
                    let call = name.call(lexer);
                    others |= call != Call::Harmless && !name.is_set_config(lexer);
                    match call {
                        Call::Harmless => {}
                        // The columns of an alias. A call has an operator or a keyword before it, unless it follows DISTINCT ON (...) or
                        // OPERATOR(...).
                        Call::Unsure if name.follows_parenthesis() && !operates => {}
                        Call::Unsure if name.is_set_config(lexer) => {
                            sets = true;
                            flags.add(Flags::WRITES);
                            // Calls may nest as deep as the text is long, and each argument is read once.
                            let setting = if at.start < arguments_end {
                                Setting::Hidden
                            } else {
                                let (setting, end) = Setting::read(lexer.clone());
                                arguments_end = end;
                                setting
                            };
                            match setting {
                                Setting::Local => {}
                                // It cannot be read from the server, nor be taken back.
                                Setting::Hidden => effect = Effect::Pin,
                                Setting::Plain => flags.add(Flags::UNSURE),
                            }
                        }
                        Call::Unsure => {
                            flags.add(Flags::UNSURE);
                            flags.add(Flags::WRITES);
                        }
                        Call::Pins => {
                            flags.add(Flags::WRITES);
                            effect = Effect::Pin;
                        }
                        Call::ReadsSequence => {
                            flags.add(Flags::READS_SEQUENCE);
                            effect = Effect::Pin;
                        }
                        // With nothing before the name but SELECT and perhaps a schema. What follows is checked below.
                        Call::UnlocksAll if count == if name.has_schema() { 4 } else { 2 } => {
                            (effect, count) = (Effect::UnlockAll, 0);
                        }
                        Call::UnlocksAll => {}
                    }
                }
            }
            Token::Close => depth = depth.saturating_sub(1),
            Token::Word | Token::Quoted if previous == Token::Dot => name.push(at.clone()),
            Token::Word | Token::Quoted => {
                name = name.next(at.clone(), previous);
                let word = lexer.text(&at);
                operates |=
                    [&b"distinct"[..], b"operator"].iter().any(|other| word.eq_ignore_ascii_case(other));
                // EXPLAIN ANALYZE of any statement that the client has prepared.
                if explains && word.eq_ignore_ascii_case(b"execute") {
                    flags.add(Flags::WRITES);
                    effect = Effect::Pin;
                }
                if reads && at.len() >= 4 && at.len() <= 6 {
                    let mut buffer = [0; 12];
                    if matches!(
                        lower(lexer.text(&at), &mut buffer),
                        b"into" | b"insert" | b"update" | b"delete" | b"merge"
                    ) {
                        flags.add(Flags::WRITES);
                    }
                }
            }
            _ => {}
        }
        // An UPDATE of this view sets what its WHERE names.
        if flags.has(Flags::WRITES) && name::is_settings(lexer.text(&at)) {
            flags.add(Flags::UNSURE);
        }
        count += 1;
        previous = token;
        range.end = at.end;
    }
    // Two parentheses, and nothing behind them.
    if effect == Effect::UnlockAll && (count != 2 || flags != Flags::default()) {
        effect = Effect::None;
    }
    if sets && is_select && !others {
        match set_config::read(begin) {
            Some(understood @ (Effect::SetConfig { .. } | Effect::None)) => {
                (flags, effect) = (Flags::default(), understood)
            }
            Some(understood) => effect = understood,
            None => {}
        }
    }
    Piece { range, flags, effect }
}
