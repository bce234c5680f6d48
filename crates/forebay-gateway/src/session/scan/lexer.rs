//! SQL as tokens, as PostgreSQL's lexer cuts it, as far as statements and their first words need it.

use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A keyword or an identifier without quotes.
    Word,
    /// An identifier in quotes.
    Quoted,
    /// A string of any kind.
    Literal,
    Number,
    Semicolon,
    Open,
    Close,
    Dot,
    /// One byte of anything else.
    Other,
}

#[derive(Clone, Debug)]
pub(super) struct Lexer<'a> {
    sql: &'a [u8],
    at: usize,
    /// Whether a backslash escapes in a plain string: `standard_conforming_strings` is off.
    escapes: bool,
}

impl<'a> Lexer<'a> {
    pub(super) const fn new(sql: &'a [u8], escapes: bool) -> Self {
        Self { sql, at: 0, escapes }
    }

    pub(super) const fn position(&self) -> usize {
        self.at
    }

    pub(super) fn text(&self, range: &Range<usize>) -> &'a [u8] {
        &self.sql[range.start..range.end]
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.sql.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// The next token and where it is.
    #[inline]
    pub(super) fn next(&mut self) -> Option<(Token, Range<usize>)> {
        self.skip_space();
        let start = self.at;
        let first = *self.sql.get(start)?;
        let token = match first {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => self.word(first),
            b'0'..=b'9' => {
                self.skip_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
                Token::Number
            }
            b'\'' => {
                self.at += 1;
                self.string(self.escapes);
                Token::Literal
            }
            b'"' => {
                self.at += 1;
                self.quoted(b'"');
                Token::Quoted
            }
            b'$' => self.dollar(),
            b';' => self.single(Token::Semicolon),
            b'(' => self.single(Token::Open),
            b')' => self.single(Token::Close),
            b'.' => self.single(Token::Dot),
            _ => self.single(Token::Other),
        };
        #[cfg(test)]
        steps::count(self.at - start);
        Some((token, start..self.at))
    }

    const fn single(&mut self, token: Token) -> Token {
        self.at += 1;
        token
    }

    #[inline]
    fn skip_while(&mut self, mut within: impl FnMut(u8) -> bool) {
        let rest = &self.sql[self.at..];
        self.at += rest.iter().position(|&byte| !within(byte)).unwrap_or(rest.len());
    }

    #[inline]
    fn skip_space(&mut self) {
        loop {
            match self.peek(0) {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'-' if self.peek(1) == b'-' => self.skip_while(|byte| !matches!(byte, b'\n' | b'\r')),
                b'/' if self.peek(1) == b'*' => self.comment(),
                _ => return,
            }
        }
    }

    /// Comments nest.
    fn comment(&mut self) {
        let mut depth = 0_usize;
        while self.at < self.sql.len() {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => (depth, self.at) = (depth + 1, self.at + 2),
                (b'*', b'/') => {
                    (depth, self.at) = (depth - 1, self.at + 2);
                    if depth == 0 {
                        break;
                    }
                }
                _ => self.at += 1,
            }
        }
        self.at = self.at.min(self.sql.len());
    }

    #[inline]
    fn word(&mut self, first: u8) -> Token {
        let start = self.at;
        self.skip_while(
            |byte| matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9' | b'$' | 0x80..),
        );
        if self.at - start > 1 {
            return Token::Word;
        }
        // A letter in front of a quote says what the string is.
        match (first, self.peek(0), self.peek(1)) {
            (b'e' | b'E', b'\'', _) => {
                self.at += 1;
                self.string(true);
                Token::Literal
            }
            (b'b' | b'B' | b'x' | b'X', b'\'', _) => {
                self.at += 1;
                self.quoted(b'\'');
                Token::Literal
            }
            (b'u' | b'U', b'&', b'\'') => {
                self.at += 2;
                self.quoted(b'\'');
                Token::Literal
            }
            (b'u' | b'U', b'&', b'"') => {
                self.at += 2;
                self.quoted(b'"');
                Token::Quoted
            }
            _ => Token::Word,
        }
    }

    /// Behind the opening quote. Two quotes are one, and nothing else matters.
    fn quoted(&mut self, quote: u8) {
        loop {
            self.skip_while(|byte| byte != quote);
            if self.at >= self.sql.len() {
                return;
            }
            self.at += 1;
            if self.peek(0) != quote {
                return;
            }
            self.at += 1;
        }
    }

    fn string(&mut self, escapes: bool) {
        if !escapes {
            return self.quoted(b'\'');
        }
        loop {
            self.skip_while(|byte| !matches!(byte, b'\'' | b'\\'));
            match self.peek(0) {
                b'\\' => self.at = (self.at + 2).min(self.sql.len()),
                b'\'' => {
                    self.at += 1;
                    if self.peek(0) == b'\'' || self.continues() {
                        self.at += 1;
                    } else {
                        return;
                    }
                }
                _ => return,
            }
        }
    }

    /// A string goes on behind a line break. What escapes in its first part escapes in the next, too. At the quote then.
    fn continues(&mut self) -> bool {
        let end = self.at;
        let mut lines = false;
        loop {
            match self.peek(0) {
                b'\n' | b'\r' => (lines, self.at) = (true, self.at + 1),
                b' ' | b'\t' | 0x0b | 0x0c => self.at += 1,
                b'-' if self.peek(1) == b'-' => self.skip_while(|byte| !matches!(byte, b'\n' | b'\r')),
                b'\'' if lines => return true,
                _ => {
                    self.at = end;
                    return false;
                }
            }
        }
    }

    /// `$1`, `$$...$$`, `$tag$...$tag$`, or a lone dollar.
    fn dollar(&mut self) -> Token {
        let start = self.at;
        self.at += 1;
        if self.peek(0).is_ascii_digit() {
            self.skip_while(|byte| byte.is_ascii_digit());
            return Token::Other;
        }
        self.skip_while(|byte| matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9' | 0x80..));
        if self.peek(0) != b'$' {
            self.at = start + 1;
            return Token::Other;
        }
        self.at += 1;
        let tag = &self.sql[start..self.at];
        // Step by step from dollar to dollar: a tag cannot begin elsewhere.
        while self.at < self.sql.len() {
            if self.sql[self.at..].starts_with(tag) {
                self.at += tag.len();
                return Token::Literal;
            }
            self.at += 1;
            self.skip_while(|byte| byte != b'$');
        }
        Token::Literal
    }
}

/// `word` in small letters. Empty if it is longer than the buffer: then it is none of the words that are looked for.
pub(super) fn lower<'a>(word: &[u8], buffer: &'a mut [u8]) -> &'a [u8] {
    let Some(buffer) = buffer.get_mut(..word.len()) else { return &[] };
    buffer.copy_from_slice(word);
    buffer.make_ascii_lowercase();
    buffer
}

/// How much is read, so that a test can tell whether something is read more than once.
#[cfg(test)]
pub(super) mod steps {
    use std::cell::Cell;

    thread_local! {
        static READ: Cell<usize> = const { Cell::new(0) };
    }

    /// A token of this length was read.
    pub(super) fn count(bytes: usize) {
        READ.set(READ.get() + 1 + bytes);
    }

    /// Tokens and their bytes, since the last time.
    pub(in crate::session::scan) fn take() -> usize {
        READ.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(sql: &str) -> Vec<&str> {
        cut(sql, false)
    }

    fn cut(sql: &str, escapes: bool) -> Vec<&str> {
        let mut lexer = Lexer::new(sql.as_bytes(), escapes);
        std::iter::from_fn(|| lexer.next()).map(|(_, range)| &sql[range]).collect()
    }

    #[test]
    fn quotes_of_all_kinds_hide_what_they_hold() {
        assert_eq!(tokens("a 'b;''c' \"d;\"\"e\" f"), ["a", "'b;''c'", "\"d;\"\"e\"", "f"]);
        assert_eq!(tokens(r"E'a\';b' e'\\';"), [r"E'a\';b'", r"e'\\'", ";"]);
        assert_eq!(tokens(r"'a\';b"), [r"'a\'", ";", "b"]);
        assert_eq!(cut(r"'a\';b' c", true), [r"'a\';b'", "c"]);
        assert_eq!(tokens(r"x'\' b'\';U&'\';n'a'"), [r"x'\'", r"b'\'", ";", r"U&'\'", ";", "n", "'a'"]);
        assert_eq!(tokens("u&\"a;b\" c"), ["u&\"a;b\"", "c"]);
    }

    #[test]
    fn dollar_quotes_end_at_their_own_tag() {
        assert_eq!(tokens("$$a;b$$;$x$ $$ $y$ $x$ z"), ["$$a;b$$", ";", "$x$ $$ $y$ $x$", "z"]);
        assert_eq!(tokens("$1+$2"), ["$1", "+", "$2"]);
        assert_eq!(tokens("a$b$c;d"), ["a$b$c", ";", "d"]);
        assert_eq!(tokens("$a b"), ["$", "a", "b"]);
        assert_eq!(tokens("$é$;$é$;"), ["$é$;$é$", ";"]);
    }

    #[test]
    fn comments_are_no_tokens_and_nest() {
        assert_eq!(tokens("a--b;'\nc/*d/*;'*/e*/f"), ["a", "c", "f"]);
        assert_eq!(tokens("a /* b"), ["a"]);
        assert_eq!(tokens("1-- x"), ["1"]);
    }

    #[test]
    fn a_string_with_escapes_goes_on_behind_a_line_break() {
        assert_eq!(tokens("E'a' -- x\n '\\';' b"), ["E'a' -- x\n '\\';'", "b"]);
        assert_eq!(tokens("E'a' '\\';"), ["E'a'", "'\\'", ";"]);
    }

    #[test]
    fn what_has_no_end_ends_with_the_text() {
        for sql in ["'a", "\"a", "$$a", "$a$b$a", "/*", "E'a\\", "E'", "$", "x'", "'a'\n", "E'a'\n"] {
            let mut lexer = Lexer::new(sql.as_bytes(), false);
            while lexer.next().is_some() {}
            assert_eq!(lexer.position(), sql.len(), "{sql}");
        }
    }
}
