//! The kinds of errors, and how an error is classified.

use std::error::Error as StdError;
use std::{fmt, io};

use forebay::{CheckoutError, Failure, OpenError};

use crate::cas::ConditionFailed;
use crate::error::Error;
use crate::error::chain::{causes, seen};
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
use crate::error::said;
use crate::token::TokenError;

/// What kind of error it is, named by what the caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another transaction was first. Run the whole transaction again.
    Conflict(Conflict),
    /// The cluster takes no new connection now. Try again later, more slowly.
    Throttled(Throttle),
    /// The cluster does not let this user in. Trying again does not help, but for an expired signature once.
    Auth(Auth),
    /// A compare-and-swap found another value. Read again and decide again.
    ConditionFailed,
    /// Aurora DSQL has no such statement or feature. Write it differently.
    Unsupported,
    /// The transaction or the message is too large or too old. Make it smaller.
    Limit(Limit),
    /// The server lost a part of itself at a statement. Run the whole transaction again on the same connection.
    Unavailable,
    /// The connection is gone. Nothing was committed; try again on another one.
    Disconnected,
    /// The connection was lost, or the server failed, in a COMMIT: it may have happened or not. Never run it
    /// again before finding out.
    CommitUnknown,
    /// No connection became ready in time, and nothing says that none will. Try again later.
    NoConnection,
    /// The deadline came first, or the statement was cancelled. Nothing was committed; try again later, if it still matters.
    TimedOut,
    /// Anything else: a wrong statement, a violated constraint, an error of the application. Do not try again.
    Permanent,
}

/// Why a transaction lost against another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conflict {
    /// `OC000`: it changed the same rows.
    Change,
    /// `OC001`: it changed the schema. The first retry clears it. Or a prepared statement has other columns now: prepare it
    /// again.
    Schema,
    /// Serialization failure of another kind.
    Other,
}

/// Why no new connection is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Throttle {
    /// The cluster holds as many connections as it may (53300).
    TooManyConnections,
    /// New connections come too fast (53400).
    RateExceeded,
    /// The cluster slept and is waking up.
    Waking,
}

/// Why a user is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Auth {
    /// Refused: wrong role, missing permission, wrong region or host in the token.
    Denied,
    /// The signature has expired. Once with a fresh token; if that is refused too, a clock is wrong.
    SignatureExpired,
    /// There was no token to show.
    NoToken,
}

/// What was too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Rows changed in a transaction: 3,000.
    Rows,
    /// Size of a transaction: 10 MiB.
    Size,
    /// Age of a transaction: 300 s.
    Age,
    /// Size of one message of the protocol: 10 MiB.
    Message,
    /// Another one.
    Other,
}

impl ErrorKind {
    /// The kind of `error`: that of the first in its chain of causes that can be classified.
    #[must_use]
    pub fn of(error: &(dyn StdError + 'static)) -> Self {
        Self::told(error).unwrap_or(Self::Permanent)
    }

    /// The same; none if nothing in the chain can be classified.
    fn told(error: &(dyn StdError + 'static)) -> Option<Self> {
        causes(error).find_map(Self::of_one)
    }

    /// The kind of the same error in a COMMIT.
    #[must_use]
    pub fn at_commit(self) -> Self {
        match self {
            Self::Disconnected | Self::Unavailable => Self::CommitUnknown,
            other => other,
        }
    }

    /// The value of the label `error_class`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Conflict(_) => "conflict",
            Self::Throttled(_) => "throttled",
            Self::Auth(_) => "auth",
            Self::ConditionFailed => "condition_failed",
            Self::Unsupported => "unsupported",
            Self::Limit(_) => "limit",
            Self::Unavailable => "unavailable",
            Self::Disconnected => "disconnected",
            Self::CommitUnknown => "commit_unknown",
            Self::NoConnection => "no_connection",
            Self::TimedOut => "timed_out",
            Self::Permanent => "permanent",
        }
    }

    pub(crate) fn remedy(self) -> Option<&'static str> {
        Some(match self {
            Self::Conflict(_) => "run the whole transaction again",
            Self::Throttled(Throttle::TooManyConnections) => {
                "lower DSQL_MAX_CONNS, or raise the cluster's quota"
            }
            Self::Throttled(_) => "try again later",
            Self::Auth(Auth::Denied) => {
                "check the role, its IAM permission dsql:DbConnect or dsql:DbConnectAdmin, host and region"
            }
            Self::Auth(Auth::SignatureExpired) => "check the clock of this machine",
            Self::Auth(Auth::NoToken) => "check the credentials of this process",
            Self::Unsupported => "Aurora DSQL does not support it",
            Self::Limit(Limit::Rows) => "change at most 3,000 rows in a transaction",
            Self::Limit(Limit::Size) => "write at most 10 MiB in a transaction",
            Self::Limit(Limit::Age) => "end a transaction within 300 s",
            Self::Limit(Limit::Message) => "send at most 10 MiB in one statement with its values",
            Self::CommitUnknown => "it may have been committed: find out before doing it again",
            Self::ConditionFailed
            | Self::Limit(Limit::Other)
            | Self::Unavailable
            | Self::Disconnected
            | Self::NoConnection
            | Self::TimedOut
            | Self::Permanent => return None,
        })
    }

    /// The kind of one error of a chain by itself, if it has one.
    fn of_one(error: &(dyn StdError + 'static)) -> Option<Self> {
        if let Some(ours) = seen::<Error>(error) {
            return Some(ours.kind());
        }
        if seen::<ConditionFailed>(error).is_some() {
            return Some(Self::ConditionFailed);
        }
        if seen::<TokenError>(error).is_some() {
            return Some(Self::Auth(Auth::NoToken));
        }
        if let Some(checkout) = seen::<CheckoutError>(error) {
            return Some(Self::of_checkout(checkout));
        }
        if let Some(io) = seen::<io::Error>(error) {
            return Self::of_io(io);
        }
        if let Some(tls) = seen::<rustls::Error>(error) {
            return Self::of_tls(tls);
        }
        #[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
        if let Some(kind) = said::kind(error) {
            return Some(kind);
        }
        #[cfg(feature = "tokio-postgres")]
        if let Some(kind) = said::of_tokio_postgres(error) {
            return Some(kind);
        }
        #[cfg(feature = "sqlx")]
        if let Some(kind) = said::of_sqlx(error) {
            return Some(kind);
        }
        None
    }

    fn of_checkout(error: &CheckoutError) -> Self {
        match error {
            CheckoutError::Empty { last_open_error: Some(open), .. } => Self::of_open(open),
            CheckoutError::Denied { last_open_error: open, .. } => match Self::of_open(open) {
                // The connector has said that waiting does not help.
                Self::NoConnection => Self::Permanent,
                kind => kind,
            },
            error if error.is_transient() => Self::NoConnection,
            _ => Self::Permanent,
        }
    }

    /// For a pool that is empty because opens fail: whether that passes by itself, or somebody must act.
    fn of_open(error: &OpenError) -> Self {
        let told = || Self::told(error);
        let later =
            |error: &TokenError| matches!(error, TokenError::Unavailable(_) | TokenError::TimedOut { .. });
        match error.failure() {
            // One that is merely slow says nothing of its own: opens wait for a token, or were given up for want of one.
            Failure::Token if causes(error).find_map(seen).is_none_or(later) => Self::NoConnection,
            Failure::Token => Self::Auth(Auth::NoToken),
            Failure::Auth => match told() {
                Some(kind @ Self::Auth(_)) => kind,
                _ => Self::Auth(Auth::Denied),
            },
            Failure::Open => match told() {
                Some(kind @ (Self::Permanent | Self::Unsupported)) => kind,
                _ => Self::NoConnection,
            },
            _ => Self::NoConnection,
        }
    }

    /// An error of the socket means that it is gone; but files have I/O errors, too, and so has a wrong certificate, which
    /// will be as wrong on the next connection.
    fn of_io(error: &io::Error) -> Option<Self> {
        use io::ErrorKind as Kind;
        // The wrapped error says more than the I/O error around it.
        if let Some(kind) = error.get_ref().and_then(|inner| Self::told(inner)) {
            return Some(kind);
        }
        match error.kind() {
            Kind::InvalidData | Kind::InvalidInput | Kind::PermissionDenied | Kind::Unsupported => {
                Some(Self::Permanent)
            }
            Kind::NotFound
            | Kind::AlreadyExists
            | Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::DirectoryNotEmpty
            | Kind::ReadOnlyFilesystem
            | Kind::StorageFull
            | Kind::QuotaExceeded
            | Kind::FileTooLarge
            | Kind::OutOfMemory => Some(Self::Permanent),
            Kind::Other => error.get_ref().map(|_| Self::Permanent),
            _ => Some(Self::Disconnected),
        }
    }

    /// For TLS: garbled bytes end this connection only; a server that is not trusted stays so.
    fn of_tls(error: &rustls::Error) -> Option<Self> {
        use rustls::{AlertDescription as Alert, Error as Tls};
        match error {
            Tls::DecryptError
            | Tls::InvalidMessage(_)
            | Tls::InappropriateMessage { .. }
            | Tls::PeerMisbehaved(_)
            | Tls::PeerSentOversizedRecord => Some(Self::Disconnected),
            // So it is with what the server has found garbled, and with its own faults.
            Tls::AlertReceived(
                Alert::CloseNotify
                | Alert::UnexpectedMessage
                | Alert::BadRecordMac
                | Alert::RecordOverflow
                | Alert::DecodeError
                | Alert::DecryptError
                | Alert::InternalError
                | Alert::UserCanceled,
            ) => Some(Self::Disconnected),
            _ => None,
        }
    }

    /// The kind of what a server said, for a client that this crate does not know: its SQLSTATE, message and hint.
    #[must_use]
    pub fn of_server(code: &str, message: &str, hint: Option<&str>) -> Self {
        // Texts differ in case between versions.
        let message = message.to_ascii_lowercase();
        // The words alone are not enough: a function of the application may raise them, too.
        let may_refuse = ["08", "28", "53", "57", "XX"].iter().any(|class| code.starts_with(class));
        if may_refuse && message.contains(REFUSED) {
            return Self::of_refusal(code, &message, hint).unwrap_or(Self::Permanent);
        }
        match code {
            // AWS's connectors accept these two also as codes.
            "OC000" => Self::Conflict(Conflict::Change),
            "OC001" => Self::Conflict(Conflict::Schema),
            "40001" if message.contains("oc000") => Self::Conflict(Conflict::Change),
            "40001" if message.contains("oc001") => Self::Conflict(Conflict::Schema),
            "40001" => Self::Conflict(Conflict::Other),
            "53300" => Self::Throttled(Throttle::TooManyConnections),
            "53400" => Self::Throttled(Throttle::RateExceeded),
            "57P03" => Self::Throttled(Throttle::Waking),
            "28000" | "28P01" => Self::Auth(Auth::Denied),
            // Of a statement that was prepared before the schema changed.
            "0A000" if message.contains("cached plan must not change") => Self::Conflict(Conflict::Schema),
            "0A000" => Self::Unsupported,
            "54000" if message.contains("row limit") => Self::Limit(Limit::Rows),
            "54000" if message.contains("size limit") => Self::Limit(Limit::Size),
            "54000" if message.contains("age limit") => Self::Limit(Limit::Age),
            "54000" => Self::Limit(Limit::Other),
            // A protocol violation; no client of ours commits another one.
            "08P01" => Self::Limit(Limit::Message),
            "XX000" => Self::Unavailable,
            // A statement that was cancelled, or given up here.
            "57014" => Self::TimedOut,
            // Even the server does not know the outcome.
            "08007" | "40003" => Self::CommitUnknown,
            // The server said goodbye before it closed the socket.
            "57P01" | "57P02" | "57P05" | "08000" | "08003" | "08006" => Self::Disconnected,
            _ => Self::Permanent,
        }
    }

    /// The same of an error that ends the session, whatever its code. But a server that does not let one in also ends
    /// the session, and its reasons are told by their codes.
    #[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
    pub(super) fn of_last_words(code: &str, message: &str, hint: Option<&str>) -> Self {
        let kind = Self::of_server(code, message, hint);
        let of_session =
            ["08", "25", "40", "53", "57", "58", "P0", "XX"].iter().any(|class| code.starts_with(class));
        let refused = message.to_ascii_lowercase().contains(REFUSED);
        match kind {
            Self::Permanent | Self::Unavailable | Self::Limit(Limit::Message) if of_session && !refused => {
                Self::Disconnected
            }
            kind => kind,
        }
    }

    /// By the text, where no SQLSTATE is known. None if the text is not a known refusal.
    pub(super) fn of_refusal(code: &str, message: &str, hint: Option<&str>) -> Option<Self> {
        let expired = || hint.is_some_and(|hint| hint.to_ascii_lowercase().contains("signature expired"));
        if !message.contains(REFUSED) {
            None
        } else if message.contains("too many open connections") || code == "53300" {
            Some(Self::Throttled(Throttle::TooManyConnections))
        } else if message.contains("rate exceeded") || code == "53400" {
            Some(Self::Throttled(Throttle::RateExceeded))
        } else if message.contains("waking up") {
            Some(Self::Throttled(Throttle::Waking))
        } else if message.contains("access denied") || matches!(code, "28000" | "28P01") {
            Some(Self::Auth(if expired() { Auth::SignatureExpired } else { Auth::Denied }))
        } else {
            None
        }
    }
}

/// What every refusal begins with, in lower case: texts differ in it between versions.
const REFUSED: &str = "unable to accept connection";

/// The label; of a conflict, its code.
impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Conflict(Conflict::Change) => "conflict OC000",
            Self::Conflict(Conflict::Schema) => "conflict OC001",
            Self::ConditionFailed => "condition failed",
            Self::CommitUnknown => "commit unknown",
            Self::NoConnection => "no connection",
            Self::TimedOut => "timed out",
            other => other.label(),
        })
    }
}
