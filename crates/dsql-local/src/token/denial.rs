//! Why a token is no good.

use std::fmt;

use super::{Action, TokenVerifier};
use crate::error::SqlError;

/// Why a token was refused. Clients learn only whether it was too old or too young.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// It is no token.
    Malformed(&'static str),
    /// It is for another host.
    Host,
    /// It is for another region.
    Region,
    /// It is for another service, or another day than it says.
    Scope,
    /// It is for another action than the role needs.
    Action,
    /// Its key is not known.
    Key,
    /// Its signature is wrong.
    Signature,
    /// It is too old; with what the service says about it.
    Expired(String),
    /// It was signed too far in the future; with what the service says about it.
    NotYet(String),
}

impl Denial {
    /// What the client is told.
    #[must_use]
    pub fn refusal(&self) -> SqlError {
        match self {
            Self::Expired(hint) | Self::NotYet(hint) => SqlError::access_denied().hint(hint),
            _ => SqlError::access_denied(),
        }
    }

    /// In one word, for counting.
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

    /// What is wrong and what would be right. Nothing of the token is in it but its date.
    pub(crate) fn remedy(&self, verifier: &TokenVerifier, role: &str) -> String {
        match self {
            Self::Host => format!("{self}; sign for {}, without a port", verifier.host),
            Self::Region => format!("{self}; sign for {}", verifier.region),
            Self::Action => format!("{self}; sign for {}", Action::for_role(role).text()),
            Self::Key => format!("{self}, or without its session token; sign with a key of the server's"),
            Self::Signature => format!("{self}: another secret, or a token that was changed"),
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
