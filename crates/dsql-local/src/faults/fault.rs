//! One thing that shall go wrong.

use std::time::Duration;

use crate::error::SqlError;

/// Something that shall go wrong. Written as `KIND:KEY=VALUE,...`; see the manual page for the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    pub(super) kind: Kind,
    /// How likely it is each time.
    pub(super) probability: f64,
    /// How often it happens before it is used up; none: for ever.
    pub(super) times: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Refuse(Refusal),
    Throttle { per_second: u32, burst: u32 },
    Delay { at: Stage, time: Duration },
    Wake { time: Duration },
    Silent,
    Sever { fraction: f64, after: Duration },
    Drop { at: Stage },
    Unavailable { at: Stage },
    Conflict,
    StaleSchema,
}

/// How a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Without a word, before TLS.
    Close,
    TooMany,
    Rate,
    Denied,
    Waking,
}

/// Where in a session's life a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Connect,
    Statement,
    Commit,
    /// Instead of the commit.
    BeforeCommit,
    /// When the commit is durable.
    AfterCommit,
}

impl Fault {
    /// For a fault that strikes once, at a time, and not a session: which fraction of the sockets, and after how long.
    pub(crate) fn sever(&self) -> Option<(f64, Duration)> {
        match self.kind {
            Kind::Sever { fraction, after } => Some((fraction, after)),
            _ => None,
        }
    }
}

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
