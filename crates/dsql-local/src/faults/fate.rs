//! What faults do to whom they strike.

use std::time::Duration;

use crate::error::SqlError;

/// What hits a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Error(SqlError),
    /// The socket is closed without a word.
    Hangup,
}

/// What happens to a new socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnAccept {
    Proceed,
    Close,
    Silence,
}

/// A pause, and which faults make it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Delay {
    pub(crate) time: Duration,
    pub(crate) by: Vec<u64>,
}

impl Delay {
    pub(super) fn add(&mut self, time: Duration, by: u64) {
        self.time = self.time.saturating_add(time);
        self.by.push(by);
    }
}

/// What happens to a commit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitFaults {
    pub(crate) delay: Delay,
    /// Instead of the commit.
    pub(crate) before: Option<Failure>,
    /// After it, though it is durable.
    pub(crate) after: Option<Failure>,
}
