use std::fmt;

use super::{Action, TokenVerifier};
use crate::error::SqlError;

/// Why a token was denied. Clients learn only whether it is expired or not yet valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// It is not a token.
    Malformed(&'static str),
    /// It is signed for another host.
    Host,
    /// It is signed for another region.
    Region,
    /// It is signed for another service, or another day than its date.
    Scope,
    /// It is signed for another action than the role needs.
    Action,
    /// The access key is unknown.
    Key,
    /// The signature is wrong.
    Signature,
    /// It has expired; with the hint of the service.
    Expired(String),
    /// Its date is too far in the future; with the hint of the service.
    NotYet(String),
}

impl Denial {
    /// The error for the client.
    pub fn refusal(&self) -> SqlError {
        match self {
            Self::Expired(hint) | Self::NotYet(hint) => SqlError::access_denied().hint(hint),
            _ => SqlError::access_denied(),
        }
    }

    /// The label of the counter.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::Host => "host",
            Self::Region => "region",
            Self::Scope => "scope",
            Self::Action => "action",
            Self::Key => "key",
            Self::Signature => "signature",
            Self::Expired(_) => "expired",
            Self::NotYet(_) => "not-yet",
        }
    }

    /// What is wrong and how to fix it. It contains nothing of the token but its date.
    pub(crate) fn remedy(&self, verifier: &TokenVerifier, role: &str) -> String {
        match self {
            Self::Host => format!("{self}; sign for {}, without a port", verifier.host),
            Self::Region => format!("{self}; sign for {}", verifier.region),
            Self::Action => format!("{self}; sign for {}", Action::for_role(role).text()),
            Self::Key => format!("{self}, or without its session token; sign with one of the server's keys"),
            Self::Signature => format!("{self}: it was signed with another secret, or changed"),
            Self::Malformed(_) | Self::Scope | Self::Expired(_) | Self::NotYet(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(problem) => write!(f, "not a token: {problem}"),
            Self::Host => f.write_str("signed for another host"),
            Self::Region => f.write_str("signed for another region"),
            Self::Scope => f.write_str("signed for another service, or another day than its date"),
            Self::Action => f.write_str("signed for another action than the role needs"),
            Self::Key => f.write_str("signed with an unknown key"),
            Self::Signature => f.write_str("wrong signature"),
            Self::Expired(text) | Self::NotYet(text) => f.write_str(text),
        }
    }
}
