//! Snapshots of a reservoir.

use std::fmt;

use crate::event::{Discard, Failure, reasons};
use crate::state::Shortage;

/// A consistent snapshot of a reservoir: all numbers belong to the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Connections that can be lent at once.
    pub ready: usize,
    /// Connections that are lent.
    pub in_use: usize,
    /// Connections that are being reset or checked.
    pub in_maintenance: usize,
    /// Connections that are being opened.
    pub opening: usize,
    /// Discarded connections that are not closed yet, or whose lease is not released yet.
    pub closing: usize,
    /// Callers in the queue.
    pub waiting: usize,
    /// Usable connections whose retirement is due and which wait for their replacement.
    pub retiring: usize,
    /// The configured `max_open`. While connections are replaced, a few more can exist.
    pub max_open: usize,
    /// How many connections are kept ready, as far as `max_open` allows.
    pub target_ready: usize,
    /// How many usable connections are enough.
    pub low_watermark: usize,
    /// Whether the reservoir is closed: it serves no more callers.
    pub closed: bool,
    /// What has happened since the start.
    pub counts: Counts,
}

impl Status {
    /// The usable connections: ready, in use or in maintenance.
    #[must_use]
    pub fn size(&self) -> usize {
        self.ready + self.in_use + self.in_maintenance
    }

    /// The usable and opening connections.
    #[must_use]
    pub fn owned(&self) -> usize {
        self.size() + self.opening
    }
}

reasons! {
    /// Why a caller got no connection.
    CheckoutFailure {
        /// No connection became ready in time, and fewer than `max_open` were usable.
        Empty "empty",
        /// All connections stayed in use.
        Exhausted "exhausted",
        /// No connection was usable, and the last open failed for a reason that waiting does not fix.
        Denied "denied",
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

/// Counters since the start.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections that were lent. A connection that is lost before its caller picks it up does not count.
    pub checkouts: u64,
    /// Callers that had to wait.
    pub waits: u64,
    /// Callers that found no connection ready while fewer than `max_open` were usable. Each caller counts
    /// once, even if it got a connection later. [`checkout_failures`](Self::checkout_failures) counts those
    /// that did not.
    pub empty: u64,
    /// Callers that got no connection because all were in use.
    pub exhausted: u64,
    /// Connections that were opened.
    pub refills: u64,
    /// Connections that callers took out of the reservoir for good.
    pub detached: u64,
    pub(crate) refused: [u64; CheckoutFailure::ALL.len()],
    pub(crate) discards: [u64; Discard::ALL.len()],
    pub(crate) failures: [u64; Failure::ALL.len()],
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts")
            .field("checkouts", &self.checkouts)
            .field("waits", &self.waits)
            .field("empty", &self.empty)
            .field("exhausted", &self.exhausted)
            .field("refills", &self.refills)
            .field("detached", &self.detached)
            .field("checkout_failures", &ByReason(&CheckoutFailure::ALL, &self.refused))
            .field("discards", &ByReason(&Discard::ALL, &self.discards))
            .field("failures", &ByReason(&Failure::ALL, &self.failures))
            .finish()
    }
}

/// Counters with the names of their reasons, without those that are zero.
struct ByReason<'a, R>(&'a [R], &'a [u64]);

impl<R: fmt::Debug> fmt::Debug for ByReason<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().zip(self.1).filter(|(_, count)| **count > 0)).finish()
    }
}

impl Counts {
    /// Callers that got no connection for this reason.
    #[must_use]
    pub fn checkout_failures(&self, reason: CheckoutFailure) -> u64 {
        self.refused[reason.index()]
    }

    /// Callers that got no connection, for any reason.
    #[must_use]
    pub fn all_checkout_failures(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Connections that were discarded for this reason.
    #[must_use]
    pub fn discards(&self, reason: Discard) -> u64 {
        self.discards[reason.index()]
    }

    /// Attempts to open that failed for this reason.
    #[must_use]
    pub fn failures(&self, failure: Failure) -> u64 {
        self.failures[failure.index()]
    }

    /// Connections that were discarded, for any reason.
    #[must_use]
    pub fn all_discards(&self) -> u64 {
        self.discards.iter().sum()
    }

    /// Attempts to open that failed, for any reason.
    #[must_use]
    pub fn all_failures(&self) -> u64 {
        self.failures.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_output_names_the_reasons() {
        let mut counts = Counts::default();
        counts.discards[Discard::GuardWindow.index()] = 3;
        let text = format!("{counts:?}");
        assert!(text.contains("discards: {GuardWindow: 3}, failures: {}"), "{text}");
    }
}
