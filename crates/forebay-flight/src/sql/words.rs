//! The words of a statement, without strings, comments and numbers.

use super::lexer::{Backslash, Dialect, Lexer, TokenKind, is_word};

/// A piece of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word<'a> {
    /// A word that is not quoted: a keyword, or a name.
    Keyword(&'a str),
    /// A quoted name, without its quotes.
    Quoted(&'a str),
    /// A string, without its quotes. Some servers accept it where a name belongs.
    Text(&'a str),
    /// `(`
    Open,
    /// `)`
    Close,
    /// `.`
    Dot,
    /// `,`
    Comma,
    /// `;`
    End,
    /// `:=`
    Assign,
    /// A number, an operator: nothing that could be a word.
    Other,
    /// Something that dialects differ about: `--1`, which some read as two minus signs and others as a comment; a number with
    /// a word right behind it.
    Doubt,
}

impl<'a> Word<'a> {
    pub(super) fn keyword(&self) -> Option<&'a str> {
        match self {
            Self::Keyword(word) => Some(word),
            _ => None,
        }
    }
}

/// Every dialect that may read this text in its own way.
pub(super) fn dialects(sql: &str) -> Vec<Dialect> {
    let backslashes: &[_] = match sql.contains('\\') {
        true => &[Backslash::Literal, Backslash::Escape, Backslash::EscapeAfterE],
        false => &[Backslash::Literal],
    };
    let choices = |differs: bool| if differs { &[false, true][..] } else { &[false] };
    let mut dialects = Vec::new();
    for &backslash in backslashes {
        for &has_bracket_quotes in choices(sql.contains('[')) {
            dialects.extend(choices(sql.contains('#')).iter().map(|&has_hash_comments| Dialect {
                backslash,
                has_bracket_quotes,
                has_hash_comments,
            }));
        }
    }
    dialects
}

/// The words of a text; none if a string, a name or a comment in it has no end, or a comment's end depends on the dialect.
pub(super) fn words(sql: &str, dialect: Dialect) -> Option<Vec<Word<'_>>> {
    let (mut lexer, mut words) = (Lexer::new(dialect), Vec::new());
    while let Some(token) = lexer.next(sql, true) {
        words.push(match token.kind {
            TokenKind::Word => Word::Keyword(token.text(sql)),
            TokenKind::QuotedName => Word::Quoted(token.unquoted(sql)),
            TokenKind::String => Word::Text(token.unquoted(sql)),
            TokenKind::Number if sql[token.end..].starts_with(is_word) => Word::Doubt,
            TokenKind::Number | TokenKind::DollarQuote | TokenKind::Other => Word::Other,
            TokenKind::Open => Word::Open,
            TokenKind::Close => Word::Close,
            TokenKind::Dot => Word::Dot,
            TokenKind::Comma => Word::Comma,
            TokenKind::Semicolon => Word::End,
            TokenKind::Assign => Word::Assign,
            TokenKind::LineComment => {
                let text = token.text(sql);
                // A carriage return ends a comment in some dialects only.
                if text.strip_suffix('\r').unwrap_or(text).contains('\r') {
                    return None;
                }
                match text.strip_prefix("--") {
                    Some(comment) if !comment.is_empty() && !comment.starts_with(char::is_whitespace) => {
                        Word::Doubt
                    }
                    _ => continue,
                }
            }
            TokenKind::BlockComment => {
                let text = token.text(sql);
                // Some dialects do not nest comments, and some run what is in `/*! */`.
                if text[2..].contains("/*") || text.starts_with("/*!") {
                    return None;
                }
                continue;
            }
            TokenKind::Unfinished(_) => return None,
        });
    }
    Some(words)
}
