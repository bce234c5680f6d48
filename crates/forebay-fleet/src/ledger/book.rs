//! The ledger as one instance keeps it: what it holds, what it has lent, what it waits for.
//!
//! A pure machine: [`next`](Book::next) says what to do, [`answer`](Book::answer) takes what came of it, and the rest is
//! what callers ask. It has no clock, no I/O and no randomness of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use forebay::{Instant, Rng};

use super::call::{Ask, Call, Taken, Tale};
use super::shard::{Entry, SHARDS};
use super::sightings::Watch;
use crate::away::Away;
use crate::name::Name;
use crate::settings::StoreOutagePolicy;

/// What an instance was told.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) endpoint: String,
    pub(crate) limit: u64,
    pub(crate) block: u64,
    pub(crate) beat: Duration,
    pub(crate) lease: Duration,
    /// Connections this process may want at most, replacements included.
    pub(crate) max_open: u64,
    pub(crate) policy: StoreOutagePolicy,
}

/// One entry of ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// As it is in the table, as far as we know.
    pub(super) entry: Entry,
    /// What it may have become, and when that was first sent: a write without an answer. It is sent again, unchanged, until
    /// there is one; its beat tells whether it was made.
    pub(super) pending: Option<(Entry, Instant)>,
    /// When the last write that was made was sent: the lease counts from here.
    pub(super) sent: Instant,
    pub(super) lease: Duration,
    /// When to write next.
    pub(super) due: Instant,
}

/// Time that is left for closing connections before the slots under them can be taken away.
const CLOSING: Duration = Duration::from_secs(10);

impl Seat {
    /// Slots that are certainly ours.
    pub(super) fn slots(&self) -> u64 {
        self.pending.map_or(self.entry.slots, |(pending, _)| pending.slots.min(self.entry.slots))
    }

    /// When `strict` stops counting on it.
    pub(super) fn fence(&self) -> Instant {
        self.sent + self.lease.saturating_sub(CLOSING.min(self.lease / 6))
    }

    /// When it could be taken away.
    pub(super) fn end(&self) -> Instant {
        self.sent + self.lease
    }
}

/// The ledger as one instance keeps it.
#[derive(Debug)]
pub(crate) struct Book {
    pub(super) rules: Rules,
    /// What our entries go by: it can be changed while we have none.
    pub(super) name: Name,
    pub(super) seats: BTreeMap<u8, Seat>,
    pub(super) watch: Watch,
    pub(super) rng: Rng,
    pub(super) away: Away,
    /// The shard we joined first; our node number is from there.
    pub(super) home: Option<u8>,
    /// Our index in the fleet, by our first join, for as long as we run: nobody else is given it, even while we are taken for dead. Only
    /// an operator's reset lets joins count from the start, and two may then share a turn until one of them has ended.
    pub(super) index: Option<u64>,
    /// The home we lost, and our number there: ids that carry it are still about, so we go back for it.
    pub(super) former: Option<(u8, Option<u16>)>,
    /// What may be lent while nobody can be asked and we have no home: all, if we have never had one; then what we had there.
    pub(super) alone: u64,
    /// A join without an answer, and when it was first sent.
    pub(super) joining: Option<(u8, Entry, Instant)>,
    /// The two shards to choose a home from, and since when we look.
    pub(super) candidates: Option<([u8; 2], Instant)>,
    /// How often two others were chosen instead.
    pub(super) redraws: u32,
    pub(super) joined_at: Instant,
    /// An entry whose node number someone else has, too, and had first: it is given back, and another taken.
    pub(super) retreat: Option<(u8, Entry)>,
    /// Slots that a write on its way gives back: they may be someone else's before its answer is here.
    pub(super) giving: u64,
    /// Joins in a row that someone else was faster than.
    pub(super) outrun: u32,
    /// More than this we should not have: others have much less, and want more.
    pub(super) level: Option<u64>,
    /// More than this we do not lend or take: it falls towards the level, bit by bit, while connections come to their end.
    pub(super) cap: Option<u64>,
    /// Looks of a beat are under way; when they are done, we compare.
    pub(super) looking: bool,
    /// When we last compared.
    pub(super) compared: Instant,
    /// When slots were last missing.
    pub(super) lacked: Option<Instant>,
    /// Leases that are out.
    out: BTreeSet<u64>,
    next_lease: u64,
    pub(super) waiting: u64,
    /// The fewest slots to spare since the last beat.
    pub(super) least_spare: u64,
    /// The fewest between the last two beats.
    pub(super) settled_spare: u64,
    /// Since when the present search for slots is on: every shard not seen since is looked at before we give up.
    pub(super) searching: Option<Instant>,
    /// No new search before this.
    pub(super) full_until: Instant,
    /// Searches in a row that found nothing.
    pub(super) fruitless: u32,
    /// How many searches have ended in vain.
    pub(super) rounds: u64,
    pub(super) doomed: VecDeque<(u8, String, Entry)>,
    /// Shards read at this beat so far; none when done.
    pub(super) looked: Option<u8>,
    /// The one of the others that is read next, a beat each: all shards, then the counter.
    pub(super) rotation: u8,
    pub(super) rotate: bool,
    pub(super) paused_until: Instant,
    pub(super) leaving: bool,
    pub(super) told: BTreeSet<(u8, &'static str)>,
    tales: Vec<Tale>,
}

impl Book {
    pub(crate) fn new(rules: Rules, name: Name, mut rng: Rng) -> Self {
        let rotation = u8::try_from(rng.below(u64::from(SHARDS) + 1)).unwrap_or(0);
        Self {
            alone: rules.max_open,
            rules,
            name,
            seats: BTreeMap::new(),
            watch: Watch::default(),
            rng,
            away: Away::default(),
            home: None,
            index: None,
            former: None,
            joining: None,
            candidates: None,
            redraws: 0,
            joined_at: Instant::ZERO,
            retreat: None,
            giving: 0,
            outrun: 0,
            level: None,
            cap: None,
            looking: false,
            compared: Instant::ZERO,
            lacked: None,
            out: BTreeSet::new(),
            next_lease: 0,
            waiting: 0,
            least_spare: 0,
            settled_spare: 0,
            searching: None,
            full_until: Instant::ZERO,
            fruitless: 0,
            rounds: 0,
            doomed: VecDeque::new(),
            looked: None,
            rotation,
            rotate: false,
            paused_until: Instant::ZERO,
            leaving: false,
            told: BTreeSet::new(),
            tales: Vec::new(),
        }
    }

    // What callers ask.

    /// Takes a lease for a caller who has waited since `round`, if at all; then it waits no longer.
    pub(crate) fn take(&mut self, now: Instant, round: Option<u64>) -> Taken {
        if self.leaving {
            return Taken::Away("this process is leaving the fleet");
        }
        let away = self.away.is_away();
        if away && self.rules.policy != StoreOutagePolicy::Local {
            return Taken::Away("the table is away, and the policy is to open nothing meanwhile");
        }
        if self.held() < self.may_hold(now) {
            let number = self.next_lease;
            self.next_lease += 1;
            self.out.insert(number);
            if round.is_some() {
                self.waiting = self.waiting.saturating_sub(1);
            }
            self.note_spare();
            return Taken::Lease(number);
        }
        if away {
            return Taken::Away("the table is away, and every slot is in use");
        }
        let searched = round.is_some_and(|round| round < self.rounds) || now < self.full_until;
        let refused = match self.cap {
            Some(cap) if self.held() >= cap => Taken::Fair(cap),
            _ if searched => Taken::Full,
            _ => return Taken::Wait,
        };
        self.lacked = Some(now);
        refused
    }

    /// Takes a lease back; nothing happens if it is back already.
    pub(crate) fn give(&mut self, number: u64) {
        self.out.remove(&number);
    }

    /// One more caller waits, or one less.
    pub(crate) fn wait(&mut self, one_more: bool) -> u64 {
        self.waiting = if one_more { self.waiting + 1 } else { self.waiting.saturating_sub(1) };
        self.note_spare();
        self.rounds
    }

    /// From now on, every entry is given back.
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
        self.paused_until = Instant::ZERO;
    }

    pub(crate) fn leaving(&self) -> bool {
        self.leaving
    }

    // What is held.

    /// Leases that are out.
    pub(crate) fn held(&self) -> u64 {
        self.out.len() as u64
    }

    /// Slots that are certainly ours.
    pub(crate) fn slots(&self) -> u64 {
        self.seats.values().map(Seat::slots).sum::<u64>().saturating_sub(self.giving)
    }

    /// Slots whose lease nobody can have ended yet: those that a share of the rate may go by.
    pub(crate) fn safe_slots(&self, now: Instant) -> u64 {
        self.seats.values().filter(|seat| now < seat.end()).map(Seat::slots).sum()
    }

    /// How many leases may be out at once.
    pub(crate) fn may_hold(&self, now: Instant) -> u64 {
        match self.rules.policy {
            StoreOutagePolicy::Strict => self.ceiling(now),
            // Nobody has heard of us yet, or we were taken for dead, and nobody can be asked: we count for ourselves.
            StoreOutagePolicy::Local if self.home.is_none() && self.away.is_away() => self.alone,
            _ => self.slots(),
        }
        .min(self.cap.unwrap_or(u64::MAX))
    }

    /// How many connections may be kept: in `strict`, those whose slots cannot be taken away yet.
    pub(crate) fn ceiling(&self, now: Instant) -> u64 {
        if self.rules.policy != StoreOutagePolicy::Strict {
            return u64::MAX;
        }
        let kept = self.seats.values().filter(|seat| now < seat.fence()).map(Seat::slots);
        kept.sum::<u64>().saturating_sub(self.giving)
    }

    /// When the ceiling falls next, if nothing happens before.
    pub(crate) fn next_fall(&self, now: Instant) -> Instant {
        if self.rules.policy != StoreOutagePolicy::Strict {
            return Instant::NEVER;
        }
        self.seats.values().map(Seat::fence).filter(|at| *at > now).min().unwrap_or(Instant::NEVER)
    }

    /// What our entries go by.
    pub(crate) fn name(&self) -> &str {
        self.name.as_str()
    }

    /// What a call is to the table.
    pub(crate) fn ask(&self, call: &Call) -> Ask {
        call.ask(&self.rules, self.name())
    }

    /// Our number in the fleet.
    pub(crate) fn node(&self) -> Option<u16> {
        self.seats.get(&self.home?)?.entry.node
    }

    /// Our index in the fleet: dense, and unlike our number never another's. None until we have joined.
    pub(crate) fn index(&self) -> Option<u64> {
        self.index
    }

    /// Whether we are in the fleet, with a number or without.
    pub(crate) fn is_in(&self) -> bool {
        self.home.is_some()
    }

    /// Slots in use in the whole fleet, and all there are, as far as is known.
    pub(crate) fn totals(&self) -> (u64, u64) {
        self.watch.totals(self.rules.limit)
    }

    /// Slots of each entry in the fleet, as far as is known.
    pub(crate) fn holdings(&self) -> impl Iterator<Item = u64> {
        self.watch.entries().map(|(_, entry)| entry.slots)
    }

    pub(crate) fn away(&self) -> &Away {
        &self.away
    }

    /// What has happened since the last time.
    pub(crate) fn tales(&mut self) -> Vec<Tale> {
        std::mem::take(&mut self.tales)
    }

    pub(super) fn tell(&mut self, tale: Tale) {
        self.tales.push(tale);
    }

    /// Tells this once, or once for each shard.
    pub(super) fn tell_once(&mut self, k: u8, what: &'static str, tale: Tale) {
        if self.told.insert((k, what)) {
            self.tell(tale);
        }
    }

    /// Slots that are missing for what is out and for those who wait, as far as that is fair.
    pub(super) fn short(&self) -> u64 {
        self.short_of(self.cap.unwrap_or(u64::MAX))
    }

    /// Of those, what this process was made to hold. The rest is worth having, but not worth searching for, nor taking from others.
    pub(super) fn short_of_need(&self) -> u64 {
        self.short_of(self.most())
    }

    /// What this process was made to hold, as far as that is fair.
    pub(super) fn most(&self) -> u64 {
        self.rules.max_open.min(self.cap.unwrap_or(u64::MAX))
    }

    fn short_of(&self, most: u64) -> u64 {
        (self.held() + self.waiting).min(most).max(self.held()).saturating_sub(self.slots())
    }

    pub(super) fn spare(&self) -> u64 {
        self.slots().saturating_sub(self.held() + self.waiting)
    }

    fn note_spare(&mut self) {
        self.least_spare = self.least_spare.min(self.spare());
    }
}
