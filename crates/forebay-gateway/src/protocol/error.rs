//! What an ErrorResponse or a NoticeResponse says.

use std::borrow::Cow;

use crate::protocol::split_string;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The statement failed.
    Error,
    /// The session ends.
    Fatal,
    /// Something to know, in a NoticeResponse.
    Notice,
    /// Something to worry about, in a NoticeResponse.
    Warning,
}

impl Severity {
    /// As PostgreSQL writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
            Self::Notice => "NOTICE",
            Self::Warning => "WARNING",
        }
    }
}

/// An error or a notice, in PostgreSQL's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// How bad it is.
    pub severity: Severity,
    /// Five characters, which drivers and programs match on.
    pub sqlstate: Cow<'static, str>,
    /// What happened.
    pub message: Cow<'static, str>,
    /// More about it.
    pub detail: Option<Cow<'static, str>>,
    /// What to do about it.
    pub hint: Option<Cow<'static, str>>,
    /// The function of PostgreSQL that reports it. Some drivers match on it.
    pub routine: Option<Cow<'static, str>>,
}

impl ServerError {
    /// The statement failed.
    pub fn error(sqlstate: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Severity::Error, sqlstate, message)
    }

    /// The session ends.
    pub fn fatal(sqlstate: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Severity::Fatal, sqlstate, message)
    }

    /// Something to know.
    pub fn notice(sqlstate: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Severity::Notice, sqlstate, message)
    }

    fn new(severity: Severity, sqlstate: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            severity,
            sqlstate: sqlstate.into(),
            message: message.into(),
            detail: None,
            hint: None,
            routine: None,
        }
    }

    /// More about it.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// What to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The function of PostgreSQL that would report it.
    #[must_use]
    pub fn with_routine(mut self, routine: &'static str) -> Self {
        self.routine = Some(routine.into());
        self
    }
}

/// The fields of an ErrorResponse that the session looks at. They borrow from its body.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ErrorFields<'a> {
    /// As every language of the server has it: field `V`, or `S` from servers that are too old for it.
    pub(crate) severity: &'a [u8],
    pub(crate) sqlstate: &'a [u8],
    pub(crate) message: &'a [u8],
}

impl<'a> ErrorFields<'a> {
    pub(crate) fn read(mut body: &'a [u8]) -> Self {
        let mut fields = Self::default();
        while let Some((&kind, rest)) = body.split_first()
            && kind != 0
            && let Some((value, rest)) = split_string(rest)
        {
            match kind {
                b'V' => fields.severity = value,
                b'S' if fields.severity.is_empty() => fields.severity = value,
                b'C' => fields.sqlstate = value,
                b'M' => fields.message = value,
                _ => {}
            }
            body = rest;
        }
        fields
    }

    /// Whether the server closes the connection behind it.
    pub(crate) fn is_fatal(&self) -> bool {
        matches!(self.severity, b"FATAL" | b"PANIC")
    }

    /// The same, as the reason why a session ends.
    pub(crate) fn to_fatal(self) -> ServerError {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned().into();
        ServerError {
            sqlstate: text(self.sqlstate),
            ..ServerError::fatal("", String::from_utf8_lossy(self.message).into_owned())
        }
    }

    /// Aurora DSQL: the schema has changed since this connection looked at it. It is told once to every connection.
    pub(crate) fn is_schema_conflict(&self) -> bool {
        self.sqlstate == b"OC001" || self.sqlstate == b"40001" && contains(self.message, b"(OC001)")
    }

    /// Whether the same transaction may succeed when it is run again.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self.sqlstate, b"40001" | b"OC000" | b"OC001")
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{HEADER, write};

    #[test]
    fn what_is_written_is_read() {
        let error = ServerError::fatal("57P01", "terminating connection")
            .with_detail("d")
            .with_hint("h")
            .with_routine("r");
        let mut frame = Vec::new();
        write::error(&mut frame, &error);
        let fields = ErrorFields::read(&frame[HEADER..]);
        assert!(fields.is_fatal());
        assert_eq!((fields.sqlstate, fields.message), (&b"57P01"[..], &b"terminating connection"[..]));
        assert!(frame.windows(4).any(|part| part == b"Dd\0H") && frame.ends_with(b"Hh\0Rr\0\0"));
    }

    #[test]
    fn the_conflict_after_a_change_of_the_schema_has_three_spellings() {
        let fields = |sqlstate, message| ErrorFields { severity: b"ERROR", sqlstate, message };
        assert!(fields(b"OC001", b"").is_schema_conflict());
        assert!(
            fields(b"40001", b"schema has been updated by another transaction, please retry: (OC001)")
                .is_schema_conflict()
        );
        assert!(
            !fields(b"40001", b"change conflicts with another transaction, please retry: (OC000)")
                .is_schema_conflict()
        );
        assert!(fields(b"40001", b"").is_conflict() && !fields(b"42601", b"").is_conflict());
    }
}
