//! Cuts SQL into words, without strings, comments and numbers.

/// A piece of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word<'a> {
    /// A word that is not quoted: a keyword, or a name.
    Keyword(&'a str),
    /// A quoted name, without its quotes.
    Quoted(&'a str),
    /// A string, without its quotes. Some servers take it for a name where one is wanted.
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
    /// Something that dialects differ about: a comment that some take for two minus signs, and what follows for a part of the
    /// statement; a number with a word right behind it.
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
enum Backslash {
    /// Nothing, as in the standard.
    Literal,
    /// The next letter does not end the string.
    Escape,
    /// The same, but only in strings that begin with `E`.
    EscapeAfterE,
}

/// What `[` means, which depends on the dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bracket {
    /// An array, or a place in one.
    Operator,
    /// A quoted name.
    Quote,
}

/// What `#` means, which depends on the dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    /// An operator, or the first letter of a temporary table.
    Letter,
    /// The rest of the line is a comment.
    Comment,
}

/// How one dialect reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect {
    backslash: Backslash,
    bracket: Bracket,
    hash: Hash,
}

impl Dialect {
    /// All that may read this text in different ways.
    pub(super) fn all_for(sql: &str) -> Vec<Self> {
        let backslashes: &[_] = match sql.contains('\\') {
            true => &[Backslash::Literal, Backslash::Escape, Backslash::EscapeAfterE],
            false => &[Backslash::Literal],
        };
        let brackets: &[_] = match sql.contains('[') {
            true => &[Bracket::Operator, Bracket::Quote],
            false => &[Bracket::Operator],
        };
        let hashes: &[_] = match sql.contains('#') {
            true => &[Hash::Letter, Hash::Comment],
            false => &[Hash::Letter],
        };
        let mut dialects = Vec::new();
        for &backslash in backslashes {
            for &bracket in brackets {
                dialects.extend(hashes.iter().map(|&hash| Self { backslash, bracket, hash }));
            }
        }
        dialects
    }
}

/// The words of a text; none if a string, a name or a comment in it has no end, or a comment's end depends on the dialect.
pub(super) fn words(sql: &str, dialect: Dialect) -> Option<Vec<Word<'_>>> {
    let Dialect { backslash, bracket, hash } = dialect;
    let mut rest = sql;
    let mut words = Vec::new();
    while let Some(next) = rest.chars().next() {
        let (word, length) = match next {
            _ if next.is_whitespace() => (None, next.len_utf8()),
            '-' if rest.starts_with("--") => {
                let is_certain = rest[2..].chars().next().is_none_or(char::is_whitespace);
                ((!is_certain).then_some(Word::Doubt), line_comment(rest)?)
            }
            '/' if rest.starts_with("/*") => (None, block_comment(rest)?),
            '\'' => {
                let escapes = match backslash {
                    Backslash::Literal => false,
                    Backslash::Escape => true,
                    Backslash::EscapeAfterE => is_after_e(sql, rest),
                };
                let length = if escapes { escaped(rest, '\'')? } else { quoted(rest, '\'')? };
                (Some(Word::Text(&rest[1..length - 1])), length)
            }
            // A name in the standard; a string where backslashes escape.
            '"' | '`' => {
                let escapes = next == '"' && backslash == Backslash::Escape;
                let length = if escapes { escaped(rest, next)? } else { quoted(rest, next)? };
                (Some(Word::Quoted(&rest[1..length - 1])), length)
            }
            '[' if bracket == Bracket::Quote => {
                let length = quoted(rest, ']')?;
                (Some(Word::Quoted(&rest[1..length - 1])), length)
            }
            ':' if rest.starts_with(":=") => (Some(Word::Assign), 2),
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
            _ if next.is_ascii_digit() => {
                let length = number(rest);
                let runs_on = rest[length..].starts_with(is_word);
                (Some(if runs_on { Word::Doubt } else { Word::Other }), length)
            }
            '#' if hash == Hash::Comment => (None, line_comment(rest)?),
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

/// `1`, `1.5`, `1e10`, `0x1f`; without the sign of an exponent, which does no harm.
fn number(text: &str) -> usize {
    let radix = text.get(..2).is_some_and(|start| matches!(start, "0x" | "0X"));
    if radix {
        return 2 + text[2..].find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(text.len() - 2);
    }
    let mantissa =
        text.find(|letter: char| !(letter.is_ascii_digit() || letter == '.')).unwrap_or(text.len());
    match text[mantissa..].strip_prefix(['e', 'E']) {
        Some(exponent) if exponent.starts_with(|letter: char| letter.is_ascii_digit()) => {
            mantissa + 1 + digits(exponent)
        }
        Some(exponent) if exponent.starts_with(['+', '-']) => mantissa + 1,
        _ => mantissa,
    }
}

/// To the end of the line. None if a carriage return ends it for some, and not for others.
fn line_comment(text: &str) -> Option<usize> {
    let end = text.find('\n').unwrap_or(text.len());
    let line = text[..end].strip_suffix('\r').unwrap_or(&text[..end]);
    (!line.contains('\r')).then_some(end)
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
