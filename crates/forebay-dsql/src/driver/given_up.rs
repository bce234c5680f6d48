//! Statements that are given up at their deadline, and what their callers are told.

use std::error::Error as StdError;
use std::fmt;

use crate::error::{Error, ErrorKind};

/// The outcome of a statement that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// Nothing of it is committed, now or later.
    Failed,
    /// It may be carried out and committed.
    Unknown,
    /// It was not sent.
    NotSent,
}

impl GivenUp {
    /// The SQLSTATE of a statement that was cancelled, or of a transaction whose outcome is unknown.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Failed | Self::NotSent => "57014",
            Self::Unknown => "08007",
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Failed => {
                "no answer before the deadline (DSQL_DEADLINE, or that of this run or connection): the statement was given \
                 up, and its transaction is rolled back"
            }
            Self::Unknown => {
                "no answer before the deadline (DSQL_DEADLINE, or that of this run or connection): the statement was given \
                 up, and may have been carried out"
            }
            Self::NotSent => {
                "not sent: the deadline is over, or an earlier statement of this connection was given up; give the connection \
                 back and take another one"
            }
        }
    }
}

impl StdError for GivenUp {}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl From<GivenUp> for Error {
    fn from(given_up: GivenUp) -> Self {
        let kind = if given_up == GivenUp::Unknown { ErrorKind::CommitUnknown } else { ErrorKind::TimedOut };
        Self::new(kind, given_up)
    }
}
