//! What the table's answers mean.

use std::time::Duration;

use forebay::Instant;

use super::book::{Book, Seat};
use super::call::{Call, Tale};
use super::shard::{self, Entry, SHARDS, Shard};
use crate::away;
use crate::counter;
use crate::item::Item;
use crate::table::TableError;

/// The pause after someone else was faster, doubled each time.
const CONTENTION: Duration = Duration::from_millis(200);
/// The longest: a fleet that starts together is in its shards within seconds.
const CROWD: Duration = Duration::from_secs(3);

impl Book {
    /// The answer to `call`, which was sent at `sent`, came at `now`.
    pub(crate) fn answer(
        &mut self,
        call: &Call,
        sent: Instant,
        now: Instant,
        wall: Duration,
        outcome: Result<Option<Item>, TableError>,
    ) {
        self.giving = 0;
        let outcome = match outcome {
            Ok(item) => Ok(item),
            Err(TableError::ConditionFailed(item)) => Err(item.map(|item| *item)),
            Err(error) => return self.unanswered_call(call, sent, now, &error),
        };
        self.away.answered(now);
        match call {
            Call::Look(k) => self.looked_at(*k, outcome.unwrap_or(None).as_ref(), now),
            Call::LookForCounter => {
                let counter = outcome.unwrap_or(None);
                if counter.is_some_and(|item| counter::is_in_use(&item, wall, self.rules.lease)) {
                    self.tell_once(0, "counter", Tale::CounterInUse);
                }
            }
            Call::Create(k) => self.looked_at(*k, outcome.unwrap_or_else(|found| found).as_ref(), now),
            Call::Join(k, entry) => self.joined(*k, entry, sent, now, outcome),
            Call::Renew(k, before, after) => self.renewed(*k, before, after, sent, now, outcome),
            Call::Leave(k, entry) => self.left(*k, entry, now, outcome),
            Call::Reap(k, id, entry) => match outcome {
                Ok(item) => {
                    self.tell(Tale::Reaped { id: id.clone(), slots: entry.slots });
                    self.looked_at(*k, item.as_ref(), now);
                }
                Err(item) => self.lost_a_race(*k, item.as_ref(), now),
            },
        }
    }

    /// The table could not say what became of the call.
    fn unanswered_call(&mut self, call: &Call, sent: Instant, now: Instant, error: &TableError) {
        let unknown = error.may_have_been_applied();
        match call {
            Call::Renew(k, _, after) if unknown => {
                if let Some(seat) = self.seats.get_mut(k) {
                    seat.pending.get_or_insert((*after, sent));
                }
            }
            // It may be gone: nothing is lent on it any more, and it is left again until there is an answer.
            Call::Leave(k, entry) if unknown && !self.leaving && self.home != Some(*k) => {
                self.seats.remove(k);
                self.retreat = Some((*k, *entry));
            }
            Call::Join(k, entry) if unknown => {
                self.joining.get_or_insert((*k, *entry, sent));
            }
            // Nobody else may be looking there, nor see to whoever is dead, before the next beat.
            Call::Look(k) => {
                let last = self.home.zip(self.looked).filter(|(home, read)| (home + read) % SHARDS == *k);
                self.looked = last.map(|(_, read)| read.saturating_sub(1)).or(self.looked);
            }
            Call::Reap(k, id, entry) => self.doomed.push_front((*k, id.clone(), *entry)),
            _ => {}
        }
        if error.is_an_answer() {
            self.paused_until = now + CONTENTION;
            return;
        }
        self.away.failed(now);
        self.paused_until = now + self.away.pause(&mut self.rng);
        // Whoever waits for slots is told at once; nothing will come of it for a while.
        if self.away.is_away() {
            self.searching = None;
            self.rounds += 1;
        }
    }

    fn looked_at(&mut self, k: u8, item: Option<&Item>, now: Instant) {
        let unwritten = Shard::unwritten(self.rules.limit, k, self.rules.lease);
        let shard = match item.map(Shard::read) {
            None => unwritten,
            Some(Some(shard)) => shard,
            Some(None) => {
                self.tell_once(k, "shape", Tale::NotAShard { shard: k });
                // Whatever it is, there is nothing to be had there.
                Shard { free: 0, written: true, ..unwritten }
            }
        };
        if shard.lease != self.rules.lease {
            let (ours, theirs) = (self.rules.lease, shard.lease);
            self.tell_once(0, "lease", Tale::LeaseDiffers { ours, theirs });
        }
        let dead = self.watch.saw(k, shard, now);
        let (ours, theirs) = (self.rules.limit, self.totals().1);
        if theirs != ours && self.watch.is_complete() {
            self.tell_once(0, "limit", Tale::LimitDiffers { ours, theirs });
        }
        let seated = self.seats.contains_key(&k);
        for (id, entry) in dead {
            let listed = self.doomed.iter().any(|(shard, doomed, _)| *shard == k && *doomed == id);
            if !(listed || seated && id == self.name.as_str()) {
                self.doomed.push_back((k, id, entry));
            }
        }
    }

    fn lost_a_race(&mut self, k: u8, item: Option<&Item>, now: Instant) {
        self.tell(Tale::Conflict);
        self.looked_at(k, item, now);
    }

    fn joined(
        &mut self,
        k: u8,
        entry: &Entry,
        sent: Instant,
        now: Instant,
        outcome: Result<Option<Item>, Option<Item>>,
    ) {
        let earlier = self.joining.take().map(|(_, _, first_sent)| first_sent);
        let first_sent = earlier.unwrap_or(sent);
        // Only the answer to the write itself tells which of all joins it was: later ones have been counted since.
        let at_once = outcome.is_ok();
        let (applied, sent) = match &outcome {
            Ok(_) => (true, sent),
            // An earlier try was made, and its answer lost: its epoch is ours alone. Without one it is another's of our name, however
            // much it looks like ours.
            Err(item) => (earlier.is_some() && self.own_entry(item.as_ref()) == Some(*entry), first_sent),
        };
        let item = outcome.unwrap_or_else(|found| found);
        if !applied {
            self.lost_a_race(k, item.as_ref(), now);
            self.outrun = self.outrun.saturating_add(1);
            self.paused_until = now + away::pause(self.outrun, CONTENTION, CROWD, &mut self.rng);
            return;
        }
        let shard = item.as_ref().and_then(Shard::read);
        let is_taken = |node| shard.as_ref().is_some_and(|shard| shard.is_taken(node, self.name.as_str()));
        if entry.node.is_some_and(is_taken) {
            self.outrun = self.outrun.saturating_add(1);
            self.retreat = Some((k, *entry));
            return self.lost_a_race(k, item.as_ref(), now);
        }
        self.outrun = 0;
        let join = shard.as_ref().filter(|_| at_once).map(|shard| shard.joins);
        let (lease, capacity) = shard.map_or((self.rules.lease, 0), |shard| (shard.lease, shard.capacity));
        self.seats.insert(k, Seat { entry: *entry, pending: None, sent, lease, due: now });
        // The first beat comes at a random time, so that a fleet which starts together does not beat together.
        let wait = self.beat_within(lease, capacity, now);
        if let Some(seat) = self.seats.get_mut(&k).filter(|_| sent == first_sent) {
            seat.due = now + self.rng.up_to(wait);
        }
        if self.home.is_none() {
            self.home = Some(k);
            self.index = self.index.or_else(|| join.map(|join| shard::index(k, join)));
            self.number(entry.node);
            self.candidates = None;
            self.redraws = 0;
            self.joined_at = now;
            self.looked = Some(0);
            self.looking = true;
        }
        self.least_spare = self.spare();
        self.tell(Tale::Joined { shard: k, node: entry.node, slots: entry.slots });
        self.looked_at(k, item.as_ref(), now);
    }

    fn renewed(
        &mut self,
        k: u8,
        before: &Entry,
        after: &Entry,
        sent: Instant,
        now: Instant,
        outcome: Result<Option<Item>, Option<Item>>,
    ) {
        let own = outcome.as_ref().err().and_then(|item| self.own_entry(item.as_ref()));
        let Some(seat) = self.seats.get_mut(&k) else { return };
        match &outcome {
            Ok(_) => {
                *seat = Seat { entry: *after, pending: None, sent, ..*seat };
                let (lease, capacity) = (seat.lease, self.watch.shard(k).map_or(0, |shard| shard.capacity));
                let due = sent + self.beat_within(lease, capacity, now);
                self.seats.entry(k).and_modify(|seat| seat.due = due);
                self.tell(Tale::Beaten);
                self.looked_at(k, outcome.unwrap_or_default().as_ref(), now);
            }
            Err(item) => {
                match own.filter(|own| own.epoch == before.epoch) {
                    // Too little was free, and nothing has changed.
                    Some(own) if own.beat == before.beat => seat.pending = None,
                    // An earlier write of ours was made after all: what the table says is so, as of when that was sent.
                    Some(own) => {
                        seat.sent = seat.pending.map_or(seat.sent, |(_, first_sent)| first_sent);
                        *seat = Seat { entry: own, pending: None, due: now, ..*seat };
                    }
                    None => self.lost(k),
                }
                self.lost_a_race(k, item.as_ref(), now);
            }
        }
    }

    fn left(&mut self, k: u8, entry: &Entry, now: Instant, outcome: Result<Option<Item>, Option<Item>>) {
        let item = outcome.as_ref().unwrap_or_else(|found| found).as_ref();
        if self.retreat.take().is_some() && self.outrun > 0 {
            self.paused_until = now + away::pause(self.outrun, CONTENTION, CROWD, &mut self.rng);
        }
        match self.own_entry(item).filter(|own| own.epoch == entry.epoch) {
            Some(own) => {
                if let Some(seat) = self.seats.get_mut(&k) {
                    *seat = Seat { entry: own, pending: None, due: now, ..*seat };
                }
            }
            None => {
                self.seats.remove(&k);
                self.home = self.home.filter(|home| *home != k);
            }
        }
        self.looked_at(k, item, now);
    }

    /// An entry of ours is gone. What is out stays out, and is counted when we join anew.
    fn lost(&mut self, k: u8) {
        let held = self.slots();
        let Some(seat) = self.seats.remove(&k) else { return };
        self.tell(Tale::Lost { shard: k, slots: seat.entry.slots });
        if self.home == Some(k) {
            self.home = None;
            (self.former, self.alone) = (Some((k, seat.entry.node)), held);
        }
    }

    /// We have a home, and this number there.
    fn number(&mut self, node: Option<u16>) {
        match self.former.take().and_then(|(_, before)| before) {
            Some(before) if node != Some(before) => self.tell(Tale::Renumbered { before, node }),
            None if node.is_none() => self.tell_once(0, "number", Tale::NoNumber),
            _ => {}
        }
    }

    fn own_entry(&self, item: Option<&Item>) -> Option<Entry> {
        Shard::read(item?)?.entries.get(self.name.as_str()).copied()
    }
}
