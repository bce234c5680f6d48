//! What can go wrong, split by what the caller does next.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay::{CheckoutError, Failure, OpenError};
pub use tonic::Code;

pub use crate::phase::Phase;

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. Each kind asks for something else of the caller.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The pool had no connection in time; the statement was not sent. Try again, hold connections for less long, or
    /// raise `max_size`. If opens fail, `cause` says why.
    PoolTimeout {
        /// How long the caller waited.
        waited: Duration,
        /// What keeps the pool short: why the last attempt to connect failed, for one.
        cause: Option<Arc<OpenError>>,
    },

    /// The deadline passed. The server has been asked to stop, unless nothing was sent yet; a statement that changes something may have done so.
    /// Give it more time, or ask for less; if it had no connection because connecting fails, its phase says why.
    QueryTimeout {
        /// The time the statement was given.
        after: Duration,
        /// What it was doing.
        phase: Phase,
    },

    /// Somebody cancelled it, through a [`CancelHandle`](crate::CancelHandle). If anything was sent, the server has been asked to stop.
    Cancelled {
        /// Whether the statement may have reached the server: one that changes something may have done so.
        may_have_run: bool,
    },

    /// The network failed, or the server broke off an answer. If `may_have_run` is false, try again. Otherwise the statement
    /// may have been carried out: try again only what can be done twice.
    Transport {
        /// What happened.
        message: String,
        /// Whether the statement may have reached the server.
        may_have_run: bool,
    },

    /// The connection of a session is gone, and with it all that the session held: its transaction, temporary tables,
    /// settings and prepared statements. Take a new session and do the whole of it again.
    SessionLost {
        /// What happened.
        message: String,
        /// Whether the last statement may have reached the server.
        may_have_run: bool,
    },

    /// The server refused the statement, and the session is as it was. Mend the statement, or what `code` speaks of.
    Server {
        /// What kind of refusal it is.
        code: Code,
        /// In the server's words.
        message: String,
    },

    /// An option makes no sense, or what was to be sent is larger than one allows. Mend it; nothing was sent.
    Config {
        /// Which option, what it is, and what it may be.
        message: String,
    },

    /// The batches to be ingested ended in an error, or differ in their columns. Mend their source; what was sent before may be
    /// stored.
    Input {
        /// What their source said.
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
                    Some(cause) => because(f, cause),
                    None => f.write_str(": all are in use; hold them for less long, or raise max_size"),
                }
            }
            Self::QueryTimeout { after, phase } => {
                write!(f, "no result within {after:?}, while {phase}: ")?;
                match phase {
                    Phase::Acquire { cause: Some(cause) } => {
                        f.write_str("nothing was sent")?;
                        because(f, cause)
                    }
                    Phase::Acquire { cause: None } => {
                        f.write_str("nothing was sent; allow it more time, hold connections for less long, or raise max_size")
                    }
                    _ => {
                        f.write_str("the statement is being cancelled; allow it more time, or ask for less")
                    }
                }
            }
            Self::Cancelled { may_have_run: true } => f.write_str("cancelled by its caller"),
            Self::Cancelled { may_have_run: false } => {
                f.write_str("cancelled by its caller before anything was sent")
            }
            Self::Transport { message, may_have_run } => write!(f, "{message}{}", outcome(*may_have_run)),
            Self::SessionLost { message, may_have_run } => {
                let outcome = outcome(*may_have_run);
                write!(f, "the session is lost: {message}{outcome}; start again with a new session")
            }
            Self::Server { code, message } => write!(f, "the server answered {}: {message}", name(*code)),
            Self::Config { message } => f.write_str(message),
            Self::Input { message } => write!(f, "the batches to ingest: {message}"),
            Self::Closed => f.write_str("the pool is closed"),
        }
    }
}

/// Why there is no connection.
fn because(f: &mut fmt::Formatter<'_>, cause: &OpenError) -> fmt::Result {
    if cause.failure() == Failure::LeaseLimit {
        return f.write_str(
            ": the server may have as many sessions of this pool as session_budget allows, with those in quarantine and \
             those that linger; wait for them to end, or raise session_budget",
        );
    }
    let failed = if cause.is_pending() { "" } else { "the last attempt to connect failed: " };
    write!(f, "; {failed}{cause}")
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let (Self::PoolTimeout { cause, .. } | Self::QueryTimeout { phase: Phase::Acquire { cause }, .. }) =
            self
        else {
            return None;
        };
        cause.as_deref().map(|cause| cause as _)
    }
}

impl Error {
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::Config { message: message.into() }
    }

    /// The server said something that is not Flight SQL, or that Arrow cannot read.
    pub(crate) fn protocol(message: impl fmt::Display) -> Self {
        Self::Transport { message: format!("not an answer of Flight SQL: {message}"), may_have_run: true }
    }

    /// What a caller without a session of its own makes of it: there was nothing to lose but the answer.
    pub(crate) fn stateless(self) -> Self {
        match self {
            Self::SessionLost { message, may_have_run } => Self::Transport { message, may_have_run },
            other => other,
        }
    }

    /// What it is once the server has answered a call of the same statement: that one may have carried it out.
    pub(crate) fn after_answer(self) -> Self {
        match self {
            Self::Transport { message, .. } => Self::Transport { message, may_have_run: true },
            Self::SessionLost { message, .. } => Self::SessionLost { message, may_have_run: true },
            // Of a place that the server named, not of an option of the caller's.
            Self::Config { message } => Self::protocol(message),
            Self::Cancelled { .. } => Self::Cancelled { may_have_run: true },
            // Its credentials were good for the first call: that is no refused login.
            Self::Server { code: Code::Unauthenticated, .. } => {
                Self::Transport { message: self.to_string(), may_have_run: true }
            }
            other => other,
        }
    }

    /// Whether it is certain that nothing was carried out.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        match self {
            Self::PoolTimeout { .. } | Self::Config { .. } | Self::Closed => true,
            Self::QueryTimeout { phase, .. } => phase.is_acquire(),
            Self::Cancelled { may_have_run }
            | Self::Transport { may_have_run, .. }
            | Self::SessionLost { may_have_run, .. } => !may_have_run,
            // Who is not let in has nothing carried out.
            Self::Server { code, .. } => *code == Code::Unauthenticated,
            Self::Input { .. } => false,
        }
    }

    /// Whether the server says of a transaction that it is over, or that there is none such.
    pub(crate) fn is_of_ended_transaction(&self) -> bool {
        matches!(self, Self::Server { code: Code::FailedPrecondition | Code::NotFound, .. })
    }

    /// Whether it is the server's own word that it did not carry out a statement, and not that something came between.
    pub(crate) fn is_refusal(&self) -> bool {
        use Code::{
            AlreadyExists, FailedPrecondition, Internal, InvalidArgument, NotFound, PermissionDenied,
        };
        let refusals =
            [AlreadyExists, FailedPrecondition, Internal, InvalidArgument, NotFound, PermissionDenied];
        matches!(self, Self::Server { code, .. } if refusals.contains(code))
    }

    /// Whether nobody knows if the server has carried it out, or will.
    pub(crate) fn leaves_open(&self) -> bool {
        match self {
            Self::Server { code, .. } => {
                matches!(code, Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable)
            }
            other => !other.is_harmless(),
        }
    }

    /// Whether the same read may succeed on another connection.
    pub(crate) fn is_of_the_way(&self) -> bool {
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
            // Nothing was sent either, and the cause says that the server does not let anybody in.
            CheckoutError::Denied { waited, last_open_error } => {
                Self::PoolTimeout { waited, cause: Some(last_open_error) }
            }
            CheckoutError::Exhausted { waited, .. } => Self::PoolTimeout { waited, cause: None },
            _ => Self::Closed,
        }
    }
}

fn outcome(may_have_run: bool) -> &'static str {
    if may_have_run { " (the statement may have been carried out)" } else { " (the statement was not sent)" }
}

/// A code as gRPC writes it.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use forebay::LeaseError;

    use super::*;

    #[test]
    fn each_error_says_what_to_do() {
        let refused = Arc::new(OpenError::new(Failure::Open, "connection refused"));
        let waited = Duration::from_secs(1);
        let timeout = |cause| Error::PoolTimeout { waited, cause }.to_string();
        let overdue = |cause| Error::QueryTimeout { after: waited, phase: Phase::Acquire { cause } };
        assert_eq!(
            timeout(None),
            "no connection within 1s: all are in use; hold them for less long, or raise max_size"
        );
        let told = "the last attempt to connect failed: connection_open: connection refused";
        assert!(timeout(Some(Arc::clone(&refused))).ends_with(told));
        let error = overdue(Some(refused));
        assert_eq!(
            error.to_string(),
            format!("no result within 1s, while waiting for a connection: nothing was sent; {told}")
        );
        let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
        assert_eq!(causes.map(ToString::to_string).last().as_deref(), Some("connection refused"));
        assert!(std::error::Error::source(&overdue(None)).is_none());
        let budget = Arc::new(OpenError::new(Failure::LeaseLimit, LeaseError::Limit { limit: 4 }));
        assert!(timeout(Some(budget)).ends_with("or raise session_budget"));
        let lost = Error::SessionLost { message: "connection reset".into(), may_have_run: false };
        assert_eq!(
            lost.to_string(),
            "the session is lost: connection reset (the statement was not sent); start again with a new session"
        );
        let server = Error::Server { code: Code::Internal, message: "no such table: t".into() };
        assert_eq!(server.to_string(), "the server answered INTERNAL: no such table: t");
    }

    #[test]
    fn what_was_never_sent_is_harmless() {
        let after = Duration::from_millis(5);
        assert!(Error::QueryTimeout { after, phase: Phase::ACQUIRE }.is_harmless());
        assert!(!Error::QueryTimeout { after, phase: Phase::Execute }.is_harmless());
        let cancelled = |may_have_run| Error::Cancelled { may_have_run };
        assert!(!cancelled(true).is_harmless() && cancelled(false).is_harmless());
        assert!(!cancelled(false).after_answer().is_harmless());
        let refused = |code| Error::Server { code, message: "who are you?".into() };
        assert!(refused(Code::Unauthenticated).is_harmless() && !refused(Code::Internal).is_harmless());
        let late = refused(Code::Unauthenticated).after_answer();
        assert!(!late.is_harmless() && late.to_string().contains("who are you?"), "{late}");
        let lost = |may_have_run| Error::SessionLost { message: String::new(), may_have_run }.stateless();
        assert!(lost(false).is_harmless() && !lost(true).is_harmless());
        assert!(matches!(lost(true), Error::Transport { .. }));
    }
}
