//! Faults and their effects.

use std::time::Duration;

use crate::error::SqlError;

/// A fault. It is written as `KIND:KEY=VALUE,...`; the manual page lists the kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    pub(super) kind: Kind,
    pub(super) probability: f64,
    /// The number of strikes before it is used up; none is unlimited.
    pub(super) times: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Refuse(Refusal),
    Throttle {
        per_second: u32,
        burst: u32,
    },
    Delay {
        at: Stage,
        time: Duration,
    },
    Wake {
        time: Duration,
    },
    Silent,
    Sever {
        fraction: f64,
        after: Duration,
    },
    Drop {
        at: Stage,
    },
    Unavailable {
        at: Stage,
    },
    Conflict,
    StaleSchema {
        /// Only after DDL of another session, and once for each session.
        after_ddl: bool,
    },
}

/// How a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The socket is closed before TLS.
    Close,
    TooMany,
    Rate,
    Denied,
    Waking,
}

/// Where a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Connect,
    Statement,
    Commit,
    /// Instead of the commit.
    BeforeCommit,
    /// After the commit, which is durable.
    AfterCommit,
}

impl Fault {
    /// The fraction of sockets and the delay of a `sever` fault. It strikes once, not session by session.
    pub(crate) fn sever(&self) -> Option<(f64, Duration)> {
        match self.kind {
            Kind::Sever { fraction, after } => Some((fraction, after)),
            _ => None,
        }
    }
}

/// Why a statement or a commit fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Error(SqlError),
    /// A fault closes the socket without an error message.
    Hangup,
    /// The client is gone, so nobody gets an error.
    Gone,
}

/// What happens to a new socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnAccept {
    Proceed,
    Close,
    Silence,
}

/// A delay, and the ids of the faults that cause it.
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

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitFaults {
    pub(crate) delay: Delay,
    /// Instead of the commit.
    pub(crate) before: Option<Failure>,
    /// After the commit, which is durable.
    pub(crate) after: Option<Failure>,
}
