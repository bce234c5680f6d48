//! `SELECT set_config('name', 'value', false)`: how some drivers write SET, asyncpg and Django among them.

use super::Effect;
use super::functions::{self, Call};
use super::lexer::{Lexer, Token};
use crate::session::assignment::Assignment;
use crate::session::min_messages;

/// A longer value is not kept.
const LONGEST_VALUE: usize = 4096;

/// What a call sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    /// A setting that the server lists.
    Plain,
    /// One that it does not list, such as `role`, `seed` or `app.tenant`, or that cannot be told from the text.
    Hidden,
    /// Any but a role, until the end of the transaction.
    Local,
}

impl Setting {
    /// Reads the arguments of the call, behind its parenthesis. Where they end, too: a call within them is not read again.
    pub(super) fn read(mut lexer: Lexer<'_>) -> (Self, usize) {
        let name = lexer.next().and_then(|(token, at)| {
            let literal = lexer.text(&at).strip_prefix(b"'").and_then(|text| text.strip_suffix(b"'"));
            let hidden = |text: &[u8]| {
                let own = [&b"role"[..], b"seed", b"session_authorization"];
                own.iter().any(|name| text.eq_ignore_ascii_case(name))
            };
            let simple = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(*byte, b'_' | b'.');
            let is_known = token == Token::Literal
                && lexer.clone().next().is_some_and(|(_, at)| lexer.text(&at) == b",");
            literal.filter(|text| is_known && text.iter().all(simple) && !hidden(text))
        });
        // With `true` at the end, it ends with the transaction.
        let (mut depth, mut last, mut before) = (0_usize, (Token::Open, 0..0), 0..0);
        while let Some((token, at)) = lexer.next() {
            match token {
                Token::Close if depth == 0 => break,
                Token::Close => depth -= 1,
                Token::Open => depth += 1,
                _ => {}
            }
            before = std::mem::replace(&mut last, (token, at)).1;
        }
        let local = last.0 == Token::Word
            && lexer.text(&last.1).eq_ignore_ascii_case(b"true")
            && lexer.text(&before) == b",";
        let setting = match name {
            Some(_) if local => Self::Local,
            Some(name) if !name.contains(&b'.') => Self::Plain,
            // It may be a role up to the end of the transaction, and nothing behind that.
            None if local => Self::Plain,
            _ => Self::Hidden,
        };
        (setting, lexer.position())
    }
}

/// What a statement sets, behind its SELECT. None unless it is a list of calls and constants, each of which is evaluated once, and one of them is
/// `set_config` of a name that is written out, of a value that is or that is a parameter, and for the session.
pub(super) fn read(lexer: Lexer<'_>) -> Option<Effect> {
    let mut list = List { lexer, effect: None };
    loop {
        list.item()?;
        let mut next = list.lexer.next();
        // A cast, and a name for the column.
        while let Some((Token::Other, at)) = &next
            && list.lexer.text(at) == b":"
        {
            list.expect(b":")?;
            list.word()?;
            next = list.lexer.next();
        }
        if let Some((Token::Word, at)) = &next
            && list.lexer.text(at).eq_ignore_ascii_case(b"as")
        {
            next = list.lexer.next();
            if !matches!(next, Some((Token::Word | Token::Quoted, _))) {
                return None;
            }
        }
        if let Some((Token::Word | Token::Quoted, _)) = next {
            next = list.lexer.next();
        }
        match next {
            None | Some((Token::Semicolon, _)) => return list.effect,
            Some((Token::Other, at)) if list.lexer.text(&at) == b"," => {}
            Some(_) => return None,
        }
    }
}

struct List<'a> {
    lexer: Lexer<'a>,
    effect: Option<Effect>,
}

impl<'a> List<'a> {
    fn word(&mut self) -> Option<&'a [u8]> {
        match self.lexer.next()? {
            (Token::Word, at) => Some(self.lexer.text(&at)),
            _ => None,
        }
    }

    fn expect(&mut self, text: &[u8]) -> Option<()> {
        let (_, at) = self.lexer.next()?;
        self.lexer.text(&at).eq_ignore_ascii_case(text).then_some(())
    }

    /// A constant, a parameter or a call.
    fn item(&mut self) -> Option<()> {
        let (token, at) = self.lexer.next()?;
        let mut name = self.lexer.text(&at);
        match token {
            Token::Literal | Token::Number => return Some(()),
            Token::Other => return parameter(name).map(|_| ()),
            Token::Word => {}
            _ => return None,
        }
        let mut next = self.lexer.next()?;
        if next.0 == Token::Dot && name.eq_ignore_ascii_case(b"pg_catalog") {
            name = self.word()?;
            next = self.lexer.next()?;
        }
        if next.0 != Token::Open {
            return None;
        }
        let name = name.to_ascii_lowercase();
        if name == b"set_config" {
            // Of two, one may be undone alone.
            if self.effect.is_some() {
                return None;
            }
            self.effect = Some(self.arguments()?);
            return Some(());
        }
        if functions::call(&name) != Call::Harmless {
            return None;
        }
        self.skip_arguments()
    }

    /// Those of another call. Within them, `set_config` may be evaluated or not.
    fn skip_arguments(&mut self) -> Option<()> {
        let mut depth = 1_usize;
        while depth > 0 {
            let (token, at) = self.lexer.next()?;
            match token {
                Token::Open => depth += 1,
                Token::Close => depth -= 1,
                Token::Semicolon => return None,
                Token::Word | Token::Quoted => {
                    let text = self.lexer.text(&at).to_ascii_lowercase();
                    if text.windows(b"set_config".len()).any(|part| part == b"set_config")
                        || text == b"select"
                    {
                        return None;
                    }
                }
                _ => {}
            }
        }
        Some(())
    }

    /// Those of `set_config`.
    fn arguments(&mut self) -> Option<Effect> {
        let (token, at) = self.lexer.next()?;
        let name = literal(token, self.lexer.text(&at))?.to_ascii_lowercase();
        if !is_carried(&name) {
            return None;
        }
        self.expect(b",")?;
        let (token, at) = self.lexer.next()?;
        let text = self.lexer.text(&at);
        let effect = match parameter(text) {
            Some(parameter) => Effect::SetConfigTo { name: name.into(), parameter },
            None => of(&name, &literal(token, text)?)?,
        };
        let mut next = self.lexer.next()?;
        while self.lexer.text(&next.1) == b":" {
            self.expect(b":")?;
            let word = self.word()?;
            if !word.eq_ignore_ascii_case(b"text") && !word.eq_ignore_ascii_case(b"varchar") {
                return None;
            }
            next = self.lexer.next()?;
        }
        if self.lexer.text(&next.1) != b"," {
            return None;
        }
        self.expect(b"false")?;
        self.expect(b")")?;
        Some(effect)
    }
}

/// What `set_config` of this name and this value leaves. None if it is too much to be kept.
pub(in crate::session) fn of(name: &str, value: &str) -> Option<Effect> {
    (value.len() <= LONGEST_VALUE).then(|| match Assignment::carried(name, value) {
        Some(assignment) => Effect::SetConfig { name: name.into(), assignment },
        None => Effect::None,
    })
}

/// Whether a setting is carried over by its text alone. These are not settings of their own, end with the transaction, or change how texts are read.
fn is_carried(name: &str) -> bool {
    let own = [
        "client_encoding",
        // The server has no say in it.
        min_messages::NAME,
        "role",
        "seed",
        "session_authorization",
        "standard_conforming_strings",
        "transaction_deferrable",
        "transaction_isolation",
        "transaction_read_only",
    ];
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    !name.is_empty() && name.chars().all(plain) && !own.contains(&name)
}

/// `$1` is 0.
fn parameter(text: &[u8]) -> Option<usize> {
    let digits = std::str::from_utf8(text.strip_prefix(b"$")?).ok()?;
    digits.parse::<usize>().ok()?.checked_sub(1)
}

/// What a plain literal says, if that does not depend on how backslashes are read.
fn literal(token: Token, text: &[u8]) -> Option<String> {
    let inner = text.strip_prefix(b"'")?.strip_suffix(b"'")?;
    let inner = std::str::from_utf8(inner).ok()?;
    // A part of a longer one goes on behind a line break.
    let rest = inner.replace("''", "");
    (token == Token::Literal && !rest.contains(['\\', '\''])).then(|| inner.replace("''", "'"))
}
