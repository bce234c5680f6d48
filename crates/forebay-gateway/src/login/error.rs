//! Why nobody was logged in, for logs and metrics.

use std::io;

use super::{Awaited, Crowd, certificate_error};

/// Why nobody was logged in. The client was told, if it could be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// It was refused.
    #[error("refused {}: {code}{}{}", named(user), quoted(code, message), because(reason))]
    Refused {
        /// Who it said it is, cut to the length of a name.
        user: Option<String>,
        /// The SQLSTATE that it got.
        code: &'static str,
        /// The message that it got.
        message: String,
        /// What only operators may know.
        reason: Option<Reason>,
    },
    /// It went away when its password was asked for, and would not have been let in with any.
    #[error("{} left when its password was asked for, and would have been refused ({reason})", named(user))]
    Left {
        /// Who it said it is, cut to the length of a name.
        user: Option<String>,
        /// Why it would have been refused.
        reason: Reason,
    },
    /// There are too many clients.
    #[error("refused {}: {crowd}", named(user))]
    Crowded {
        /// Who it said it is, if that was asked.
        user: Option<String>,
        /// The limit.
        crowd: Crowd,
    },
    /// It is not a client of PostgreSQL.
    #[error("not a start-up message of PostgreSQL's protocol")]
    Stranger,
    /// It took too long.
    #[error("the login{} took too long: {awaited}{}", of(user), because(reason))]
    TimedOut {
        /// Who it said it is, if it came to that, cut to the length of a name.
        user: Option<String>,
        /// What did not come.
        awaited: Awaited,
        /// Why it would have been refused, if that was known.
        reason: Option<Reason>,
    },
    /// TLS could not be agreed upon.
    #[error("no TLS: {}", certificate_error::of_handshake(.0))]
    Tls(#[source] io::Error),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(#[source] io::Error),
}

impl LoginError {
    /// In one word, for metrics.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Refused { reason: Some(_), .. }
            | Self::Refused { code: "28P01" | "28000", .. }
            | Self::Left { .. } => "authentication",
            Self::Refused { code: "57P03", .. } => "draining",
            Self::Refused { .. } => "refused",
            Self::Crowded { .. } => "crowded",
            Self::Stranger => "stranger",
            Self::TimedOut { .. } => "timeout",
            Self::Tls(_) => "tls",
            Self::Io(_) => "io",
        }
    }
}

/// Why somebody is not let in. Clients get the same words in all cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// No such user.
    #[error("there is no such user")]
    NoUser,
    /// The password is wrong.
    #[error("the password is wrong")]
    Password,
    /// The user has no password, and the client has not shown its certificate.
    #[error("the user has no password, and its certificate was not shown")]
    NoPassword,
    /// The user needs a client certificate, and this is not it.
    #[error("the certificate of the user was not shown")]
    Certificate,
    /// The user may not come from there.
    #[error("the user may not log in from this address")]
    Network,
}

fn named(user: &Option<String>) -> String {
    user.as_ref().map_or_else(|| "a client".to_owned(), |user| format!("{user:?}"))
}

fn of(user: &Option<String>) -> String {
    user.as_ref().map_or_else(String::new, |user| format!(" of {user:?}"))
}

/// The message for a line that begins with the name. The one about passwords says nothing but the name again.
fn quoted(code: &str, message: &str) -> String {
    if code == "28P01" { String::new() } else { format!(" {message:?}") }
}

fn because(reason: &Option<Reason>) -> String {
    reason.map_or_else(String::new, |reason| format!(" ({reason})"))
}
