//! What the table's answers mean.

use forebay::Instant;

use super::call::{Call, LedgerEvent};
use super::membership::OwnEntry;
use super::shard::{Entry, Shard};
use super::state::LedgerState;
use crate::item::Item;
use crate::table::TableError;

/// The item after a write, or the item that refused it.
type Outcome = Result<Option<Item>, Option<Item>>;

impl LedgerState {
    /// There is no answer: the call may have been made.
    pub(super) fn unanswered(&mut self, call: &Call, sent: Instant, now: Instant, error: &TableError) {
        let unknown = error.may_have_been_applied();
        match call {
            Call::Renew(k, _, after) if unknown => {
                if let Some(own) = self.members.entry_mut(*k) {
                    own.unanswered(*after, sent);
                }
            }
            // The entry may be gone, so its slots are not lent any more.
            Call::Leave(k, entry)
                if unknown && !self.members.is_leaving() && self.members.home() != Some(*k) =>
            {
                self.members.remove(*k);
                self.calls.repeat_leave(*k, *entry);
            }
            Call::Join(k, entry) if unknown => self.calls.repeat_join(*k, *entry, sent),
            Call::Look(k) => self.watch.look_again(self.members.home(), *k),
            Call::Reap(k, id, entry) => self.watch.reap_again(*k, id, *entry),
            _ => {}
        }
        if self.calls.failed(error, now, &mut self.rng) {
            self.search.abandon();
        }
    }

    /// Shard `k` was read.
    pub(super) fn saw(&mut self, k: u8, item: Option<&Item>, now: Instant) {
        let unwritten = Shard::unwritten(self.params.limit, k, self.params.lease);
        let shard = match item.map(Shard::read) {
            None => unwritten,
            Some(Some(shard)) => shard,
            Some(None) => {
                self.events.push_once(k, LedgerEvent::InvalidShard { shard: k });
                Shard { free: 0, written: true, ..unwritten }
            }
        };
        if shard.lease != self.params.lease {
            let (ours, theirs) = (self.params.lease, shard.lease);
            self.events.push_once(0, LedgerEvent::LeaseDiffers { ours, theirs });
        }
        let own_name = self.members.has_entry(k).then(|| self.members.name());
        self.watch.saw(k, shard, now, own_name);
        let (ours, theirs) = (self.params.limit, self.totals().1);
        if theirs != ours && self.watch.is_complete() {
            self.events.push_once(0, LedgerEvent::LimitDiffers { ours, theirs });
        }
    }

    /// Another instance wrote first.
    pub(super) fn lost_race(&mut self, k: u8, item: Option<&Item>, now: Instant) {
        self.events.push(LedgerEvent::Conflict);
        self.saw(k, item, now);
    }

    pub(super) fn joined(&mut self, k: u8, entry: &Entry, sent: Instant, now: Instant, outcome: Outcome) {
        let earlier = self.calls.take_join();
        let first_sent = earlier.unwrap_or(sent);
        // Only the answer to the write itself shows which join it was: later joins are counted since.
        let at_once = outcome.is_ok();
        let item = outcome.unwrap_or_else(|found| found);
        let shard = item.as_ref().and_then(Shard::read);
        // After a refusal, an equal entry is ours only if an earlier attempt may have written it. Otherwise another
        // instance with our name has written it.
        let applied = at_once || earlier.is_some() && self.members.find(shard.as_ref()) == Some(*entry);
        if !applied {
            self.lost_race(k, item.as_ref(), now);
            self.calls.lost_join();
            self.calls.back_off(now, &mut self.rng);
            return;
        }
        let sent = if at_once { sent } else { first_sent };
        let is_taken = |node| shard.as_ref().is_some_and(|shard| shard.is_taken(node, self.members.name()));
        if entry.node.is_some_and(is_taken) {
            self.calls.lost_join();
            self.calls.repeat_leave(k, *entry);
            return self.lost_race(k, item.as_ref(), now);
        }
        self.calls.won_join();
        let join = shard.as_ref().filter(|_| at_once).map(|shard| shard.joins);
        let (lease, capacity) = shard.map_or((self.params.lease, 0), |shard| (shard.lease, shard.capacity));
        self.members.add(k, OwnEntry::new(*entry, sent, lease, now));
        // A random first delay keeps a fleet that starts together from writing together.
        let delay = self.heartbeat_delay(lease, capacity, now);
        if let Some(own) = self.members.entry_mut(k).filter(|_| sent == first_sent) {
            own.due = now + self.rng.up_to(delay);
        }
        if self.members.home().is_none() {
            self.members.settle(k, join, now);
            match self.members.take_former_node() {
                Some(before) if entry.node != Some(before) => {
                    self.events.push(LedgerEvent::Renumbered { before, node: entry.node });
                }
                None if entry.node.is_none() => self.events.push_once(0, LedgerEvent::NoNodeNumber),
                _ => {}
            }
            self.watch.begin_round(false);
        }
        self.usage.reset_spare(self.slots());
        self.events.push(LedgerEvent::Joined { shard: k, node: entry.node, slots: entry.slots });
        self.saw(k, item.as_ref(), now);
    }

    pub(super) fn renewed(
        &mut self,
        k: u8,
        before: &Entry,
        after: &Entry,
        sent: Instant,
        now: Instant,
        outcome: Outcome,
    ) {
        let Some(own) = self.members.entry_mut(k) else { return };
        match outcome {
            Ok(item) => {
                own.confirm(*after, sent, now);
                let lease = own.lease;
                let capacity = self.watch.shard(k).map_or(0, |shard| shard.capacity);
                let due = sent + self.heartbeat_delay(lease, capacity, now);
                self.members.entry_mut(k).into_iter().for_each(|own| own.due = due);
                self.events.push(LedgerEvent::Heartbeat);
                self.saw(k, item.as_ref(), now);
            }
            Err(item) => {
                let found = self.members.find(item.as_ref().and_then(Shard::read).as_ref());
                let found = found.filter(|found| found.epoch == before.epoch);
                match (found, self.members.entry_mut(k)) {
                    (Some(found), Some(own)) if found.heartbeat == before.heartbeat => own.refused(),
                    (Some(found), Some(own)) => own.correct(found, now),
                    _ => {
                        let held = self.slots();
                        let lost = self.members.lose(k, held).map_or(0, |entry| entry.slots);
                        self.events.push(LedgerEvent::Lost { shard: k, slots: lost });
                    }
                }
                self.lost_race(k, item.as_ref(), now);
            }
        }
    }

    pub(super) fn left(&mut self, k: u8, entry: &Entry, now: Instant, outcome: Outcome) {
        let item = outcome.unwrap_or_else(|found| found);
        self.calls.left(now, &mut self.rng);
        let found = self.members.find(item.as_ref().and_then(Shard::read).as_ref());
        match found.filter(|found| found.epoch == entry.epoch) {
            Some(found) => self.members.entry_mut(k).into_iter().for_each(|own| own.refresh(found, now)),
            None => self.members.remove(k),
        }
        self.saw(k, item.as_ref(), now);
    }
}
