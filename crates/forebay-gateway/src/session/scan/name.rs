//! A name in a statement, which may be that of a function.

use std::ops::Range;

use super::functions::{self, Call};
use super::lexer::{Lexer, Token, lower};

/// Longest name that is compared with known ones. PostgreSQL cuts names at 63 bytes.
const LONGEST_NAME: usize = 63;

/// The view of settings.
const SETTINGS: &[u8] = b"pg_settings";

/// One word, or several with dots between them.
pub(super) struct Name {
    first: Range<usize>,
    last: Range<usize>,
    /// The last part of the name in front of it, if nothing is between them.
    before: Range<usize>,
    follows_parenthesis: bool,
}

impl Name {
    pub(super) const fn new(word: Range<usize>) -> Self {
        Self { first: word.start..word.end, last: word, before: 0..0, follows_parenthesis: false }
    }

    /// The name that begins behind this one. `previous` is the token in front of it.
    pub(super) fn next(self, word: Range<usize>, previous: Token) -> Self {
        Self {
            before: if matches!(previous, Token::Word | Token::Quoted) { self.last } else { 0..0 },
            follows_parenthesis: previous == Token::Close,
            ..Self::new(word)
        }
    }

    /// A dot and another word.
    pub(super) fn push(&mut self, word: Range<usize>) {
        self.last = word;
    }

    pub(super) fn has_schema(&self) -> bool {
        self.first != self.last
    }

    pub(super) const fn follows_parenthesis(&self) -> bool {
        self.follows_parenthesis
    }

    /// Whether it has escapes: these can spell any name.
    fn is_escaped(&self, lexer: &Lexer<'_>) -> bool {
        let escaped = |word| matches!(lexer.text(word), [b'u' | b'U', b'&', b'"', ..]);
        escaped(&self.first) || escaped(&self.last)
    }

    /// What it means that a parenthesis follows.
    pub(super) fn call(&self, lexer: &Lexer<'_>) -> Call {
        let mut buffer = [0; LONGEST_NAME];
        if !self.before.is_empty() {
            // A table with its columns, or an alias with its columns.
            let mut buffer = [0; 12];
            if matches!(
                lower(lexer.text(&self.before), &mut buffer),
                b"into" | b"as" | b"with" | b"recursive" | b"copy" | b"ordinality"
            ) {
                return Call::Harmless;
            }
        }
        // The query of a COPY, and its options.
        let text = lexer.text(&self.last);
        if !self.has_schema()
            && [&b"copy"[..], b"stdin", b"stdout"].iter().any(|word| text.eq_ignore_ascii_case(word))
        {
            return Call::Harmless;
        }
        if self.is_escaped(lexer) {
            return Call::Pins;
        }
        if self.has_schema() {
            match lower(lexer.text(&self.first).trim_ascii(), &mut buffer) {
                b"pg_catalog" => {}
                // Those of the SQL standard's views, such as JDBC uses.
                b"information_schema" if text.starts_with(b"_pg_") => return Call::Harmless,
                _ => return Call::Unsure,
            }
        }
        match text {
            // In quotes it is the same function if it is written in small letters.
            [b'"', inner @ .., b'"'] => functions::call(inner),
            _ => functions::call(lower(text, &mut buffer)),
        }
    }

    pub(super) fn is_set_config(&self, lexer: &Lexer<'_>) -> bool {
        let mut buffer = [0; 12];
        // In quotes it is the same function.
        match lexer.text(&self.last).trim_ascii() {
            [b'"', inner @ .., b'"'] => inner == b"set_config",
            text => lower(text, &mut buffer) == b"set_config",
        }
    }
}

/// Whether a token is the name of the view of settings.
pub(super) fn is_settings(token: &[u8]) -> bool {
    if token.len() < SETTINGS.len() {
        return false;
    }
    match token {
        [b'"', inner @ .., b'"'] => inner == SETTINGS,
        // Escapes can spell any name.
        [b'u' | b'U', b'&', b'"', ..] => true,
        text => text.eq_ignore_ascii_case(SETTINGS),
    }
}
