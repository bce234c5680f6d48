//! Errors, split by what the caller does next.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay::{CheckoutError, Failure, OpenError};
pub use tonic::Code;
use tonic::Status;

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. Each kind asks for a different reaction of the caller.
///
/// Its text includes its causes. [`source`](std::error::Error::source) starts at the first cause that the
/// text does not contain, so that a report of the whole chain says nothing twice. An error that came as a
/// gRPC status has it as a source: a [`tonic::Status`] with the code, the details and the metadata, but
/// without the message, which is part of this error's text.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The pool had no connection in time, and the statement was not sent. Try again, hold connections for
    /// less time, or raise `max_size`. If connecting fails, `cause` says why.
    PoolTimeout {
        /// How long the caller waited.
        waited: Duration,
        /// Why the pool has no connection, such as a failed attempt to connect.
        cause: Option<Arc<OpenError>>,
    },

    /// The deadline passed. The server was asked to stop, unless nothing was sent yet. A statement that
    /// changes something may have done so. Allow more time, or ask for less. If connecting fails, the phase
    /// says why.
    QueryTimeout {
        /// The statement's timeout.
        after: Duration,
        /// What it was doing.
        phase: Phase,
    },

    /// A [`CancelHandle`](crate::CancelHandle) cancelled it. If anything was sent, the server was asked to
    /// stop.
    Cancelled {
        /// Whether the statement may have reached the server, and may have changed something.
        may_have_run: bool,
    },

    /// The network failed, or the server broke off an answer. If `may_have_run` is false, try again.
    /// Otherwise the statement may have been executed: try again only what may run twice.
    #[non_exhaustive]
    Transport {
        /// What happened.
        message: String,
        /// Whether the statement may have reached the server.
        may_have_run: bool,
        /// The status of the call, if it had one.
        status: Option<Arc<Status>>,
    },

    /// The connection of a session is gone, and with it the session's transaction, temporary tables, settings
    /// and prepared statements. Take a new session and start again.
    #[non_exhaustive]
    SessionLost {
        /// What happened.
        message: String,
        /// Whether the last statement may have reached the server.
        may_have_run: bool,
        /// The status of the call, if it had one.
        status: Option<Arc<Status>>,
    },

    /// The server refused the statement. The session is unchanged. Correct the statement, or what `code`
    /// points to.
    #[non_exhaustive]
    Server {
        /// The kind of refusal.
        code: Code,
        /// The server's message, and what to do about it where that is known.
        message: String,
        /// The status of the call.
        status: Option<Arc<Status>>,
    },

    /// A statement of the open transaction has failed before, and this one was not sent: the server may have rolled back, and
    /// would run it outside of the transaction. Roll back, and run the whole transaction again. A commit has rolled back.
    TransactionFailed {
        /// The first failure.
        message: String,
    },

    /// An option is invalid, or a message is larger than the options allow. Nothing was sent. Correct the
    /// option.
    Config {
        /// Which option, its value, and what it may be.
        message: String,
    },

    /// The batches to ingest ended in an error, or differ in their columns. Correct their source. What was
    /// sent before may be stored.
    Input {
        /// The error of their source.
        message: String,
    },

    /// The pool was drained or dropped. Do not try again.
    Closed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolTimeout { waited, cause } => {
                write!(f, "no connection within {waited:?}")?;
                match cause {
                    Some(cause) => write_cause(f, cause),
                    None => f.write_str(": all are in use; hold them for less time, or raise max_size"),
                }
            }
            Self::QueryTimeout { after, phase } => {
                write!(f, "no result within {after:?}, while {phase}: ")?;
                match phase {
                    Phase::Acquire { cause: Some(cause) } => {
                        f.write_str("nothing was sent")?;
                        write_cause(f, cause)
                    }
                    Phase::Acquire { cause: None } => f.write_str(
                        "nothing was sent; allow more time, hold connections for less time, or raise max_size",
                    ),
                    Phase::Wait => f.write_str("nothing was sent; allow more time, or use another session"),
                    _ => f.write_str("the statement is being cancelled; allow more time, or ask for less"),
                }
            }
            Self::Cancelled { may_have_run: true } => f.write_str("cancelled by its caller"),
            Self::Cancelled { may_have_run: false } => {
                f.write_str("cancelled by its caller before anything was sent")
            }
            Self::Transport { message, may_have_run, .. } => write!(f, "{message}{}", outcome(*may_have_run)),
            Self::SessionLost { message, may_have_run, .. } => {
                let outcome = outcome(*may_have_run);
                write!(f, "the session is lost: {message}{outcome}; start again with a new session")
            }
            Self::Server { code, message, .. } => write!(f, "the server answered {}: {message}", name(*code)),
            Self::TransactionFailed { message } => {
                write!(
                    f,
                    "a statement of the transaction has failed ({message}), so it can only be rolled back: run all of it again"
                )
            }
            Self::Config { message } => f.write_str(message),
            Self::Input { message } => write!(f, "the batches to ingest: {message}"),
            Self::Closed => f.write_str("the pool is closed"),
        }
    }
}

/// Why there is no connection.
fn write_cause(f: &mut fmt::Formatter<'_>, cause: &OpenError) -> fmt::Result {
    if cause.failure() == Failure::LeaseLimit {
        return f.write_str(
            ": the pool has as many sessions on the server as session_budget allows, including those in quarantine and \
             those that linger; wait for them to end, or raise session_budget",
        );
    }
    let failed = if cause.is_pending() { "" } else { "the last attempt to connect failed: " };
    write!(f, "; {failed}{cause}")
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = match self {
            Self::PoolTimeout { cause, .. } | Self::QueryTimeout { phase: Phase::Acquire { cause }, .. } => {
                cause.as_deref().map(|cause| cause.get_ref() as _)
            }
            Self::Transport { status, .. }
            | Self::SessionLost { status, .. }
            | Self::Server { status, .. } => {
                return status.as_deref().map(|status| status as _);
            }
            _ => None,
        };
        let text = self.to_string();
        let is_repeated = |error: &&(dyn std::error::Error + 'static)| {
            !error.is::<Status>() && text.contains(&error.to_string())
        };
        while let Some(error) = cause.filter(is_repeated) {
            cause = error.source();
        }
        cause
    }
}

impl Error {
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::Config { message: message.into() }
    }

    pub(crate) fn transport(message: impl Into<String>, may_have_run: bool) -> Self {
        Self::Transport { message: message.into(), may_have_run, status: None }
    }

    pub(crate) fn session_lost(message: impl Into<String>, may_have_run: bool) -> Self {
        Self::SessionLost { message: message.into(), may_have_run, status: None }
    }

    pub(crate) fn server(code: Code, message: impl Into<String>) -> Self {
        Self::Server { code, message: message.into(), status: None }
    }

    /// Keeps the status that the error came from, without its message.
    pub(crate) fn with_status(mut self, kept: &Status) -> Self {
        if let Self::Transport { status, .. }
        | Self::SessionLost { status, .. }
        | Self::Server { status, .. } = &mut self
        {
            let details = kept.details().to_vec().into();
            let metadata = kept.metadata().clone();
            *status = Some(Arc::new(Status::with_details_and_metadata(kept.code(), "", details, metadata)));
        }
        self
    }

    /// The server's answer is not valid Flight SQL, or Arrow cannot read it.
    pub(crate) fn protocol(message: impl fmt::Display) -> Self {
        Self::transport(format!("not a valid Flight SQL answer: {message}"), true)
    }

    /// The same for a caller without a session of its own, which has lost only the answer.
    pub(crate) fn without_session(self) -> Self {
        match self {
            Self::SessionLost { message, may_have_run, status } => {
                Self::Transport { message, may_have_run, status }
            }
            other => other,
        }
    }

    /// The same after the server has answered an earlier call of the statement, which may have executed it.
    pub(crate) fn after_answer(self) -> Self {
        match self {
            Self::Transport { message, status, .. } => {
                Self::Transport { message, may_have_run: true, status }
            }
            Self::SessionLost { message, status, .. } => {
                Self::SessionLost { message, may_have_run: true, status }
            }
            // About a location that the server named, not about an option of the caller.
            Self::Config { message } => Self::protocol(message),
            Self::Cancelled { .. } => Self::Cancelled { may_have_run: true },
            // The first call was accepted, so this is not a refused login.
            Self::Server { code: Code::Unauthenticated, ref status, .. } => {
                Self::Transport { message: self.to_string(), may_have_run: true, status: status.clone() }
            }
            other => other,
        }
    }

    /// Whether the statement was certainly not executed.
    #[must_use]
    pub fn is_not_executed(&self) -> bool {
        match self {
            Self::PoolTimeout { .. }
            | Self::TransactionFailed { .. }
            | Self::Config { .. }
            | Self::Closed => true,
            Self::QueryTimeout { phase, .. } => phase.is_before_sending(),
            Self::Cancelled { may_have_run }
            | Self::Transport { may_have_run, .. }
            | Self::SessionLost { may_have_run, .. } => !may_have_run,
            // A server executes nothing for a caller that is not logged in.
            Self::Server { code, .. } => *code == Code::Unauthenticated,
            Self::Input { .. } => false,
        }
    }

    /// Whether the server says that a transaction has ended, or does not exist.
    pub(crate) fn is_transaction_ended(&self) -> bool {
        matches!(self, Self::Server { code: Code::FailedPrecondition | Code::NotFound, .. })
    }

    /// Whether the server itself says that it did not execute the statement.
    pub(crate) fn is_refusal(&self) -> bool {
        use Code::{
            AlreadyExists, FailedPrecondition, Internal, InvalidArgument, NotFound, PermissionDenied,
        };
        let refusals =
            [AlreadyExists, FailedPrecondition, Internal, InvalidArgument, NotFound, PermissionDenied];
        matches!(self, Self::Server { code, .. } if refusals.contains(code))
    }

    /// Whether it is unknown if the server has executed the statement, or still will.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Server { code, .. } => {
                matches!(code, Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable)
            }
            other => !other.is_not_executed(),
        }
    }

    /// Whether the same read may succeed on another connection.
    pub(crate) fn is_connection_failure(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::SessionLost { .. } => true,
            Self::Server { code, .. } => *code == Code::Unavailable,
            _ => false,
        }
    }
}

impl From<CheckoutError> for Error {
    fn from(error: CheckoutError) -> Self {
        match error {
            CheckoutError::Empty { waited, last_open_error } => {
                Self::PoolTimeout { waited, cause: last_open_error }
            }
            // Nothing was sent here either. The cause says that the server refuses every login.
            CheckoutError::Denied { waited, last_open_error } => {
                Self::PoolTimeout { waited, cause: Some(last_open_error) }
            }
            CheckoutError::Exhausted { waited, .. } => Self::PoolTimeout { waited, cause: None },
            _ => Self::Closed,
        }
    }
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

fn outcome(may_have_run: bool) -> &'static str {
    if may_have_run { " (the statement may have been executed)" } else { " (the statement was not sent)" }
}

/// A code as gRPC spells it: `INVALID_ARGUMENT`.
fn name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// What a statement was doing when its time was up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Phase {
    /// It had no connection yet: nothing was sent.
    Acquire {
        /// Why the last attempt to connect failed, if none has succeeded since. None: all connections were in
        /// use.
        cause: Option<Arc<OpenError>>,
    },
    /// An earlier statement of its session had not ended: nothing was sent.
    Wait,
    /// The server was executing it.
    Execute,
    /// Its result was being read.
    Fetch,
}

impl Phase {
    pub(crate) const ACQUIRE: Self = Self::Acquire { cause: None };

    pub(crate) fn is_before_sending(&self) -> bool {
        matches!(self, Self::Acquire { .. } | Self::Wait)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acquire { .. } => "waiting for a connection",
            Self::Wait => "waiting for an earlier statement of the session",
            Self::Execute => "waiting for the server",
            Self::Fetch => "reading the result",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use forebay::LeaseError;

    use super::*;

    #[test]
    fn each_error_says_what_to_do() {
        let refused = Arc::new(OpenError::new(Failure::Open, "connection refused"));
        let waited = Duration::from_secs(1);
        let timeout = |cause| Error::PoolTimeout { waited, cause }.to_string();
        let late = |cause| Error::QueryTimeout { after: waited, phase: Phase::Acquire { cause } };
        assert_eq!(
            timeout(None),
            "no connection within 1s: all are in use; hold them for less time, or raise max_size"
        );
        let text = "the last attempt to connect failed: connection_open: connection refused";
        assert!(timeout(Some(Arc::clone(&refused))).ends_with(text));
        let error = late(Some(refused));
        assert_eq!(
            error.to_string(),
            format!("no result within 1s, while waiting for a connection: nothing was sent; {text}")
        );
        assert!(late(None).source().is_none());
        let budget = Arc::new(OpenError::new(Failure::LeaseLimit, LeaseError::Limit { limit: 4 }));
        assert!(timeout(Some(budget)).ends_with("or raise session_budget"));
        assert_eq!(
            Error::session_lost("connection reset", false).to_string(),
            "the session is lost: connection reset (the statement was not sent); start again with a new session"
        );
        let server = |code| Error::server(code, "no such table: t").to_string();
        assert_eq!(server(Code::Internal), "the server answered INTERNAL: no such table: t");
        assert_eq!(server(Code::InvalidArgument), "the server answered INVALID_ARGUMENT: no such table: t");
    }

    #[test]
    fn the_status_is_a_source_and_no_text_is_repeated() {
        let mut status = Status::with_details(Code::Internal, "no such table: t", "details".into());
        status.metadata_mut().insert("x-request", "7".parse().unwrap());
        let server = Error::server(Code::Internal, "no such table: t").with_status(&status);
        let cause = Arc::new(OpenError::new(Failure::Open, server.clone()));
        for error in [server, Error::PoolTimeout { waited: Duration::from_secs(1), cause: Some(cause) }] {
            let source: &Status = error.source().unwrap().downcast_ref().unwrap();
            assert_eq!((source.code(), source.details()), (Code::Internal, &b"details"[..]));
            assert_eq!(source.metadata().get("x-request").unwrap(), "7");
            let first: &(dyn std::error::Error + 'static) = &error;
            let chain = std::iter::successors(Some(first), |error| (*error).source());
            let all: Vec<_> = chain.map(ToString::to_string).collect();
            assert_eq!(all.join(": ").matches("no such table").count(), 1, "{all:?}");
        }
    }

    #[test]
    fn a_statement_that_was_not_sent_is_not_executed() {
        let after = Duration::from_millis(5);
        assert!(Error::QueryTimeout { after, phase: Phase::ACQUIRE }.is_not_executed());
        let waited = Error::QueryTimeout { after, phase: Phase::Wait };
        assert!(waited.is_not_executed() && waited.to_string().contains("nothing was sent"), "{waited}");
        assert!(!Error::QueryTimeout { after, phase: Phase::Execute }.is_not_executed());
        let cancelled = |may_have_run| Error::Cancelled { may_have_run };
        assert!(!cancelled(true).is_not_executed() && cancelled(false).is_not_executed());
        assert!(!cancelled(false).after_answer().is_not_executed());
        let refused = |code| Error::server(code, "who are you?");
        assert!(
            refused(Code::Unauthenticated).is_not_executed() && !refused(Code::Internal).is_not_executed()
        );
        let late = refused(Code::Unauthenticated).after_answer();
        assert!(!late.is_not_executed() && late.to_string().contains("who are you?"), "{late}");
        let lost = |may_have_run| Error::session_lost("", may_have_run).without_session();
        assert!(lost(false).is_not_executed() && !lost(true).is_not_executed());
        assert!(matches!(lost(true), Error::Transport { .. }));
    }
}
