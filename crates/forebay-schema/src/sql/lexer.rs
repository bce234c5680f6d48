//! PostgreSQL's lexical rules: where strings, quoted names and comments begin and end.

use std::ops::Range;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A keyword or a name without quotes.
    Word,
    QuotedName,
    /// A string, in any of the ways to write one.
    Text,
    Number,
    /// One character of punctuation or of an operator.
    Sign,
}

/// A token and its place in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) range: Range<usize>,
}

/// The text ends inside of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unfinished {
    pub(crate) what: &'static str,
    /// Where that begins.
    pub(crate) at: usize,
}

/// Reads one token after another. Spaces and comments are no tokens.
#[derive(Clone, Debug)]
pub(crate) struct Lexer<'a> {
    sql: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(sql: &'a str) -> Self {
        Self { sql, at: 0 }
    }

    /// Goes on reading here.
    pub(crate) fn skip_to(&mut self, at: usize) {
        self.at = at;
    }

    /// The end of the last token.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    fn bytes(&self) -> &'a [u8] {
        self.sql.as_bytes()
    }

    fn byte(&self, at: usize) -> u8 {
        self.bytes().get(at).copied().unwrap_or(0)
    }

    /// The next token; none at the end of the text.
    pub(crate) fn next(&mut self) -> Result<Option<Token>, Unfinished> {
        self.skip_spaces_and_comments()?;
        let start = self.at;
        if start >= self.sql.len() {
            return Ok(None);
        }
        let (kind, end) = match self.byte(start) {
            b'\'' => (TokenKind::Text, self.string_end(start, start, false)?),
            b'"' => (TokenKind::QuotedName, self.quoted_name_end(start, start)?),
            b'$' => match self.dollar_quote_end(start)? {
                Some(end) => (TokenKind::Text, end),
                // A parameter, or a sign that does not belong there.
                None => (TokenKind::Sign, start + 1),
            },
            byte if is_name_start(byte) => self.word(start)?,
            byte if byte.is_ascii_digit() => (TokenKind::Number, self.number_end(start)),
            _ => (TokenKind::Sign, start + self.sql[start..].chars().next().map_or(1, char::len_utf8)),
        };
        self.at = end;
        Ok(Some(Token { kind, range: start..end }))
    }

    fn skip_spaces_and_comments(&mut self) -> Result<(), Unfinished> {
        loop {
            match (self.byte(self.at), self.byte(self.at + 1)) {
                (b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, _) => self.at += 1,
                // The mark at the beginning of some files.
                (0xef, 0xbb) if self.at == 0 && self.byte(2) == 0xbf => self.at = 3,
                (b'-', b'-') => {
                    let rest = &self.bytes()[self.at..];
                    let length = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                    self.at += length.unwrap_or(rest.len());
                }
                (b'/', b'*') => self.at = self.comment_end()?,
                _ => return Ok(()),
            }
        }
    }

    /// Comments of this kind may be nested.
    fn comment_end(&self) -> Result<usize, Unfinished> {
        let (mut at, mut depth) = (self.at, 0_usize);
        while at < self.sql.len() {
            match (self.byte(at), self.byte(at + 1)) {
                (b'/', b'*') => (depth, at) = (depth + 1, at + 2),
                (b'*', b'/') => {
                    (depth, at) = (depth - 1, at + 2);
                    if depth == 0 {
                        return Ok(at);
                    }
                }
                _ => at += 1,
            }
        }
        Err(Unfinished { what: "the comment", at: self.at })
    }

    /// A name, a keyword, or a string or quoted name with a letter before it, such as `E'\n'` or `U&"a"`.
    fn word(&self, start: usize) -> Result<(TokenKind, usize), Unfinished> {
        let end = self.name_end(start);
        let unicode = self.byte(end) == b'&';
        match (&self.sql[start..end], self.byte(end), self.byte(end + 1)) {
            ("e" | "E", b'\'', _) => Ok((TokenKind::Text, self.string_end(start, end, true)?)),
            ("b" | "B" | "x" | "X" | "n" | "N", b'\'', _) => {
                Ok((TokenKind::Text, self.string_end(start, end, false)?))
            }
            ("u" | "U", _, b'\'') if unicode => {
                Ok((TokenKind::Text, self.string_end(start, end + 1, false)?))
            }
            ("u" | "U", _, b'"') if unicode => {
                Ok((TokenKind::QuotedName, self.quoted_name_end(start, end + 1)?))
            }
            _ => Ok((TokenKind::Word, end)),
        }
    }

    fn name_end(&self, start: usize) -> usize {
        let rest = &self.bytes()[start..];
        start + rest.iter().position(|byte| !is_name_part(*byte)).unwrap_or(rest.len())
    }

    /// The end of a string whose quote is at `quote`. After a line break, it may go on in another pair of quotes.
    fn string_end(&self, start: usize, quote: usize, escapes: bool) -> Result<usize, Unfinished> {
        let mut at = quote + 1;
        while at < self.sql.len() {
            match (self.byte(at), self.byte(at + 1)) {
                (b'\\', _) if escapes => at += 2,
                (b'\'', b'\'') => at += 2,
                (b'\'', _) => match self.continuation(at + 1) {
                    Some(quote) => at = quote + 1,
                    None => return Ok(at + 1),
                },
                _ => at += 1,
            }
        }
        Err(Unfinished { what: "the string", at: start })
    }

    /// The quote with which a string goes on that has ended at `at`: there are only spaces, line comments and a line break
    /// between.
    fn continuation(&self, mut at: usize) -> Option<usize> {
        let mut is_next_line = false;
        loop {
            match (self.byte(at), self.byte(at + 1)) {
                (b'\n' | b'\r', _) => (is_next_line, at) = (true, at + 1),
                (b' ' | b'\t' | 0x0b | 0x0c, _) => at += 1,
                (b'-', b'-') => {
                    let rest = &self.bytes()[at..];
                    at += rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
                }
                (b'\'', _) if is_next_line => return Some(at),
                _ => return None,
            }
        }
    }

    fn quoted_name_end(&self, start: usize, quote: usize) -> Result<usize, Unfinished> {
        let mut at = quote + 1;
        while at < self.sql.len() {
            match (self.byte(at), self.byte(at + 1)) {
                (b'"', b'"') => at += 2,
                (b'"', _) => return Ok(at + 1),
                _ => at += 1,
            }
        }
        Err(Unfinished { what: "the quoted name", at: start })
    }

    /// The end of `$tag$ ... $tag$`; none if this is not the beginning of one.
    fn dollar_quote_end(&self, start: usize) -> Result<Option<usize>, Unfinished> {
        let rest = &self.bytes()[start + 1..];
        let length = rest.iter().position(|byte| !is_name_part(*byte) || *byte == b'$');
        let Some(length) = length.filter(|length| rest[*length] == b'$') else { return Ok(None) };
        if rest[0].is_ascii_digit() {
            return Ok(None);
        }
        let tag = &self.sql[start..start + length + 2];
        let body = start + tag.len();
        match self.sql[body..].find(tag) {
            Some(found) => Ok(Some(body + found + tag.len())),
            None => Err(Unfinished { what: "the dollar quote", at: start }),
        }
    }

    fn number_end(&self, start: usize) -> usize {
        let mut at = start;
        while self.byte(at).is_ascii_alphanumeric() || matches!(self.byte(at), b'.' | b'_') {
            // `1..2` is not a number.
            if self.byte(at) == b'.' && self.byte(at + 1) == b'.' {
                break;
            }
            at += 1;
            let is_exponent = matches!(self.byte(at - 1), b'e' | b'E') && self.byte(start + 1) != b'x';
            if is_exponent && matches!(self.byte(at), b'+' | b'-') && self.byte(at + 1).is_ascii_digit() {
                at += 1;
            }
        }
        at
    }
}

fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn is_name_part(byte: u8) -> bool {
    is_name_start(byte) || byte.is_ascii_digit() || byte == b'$'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(sql: &str) -> Result<Vec<(TokenKind, &str)>, Unfinished> {
        let mut lexer = Lexer::new(sql);
        let mut tokens = Vec::new();
        while let Some(Token { kind, range }) = lexer.next()? {
            tokens.push((kind, &sql[range]));
        }
        Ok(tokens)
    }

    fn words(sql: &str) -> Vec<&str> {
        tokens(sql).unwrap().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn strings_names_and_comments_are_whole() {
        for (sql, expected) in [
            ("'a;''b' x", vec!["'a;''b'", "x"]),
            (r"'a\' x", vec![r"'a\'", "x"]),
            (r"E'a\'; b' x", vec![r"E'a\'; b'", "x"]),
            ("e'a'\n 'b\\'' x", vec!["e'a'\n 'b\\''", "x"]),
            ("E'a' -- it's\n -- x\n 'b\\'' x", vec!["E'a' -- it's\n -- x\n 'b\\''", "x"]),
            ("'a' -- it's\n, 'b'", vec!["'a'", ",", "'b'"]),
            ("'a' 'b'", vec!["'a'", "'b'"]),
            ("U&'d;' U&\"d;\" u", vec!["U&'d;'", "U&\"d;\"", "u"]),
            ("u & 1", vec!["u", "&", "1"]),
            ("\"a\"\";\" b", vec!["\"a\"\";\"", "b"]),
            ("$$;$$ $1 $a$ $$ ; $a$ a$b$ c", vec!["$$;$$", "$", "1", "$a$ $$ ; $a$", "a$b$", "c"]),
            ("/* ; /* ; */ ; */ a -- ;\r b", vec!["a", "b"]),
            ("1.5e-10 0x1F a.b 1..2", vec!["1.5e-10", "0x1F", "a", ".", "b", "1", ".", ".", "2"]),
            ("\u{feff}a é", vec!["a", "é"]),
            ("x'1f' n'a' xx'a'", vec!["x'1f'", "n'a'", "xx", "'a'"]),
        ] {
            assert_eq!(words(sql), expected, "{sql}");
        }
    }

    #[test]
    fn what_has_no_end_is_named() {
        for (sql, what, at) in [
            ("a 'b", "the string", 2),
            ("\"b", "the quoted name", 0),
            ("/* /* */", "the comment", 0),
            ("x $t$ $$", "the dollar quote", 2),
            ("E'\\'", "the string", 0),
        ] {
            assert_eq!(tokens(sql), Err(Unfinished { what, at }), "{sql}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_and_tokens_are_in_order(sql in "[a-zA-ZeExXuU&'\"$;*/\\-\\\\ é\n()0-9.]{0,60}") {
            let mut lexer = Lexer::new(&sql);
            let mut end = 0;
            while let Ok(Some(token)) = lexer.next() {
                prop_assert!(token.range.start >= end && token.range.end > token.range.start);
                end = token.range.end;
                prop_assert!(sql.get(token.range).is_some());
            }
        }
    }
}
