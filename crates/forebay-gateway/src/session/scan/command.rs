//! Statements that act on the session itself: SET, RESET, COMMIT, ROLLBACK, DEALLOCATE and the like.

use std::ops::Range;

use super::lexer::{Lexer, Token};
use super::{Effect, Flags, Piece};
use crate::session::{assignment, min_messages};

/// Reads the statement that begins with `word`.
pub(super) fn read(lexer: &mut Lexer<'_>, word: &[u8], first: Range<usize>) -> Piece {
    let kind = match word {
        b"set" => Kind::Set,
        b"reset" => Kind::Reset,
        b"commit" | b"end" => Kind::Commit,
        b"rollback" | b"abort" => Kind::Rollback,
        b"savepoint" => Kind::Savepoint,
        b"release" => Kind::Release,
        b"deallocate" => Kind::Deallocate,
        b"discard" => Kind::Discard,
        b"unlisten" => Kind::Unlisten,
        _ => Kind::Close,
    };
    let mut range = first;
    let mut tokens = Vec::new();
    while let Some((token, at)) = lexer.next() {
        if token == Token::Semicolon {
            break;
        }
        range.end = at.end;
        // Longer ones exist only as lists of values.
        if tokens.len() < MOST_TOKENS {
            tokens.push((token, at));
        }
    }
    let statement = Statement { lexer, tokens: &tokens, end: range.end };
    let (effect, unsure) = match kind {
        Kind::Set => statement.set(),
        Kind::Reset => (statement.reset(), false),
        Kind::Commit if statement.chains() => (Effect::CommitAndChain, false),
        Kind::Commit => (Effect::Commit, false),
        Kind::Rollback => (statement.rollback(), false),
        Kind::Savepoint => (statement.savepoint(0, Effect::Savepoint), false),
        Kind::Release => {
            let at = usize::from(statement.is(0, "savepoint") && tokens.len() > 1);
            (statement.savepoint(at, Effect::Release), false)
        }
        Kind::Deallocate => (statement.deallocate(), false),
        Kind::Discard => (statement.discard(), false),
        Kind::Unlisten => (if tokens.len() == 1 { Effect::Unlisten } else { Effect::None }, false),
        Kind::Close => (if statement.are(&["all"]) { Effect::CloseAll } else { Effect::None }, false),
    };
    let flags = match effect {
        _ if unsure => Flags::UNSURE,
        Effect::Commit | Effect::CommitAndChain => Flags::COMMITS,
        Effect::Rollback | Effect::RollbackAndChain => Flags::ROLLS_BACK,
        _ => Flags::default(),
    };
    Piece { range, flags, effect }
}

/// Whether this SHOW is of the setting.
pub(super) fn shows(sql: &[u8], name: &str) -> bool {
    let mut lexer = Lexer::new(sql, false);
    lexer.next();
    let is_name = lexer.next().is_some_and(|(_, at)| {
        let text = lexer.text(&at);
        let text = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text);
        text.eq_ignore_ascii_case(name.as_bytes())
    });
    is_name && lexer.next().is_none()
}

const MOST_TOKENS: usize = 16;

/// A longer text is not kept: the session is pinned to its backend instead.
const LONGEST_TEXT: usize = 4096;

/// PostgreSQL cuts longer names, so that two of them may be one.
const LONGEST_NAME: usize = 63;

enum Kind {
    Set,
    Reset,
    Commit,
    Rollback,
    Savepoint,
    Release,
    Deallocate,
    Discard,
    Unlisten,
    Close,
}

struct Statement<'a, 'b> {
    lexer: &'b Lexer<'a>,
    tokens: &'b [(Token, Range<usize>)],
    end: usize,
}

impl Statement<'_, '_> {
    fn text(&self, at: usize) -> &[u8] {
        self.tokens.get(at).map_or(&[], |(_, range)| self.lexer.text(range))
    }

    fn is(&self, at: usize, word: &str) -> bool {
        self.tokens.get(at).is_some_and(|(token, _)| *token == Token::Word)
            && self.text(at).eq_ignore_ascii_case(word.as_bytes())
    }

    /// The same of a word that is no name of its own: `local.x` is a setting.
    fn is_keyword(&self, at: usize, word: &str) -> bool {
        self.is(at, word) && !self.tokens.get(at + 1).is_some_and(|(token, _)| *token == Token::Dot)
    }

    /// Whether these words are all there is.
    fn are(&self, words: &[&str]) -> bool {
        self.tokens.len() == words.len() && words.iter().enumerate().all(|(at, word)| self.is(at, word))
    }

    /// An identifier, as PostgreSQL keeps it. None if it is none, or has escapes: these can spell any name.
    fn name(&self, at: usize) -> Option<Box<[u8]>> {
        let text = self.text(at);
        Some(match self.tokens.get(at)?.0 {
            Token::Word => text.to_ascii_lowercase().into(),
            Token::Quoted => {
                let quoted = match text {
                    [b'u' | b'U', b'&', ..] if text.contains(&b'\\') || self.is(at + 1, "uescape") => {
                        return None;
                    }
                    [b'u' | b'U', b'&', quoted @ ..] => quoted,
                    quoted => quoted,
                };
                let inner = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
                let mut name = Vec::with_capacity(inner.len());
                let mut bytes = inner.iter();
                while let Some(&byte) = bytes.next() {
                    name.push(byte);
                    if byte == b'"' {
                        bytes.next();
                    }
                }
                name.into()
            }
            _ => return None,
        })
    }

    /// From a token to the end. None if it is not text, or depends on how backslashes are read.
    fn from(&self, at: usize) -> Option<&str> {
        let start = self.tokens.get(at)?.1.start;
        std::str::from_utf8(self.lexer.text(&(start..self.end))).ok().filter(|text| !text.contains('\\'))
    }

    /// The name of a setting in small letters, and how many tokens it has.
    fn setting(&self, at: usize) -> Option<(Box<str>, usize)> {
        let part = |at| self.name(at).and_then(|name| String::from_utf8(name.into()).ok());
        let mut name = part(at)?;
        let mut count = 1;
        while self.tokens.get(at + count).is_some_and(|(token, _)| *token == Token::Dot) {
            name.push('.');
            name.push_str(&part(at + count + 1)?);
            count += 2;
        }
        name.make_ascii_lowercase();
        Some((name.into(), count))
    }

    /// What is done with the savepoint of this name.
    fn savepoint(&self, at: usize, effect: impl FnOnce(Box<[u8]>) -> Effect) -> Effect {
        // Which savepoints there are is not known any more, nor what a ROLLBACK takes back.
        self.name(at).filter(|name| name.len() <= LONGEST_NAME).map_or(Effect::Pin, effect)
    }

    /// What it leaves, and whether it leaves something that was not understood.
    fn set(&self) -> (Effect, bool) {
        if !self.is_keyword(0, "local") {
            return self.set_from(0);
        }
        // It is not kept: it ends with the transaction. But the default is what the client asked for at its start.
        match self.set_from(1).0 {
            Effect::SetDefault(name) => (Effect::LocalDefault(name), false),
            Effect::Set { name, text } if &*name == min_messages::NAME => {
                (Effect::SetMinMessagesLocal(text), false)
            }
            // Up to the end of its transaction, a reset of the role is not in vain.
            Effect::Role { .. } => (Effect::None, true),
            // A seed stays, and a name that cannot be read may be that.
            Effect::Pin if self.setting(1).is_none_or(|(name, _)| &*name == "seed") => (Effect::Pin, false),
            _ => (Effect::None, false),
        }
    }

    fn set_from(&self, start: usize) -> (Effect, bool) {
        const UNSURE: (Effect, bool) = (Effect::None, true);
        // It may be a role, or another setting that cannot be read from the server.
        const ANY: (Effect, bool) = (Effect::Pin, false);
        let none = (Effect::None, false);
        let mut at = start;
        if self.is_keyword(at, "session") {
            if self.is_keyword(at + 1, "characteristics") {
                return self.characteristics(at + 2).map_or(UNSURE, |effect| (effect, false));
            }
            at += usize::from(!self.is(at + 1, "authorization"));
        }
        if self.is_keyword(at, "transaction") || self.is_keyword(at, "constraints") {
            return none;
        }
        let is_default = |at: usize| self.tokens.len() == at + 1 && self.is(at, "default");
        let keep = |name: &str, text: Option<String>| match text {
            Some(text) if text.len() > LONGEST_TEXT => (Effect::Pin, false),
            Some(text) => {
                let unsure = changes_lexing(name, &text);
                (Effect::Set { name: name.into(), text: text.into() }, unsure)
            }
            None if is_listed(name) => UNSURE,
            None => ANY,
        };
        let role = |name: &'static str, text: Option<&str>, none: bool| match text {
            Some(text) if text.len() <= LONGEST_TEXT => {
                (Effect::Role { name, text: (!none).then(|| text.into()) }, false)
            }
            _ => ANY,
        };
        if self.is(at, "session") && self.is(at + 1, "authorization") {
            return role("session_authorization", self.from(at), is_default(at + 2));
        }
        let assigned = self.is(at + 1, "to") || self.text(at + 1) == b"=";
        if self.is_keyword(at, "role") && !self.is(at + 1, "from") {
            let value = at + 1 + usize::from(assigned);
            return role("role", self.from(at), is_default(value) || self.is(value, "none"));
        }
        if !assigned {
            if self.is_keyword(at, "time") && self.is(at + 1, "zone") {
                if is_default(at + 2) || self.is(at + 2, "local") {
                    return (Effect::SetDefault("timezone".into()), false);
                }
                return keep("timezone", self.from(at).map(str::to_owned));
            }
            if self.is_keyword(at, "names") {
                if is_default(at + 1) || self.tokens.len() == at + 1 {
                    return (Effect::SetDefault("client_encoding".into()), false);
                }
                return keep("client_encoding", self.from(at).map(str::to_owned));
            }
            if self.is_keyword(at, "schema") {
                return keep("search_path", self.from(at).map(str::to_owned));
            }
            if self.is_keyword(at, "xml") && self.is(at + 1, "option") {
                return keep("xmloption", self.from(at).map(str::to_owned));
            }
        }
        let Some((name, count)) = self.setting(at) else { return ANY };
        let operator = at + count;
        if !(self.is(operator, "to") || self.text(operator) == b"=") {
            // FROM CURRENT makes what SET LOCAL said outlive the transaction. Anything else is no SET.
            return if is_listed(&name) { UNSURE } else { ANY };
        }
        match &*name {
            // They belong to the transaction.
            "transaction_isolation" | "transaction_read_only" | "transaction_deferrable" => none,
            "seed" => (Effect::Pin, false),
            "session_authorization" => role("session_authorization", self.from(at), is_default(operator + 1)),
            "role" => role("role", self.from(at), is_default(operator + 1)),
            _ if is_default(operator + 1) => (Effect::SetDefault(name), false),
            _ => keep(&name, self.from(at).map(str::to_owned)),
        }
    }

    /// Behind `SET SESSION CHARACTERISTICS`: one mode of the transactions to come, which is a setting of its own.
    fn characteristics(&self, at: usize) -> Option<Effect> {
        if !self.is(at, "as") || !self.is(at + 1, "transaction") {
            return None;
        }
        let rest = at + 2;
        let (name, text) = assignment::mode(|words| {
            let words = words.to_ascii_lowercase();
            let words: Vec<&str> = words.split(' ').collect();
            self.tokens.len() == rest + words.len()
                && words.iter().enumerate().all(|(place, word)| self.is(rest + place, word))
        })?;
        Some(Effect::Set { name: name.into(), text: text.into() })
    }

    fn reset(&self) -> Effect {
        if self.are(&["all"]) {
            return Effect::ResetAll;
        }
        if self.are(&["time", "zone"]) {
            return Effect::Reset("timezone".into());
        }
        // It belongs to the transaction.
        if self.are(&["transaction", "isolation", "level"]) {
            return Effect::None;
        }
        if self.are(&["session", "authorization"]) {
            return Effect::Role { name: "session_authorization", text: None };
        }
        match self.setting(0) {
            Some((name, count)) if count == self.tokens.len() => match &*name {
                "session_authorization" => Effect::Role { name: "session_authorization", text: None },
                "role" => Effect::Role { name: "role", text: None },
                _ => Effect::Reset(name),
            },
            // It may be any setting, or is no RESET.
            _ => Effect::Pin,
        }
    }

    fn rollback(&self) -> Effect {
        if self.is(0, "prepared") {
            return Effect::None;
        }
        let at = usize::from(self.is(0, "work") || self.is(0, "transaction"));
        if !self.is(at, "to") {
            return if self.chains() { Effect::RollbackAndChain } else { Effect::Rollback };
        }
        let at = at + 1 + usize::from(self.is(at + 1, "savepoint") && self.tokens.len() > at + 2);
        self.savepoint(at, Effect::RollbackTo)
    }

    /// Whether another block begins at once. `AND NO CHAIN` is the default.
    fn chains(&self) -> bool {
        let at = usize::from(self.is(0, "work") || self.is(0, "transaction"));
        self.is(at, "and") && self.is(at + 1, "chain")
    }

    fn deallocate(&self) -> Effect {
        let at = usize::from(self.is(0, "prepare") && self.tokens.len() > 1);
        match self.name(at) {
            Some(_) if self.tokens.len() == at + 1 && self.is(at, "all") => Effect::DeallocateAll,
            Some(name) if self.tokens.len() == at + 1 => Effect::Deallocate(name),
            // Which one is gone from the server is not known, or it is no DEALLOCATE.
            _ => Effect::Pin,
        }
    }

    fn discard(&self) -> Effect {
        let known = [
            ("plans", "DISCARD PLANS"),
            ("sequences", "DISCARD SEQUENCES"),
            ("temp", "DISCARD TEMP"),
            ("temporary", "DISCARD TEMP"),
        ];
        if self.are(&["all"]) {
            return Effect::DiscardAll;
        }
        known
            .into_iter()
            .find(|(word, _)| self.are(&[word]))
            .map_or(Effect::None, |(_, tag)| Effect::Discard(tag))
    }
}

/// Whether the server lists a setting, so that its value can be read there.
fn is_listed(name: &str) -> bool {
    !name.contains('.') && !["role", "seed", "session_authorization"].contains(&name)
}

/// Whether the server may read the next statements in another way than the scanner.
fn changes_lexing(name: &str, text: &str) -> bool {
    let value = text.rsplit([' ', '=']).next().unwrap_or_default().trim_matches('\'');
    match name {
        "standard_conforming_strings" => !value.eq_ignore_ascii_case("on"),
        "client_encoding" => {
            !["utf8", "utf-8", "unicode"].iter().any(|utf8| value.eq_ignore_ascii_case(utf8))
        }
        _ => false,
    }
}
