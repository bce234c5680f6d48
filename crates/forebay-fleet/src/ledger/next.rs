//! What the ledger does next.

use std::time::Duration;

use forebay::Instant;

use super::book::{Book, Seat};
use super::call::{Act, Call, Tale};
use super::shard::{Entry, SHARDS, Shard};
use crate::away;

/// Beats count seconds from 2026-01-01 00:00 UTC: two digits fewer than from 1970, in every entry of every write.
pub(crate) const BEAT_ORIGIN: Duration = Duration::from_secs(1_767_225_600);
/// How long a search that found nothing is good for: doubled with each, up to a beat.
const FULL: Duration = Duration::from_secs(1);
/// How often other shards are tried for a home that has room for all of it.
const REDRAWS: u32 = 3;
/// How often a home that was lost is tried before another will do.
const RETURNS: u32 = 4;
/// A view of a shard that is this old is looked at anew before joining.
const FRESH: Duration = Duration::from_secs(2);

impl Book {
    /// What to do at `now`, which is `wall` by the time of day.
    pub(crate) fn next(&mut self, now: Instant, wall: Duration) -> Act {
        // While leases are out, their slots are held on to: they are given back last.
        if self.leaving && self.held() == 0 && self.joining.is_none() && self.retreat.is_none() {
            return self.next_leave(now);
        }
        if now < self.paused_until {
            return Act::Wait(self.paused_until);
        }
        if let Some((k, entry, _)) = self.joining {
            return Act::Call(Call::Join(k, entry));
        }
        if let Some((k, entry)) = self.retreat {
            return Act::Call(Call::Leave(k, entry));
        }
        if let Some((k, seat, after)) = self.unanswered() {
            return Act::Call(Call::Renew(k, seat.entry, after));
        }
        // One or two can wait for the next beat, which costs nothing more.
        let yields = self.unfair() >= (self.rules.block / 4).max(1);
        let due = self.seats.iter().filter(|(_, seat)| seat.due <= now || yields && seat.entry.slots > 0);
        let due = due.min_by_key(|(_, seat)| seat.due);
        if let Some((k, seat)) = due.map(|(k, seat)| (*k, *seat)) {
            return Act::Call(self.beat(k, seat, now, wall));
        }
        let beat = self.seats.values().map(|seat| seat.due).min().unwrap_or(Instant::NEVER);
        let home = match self.home {
            Some(home) => home,
            None if self.leaving => return Act::Wait(beat),
            None => return self.next_home(now, wall),
        };
        let searches = self.short() > 0 && !self.leaving;
        if !searches {
            if !self.is_hungry(now) {
                self.fruitless = 0;
            }
            self.searching = None;
        } else if now >= self.full_until
            && let Some(call) = self.search(now, wall)
        {
            return Act::Call(call);
        }
        // Whoever looks at the table is to see all there is; and one who makes all of them gives all the same limit.
        if let Some(k) = self.watch.unwritten().filter(|_| !self.leaving) {
            return Act::Call(Call::Create(k));
        }
        if let Some((k, id, entry)) = self.doomed.pop_front() {
            return Act::Call(Call::Reap(k, id, entry));
        }
        let doubt = self.next_doubt();
        if doubt <= now && !self.looking && !self.leaving {
            (self.looked, self.looking) = (Some(0), true);
            return Act::Call(Call::Look(home));
        }
        if let Some(call) = self.next_look(home, now) {
            return Act::Call(call);
        }
        if std::mem::take(&mut self.looking) {
            self.compare(now);
            return self.next(now, wall);
        }
        let search = if searches { self.full_until } else { Instant::NEVER };
        Act::Wait(beat.min(search).min(if self.leaving { Instant::NEVER } else { doubt }))
    }

    fn next_leave(&mut self, now: Instant) -> Act {
        let Some((k, seat)) = self.seats.first_key_value() else { return Act::Left };
        if now < self.paused_until {
            return Act::Wait(self.paused_until);
        }
        Act::Call(Call::Leave(*k, seat.entry))
    }

    /// A write whose answer is missing: it is sent again before anything else is said about that entry.
    fn unanswered(&self) -> Option<(u8, Seat, Entry)> {
        self.seats.iter().find_map(|(k, seat)| Some((*k, *seat, seat.pending?.0)))
    }

    /// Of two shards, the emptier: that keeps all about equally full without anyone knowing all. Whoever has lost its home goes
    /// back there.
    fn next_home(&mut self, now: Instant, wall: Duration) -> Act {
        self.be_unique();
        let missing = self.rules.max_open.saturating_sub(self.slots());
        let want = self.short().max(missing);
        if let Some((k, _)) = self.former.filter(|_| self.outrun < RETURNS) {
            let fresh = self.watch.seen_since(k, now - FRESH);
            return Act::Call(if fresh { self.join(k, want, wall) } else { Call::Look(k) });
        }
        let (pair, since) = match self.candidates {
            Some(candidates) => candidates,
            None => {
                let pair = self.draw_two();
                *self.candidates.insert((pair, now))
            }
        };
        if let Some(k) = pair.into_iter().find(|k| !self.watch.seen_since(*k, since)) {
            return Act::Call(Call::Look(k));
        }
        let numbers = |k: &u8| self.watch.shard(*k).is_none_or(|shard| shard.free_node(*k, 0).is_some());
        let room = |k: &u8| self.room(*k);
        let crowd = |k: &u8| self.watch.shard(*k).map_or(0, |shard| shard.entries.len());
        let [one, other] = pair;
        let mut k = if (numbers(&other), room(&other)) > (numbers(&one), room(&one)) { other } else { one };
        if room(&k) < want || !numbers(&k) {
            // Part of it here and part elsewhere would be two entries to keep: two other shards first.
            if self.redraws < REDRAWS {
                self.redraws += 1;
                self.candidates = None;
                return self.next_home(now, wall);
            }
            let seen = (0..SHARDS).filter(|k| self.watch.seen_since(*k, now - FRESH));
            let seen = seen.filter(|k| !self.seats.contains_key(k));
            k = seen.max_by_key(|k| (numbers(k), room(k), std::cmp::Reverse(crowd(k)))).unwrap_or(k);
        }
        Act::Call(self.join(k, want, wall))
    }

    /// Takes another name if someone has ours. Only while we have no entry: others go by it.
    fn be_unique(&mut self) {
        while self.seats.is_empty() && self.watch.entries().any(|(id, _)| *id == self.name()) {
            let before = self.name.change();
            self.tell(Tale::Renamed { before, name: self.name().to_owned() });
        }
    }

    /// Slots to be had in shard `k`: where another has our name, there is no place for an entry of ours.
    fn room(&self, k: u8) -> u64 {
        let is_open =
            |shard: &&Shard| self.seats.contains_key(&k) || !shard.entries.contains_key(self.name());
        self.watch.shard(k).filter(is_open).map_or(0, |shard| shard.free)
    }

    /// Two shards by lot, of those where we have no entry.
    fn draw_two(&mut self) -> [u8; 2] {
        let open: Vec<u8> = (0..SHARDS).filter(|k| !self.seats.contains_key(k)).collect();
        let count = open.len().max(1) as u64;
        let one = self.rng.below(count);
        let other = (one + 1 + self.rng.below((count - 1).max(1))) % count;
        let shard = |place| usize::try_from(place).ok().and_then(|place| open.get(place).copied());
        [one, other].map(|place| shard(place).unwrap_or(0))
    }

    /// Joins shard `k`, which has been seen, with `want` slots or what is there.
    fn join(&mut self, k: u8, want: u64, wall: Duration) -> Call {
        let unwritten = || Shard::unwritten(self.rules.limit, k, self.rules.lease);
        let shard = self.watch.shard(k).cloned().unwrap_or_else(unwritten);
        if !shard.written {
            return Call::Create(k);
        }
        let beat = next_beat(0, wall);
        let node = if self.home.is_none() { self.number_of(&shard, k) } else { None };
        // What is missing may be in other shards.
        Call::Join(
            k,
            Entry { slots: want.min(shard.free), beat, epoch: shard.joins + 1, node, want: 0, elsewhere: 0 },
        )
    }

    /// Our number, if shard `k` becomes our home: the one we had there, if nobody else has it by now.
    fn number_of(&mut self, shard: &Shard, k: u8) -> Option<u16> {
        let before = self.former.filter(|(home, _)| *home == k).and_then(|(_, before)| before);
        before
            .filter(|node| !shard.is_taken(*node, self.name()))
            .or_else(|| shard.free_node(k, self.rng.bits()))
    }

    /// The next beat of an entry, which is the time to change its slots for nothing.
    fn beat(&mut self, k: u8, seat: Seat, now: Instant, wall: Duration) -> Call {
        if self.home == Some(k) && seat.due <= now {
            self.lower_cap();
        }
        let give = self.surplus(k, &seat, now);
        let alone = self.seats.len() == 1;
        if self.home == Some(k) {
            self.settled_spare = self.least_spare.saturating_sub(give);
            self.least_spare = self.spare().saturating_sub(give);
            self.looked = Some(0);
            self.looking = true;
            self.rotate = true;
        } else {
            self.settled_spare = self.settled_spare.saturating_sub(give);
            self.least_spare = self.least_spare.saturating_sub(give);
        }
        self.giving = give;
        if give == seat.entry.slots && !alone && self.home != Some(k) {
            return Call::Leave(k, seat.entry);
        }
        let more = if give == 0 && now >= self.full_until { self.portion(k, self.short()) } else { 0 };
        let slots = seat.entry.slots - give + more;
        Call::Renew(k, seat.entry, self.after(k, &seat.entry, slots, now, wall))
    }

    /// The next state of an entry, with so many slots.
    fn after(&self, k: u8, entry: &Entry, slots: u64, now: Instant, wall: Duration) -> Entry {
        let more = slots.saturating_sub(entry.slots);
        let want = if self.home == Some(k) { self.want(now, more) } else { 0 };
        let elsewhere = if want > 0 { self.slots().saturating_sub(entry.slots) } else { 0 };
        Entry { slots, want, elsewhere, beat: next_beat(entry.beat, wall), ..*entry }
    }

    /// Slots to give back: what others should have; or what nobody has needed since the last beat, beyond what is worth
    /// keeping.
    fn surplus(&self, k: u8, seat: &Seat, now: Instant) -> u64 {
        if self.unfair() > 0 {
            return self.unfair().min(seat.entry.slots);
        }
        let tight = self.watch.shard(k).is_some_and(Shard::is_tight);
        let keep = match self.watch.shard(k) {
            // Others may be waiting for every one of them.
            Some(shard) if shard.free == 0 || self.cap.is_some() => 0,
            _ if tight => (self.held() / 20).max(1),
            _ => self.rules.block,
        };
        let surplus = self.settled_spare.min(self.least_spare).min(self.spare()).saturating_sub(keep);
        // A process that has just started is on its way to what it was made for.
        let settled = now.since(self.joined_at) >= self.rules.lease;
        let worth_it = settled && (surplus > self.rules.block || tight && surplus > 0);
        // The others first: each costs a write at every beat.
        let others = self.home == Some(k) && self.seats.len() > 1;
        if worth_it && !others { surplus.min(seat.entry.slots) } else { 0 }
    }

    /// How many slots to take from shard `k` for a want: in whole blocks, unless they are scarce, or more than we were made for.
    fn portion(&self, k: u8, want: u64) -> u64 {
        let Some(shard) = self.watch.shard(k) else { return 0 };
        // Who is far below what is fair will need more soon.
        let is_near = self.cap.is_some_and(|cap| self.slots() * 4 > cap * 3);
        let room = self.room(k);
        if shard.is_tight() || is_near {
            return want.min(self.short_of_need()).min(room);
        }
        let block = self.rules.block.max(1);
        let whole = want.div_ceil(block).saturating_mul(block);
        // The rest of a block beyond what we were made for would lie idle, and others may lack it before we give it back: many free
        // slots are no sign of plenty while a whole fleet joins anew.
        let most = self.most().saturating_sub(self.slots()).max(want);
        whole.min(most).min(room)
    }

    /// The next step towards the slots that are missing; none if there are none to be had.
    fn search(&mut self, now: Instant, wall: Duration) -> Option<Call> {
        let since = *self.searching.get_or_insert(now);
        let want = self.short();
        for (k, seat) in &self.seats {
            let more = self.portion(*k, want);
            if more > 0 {
                let mut after = self.after(*k, &seat.entry, seat.entry.slots + more, now, wall);
                if seat.entry.want == 0 {
                    // The search goes on: it is too early to say that there are none.
                    (after.want, after.elsewhere) = (0, 0);
                }
                return Some(Call::Renew(*k, seat.entry, after));
            }
        }
        // From home on, so that not everyone asks the same shard first.
        let start = self.home.unwrap_or(0);
        let ring = (0..SHARDS).map(|step| (start + step) % SHARDS);
        // One more entry is one more write at every beat: for what is needed; for more than that where there is plenty.
        let need = self.short_of_need();
        for k in ring.clone().filter(|k| !self.seats.contains_key(k)) {
            let more = self.portion(k, want);
            if more > 0 {
                let fresh = self.watch.seen_since(k, now - FRESH);
                return Some(if fresh { self.join(k, more, wall) } else { Call::Look(k) });
            }
        }
        if let Some(k) = ring.clone().find(|k| need > 0 && !self.watch.seen_since(*k, since)) {
            return Some(Call::Look(k));
        }
        // Only now: who is on its way to what it wants lacks nothing, and others would make room for it in vain.
        self.lacked = Some(now);
        self.searching = None;
        self.rounds += 1;
        self.fruitless = self.fruitless.saturating_add(1);
        self.full_until = now + away::pause(self.fruitless, FULL, self.rules.beat, &mut self.rng);
        // Who has too little says so at once.
        let home = self.home?;
        let want = self.want(now, 0);
        let seat = self.seats.get_mut(&home)?;
        if want > 0 && seat.entry.want == 0 {
            seat.due = now;
        }
        None
    }

    /// After a beat: the shards that nobody else may be looking at, and one more, so that each knows of all in time.
    fn next_look(&mut self, home: u8, now: Instant) -> Option<Call> {
        if let Some(read) = self.looked {
            let all = self.is_scarce(now);
            match self.watch.next_look(home, read, now, self.rules.beat, self.seats.len(), all) {
                Some(k) => {
                    self.looked = Some(read + 1);
                    return Some(Call::Look(k));
                }
                None => self.looked = None,
            }
        }
        if !std::mem::take(&mut self.rotate) {
            return None;
        }
        // One that was seen at this beat already would tell nothing new.
        for _ in 0..=SHARDS {
            self.rotation = (self.rotation + 1) % (SHARDS + 1);
            if self.rotation == SHARDS {
                return Some(Call::LookForCounter);
            }
            if !self.watch.seen_since(self.rotation, now - self.rules.beat / 2) {
                return Some(Call::Look(self.rotation));
            }
        }
        None
    }
}

fn next_beat(beat: i64, wall: Duration) -> i64 {
    let seconds = wall.saturating_sub(BEAT_ORIGIN).as_secs();
    i64::try_from(seconds).unwrap_or(i64::MAX).max(beat + 1)
}
