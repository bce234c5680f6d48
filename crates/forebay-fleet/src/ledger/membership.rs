//! The entries of this instance, its home shard, and how it chooses one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use forebay::{Instant, Rng};

use super::HEARTBEAT_ORIGIN;
use super::call::Call;
use super::neighbour_watch::NeighbourWatch;
use super::shard::{self, Entry, SHARDS, Shard};
use crate::name::Name;
use crate::node_number::NodeNumber;
use crate::params::LeaseParams;

/// How often two other shards are drawn if neither has room for all slots.
const REDRAWS: u32 = 3;
/// Time to close connections before their slots can be taken away, and for the difference of two clocks.
const CLOSING: Duration = Duration::from_secs(10);
/// A shard seen longer ago than this is read again before a join.
pub(super) const FRESH: Duration = Duration::from_secs(2);

/// One entry of this instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnEntry {
    /// The entry in the table, as far as known.
    pub(super) entry: Entry,
    /// A write without an answer, and when it was first sent. It is repeated unchanged until it is answered; the
    /// heartbeat in the table shows whether it was made.
    pending: Option<(Entry, Instant)>,
    /// When the last successful write was sent. The lease starts here.
    sent: Instant,
    pub(super) lease: Duration,
    /// When to write next.
    pub(super) due: Instant,
}

impl OwnEntry {
    pub(super) fn new(entry: Entry, sent: Instant, lease: Duration, due: Instant) -> Self {
        Self { entry, pending: None, sent, lease, due }
    }

    /// Slots that no pending write may have given back.
    fn slots(&self) -> u64 {
        self.pending.map_or(self.entry.slots, |(pending, _)| pending.slots.min(self.entry.slots))
    }

    /// When this instance stops using what only its lease gives it: its node number, its share of the rate, and with `strict`
    /// its slots. Another instance may remove the entry soon after, once a whole lease has passed on its own clock, which may
    /// be faster.
    fn end(&self) -> Instant {
        self.sent + self.lease.saturating_sub(CLOSING.min(self.lease / 6).max(self.lease / 100))
    }

    /// A write has no answer: it may have been made.
    pub(super) fn unanswered(&mut self, after: Entry, sent: Instant) {
        self.pending.get_or_insert((after, sent));
    }

    /// A write of `after`, sent at `sent`, was made.
    pub(super) fn confirm(&mut self, after: Entry, sent: Instant, now: Instant) {
        *self = Self::new(after, sent, self.lease, now);
    }

    /// The table has `entry`.
    pub(super) fn refresh(&mut self, entry: Entry, now: Instant) {
        self.confirm(entry, self.sent, now);
    }

    /// A write was refused, and the entry is unchanged.
    pub(super) fn refused(&mut self) {
        self.pending = None;
    }

    /// The table has `entry`: an earlier write was made although its answer was lost.
    pub(super) fn correct(&mut self, entry: Entry, now: Instant) {
        self.confirm(entry, self.pending.map_or(self.sent, |(_, first_sent)| first_sent), now);
    }
}

/// The membership of this instance.
#[derive(Debug)]
pub(super) struct Membership {
    /// Changes only while there are no entries.
    name: Name,
    entries: BTreeMap<u8, OwnEntry>,
    /// The shard joined first. The node number comes from there.
    home: Option<u8>,
    /// The index from the first join, kept while the process runs. No other instance gets it, even while this one is
    /// taken for dead. After an operator's reset, joins count from the start, and two instances may share an index.
    index: Option<u64>,
    /// A lost home and the node number there. Ids with that number are still in use, so it is tried first.
    former_home: Option<(u8, Option<u16>)>,
    /// Slots to use while the table is unavailable and there is no home: `max_open` before the first join, then the
    /// slots held when the home was lost.
    offline_slots: u64,
    /// The two shards to choose a home from, and when they were drawn.
    candidates: Option<([u8; 2], Instant)>,
    redraws: u32,
    joined_at: Instant,
    leaving: bool,
    /// The home entry is being given back, which may have happened before the answer comes.
    leaves_home: bool,
}

impl Membership {
    pub(super) fn new(name: Name, max_open: u64) -> Self {
        Self {
            name,
            entries: BTreeMap::new(),
            home: None,
            index: None,
            former_home: None,
            offline_slots: max_open,
            candidates: None,
            redraws: 0,
            joined_at: Instant::ZERO,
            leaving: false,
            leaves_home: false,
        }
    }

    /// The name of this instance's entries.
    pub(super) fn name(&self) -> &str {
        self.name.as_str()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (u8, &OwnEntry)> {
        self.entries.iter().map(|(k, own)| (*k, own))
    }

    pub(super) fn entry_mut(&mut self, k: u8) -> Option<&mut OwnEntry> {
        self.entries.get_mut(&k)
    }

    pub(super) fn has_entry(&self, k: u8) -> bool {
        self.entries.contains_key(&k)
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    /// The home shard. This instance is in the fleet while it has one.
    pub(super) fn home(&self) -> Option<u8> {
        self.home
    }

    /// The node number of this instance, until its lease ends. None while the home entry may be gone already, because this
    /// instance gives it back.
    pub(super) fn node(&self) -> Option<NodeNumber> {
        let home = self.entries.get(&self.home?).filter(|_| !self.leaves_home)?;
        Some(NodeNumber::new(home.entry.node?, home.end()))
    }

    /// Whether this instance is in the fleet, and its node number can be used; or it has none because all are taken.
    pub(super) fn is_settled(&self, now: Instant) -> bool {
        let is_usable = |own: &OwnEntry| own.entry.node.is_none() || now < own.end();
        self.home.and_then(|home| self.entries.get(&home)).is_some_and(is_usable)
    }

    /// The dense index of this instance, which is never given to another. None until it has joined.
    pub(super) fn index(&self) -> Option<u64> {
        self.index
    }

    pub(super) fn former_home(&self) -> Option<u8> {
        self.former_home.map(|(k, _)| k)
    }

    pub(super) fn offline_slots(&self) -> u64 {
        self.offline_slots
    }

    /// The time since the home was joined.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.since(self.joined_at)
    }

    pub(super) fn leave(&mut self) {
        self.leaving = true;
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving
    }

    pub(super) fn slots(&self) -> u64 {
        self.entries.values().map(OwnEntry::slots).sum()
    }

    /// Slots whose lease has not ended. The share of the rate is computed from them.
    pub(super) fn safe_slots(&self, now: Instant) -> u64 {
        self.entries.values().filter(|own| now < own.end()).map(OwnEntry::slots).sum()
    }

    /// When the next lease ends.
    pub(super) fn next_end(&self, now: Instant) -> Instant {
        let ends = self.entries.values().map(OwnEntry::end);
        ends.filter(|at| *at > now).min().unwrap_or(Instant::NEVER)
    }

    // Writes to come.

    pub(super) fn next_due(&self) -> Instant {
        self.entries.values().map(|own| own.due).min().unwrap_or(Instant::NEVER)
    }

    /// The entry to write now. With `yields`, any entry that has slots will do.
    pub(super) fn due(&self, now: Instant, yields: bool) -> Option<(u8, OwnEntry)> {
        let due = self.entries.iter().filter(|(_, own)| own.due <= now || yields && own.entry.slots > 0);
        due.min_by_key(|(_, own)| own.due).map(|(k, own)| (*k, *own))
    }

    /// The write to repeat: nothing else is written to that entry before it is answered.
    pub(super) fn unanswered(&self) -> Option<Call> {
        self.entries.iter().find_map(|(k, own)| Some(Call::Renew(*k, own.entry, own.pending?.0)))
    }

    pub(super) fn next_leave(&self) -> Option<Call> {
        self.entries.first_key_value().map(|(k, own)| Call::Leave(*k, own.entry))
    }

    /// `call` is about to be made. From then on, another instance may have what it gives back.
    pub(super) fn sends(&mut self, call: &Call) {
        self.leaves_home |= matches!(call, Call::Leave(k, _) if self.home == Some(*k));
    }

    /// Makes the home entry due, if it does not show yet that more slots are wanted.
    pub(super) fn announce_want(&mut self, now: Instant) {
        let home = self.home.and_then(|home| self.entries.get_mut(&home));
        if let Some(own) = home.filter(|own| own.entry.want == 0) {
            own.due = now;
        }
    }

    // Entries.

    pub(super) fn add(&mut self, k: u8, own: OwnEntry) {
        self.entries.insert(k, own);
    }

    /// The entry in shard `k` is the first one: the shard becomes the home. `join` is its
    /// number among the joins there, if known.
    pub(super) fn settle(&mut self, k: u8, join: Option<i64>, now: Instant) {
        (self.home, self.leaves_home) = (Some(k), false);
        self.index = self.index.or_else(|| join.map(|join| shard::index(k, join)));
        self.candidates = None;
        self.redraws = 0;
        self.joined_at = now;
    }

    /// The node number in the former home, which is forgotten.
    pub(super) fn take_former_node(&mut self) -> Option<u16> {
        self.former_home.take().and_then(|(_, node)| node)
    }

    /// Removes an entry that was given back.
    pub(super) fn remove(&mut self, k: u8) {
        self.entries.remove(&k);
        self.home = self.home.filter(|home| *home != k);
    }

    /// Removes an entry that another instance or an operator has taken out. Its leases stay in use, and count again at
    /// the next join. `held` is what this instance had before.
    pub(super) fn lose(&mut self, k: u8, held: u64) -> Option<Entry> {
        let own = self.entries.remove(&k)?;
        if self.home == Some(k) {
            self.home = None;
            (self.former_home, self.offline_slots) = (Some((k, own.entry.node)), held);
        }
        Some(own.entry)
    }

    /// This instance's entry in `item`.
    pub(super) fn find(&self, item: Option<&Shard>) -> Option<Entry> {
        item?.entries.get(self.name()).copied()
    }

    // Joining.

    /// Changes the name if another instance has it. Returns the former name.
    pub(super) fn rename_if_taken(&mut self, watch: &NeighbourWatch) -> Option<String> {
        let taken = self.entries.is_empty() && watch.entries().any(|(id, _)| *id == self.name());
        taken.then(|| self.name.change())
    }

    /// The next call on the way to a home with `want` slots: the emptier of two shards, which keeps all shards about
    /// equally full without a view of all.
    pub(super) fn choose_home(
        &mut self,
        want: u64,
        (now, wall): (Instant, Duration),
        params: &LeaseParams,
        watch: &NeighbourWatch,
        rng: &mut Rng,
    ) -> Call {
        let (pair, since) = match self.candidates {
            Some(candidates) => candidates,
            None => {
                let pair = self.draw_two(rng);
                *self.candidates.insert((pair, now))
            }
        };
        if let Some(k) = pair.into_iter().find(|k| !watch.seen_since(*k, since)) {
            return Call::Look(k);
        }
        let numbers = |k: &u8| watch.shard(*k).is_none_or(|shard| shard.free_node(*k, 0).is_some());
        let room = |k: &u8| self.room(*k, watch);
        let entries = |k: &u8| watch.shard(*k).map_or(0, |shard| shard.entries.len());
        let [one, other] = pair;
        let mut k = if (numbers(&other), room(&other)) > (numbers(&one), room(&one)) { other } else { one };
        if room(&k) < want || !numbers(&k) {
            // Slots in two shards would need two entries, so draw again first.
            if self.redraws < REDRAWS {
                self.redraws += 1;
                self.candidates = None;
                return self.choose_home(want, (now, wall), params, watch, rng);
            }
            let seen = (0..SHARDS).filter(|k| watch.seen_since(*k, now - FRESH) && !self.has_entry(*k));
            k = seen.max_by_key(|k| (numbers(k), room(k), Reverse(entries(k)))).unwrap_or(k);
        }
        self.join(k, want, wall, params, watch, rng)
    }

    /// The free slots of shard `k`: none where another instance has our name, because both would use one entry.
    pub(super) fn room(&self, k: u8, watch: &NeighbourWatch) -> u64 {
        let is_open = |shard: &&Shard| self.has_entry(k) || !shard.entries.contains_key(self.name());
        watch.shard(k).filter(is_open).map_or(0, |shard| shard.free)
    }

    /// Draws two shards without an entry of this instance.
    fn draw_two(&self, rng: &mut Rng) -> [u8; 2] {
        let open: Vec<u8> = (0..SHARDS).filter(|k| !self.has_entry(*k)).collect();
        let count = open.len().max(1) as u64;
        let one = rng.below(count);
        let other = (one + 1 + rng.below((count - 1).max(1))) % count;
        let shard = |place| usize::try_from(place).ok().and_then(|place| open.get(place).copied());
        [one, other].map(|place| shard(place).unwrap_or(0))
    }

    /// Joins shard `k` with `want` slots, or as many as are free. Creates the shard first if it is missing.
    pub(super) fn join(
        &self,
        k: u8,
        want: u64,
        wall: Duration,
        params: &LeaseParams,
        watch: &NeighbourWatch,
        rng: &mut Rng,
    ) -> Call {
        let unwritten = || Shard::unwritten(params.limit, k, params.lease);
        let shard = watch.shard(k).cloned().unwrap_or_else(unwritten);
        if !shard.written {
            return Call::Create(k);
        }
        let heartbeat = next_heartbeat(0, wall);
        let node = if self.home.is_none() { self.choose_node(&shard, k, rng) } else { None };
        let slots = want.min(shard.free);
        // The missing slots may be in other shards, so no want is announced yet.
        Call::Join(k, Entry { slots, heartbeat, epoch: shard.joins + 1, node, want: 0, elsewhere: 0 })
    }

    /// The node number for home `k`: the former one if it is free, else a random one.
    fn choose_node(&self, shard: &Shard, k: u8, rng: &mut Rng) -> Option<u16> {
        let former = self.former_home.filter(|(home, _)| *home == k).and_then(|(_, node)| node);
        former.filter(|node| !shard.is_taken(*node, self.name())).or_else(|| shard.free_node(k, rng.bits()))
    }
}

/// The heartbeat after `before`: the time of day, or one more if that has not moved on.
pub(super) fn next_heartbeat(before: i64, wall: Duration) -> i64 {
    let seconds = wall.saturating_sub(HEARTBEAT_ORIGIN).as_secs();
    i64::try_from(seconds).unwrap_or(i64::MAX).max(before + 1)
}
