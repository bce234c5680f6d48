//! What the sessions did and saw: the input of the checker.

use std::time::Duration;

pub(super) type Key = i64;

/// A value of a row. Every write has its own, so it identifies its transaction.
pub(super) type Version = i64;

/// Something happened between two values of a counter that all sessions share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) after: u64,
    pub(super) before: u64,
}

/// An operation on a key; no version means no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Read(Key, Option<Version>),
    /// A read for update.
    Lock(Key, Option<Version>),
    /// An update; an insert if it replaced nothing; a delete if it wrote nothing.
    Write {
        key: Key,
        replaced: Option<Version>,
        made: Option<Version>,
    },
    /// A refused change; what it saw is not known.
    Attempt(Key),
}

impl Act {
    /// The version before the operation.
    pub(super) fn seen(&self) -> Option<(Key, Option<Version>)> {
        match *self {
            Self::Read(key, seen) | Self::Lock(key, seen) | Self::Write { key, replaced: seen, .. } => {
                Some((key, seen))
            }
            Self::Attempt(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Committed,
    /// OC000 at its commit, or at its only statement.
    Conflict,
    RolledBack,
    /// Any other error.
    Failed(String),
}

#[derive(Clone, Debug)]
pub(super) struct Transaction {
    pub(super) name: String,
    pub(super) acts: Vec<Act>,
    /// When its snapshot was taken.
    pub(super) snapshot: Window,
    /// When it ended.
    pub(super) end: Window,
    pub(super) outcome: Outcome,
    /// How long its slowest statement took.
    pub(super) slowest: Duration,
}

#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// The first one creates the rows, and the last one reads the final state.
    pub(super) transactions: Vec<Transaction>,
    /// The slowest empty query: the delay of the machine.
    pub(super) bystander: Duration,
}
