//! Cuts SQL into words, without strings, comments and numbers.

/// A piece of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word<'a> {
    /// A word that is not quoted: a keyword, or a name.
    Keyword(&'a str),
    /// A quoted name.
    Quoted,
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
    /// A string, a number, an operator: nothing that could be a word.
    Other,
    /// A comment that some dialects take for two minus signs, and what follows for a part of the statement.
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

/// What a backslash in a string means, which depends on the dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backslash {
    /// Nothing, as in the standard.
    Literal,
    /// The next letter does not end the string.
    Escape,
    /// The same, but only in strings that begin with `E`.
    EscapeAfterE,
}

/// The words of a text; none if a string, a name or a comment in it has no end, or a comment's end depends on the dialect.
pub(super) fn words(sql: &str, backslash: Backslash) -> Option<Vec<Word<'_>>> {
    let mut rest = sql;
    let mut words = Vec::new();
    while let Some(next) = rest.chars().next() {
        let (word, length) = match next {
            _ if next.is_whitespace() => (None, next.len_utf8()),
            '-' if rest.starts_with("--") => {
                let is_certain = rest[2..].chars().next().is_none_or(char::is_whitespace);
                ((!is_certain).then_some(Word::Doubt), line(rest))
            }
            '/' if rest.starts_with("/*") => (None, block_comment(rest)?),
            '\'' => {
                let escapes = match backslash {
                    Backslash::Literal => false,
                    Backslash::Escape => true,
                    Backslash::EscapeAfterE => is_after_e(sql, rest),
                };
                let length = if escapes { escaped(rest, '\'')? } else { quoted(rest, '\'')? };
                (Some(Word::Other), length)
            }
            // A name in the standard; a string where backslashes escape.
            '"' if backslash == Backslash::Escape => (Some(Word::Quoted), escaped(rest, '"')?),
            '"' => (Some(Word::Quoted), quoted(rest, '"')?),
            '`' => (Some(Word::Quoted), quoted(rest, '`')?),
            '[' => (Some(Word::Other), 1),
            '$' => match dollar_quoted(rest) {
                DollarQuote::None => (Some(Word::Other), 1 + digits(&rest[1..])),
                DollarQuote::Ends(length) => (Some(Word::Other), length),
                DollarQuote::Open => return None,
            },
            '(' => (Some(Word::Open), 1),
            ')' => (Some(Word::Close), 1),
            '.' => (Some(Word::Dot), 1),
            ',' => (Some(Word::Comma), 1),
            ';' => (Some(Word::End), 1),
            _ if next.is_ascii_digit() => (Some(Word::Other), number(rest)),
            _ if is_word(next) || next == '#' || next == '@' => {
                let length = next.len_utf8() + word(&rest[next.len_utf8()..]);
                (Some(Word::Keyword(&rest[..length])), length)
            }
            _ => (Some(Word::Other), next.len_utf8()),
        };
        words.extend(word);
        rest = &rest[length..];
    }
    Some(words)
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn word(text: &str) -> usize {
    text.find(|letter: char| !(is_word(letter) || letter == '$')).unwrap_or(text.len())
}

fn digits(text: &str) -> usize {
    text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len())
}

/// `1`, `1.5`, `1e10`, `0x1f`: what follows a digit belongs to it, but for the sign of an exponent, which does no harm.
fn number(text: &str) -> usize {
    text.find(|letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == '.'))
        .unwrap_or(text.len())
}

fn line(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// Some dialects nest comments and some do not. One that holds the beginning of another is read differently by both.
fn block_comment(text: &str) -> Option<usize> {
    let end = 2 + text[2..].find("*/")?;
    // What is in `/*! */` is carried out by some.
    (!text[2..end].contains("/*") && !text.starts_with("/*!")).then_some(end + 2)
}

/// Whether the string at the beginning of `rest` has an `E` right before it, which is no part of a longer word.
fn is_after_e(sql: &str, rest: &str) -> bool {
    let mut before = sql[..sql.len() - rest.len()].chars().rev();
    matches!(before.next(), Some('e' | 'E')) && before.next().is_none_or(|letter| !is_word(letter))
}

/// From one quote to the next that is neither doubled nor behind a backslash.
fn escaped(text: &str, quote: char) -> Option<usize> {
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => {
                letters.next();
            }
            _ if letter == quote && letters.next_if(|(_, next)| *next == quote).is_none() => {
                return Some(at + 1);
            }
            _ => {}
        }
    }
    None
}

/// From one quote to the next that is not doubled.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let mut at = 1;
    loop {
        at += text[at..].find(quote)? + 1;
        if !text[at..].starts_with(quote) {
            return Some(at);
        }
        at += 1;
    }
}

enum DollarQuote {
    None,
    Ends(usize),
    Open,
}

/// `$$...$$` or `$tag$...$tag$`.
fn dollar_quoted(text: &str) -> DollarQuote {
    let Some(end) = text[1..].find(|letter: char| !is_word(letter)).map(|end| end + 1) else {
        return DollarQuote::None;
    };
    if !text[end..].starts_with('$') || text[1..].starts_with(|letter: char| letter.is_ascii_digit()) {
        return DollarQuote::None;
    }
    let tag = &text[..=end];
    match text[tag.len()..].find(tag) {
        Some(at) => DollarQuote::Ends(tag.len() + at + tag.len()),
        None => DollarQuote::Open,
    }
}
