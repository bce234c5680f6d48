//! Calls without an answer, and the pause before the next one.

use std::time::Duration;

use forebay::{Instant, Rng, backoff};

use super::call::Call;
use super::shard::Entry;
use crate::store_outage::StoreOutage;
use crate::table::TableError;

/// The first and the longest pause after another instance was faster: a fleet that starts together has joined within
/// seconds.
const CONTENTION: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(3));

/// What is known about calls to the table.
#[derive(Debug, Default)]
pub(super) struct OutstandingCalls {
    outage: StoreOutage,
    paused_until: Instant,
    /// A join without an answer, and when it was first sent.
    join: Option<(u8, Entry, Instant)>,
    /// An entry to remove. The leave is repeated until it is answered, because the entry may already be gone.
    leave: Option<(u8, Entry)>,
    /// Slots that a write in flight gives back. Another instance may have them before the answer arrives.
    giving: u64,
    /// Joins in a row that failed because another instance was faster.
    lost_joins: u32,
}

impl OutstandingCalls {
    pub(super) fn outage(&self) -> &StoreOutage {
        &self.outage
    }

    pub(super) fn paused_until(&self) -> Instant {
        self.paused_until
    }

    pub(super) fn resume(&mut self) {
        self.paused_until = Instant::ZERO;
    }

    /// The call to repeat before any other.
    pub(super) fn unanswered(&self) -> Option<Call> {
        let join = self.join.map(|(k, entry, _)| Call::Join(k, entry));
        join.or_else(|| self.leave.map(|(k, entry)| Call::Leave(k, entry)))
    }

    pub(super) fn repeat_join(&mut self, k: u8, entry: Entry, sent: Instant) {
        self.join.get_or_insert((k, entry, sent));
    }

    /// The join is answered. Returns when it was first sent, if this was not the first attempt.
    pub(super) fn take_join(&mut self) -> Option<Instant> {
        self.join.take().map(|(_, _, first_sent)| first_sent)
    }

    pub(super) fn repeat_leave(&mut self, k: u8, entry: Entry) {
        self.leave = Some((k, entry));
    }

    /// The leave is answered. The next join waits if this leave gave up a contested node number.
    pub(super) fn left(&mut self, now: Instant, rng: &mut Rng) {
        if self.leave.take().is_some() && self.lost_joins > 0 {
            self.back_off(now, rng);
        }
    }

    pub(super) fn giving(&self) -> u64 {
        self.giving
    }

    pub(super) fn set_giving(&mut self, slots: u64) {
        self.giving = slots;
    }

    pub(super) fn lost_joins(&self) -> u32 {
        self.lost_joins
    }

    pub(super) fn lost_join(&mut self) {
        self.lost_joins = self.lost_joins.saturating_add(1);
    }

    pub(super) fn won_join(&mut self) {
        self.lost_joins = 0;
    }

    pub(super) fn back_off(&mut self, now: Instant, rng: &mut Rng) {
        self.paused_until = now + backoff::pause(self.lost_joins, CONTENTION.0, CONTENTION.1, rng);
    }

    pub(super) fn answered(&mut self, now: Instant) {
        self.outage.answered(now);
    }

    /// A call failed. Returns whether the table is unavailable.
    pub(super) fn failed(&mut self, error: &TableError, now: Instant, rng: &mut Rng) -> bool {
        if error.is_an_answer() {
            self.paused_until = now + CONTENTION.0;
            return false;
        }
        self.outage.failed(now);
        self.paused_until = now + self.outage.pause(rng);
        self.outage.is_active()
    }
}
