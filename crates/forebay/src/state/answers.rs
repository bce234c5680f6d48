//! The results of the state machine, as plain data. The shell acts on them after unlocking.

use std::task::Waker;

use super::Key;
use crate::event::Discard;
use crate::time::Instant;

/// What the shell must do after unlocking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects(u8);

impl Effects {
    /// Notify the refill task: connections are needed.
    pub(crate) const REFILL: Self = Self(1);
    /// Notify the expiry task: the next alarm has moved forward.
    pub(crate) const EXPIRY: Self = Self(2);
    /// Notify the task that ends waits: the next end has moved forward.
    pub(crate) const WAITS: Self = Self(4);
    /// Notify tasks that wait for a fill or a drain.
    pub(crate) const PROGRESS: Self = Self(8);
    /// The number of usable connections crossed the low watermark.
    pub(crate) const WATERMARK: Self = Self(16);

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// A connection to be closed.
#[derive(Debug)]
pub(crate) struct Discarded<E> {
    pub(crate) key: Key,
    pub(crate) entry: E,
    pub(crate) reason: Discard,
}

/// The result of taking a connection without a wait.
#[derive(Debug)]
pub(crate) enum TakeOutcome<E> {
    Got(E),
    /// The connection was too old. Close it, and try again.
    Stale(Discarded<E>),
    /// No connection is ready.
    Nothing,
    /// No connection is ready, and waiting does not help.
    Denied,
    Closed,
}

/// Why no connection was available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The reservoir is short.
    Empty,
    /// All connections are in use.
    Exhausted,
    /// None is usable, and the last open failed for a reason that waiting does not fix.
    Denied,
}

/// The condition of a returned connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Clean,
    Dirty,
    Bad,
    /// The reset failed.
    Broken,
    /// The health check failed.
    Dead,
}

/// Where a connection goes that was opened or returned, or whose maintenance ended.
#[derive(Debug)]
#[must_use]
pub(crate) enum Placement<E> {
    /// It is ready.
    Kept,
    /// It was served to a waiter. Wake the waiter, unless it is about to poll anyway.
    Served(Option<Waker>),
    /// It must be reset first.
    Reset(E),
    /// It must be checked first.
    Check(E),
    Discarded(Discarded<E>),
}

/// What the shell must do for one connection or caller after unlocking.
#[derive(Debug)]
pub(crate) enum Due<E> {
    Discard(Discarded<E>),
    Check(E),
    /// The caller polls again.
    Wake(Waker),
}

/// What the refill task does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refill {
    /// Open a connection for this slot.
    Open(Key),
    /// Wait for a notification, or until this time.
    Wait(Instant),
    Closed,
}
