//! What a reservoir looks like at one moment.

use crate::event::{Discard, Failure};

/// A snapshot, consistent in itself: all numbers are of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Connections to be had at once.
    pub ready: usize,
    /// Connections with callers.
    pub in_use: usize,
    /// Connections being reset or checked.
    pub in_care: usize,
    /// Connections on their way.
    pub opening: usize,
    /// Discarded connections that are not closed yet, or whose lease is not released yet.
    pub closing: usize,
    /// Callers in line.
    pub waiting: usize,
    /// Usable connections past their booked retirement, waiting for a replacement.
    pub retiring: usize,
    /// How many connections may be owned.
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
    /// Connections owned and usable: ready, in use or in care.
    #[must_use]
    pub fn size(&self) -> usize {
        self.ready + self.in_use + self.in_care
    }

    /// Connections owned: usable or opening.
    #[must_use]
    pub fn owned(&self) -> usize {
        self.size() + self.opening
    }
}

/// What has happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections handed to callers.
    pub checkouts: u64,
    /// Callers who had to wait.
    pub waits: u64,
    /// Callers who got nothing because the reservoir was short of connections.
    pub empty: u64,
    /// Callers who got nothing because all connections were in use.
    pub exhausted: u64,
    /// Connections opened.
    pub refills: u64,
    /// Connections that callers took out for good.
    pub detached: u64,
    pub(crate) discards: [u64; Discard::ALL.len()],
    pub(crate) failures: [u64; Failure::ALL.len()],
}

impl Counts {
    /// Of two readings of the same counters, for each the later one.
    pub(crate) fn latest(mut self, other: &Self) -> Self {
        self.checkouts = self.checkouts.max(other.checkouts);
        self.waits = self.waits.max(other.waits);
        self.empty = self.empty.max(other.empty);
        self.exhausted = self.exhausted.max(other.exhausted);
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
