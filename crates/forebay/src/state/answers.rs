//! What the machine says: plain data, for its shell to act on once the lock is released.

use std::task::Waker;

use super::Key;
use crate::event::Discard;
use crate::time::Instant;

/// What the shell has to do once it has let go of the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects(u8);

impl Effects {
    /// Tell the refill task that connections are wanted.
    pub(crate) const REFILL: Self = Self(1);
    /// Tell the expiry task that an alarm comes sooner than it knows.
    pub(crate) const EXPIRY: Self = Self(2);
    /// Tell the task that ends waits that somebody's ends sooner than it knows.
    pub(crate) const WAITS: Self = Self(4);
    /// Tell whoever waits for a fill or a drain that there is progress.
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

/// The answer to a caller who wants a connection at once.
#[derive(Debug)]
pub(crate) enum TakeOutcome<E> {
    Got(E),
    /// This one was too old: close it, and ask again.
    Stale(Discarded<E>),
    /// There is none.
    Nothing,
    /// There is none, and waiting for one is of no use.
    Denied,
    Closed,
}

/// Why there was no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Fewer are usable than may be owned.
    Empty,
    /// All are in use.
    Exhausted,
    /// None is usable, and the last open failed for a cause that waiting does not cure.
    Denied,
}

/// The shape a connection comes back in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Clean,
    Dirty,
    Bad,
    /// Could not be reset.
    Broken,
    /// Failed its health check.
    Dead,
}

/// What becomes of a connection that was given back, opened or maintained for.
#[derive(Debug)]
#[must_use]
pub(crate) enum Placement<E> {
    /// It is ready.
    Kept,
    /// It is a waiter's: wake that one, unless it is going to look anyway.
    Served(Option<Waker>),
    /// It must be reset first.
    Reset(E),
    Discarded(Discarded<E>),
}

/// What an alarm asks for.
#[derive(Debug)]
pub(crate) enum Due<E> {
    Discard(Discarded<E>),
    Check(E),
}

/// What the refill task does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refill {
    /// Open one for this slot.
    Open(Key),
    /// Nothing until told, or until then.
    Wait(Instant),
    Closed,
}
