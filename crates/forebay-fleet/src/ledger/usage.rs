//! What callers use: leases in use, callers that wait, and the slots left over.

use std::collections::BTreeSet;

/// The leases of one instance.
#[derive(Debug, Default)]
pub(super) struct Usage {
    leases: BTreeSet<u64>,
    next_lease: u64,
    waiting: u64,
    /// The fewest spare slots since the last heartbeat.
    least_spare: u64,
    /// The fewest spare slots between the last two heartbeats.
    settled_spare: u64,
}

impl Usage {
    /// Leases in use.
    pub(super) fn leases(&self) -> u64 {
        self.leases.len() as u64
    }

    /// Lends one of `slots`.
    pub(super) fn lend(&mut self, waited: bool, slots: u64) -> u64 {
        let number = self.next_lease;
        self.next_lease += 1;
        self.leases.insert(number);
        self.waiting = self.waiting.saturating_sub(u64::from(waited));
        self.note_spare(slots);
        number
    }

    /// Takes a lease back. A second release of the same lease has no effect.
    pub(super) fn release(&mut self, number: u64) {
        self.leases.remove(&number);
    }

    pub(super) fn wait(&mut self, one_more: bool, slots: u64) {
        self.waiting = if one_more { self.waiting + 1 } else { self.waiting.saturating_sub(1) };
        self.note_spare(slots);
    }

    /// Slots that are missing for leases and waiting callers, of whom only those below `most` count.
    pub(super) fn shortfall(&self, slots: u64, most: u64) -> u64 {
        (self.leases() + self.waiting).min(most).max(self.leases()).saturating_sub(slots)
    }

    fn spare(&self, slots: u64) -> u64 {
        slots.saturating_sub(self.leases() + self.waiting)
    }

    fn note_spare(&mut self, slots: u64) {
        self.least_spare = self.least_spare.min(self.spare(slots));
    }

    /// The first entry was made: only later use counts.
    pub(super) fn reset_spare(&mut self, slots: u64) {
        self.least_spare = self.spare(slots);
    }

    /// Slots that were spare for at least one heartbeat.
    pub(super) fn steady_spare(&self, slots: u64) -> u64 {
        self.settled_spare.min(self.least_spare).min(self.spare(slots))
    }

    /// A heartbeat gives `give` of `slots` back. The one of the home entry starts a new period.
    pub(super) fn heartbeat(&mut self, give: u64, slots: u64, is_home: bool) {
        let (settled, least) = if is_home {
            (self.least_spare, self.spare(slots))
        } else {
            (self.settled_spare, self.least_spare)
        };
        (self.settled_spare, self.least_spare) = (settled.saturating_sub(give), least.saturating_sub(give));
    }
}
