//! What sessions did and saw: all that the checker knows.

use std::time::Duration;

pub(super) type Key = i64;

/// A value of a row. No two writes have the same, so it tells who wrote it.
pub(super) type Version = i64;

/// Something happened after the first and before the second count of a counter that all sessions share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) after: u64,
    pub(super) before: u64,
}

/// What was done to a key; no version stands for no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Read(Key, Option<Version>),
    /// A read for update.
    Lock(Key, Option<Version>),
    /// An update, or an insert if it replaced nothing, or a delete if it made nothing.
    Write {
        key: Key,
        replaced: Option<Version>,
        made: Option<Version>,
    },
    /// It wanted to change a row and was refused, so what it saw is not known.
    Attempt(Key),
}

impl Act {
    /// What the key was before it.
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
    /// Anything else that was said.
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
    /// Among them one that made the first rows, and as the last one a look at what is there in the end.
    pub(super) transactions: Vec<Transaction>,
    /// The slowest answer to one who had nothing to do with any row: what the machine alone costs.
    pub(super) bystander: Duration,
}
