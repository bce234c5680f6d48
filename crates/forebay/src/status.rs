//! What a reservoir looks like at one moment.

use crate::event::{Discard, Failure};
use crate::state::Shortage;

/// A snapshot, consistent in itself: all numbers are of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Connections to be had at once.
    pub ready: usize,
    /// Connections with callers.
    pub in_use: usize,
    /// Connections being reset or checked.
    pub in_maintenance: usize,
    /// Connections on their way.
    pub opening: usize,
    /// Discarded connections that are not closed yet, or whose lease is not released yet.
    pub closing: usize,
    /// Callers in the queue.
    pub waiting: usize,
    /// Usable connections past their booked retirement, waiting for a replacement.
    pub retiring: usize,
    /// How many connections callers can have. While some are replaced, a few more exist.
    pub max_open: usize,
    /// How many should be ready, as far as `max_open` leaves room.
    pub target_ready: usize,
    /// How many usable connections are enough.
    pub low_watermark: usize,
    /// No more callers are served.
    pub closed: bool,
    /// What has happened so far.
    pub counts: Counts,
}

impl Status {
    /// Connections owned and usable: ready, in use or in maintenance.
    #[must_use]
    pub fn size(&self) -> usize {
        self.ready + self.in_use + self.in_maintenance
    }

    /// Connections owned: usable or opening.
    #[must_use]
    pub fn owned(&self) -> usize {
        self.size() + self.opening
    }
}

/// Why a caller got no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CheckoutFailure {
    /// None became ready in time, and the reservoir owned fewer than it may.
    Empty,
    /// All that the reservoir may own stayed in use.
    Exhausted,
    /// None was usable, and the server refused to open one for a cause that waiting does not cure.
    Denied,
}

impl CheckoutFailure {
    /// Every reason, in the order of [`index`](Self::index).
    pub const ALL: [Self; 3] = [Self::Empty, Self::Exhausted, Self::Denied];

    /// Its place in a table of counts.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The label metrics carry.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Exhausted => "exhausted",
            Self::Denied => "denied",
        }
    }
}

impl From<Shortage> for CheckoutFailure {
    fn from(shortage: Shortage) -> Self {
        match shortage {
            Shortage::Empty => Self::Empty,
            Shortage::Exhausted => Self::Exhausted,
            Shortage::Denied => Self::Denied,
        }
    }
}

/// What has happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections handed to callers. One that is lost before its caller picks it up does not count.
    pub checkouts: u64,
    /// Callers who had to wait.
    pub waits: u64,
    /// Callers who found nothing ready while the reservoir owned fewer connections than it may. Each one counts once, whether or
    /// not it got a connection later: [`checkout_failures`](Self::checkout_failures) has those who did not.
    pub empty: u64,
    /// Callers who got nothing because all connections were in use.
    pub exhausted: u64,
    /// Connections opened.
    pub refills: u64,
    /// Connections that callers took out for good.
    pub detached: u64,
    pub(crate) refused: [u64; CheckoutFailure::ALL.len()],
    pub(crate) discards: [u64; Discard::ALL.len()],
    pub(crate) failures: [u64; Failure::ALL.len()],
}

impl Counts {
    #[cfg(feature = "metrics")]
    /// Of two readings of the same counters, for each the later one.
    pub(crate) fn latest(mut self, other: &Self) -> Self {
        self.checkouts = self.checkouts.max(other.checkouts);
        self.waits = self.waits.max(other.waits);
        self.empty = self.empty.max(other.empty);
        self.exhausted = self.exhausted.max(other.exhausted);
        for (mine, theirs) in self.refused.iter_mut().zip(other.refused) {
            *mine = (*mine).max(theirs);
        }
        self.refills = self.refills.max(other.refills);
        self.detached = self.detached.max(other.detached);
        for (mine, theirs) in self.discards.iter_mut().zip(other.discards) {
            *mine = (*mine).max(theirs);
        }
        for (mine, theirs) in self.failures.iter_mut().zip(other.failures) {
            *mine = (*mine).max(theirs);
        }
        self
    }

    /// Callers who got no connection, for this reason.
    #[must_use]
    pub fn checkout_failures(&self, reason: CheckoutFailure) -> u64 {
        self.refused[reason.index()]
    }

    /// Callers who got no connection, for any reason.
    #[must_use]
    pub fn all_checkout_failures(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Connections discarded for this reason.
    #[must_use]
    pub fn discards(&self, reason: Discard) -> u64 {
        self.discards[reason.index()]
    }

    /// Attempts to open that failed for this reason.
    #[must_use]
    pub fn failures(&self, failure: Failure) -> u64 {
        self.failures[failure.index()]
    }

    /// Connections discarded for any reason.
    #[must_use]
    pub fn all_discards(&self) -> u64 {
        self.discards.iter().sum()
    }

    /// Attempts to open that failed for any reason.
    #[must_use]
    pub fn all_failures(&self) -> u64 {
        self.failures.iter().sum()
    }
}
