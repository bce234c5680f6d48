//! The SQL lexer of the client side: tokens with their positions, in every dialect that a server may speak.

/// One token. White space is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// Its first byte.
    pub start: usize,
    /// The byte after its last one.
    pub end: usize,
}

impl Token {
    /// Its text, with any quotes.
    #[must_use]
    pub fn text<'a>(&self, sql: &'a str) -> &'a str {
        &sql[self.start..self.end]
    }

    /// The text between its quotes, each of which is one byte.
    pub(super) fn unquoted<'a>(&self, sql: &'a str) -> &'a str {
        &sql[self.start + 1..self.end - 1]
    }
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A keyword or a name that is not quoted. `#t` and `@v` are words too.
    Word,
    /// A name in `"`, `` ` `` or, in some dialects, `[]`.
    QuotedName,
    /// A string in `'`. The `E` of `E'...'` is a word of its own.
    String,
    /// `$$...$$` or `$tag$...$tag$`.
    DollarQuote,
    /// A number without its sign.
    Number,
    /// `-- ...` without the end of the line.
    LineComment,
    /// `/* ... */`. Comments nest.
    BlockComment,
    /// `(`
    Open,
    /// `)`
    Close,
    /// `.`
    Dot,
    /// `,`
    Comma,
    /// `;`
    Semicolon,
    /// `:=`
    Assign,
    /// Another character, or a parameter such as `$1`.
    Other,
    /// A string, name or comment that the end of the text cuts off.
    Unfinished(Unfinished),
}

/// What the end of the text cuts off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// A string.
    String,
    /// A quoted name, with its quote.
    QuotedName(char),
    /// A block comment.
    Comment,
    /// A dollar quote.
    DollarQuote,
}

/// What a backslash in a string means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backslash {
    /// Nothing, as in the standard.
    Literal,
    /// The next character does not end the string. `"` quotes a string then.
    Escape,
    /// The same, but only in strings that begin with `E`.
    EscapeAfterE,
}

/// How a server reads what dialects differ about. The default is PostgreSQL's and DuckDB's way: a backslash escapes only in
/// `E'...'`, `[` is an operator, and `#` does not begin a comment.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    pub(super) backslash: Backslash,
    /// `[` quotes a name. Otherwise it is an operator.
    pub(super) has_bracket_quotes: bool,
    /// `#` begins a comment. Otherwise it is an operator, or the first character of a temporary table.
    pub(super) has_hash_comments: bool,
}

impl Default for Dialect {
    fn default() -> Self {
        Self { backslash: Backslash::EscapeAfterE, has_bracket_quotes: false, has_hash_comments: false }
    }
}

/// Cuts a text into tokens. The text may arrive in parts: see [`Lexer::next`].
///
/// ```
/// use forebay_flight::sql::{Lexer, TokenKind};
///
/// let (mut lexer, mut text, mut statements) = (Lexer::default(), String::new(), Vec::new());
/// for part in ["SELECT ';', $$", ";$$; SEL", "ECT 2 -- ;"] {
///     text.push_str(part);
///     while let Some(token) = lexer.next(&text, false) {
///         if token.kind == TokenKind::Semicolon {
///             statements.push(text[..token.start].to_owned());
///             text.drain(..token.end);
///             lexer.restart();
///         }
///     }
/// }
/// assert_eq!(statements, ["SELECT ';', $$;$$"]);
/// assert_eq!(text, " SELECT 2 -- ;");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Lexer {
    dialect: Dialect,
    at: usize,
    pending: Option<Pending>,
}

/// A token whose end is not there yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    until: Until,
    /// Where to go on with the search for the end.
    from: usize,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    Quote {
        quote: char,
        escapes: bool,
    },
    CommentEnd {
        depth: usize,
    },
    /// The tag of this length at the start of the token.
    Tag {
        length: usize,
    },
}

impl Lexer {
    /// One at the beginning of a text.
    #[must_use]
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, at: 0, pending: None }
    }

    /// Goes back to the beginning, for another text or because the caller removed what was read.
    pub fn restart(&mut self) {
        *self = Self::new(self.dialect);
    }

    /// The next token of `sql`, or `None` at its end.
    ///
    /// A text that grows is read once: pass all of it each time, and `is_complete` as `false` until nothing more can come.
    /// Then the last token is returned only once nothing that follows can change it.
    pub fn next(&mut self, sql: &str, is_complete: bool) -> Option<Token> {
        if self.pending.is_none() {
            self.at = sql.len() - sql[self.at..].trim_start().len();
        }
        let (start, rest) = (self.at, &sql[self.at..]);
        let first = rest.chars().next()?;
        let (kind, end) = match self.pending.take() {
            Some(pending) => self.find_end(sql, pending),
            None => match self.begin(sql, first) {
                Begun::Token(kind, length) => (kind, start + length),
                Begun::Until(until, length) => self.find_end(sql, Pending { until, from: start + length }),
            },
        };
        let is_last = end == sql.len();
        let may_go_on = match kind {
            TokenKind::Unfinished(_) => true,
            TokenKind::Word | TokenKind::QuotedName | TokenKind::String | TokenKind::LineComment => is_last,
            // `1e` may be the beginning of `1e5`, and `$a` of `$a$`.
            TokenKind::Number => while_any(rest, |next| is_word(next) || next == '.') == rest.len(),
            TokenKind::Other if first == '$' => is_last || 1 + while_any(&rest[1..], is_word) == rest.len(),
            TokenKind::Other => is_last && matches!(first, '-' | '/' | ':'),
            _ => false,
        };
        if may_go_on && !is_complete {
            return None;
        }
        self.at = end;
        self.pending = None;
        Some(Token { kind, start, end })
    }

    fn begin(&self, sql: &str, first: char) -> Begun {
        use TokenKind as T;
        let rest = &sql[self.at..];
        let Dialect { backslash, has_bracket_quotes, has_hash_comments } = self.dialect;
        let (kind, length) = match first {
            '-' if rest.starts_with("--") => (T::LineComment, line(rest)),
            '#' if has_hash_comments => (T::LineComment, line(rest)),
            '/' if rest.starts_with("/*") => return Begun::Until(Until::CommentEnd { depth: 1 }, 2),
            '\'' => {
                let escapes = match backslash {
                    Backslash::Literal => false,
                    Backslash::Escape => true,
                    Backslash::EscapeAfterE => is_after_e(&sql[..self.at]),
                };
                return Begun::Until(Until::Quote { quote: first, escapes }, 1);
            }
            '"' | '`' => {
                let escapes = first == '"' && backslash == Backslash::Escape;
                return Begun::Until(Until::Quote { quote: first, escapes }, 1);
            }
            '[' if has_bracket_quotes => {
                return Begun::Until(Until::Quote { quote: ']', escapes: false }, 1);
            }
            ':' if rest.starts_with(":=") => (T::Assign, 2),
            '$' => match tag(rest) {
                Some(length) => return Begun::Until(Until::Tag { length }, length),
                // A parameter; or the beginning of a tag, of which more may come.
                None => (T::Other, 1 + digits(&rest[1..])),
            },
            '(' => (T::Open, 1),
            ')' => (T::Close, 1),
            '.' => (T::Dot, 1),
            ',' => (T::Comma, 1),
            ';' => (T::Semicolon, 1),
            _ if first.is_ascii_digit() => (T::Number, number(rest)),
            _ if is_word(first) || first == '#' || first == '@' => {
                let head = first.len_utf8();
                (T::Word, head + while_any(&rest[head..], |next| is_word(next) || next == '$'))
            }
            _ => (T::Other, first.len_utf8()),
        };
        Begun::Token(kind, length)
    }

    /// Finds the end of the token at `self.at`, or remembers how far it has looked.
    fn find_end(&mut self, sql: &str, Pending { until, from }: Pending) -> (TokenKind, usize) {
        let (found, kind, unfinished) = match until {
            Until::Quote { quote, escapes } => {
                let found = if escapes { escaped(sql, from, quote) } else { quoted(sql, from, quote) };
                match quote {
                    '\'' => (found, TokenKind::String, Unfinished::String),
                    _ => (found, TokenKind::QuotedName, Unfinished::QuotedName(quote)),
                }
            }
            Until::CommentEnd { depth } => {
                (comment_end(sql, from, depth), TokenKind::BlockComment, Unfinished::Comment)
            }
            Until::Tag { length } => {
                let tag = &sql[self.at..self.at + length];
                let found = sql[from..].find(tag).map(|at| from + at + length).ok_or_else(|| {
                    // All of the tag but its last character may be there.
                    let mut from = from.max((sql.len() + 1).saturating_sub(length));
                    while !sql.is_char_boundary(from) {
                        from -= 1;
                    }
                    Pending { until, from }
                });
                (found, TokenKind::DollarQuote, Unfinished::DollarQuote)
            }
        };
        match found {
            Ok(end) => {
                // A quote at the end of the text may be the first of two: the search then starts there again.
                if let (Until::Quote { .. }, true) = (until, end == sql.len()) {
                    self.pending = Some(Pending { until, from: end - 1 });
                }
                (kind, end)
            }
            Err(pending) => {
                self.pending = Some(pending);
                (TokenKind::Unfinished(unfinished), sql.len())
            }
        }
    }
}

enum Begun {
    /// A token of this length.
    Token(TokenKind, usize),
    /// A token that goes on after this length.
    Until(Until, usize),
}

pub(super) fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn while_any(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|letter| !is_part(letter)).unwrap_or(text.len())
}

fn digits(text: &str) -> usize {
    while_any(text, |letter| letter.is_ascii_digit())
}

fn line(text: &str) -> usize {
    while_any(text, |letter| letter != '\n')
}

/// `1`, `1.5`, `1e10`, `0x1f`; without the sign of an exponent, which changes nothing.
fn number(text: &str) -> usize {
    if text.starts_with("0x") || text.starts_with("0X") {
        return 2 + while_any(&text[2..], |letter| letter.is_ascii_hexdigit());
    }
    let mantissa = while_any(text, |letter| letter.is_ascii_digit() || letter == '.');
    match text[mantissa..].strip_prefix(['e', 'E']) {
        Some(exponent) if exponent.starts_with(|letter: char| letter.is_ascii_digit()) => {
            mantissa + 1 + digits(exponent)
        }
        Some(exponent) if exponent.starts_with(['+', '-']) => mantissa + 1,
        _ => mantissa,
    }
}

/// Whether a text ends with an `E` that is not part of a longer word.
fn is_after_e(before: &str) -> bool {
    let mut before = before.chars().rev();
    matches!(before.next(), Some('e' | 'E')) && before.next().is_none_or(|letter| !is_word(letter))
}

/// The length of a dollar quote's tag at the beginning of a text.
fn tag(text: &str) -> Option<usize> {
    let end = 1 + while_any(&text[1..], is_word);
    let is_tag =
        text[end..].starts_with('$') && !text[1..].starts_with(|letter: char| letter.is_ascii_digit());
    is_tag.then_some(end + 1)
}

/// The end of a text in quotes, in which a backslash escapes.
fn escaped(sql: &str, from: usize, quote: char) -> Result<usize, Pending> {
    let mut letters = sql[from..].char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' {
            if letters.next().is_none() {
                let until = Until::Quote { quote, escapes: true };
                return Err(Pending { until, from: from + at });
            }
        } else if letter == quote && letters.next_if(|(_, next)| *next == quote).is_none() {
            return Ok(from + at + 1);
        }
    }
    Err(Pending { until: Until::Quote { quote, escapes: true }, from: sql.len() })
}

/// The end of a text in quotes, in which only a doubled quote escapes.
fn quoted(sql: &str, mut from: usize, quote: char) -> Result<usize, Pending> {
    while let Some(at) = sql[from..].find(quote) {
        from += at + 1;
        if !sql[from..].starts_with(quote) {
            return Ok(from);
        }
        from += 1;
    }
    Err(Pending { until: Until::Quote { quote, escapes: false }, from: sql.len() })
}

fn comment_end(sql: &str, mut from: usize, mut depth: usize) -> Result<usize, Pending> {
    while let Some(at) = sql[from..].find(['*', '/']) {
        let rest = &sql[from + at..];
        if rest.starts_with("*/") {
            depth -= 1;
        } else if rest.starts_with("/*") {
            depth += 1;
        } else if rest.len() == 1 {
            return Err(Pending { until: Until::CommentEnd { depth }, from: from + at });
        } else {
            from += at + 1;
            continue;
        }
        from += at + 2;
        if depth == 0 {
            return Ok(from);
        }
    }
    Err(Pending { until: Until::CommentEnd { depth }, from: sql.len() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens(sql: &str) -> Vec<Token> {
        let mut lexer = Lexer::default();
        std::iter::from_fn(|| lexer.next(sql, true)).collect()
    }

    #[test]
    fn tokens_have_their_kind_and_place() {
        use TokenKind as T;
        for (sql, expected) in [
            (
                "a.b:=1.5e3, (E'it\\'s');",
                &[
                    (T::Word, "a"),
                    (T::Dot, "."),
                    (T::Word, "b"),
                    (T::Assign, ":="),
                    (T::Number, "1.5e3"),
                    (T::Comma, ","),
                    (T::Open, "("),
                    (T::Word, "E"),
                    (T::String, "'it\\'s'"),
                    (T::Close, ")"),
                    (T::Semicolon, ";"),
                ][..],
            ),
            ("\"a\"\"b\" `c`", &[(T::QuotedName, "\"a\"\"b\""), (T::QuotedName, "`c`")]),
            (
                "$$;$$ $x$ $$ $x$ $1",
                &[(T::DollarQuote, "$$;$$"), (T::DollarQuote, "$x$ $$ $x$"), (T::Other, "$1")],
            ),
            (
                "a--b\n/*/*c*/*/d",
                &[(T::Word, "a"), (T::LineComment, "--b"), (T::BlockComment, "/*/*c*/*/"), (T::Word, "d")],
            ),
            ("a 'b", &[(T::Word, "a"), (T::Unfinished(Unfinished::String), "'b")]),
            ("\"b", &[(T::Unfinished(Unfinished::QuotedName('"')), "\"b")]),
            ("/*/", &[(T::Unfinished(Unfinished::Comment), "/*/")]),
            ("$a$b$a", &[(T::Unfinished(Unfinished::DollarQuote), "$a$b$a")]),
        ] {
            let found: Vec<_> = tokens(sql).iter().map(|token| (token.kind, token.text(sql))).collect();
            assert_eq!(found, expected, "{sql}");
        }
    }

    proptest! {
        /// What arrives in parts gives the same tokens as the whole.
        #[test]
        fn a_text_may_be_cut_anywhere(
            text in "([a-eE$;'\"`*/\\\\ü\n1.:=-]|\\$\\$|\\$a\\$|/\\*|\\*/|''|E'){0,30}",
            cuts in prop::collection::vec(1_usize..5, 1..9),
        ) {
            let (mut lexer, mut found, mut end) = (Lexer::default(), Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                end = (end + cut).min(text.len());
                if !text.is_char_boundary(end) {
                    end += 1;
                }
                found.extend(std::iter::from_fn(|| lexer.next(&text[..end], false)));
                if end == text.len() {
                    break;
                }
            }
            found.extend(std::iter::from_fn(|| lexer.next(&text, true)));
            prop_assert_eq!(found, tokens(&text));
        }
    }
}
