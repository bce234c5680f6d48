//! The machine: who owns which connection, who gets the next one, what is due.
//!
//! It is pure. Each method takes what happened and the time, and answers with what is to be done; it neither
//! reads a clock, nor wakes, closes or waits for anything. Its shell, [`Core`](crate::core::Core), holds it under a
//! lock and does those things after unlocking. `E` is a connection with all that belongs to it, `W` wakes a waiter.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::config::{Config, Lifetime};
use crate::event::{Discard, Failure};
use crate::limit::Pace;
use crate::seed::{Draws, Seed};
use crate::status::{Counts, Status};
use crate::time::Instant;

mod calendar;
mod chain;
mod governor;
mod slots;
mod stack;
mod waiters;

use calendar::Calendar;
use governor::{Go, Governor};
pub(crate) use slots::Key;
use slots::{Mark, Phase, Slots};
use stack::Stack;
pub(crate) use waiters::Ticket;
use waiters::{Turn, Waiters};

/// How many alarms one hold of the lock handles, so that no checkout waits for a whole scan.
pub(crate) const BATCH: usize = 16;

#[derive(Debug)]
pub(crate) struct State<E, W> {
    slots: Slots,
    /// Connections to hand out. Whenever there are any, nobody waits.
    ready: Stack<E>,
    counts: Counts,
    outlook: Outlook,
    nudges: Nudges,

    waiters: Waiters<E, W>,
    /// How many are ready or lent. Taking and giving back leave it as it is.
    held: usize,
    care: usize,
    opening: usize,
    max_open: usize,
    /// How many should be ready, as far as `max_open` leaves room.
    keep_ready: usize,
    /// The refill task has been told that there is work, and has not looked yet.
    refill_told: bool,
    /// Idle times matter.
    tracks_idle: bool,
    closed: bool,

    overlap: usize,
    low_watermark: usize,
    below_watermark: bool,
    empty_wait: Duration,
    acquire_timeout: Duration,
    idle_ttl: Option<Duration>,
    check_after: Option<Duration>,
    lives: Option<Lives>,
    /// When the expiry task is to look at which slot: exactly one entry for each usable connection.
    alarms: BTreeSet<(Instant, u32)>,
    /// Connections past their booked retirement, by the time they become useless.
    retiring: BTreeSet<(Instant, u32)>,
    governor: Governor,
    /// Since when fewer connections are usable than may be owned.
    short_since: Option<Instant>,
}

/// What the fast path needs to know of everything else. Taking and giving back do not change it, since they leave
/// the number of usable connections as it is; whatever else happens, [`State::conclude`] makes it anew.
#[derive(Debug, Default)]
struct Outlook {
    /// A clean, unmarked connection that comes back goes to the ready list, and that is all.
    calm: bool,
    /// With fewer ready than this, more are wanted.
    refill_below: usize,
}

/// Lifetimes and their calendar.
#[derive(Debug)]
struct Lives {
    lifetime: Lifetime,
    /// How long before it becomes useless a connection is to be retired, so that its replacement has time to open.
    lead: Duration,
    calendar: Calendar,
    draws: Draws,
}

impl Lives {
    fn new(lifetime: Lifetime, config: &Config, mut draws: Draws) -> Self {
        let lead = config.open_timeout.min(lifetime.shortest().saturating_sub(lifetime.guard) / 10);
        let calendar = Self::calendar(lifetime, lead, config.max_open, draws.bits());
        Self { lifetime, lead, calendar, draws }
    }

    fn calendar(lifetime: Lifetime, lead: Duration, connections: usize, draw: u64) -> Calendar {
        let shortest = lifetime.shortest().saturating_sub(lifetime.guard).saturating_sub(lead);
        Calendar::new(connections, shortest, lifetime.longest(), draw)
    }

    fn calendar_for(&mut self, connections: usize) -> Calendar {
        Self::calendar(self.lifetime, self.lead, connections, self.draws.bits())
    }
}

/// When a connection was born and when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) born_at: Instant,
    /// From here on it is not handed out.
    pub(crate) stale_at: Instant,
    pub(crate) expires_at: Instant,
}

impl Life {
    /// How much is left; none if it is not limited.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        (self.expires_at != Instant::NEVER).then(|| self.expires_at.since(now))
    }
}

/// What the shell has to do once it has let go of the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nudges(u8);

impl Nudges {
    /// Tell the refill task that connections are wanted.
    pub(crate) const REFILL: Self = Self(1);
    /// Tell the expiry task that an alarm comes sooner than it knows.
    pub(crate) const EXPIRY: Self = Self(2);
    /// Wake every waiter: why they wait has changed, and with it how long they may.
    pub(crate) const ROUSE: Self = Self(4);
    /// Tell whoever waits for a fill or a drain that there is progress.
    pub(crate) const PROGRESS: Self = Self(8);
    /// The number of usable connections crossed the low watermark.
    pub(crate) const WATERMARK: Self = Self(16);

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// A connection to be closed.
#[derive(Debug)]
pub(crate) struct Discarded<E> {
    pub(crate) key: Key,
    pub(crate) entry: E,
    pub(crate) reason: Discard,
}

/// The answer to a caller who wants a connection at once.
#[derive(Debug)]
pub(crate) enum Taken<E> {
    Got(E),
    /// This one was too old: close it, and ask again.
    Stale(Discarded<E>),
    /// There is none.
    Nothing,
    Closed,
}

/// The answer to a caller in line.
#[derive(Debug)]
pub(crate) enum Waited<E> {
    Got(E),
    /// The one it was given is of no use any more: close it, and ask again.
    Stale(Discarded<E>),
    /// Ask again when woken, or then.
    Until(Instant),
    /// It has waited long enough, and has left the line.
    GaveUp(Shortage),
    Closed,
}

/// Why there was no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Fewer usable than may be owned.
    Empty,
    /// All in use.
    Exhausted,
}

/// The shape a connection comes back in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Clean,
    Dirty,
    Bad,
    /// Could not be reset.
    Broken,
    /// Failed its health check.
    Dead,
}

/// What becomes of a connection that was given back, opened or cared for.
#[derive(Debug)]
#[must_use]
pub(crate) enum Placed<E, W> {
    /// It is ready.
    Kept,
    /// It is a waiter's: wake it.
    Served(W),
    /// It must be reset first.
    Reset(E),
    Discarded(Discarded<E>),
}

/// What an alarm asks for.
#[derive(Debug)]
pub(crate) enum Due<E> {
    Discard(Discarded<E>),
    Check(E),
}

/// What the refill task does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refill {
    /// Open one for this slot.
    Open(Key),
    /// Nothing until told, or until then.
    Wait(Instant),
    Closed,
}

impl<E: Held, W> State<E, W> {
    pub(crate) fn new(config: &Config, seed: Seed, now: Instant) -> Self {
        let overlap = config.overlap_or_default();
        let lives =
            config.lifetime.map(|lifetime| Lives::new(lifetime, config, seed.fork("lifetime").draws()));
        Self {
            slots: Slots::with_capacity(config.max_open + overlap),
            ready: Stack::with_capacity(config.max_open + overlap),
            waiters: Waiters::default(),
            held: 0,
            care: 0,
            opening: 0,
            max_open: config.max_open,
            keep_ready: config.keep_ready(),
            counts: Counts::default(),
            nudges: Nudges::default(),
            outlook: Outlook::default(),
            refill_told: false,
            tracks_idle: config.idle_ttl.is_some() || config.check_after.is_some(),
            closed: false,
            overlap,
            low_watermark: config.watermark(),
            // So that the first fill is not announced as a recovery, nor its beginning as a loss.
            below_watermark: true,
            empty_wait: config.empty_wait_or_default(),
            acquire_timeout: config.acquire_timeout,
            idle_ttl: config.idle_ttl,
            check_after: config.check_after,
            lives,
            alarms: BTreeSet::new(),
            retiring: BTreeSet::new(),
            governor: Governor::new(config.inflight_limit, seed.fork("backoff").draws()),
            short_since: Some(now),
        }
    }

    // Callers.

    /// A caller wants a connection, and the next one is good: the fast path.
    #[inline]
    pub(crate) fn take_fresh(&mut self, now: Instant) -> Option<E> {
        let entry = self.ready.pop_fresh(now)?;
        self.counts.checkouts += 1;
        if self.ready.len() < self.outlook.refill_below {
            self.want_refill();
        }
        Some(entry)
    }

    /// A caller wants a connection, at once or not at all.
    pub(crate) fn take(&mut self, now: Instant) -> Taken<E> {
        if let Some(entry) = self.take_fresh(now) {
            return Taken::Got(entry);
        }
        match self.ready.pop() {
            None if self.closed => Taken::Closed,
            None => Taken::Nothing,
            Some(entry) => {
                let index = entry.key().index;
                let expired = self.slots[index].expires_at <= now;
                let reason = if expired { Discard::ExpiredOnCheckout } else { Discard::GuardWindow };
                Taken::Stale(self.discard(entry, reason, now))
            }
        }
    }

    /// A caller found nothing and joins the line.
    pub(crate) fn join(&mut self, now: Instant, waker: W) -> Ticket {
        self.counts.waits += 1;
        let ticket = self.waiters.join(now, waker);
        self.want_refill();
        ticket
    }

    /// A caller in line looks again: it was woken, or its time is up. It is to be woken by `waker` from now on.
    pub(crate) fn look(
        &mut self,
        ticket: Ticket,
        deadline: Option<Instant>,
        now: Instant,
        waker: &W,
    ) -> Waited<E>
    where
        W: Clone,
    {
        match self.waiters.look(ticket, waker) {
            Turn::Waiting(()) => match self.patience(self.waiters.since(ticket), deadline, now) {
                Ok(until) => Waited::Until(until),
                Err(shortage) => {
                    self.waiters.leave(ticket);
                    self.count_shortage(shortage);
                    Waited::GaveUp(shortage)
                }
            },
            Turn::Served(entry) => {
                let index = entry.key().index;
                let slot = &self.slots[index];
                if !slot.marks.has(Mark::DEAD) && slot.stale_at > now {
                    self.waiters.leave(ticket);
                    self.counts.checkouts += 1;
                    return Waited::Got(entry);
                }
                // First in line again; but if another came back meanwhile and found nobody waiting, it is ready.
                match self.ready.pop() {
                    None => self.waiters.rejoin(ticket, waker.clone()),
                    Some(next) => self.waiters.serve_again(ticket, next),
                }
                let slot = &self.slots[index];
                let reason = match (slot.marks.has(Mark::DEAD), slot.expires_at <= now) {
                    (true, _) => Discard::Died,
                    (false, true) => Discard::ExpiredOnCheckout,
                    (false, false) => Discard::GuardWindow,
                };
                Waited::Stale(self.discard(entry, reason, now))
            }
            Turn::Closed | Turn::Vacant => {
                self.waiters.leave(ticket);
                Waited::Closed
            }
        }
    }

    /// A caller in line goes away. What it was about to get goes to the next.
    pub(crate) fn cancel(&mut self, ticket: Ticket, now: Instant) -> Option<Placed<E, W>> {
        let entry = self.waiters.leave(ticket)?;
        Some(self.give_back(entry, Shape::Clean, now))
    }

    /// A caller that would not wait found nothing: why?
    pub(crate) fn refuse(&mut self) -> Shortage {
        let shortage = self.shortage();
        self.count_shortage(shortage);
        shortage
    }

    fn count_shortage(&mut self, shortage: Shortage) {
        match shortage {
            Shortage::Empty => self.counts.empty += 1,
            Shortage::Exhausted => self.counts.exhausted += 1,
        }
    }

    fn shortage(&self) -> Shortage {
        if self.short_since.is_some() { Shortage::Empty } else { Shortage::Exhausted }
    }

    /// Until when a caller who waits since `since` goes on waiting, as things are.
    fn patience(&self, since: Instant, deadline: Option<Instant>, now: Instant) -> Result<Instant, Shortage> {
        let until = deadline.unwrap_or_else(|| {
            let longest = since + self.acquire_timeout.max(self.empty_wait);
            match self.short_since {
                Some(short_since) => (since.max(short_since) + self.empty_wait).min(longest),
                None => since + self.acquire_timeout,
            }
        });
        if now < until { Ok(until) } else { Err(self.shortage()) }
    }

    /// A caller is done with a connection, and it can be kept as it is: the fast path. Hands it back otherwise.
    ///
    /// No clock is read here: a connection that came of age while it was lent has been [marked](Mark::STALE) by its
    /// alarm, and whoever takes one looks at the time.
    #[inline]
    pub(crate) fn keep(&mut self, entry: E) -> Result<(), E> {
        let index = entry.key().index;
        if !self.slots[index].marks.is_empty() || !self.outlook.calm || self.ready.is_full() {
            return Err(entry);
        }
        self.ready.push(&mut self.slots, entry);
        Ok(())
    }

    /// A caller is done with a connection.
    pub(crate) fn give_back(&mut self, entry: E, shape: Shape, now: Instant) -> Placed<E, W> {
        self.place(entry, shape, now)
    }

    /// A caller keeps a connection for good: it is no longer the reservoir's.
    pub(crate) fn detach(&mut self, key: Key, now: Instant) {
        self.counts.detached += 1;
        self.forget(key.index, now);
        self.vacate(key.index);
    }

    /// Finds the place of a held connection that is in nobody's hands: with a waiter, among the ready, or none.
    fn place(&mut self, entry: E, shape: Shape, now: Instant) -> Placed<E, W> {
        let index = entry.key().index;
        let slot = &self.slots[index];
        let reason = if self.closed {
            Some(Discard::Draining)
        } else if slot.marks.has(Mark::DEAD) || shape == Shape::Dead {
            Some(Discard::Died)
        } else if shape == Shape::Bad {
            Some(Discard::Bad)
        } else if shape == Shape::Broken {
            Some(Discard::ResetFailed)
        } else if slot.expires_at <= now {
            Some(Discard::ExpiredOnReturn)
        } else if slot.stale_at <= now {
            Some(Discard::GuardWindow)
        } else if slot.marks.has(Mark::RETIRING)
            && self.waiters.is_empty()
            && self.may_retire(self.busy() - 1)
        {
            Some(Discard::Retired)
        } else if self.usable() > self.bound() {
            Some(Discard::Full)
        } else {
            None
        };
        if let Some(reason) = reason {
            return Placed::Discarded(self.discard(entry, reason, now));
        }
        let slot = &mut self.slots[index];
        if shape == Shape::Dirty {
            slot.phase = Phase::Care;
            self.held -= 1;
            self.care += 1;
            return Placed::Reset(entry);
        }
        slot.idle_since = now;
        match self.waiters.serve(entry) {
            Ok(waker) => Placed::Served(waker),
            Err(entry) => {
                self.ready.push(&mut self.slots, entry);
                Placed::Kept
            }
        }
    }

    // Refill.

    /// The refill task looks for something to do. `Open` reserves the place of the connection to come.
    pub(crate) fn next_open(&mut self, now: Instant, pace: Pace) -> Refill {
        self.refill_told = false;
        if self.closed {
            return Refill::Closed;
        }
        if self.wanted() == 0 {
            return Refill::Wait(Instant::NEVER);
        }
        match self.governor.may_start(now, pace, self.opening) {
            Go::At(at) => Refill::Wait(at),
            Go::Now => {
                self.governor.started(now, pace);
                self.opening += 1;
                Refill::Open(self.slots.occupy(now))
            }
        }
    }

    /// How many more connections ought to be on their way.
    fn wanted(&self) -> usize {
        let goal = self.goal(self.busy()) + self.retiring.len().min(self.overlap);
        goal.saturating_sub(self.usable() + self.opening)
    }

    /// How many connections ought to be usable with `busy` in use, replacements of retiring ones apart.
    fn goal(&self, busy: usize) -> usize {
        (busy + self.keep_ready.max(self.waiters.len())).min(self.max_open)
    }

    /// In somebody's hands, a caller's or a connector's.
    fn busy(&self) -> usize {
        self.usable() - self.ready.len()
    }

    fn usable(&self) -> usize {
        self.held + self.care
    }

    /// How many usable connections there may be at most: an overlap while replacements and what they replace are
    /// both there.
    fn bound(&self) -> usize {
        self.max_open + self.retiring.len().min(self.overlap)
    }

    /// Tells the refill task if it is wanted and does not know yet.
    #[cold]
    fn want_refill(&mut self) {
        if !self.refill_told && !self.closed && self.wanted() > 0 {
            self.tell_refill();
        }
    }

    fn tell_refill(&mut self) {
        self.refill_told = true;
        self.nudges.add(Nudges::REFILL);
    }

    /// Draws the life of a connection that has just been opened.
    pub(crate) fn draw_life(&mut self, now: Instant) -> Life {
        let Some(Lives { lifetime, draws, .. }) = &mut self.lives else {
            return Life { born_at: now, stale_at: Instant::NEVER, expires_at: Instant::NEVER };
        };
        let expires_at = now + lifetime.shortest() + draws.up_to(lifetime.jitter);
        Life { born_at: now, stale_at: expires_at - lifetime.guard, expires_at }
    }

    /// A connection has been opened. Also returns one that it replaces, if it does.
    pub(crate) fn opened(
        &mut self,
        entry: E,
        life: Life,
        took: Duration,
        now: Instant,
    ) -> (Placed<E, W>, Option<Discarded<E>>) {
        let index = entry.key().index;
        self.opening -= 1;
        self.held += 1;
        self.counts.refills += 1;
        self.governor.succeeded(now, took);
        let slot = &mut self.slots[index];
        slot.phase = Phase::Held;
        slot.stale_at = life.stale_at;
        slot.expires_at = life.expires_at;
        slot.idle_since = now;
        slot.checked_at = now;
        (slot.retire_at, slot.page) = match &mut self.lives {
            None => (Instant::NEVER, None),
            Some(Lives { lead, calendar, .. }) => calendar.book(now, life.stale_at - *lead),
        };
        self.arm(index, now);
        let placed = self.place(entry, Shape::Clean, now);
        let replaced = self.retire_one(now);
        self.recount(now);
        // Another may be wanted, and fewer are in flight now.
        self.tell_refill();
        (placed, replaced)
    }

    /// A connection could not be opened. Its slot stays, as closing, if a lease is still to be released
    /// (`releasing`). Returns how often this has failed in a row, the pause that follows, and a connection to close
    /// so that its lease can serve its replacement.
    pub(crate) fn open_failed(
        &mut self,
        key: Key,
        failure: Failure,
        releasing: bool,
        now: Instant,
    ) -> (u32, Duration, Option<Discarded<E>>) {
        self.opening -= 1;
        self.counts.failures[failure.index()] += 1;
        let began = self.slots[key.index].began_at;
        let (attempt, pause) = self.governor.failed(now, began, failure);
        self.set_aside(key.index, releasing);
        // The fleet's limit leaves no room for an overlap: close first, then open, one at a time.
        let first =
            failure == Failure::LeaseLimit && self.opening == 0 && self.usable() >= self.goal(self.busy());
        let closed_first = if first { self.discard_retiring(now) } else { None };
        self.tell_refill();
        (attempt, pause, closed_first)
    }

    /// An open was given up because the reservoir closes.
    pub(crate) fn open_abandoned(&mut self, key: Key, releasing: bool) {
        self.opening -= 1;
        self.set_aside(key.index, releasing);
        self.tell_refill();
    }

    fn set_aside(&mut self, index: u32, releasing: bool) {
        if releasing {
            self.slots[index].phase = Phase::Closing;
        } else {
            self.vacate(index);
        }
    }

    // Care, death, end.

    /// A reset or a health check is over.
    pub(crate) fn cared(&mut self, entry: E, shape: Shape, now: Instant) -> Placed<E, W> {
        let index = entry.key().index;
        self.care -= 1;
        self.held += 1;
        let slot = &mut self.slots[index];
        slot.phase = Phase::Held;
        slot.checked_at = now;
        let idle_since = slot.idle_since;
        let placed = self.place(entry, shape, now);
        if matches!(placed, Placed::Kept) {
            // Care is no use of it: the idle time goes on.
            self.slots[index].idle_since = idle_since;
        }
        placed
    }

    /// Word of a connection's death. One in somebody's hands goes when it comes back.
    pub(crate) fn died(&mut self, key: Key, now: Instant) -> Option<Discarded<E>> {
        let index = self.slots.resolve(key)?;
        match self.slots[index].phase {
            Phase::Held if self.ready.holds(&self.slots, index) => {
                Some(self.evict(index, Discard::Died, now))
            }
            Phase::Opening | Phase::Held | Phase::Care => {
                self.slots[index].marks.set(Mark::DEAD);
                None
            }
            Phase::Closing | Phase::Vacant => None,
        }
    }

    /// A discarded connection has been closed and its lease released.
    pub(crate) fn reclaimed(&mut self, key: Key) {
        self.vacate(key.index);
    }

    /// Discards a held connection that is neither ready nor in anybody's hands.
    fn discard(&mut self, entry: E, reason: Discard, now: Instant) -> Discarded<E> {
        let key = entry.key();
        self.counts.discards[reason.index()] += 1;
        self.forget(key.index, now);
        self.slots[key.index].phase = Phase::Closing;
        Discarded { key, entry, reason }
    }

    /// Discards a ready connection.
    fn evict(&mut self, index: u32, reason: Discard, now: Instant) -> Discarded<E> {
        let entry = self.ready.remove(&mut self.slots, index);
        self.discard(entry, reason, now)
    }

    /// Removes every trace of a held connection but its slot.
    fn forget(&mut self, index: u32, now: Instant) {
        self.held -= 1;
        let slot = &mut self.slots[index];
        self.alarms.remove(&(slot.alarm, index));
        if slot.marks.has(Mark::RETIRING) {
            self.retiring.remove(&(slot.stale_at, index));
        }
        if let (Some(lives), Some(page)) = (&mut self.lives, slot.page.take()) {
            lives.calendar.free(page);
        }
        self.recount(now);
        self.want_refill();
    }

    fn vacate(&mut self, index: u32) {
        self.slots.vacate(index);
        self.nudges.add(Nudges::PROGRESS);
    }

    /// Notes what a changed number of usable connections means.
    fn recount(&mut self, now: Instant) {
        let usable = self.usable();
        if usable >= self.max_open {
            self.short_since = None;
        } else if self.short_since.is_none() {
            self.short_since = Some(now);
            if !self.waiters.is_empty() {
                self.nudges.add(Nudges::ROUSE);
            }
        }
        let below = usable < self.low_watermark;
        if below != self.below_watermark && !self.closed {
            self.below_watermark = below;
            self.nudges.add(Nudges::WATERMARK);
        }
        self.nudges.add(Nudges::PROGRESS);
    }

    // Expiry.

    /// When the next alarm rings.
    pub(crate) fn next_alarm(&self) -> Instant {
        self.alarms.first().map_or(Instant::NEVER, |(at, _)| *at)
    }

    /// When each alarm rings, in order.
    pub(crate) fn alarms(&self) -> impl Iterator<Item = Instant> {
        self.alarms.iter().map(|(at, _)| *at)
    }

    /// Handles up to [`BATCH`] alarms that have rung, and puts what they ask for into `due`. Returns whether there
    /// may be more. A connection that stays ready is not touched, so a checkout finds it at any time.
    pub(crate) fn ring(&mut self, now: Instant, due: &mut Vec<Due<E>>) -> bool {
        for _ in 0..BATCH {
            match self.alarms.first() {
                Some(&(at, index)) if at <= now => {
                    self.alarms.pop_first();
                    if let Some(asked) = self.rung(index, now) {
                        due.push(asked);
                    }
                }
                _ => return false,
            }
        }
        true
    }

    fn rung(&mut self, index: u32, now: Instant) -> Option<Due<E>> {
        let ready = self.ready.holds(&self.slots, index);
        let slot = &mut self.slots[index];
        if slot.stale_at <= now && !ready {
            slot.marks.set(Mark::STALE);
        } else if slot.stale_at <= now {
            let expired = slot.expires_at <= now;
            let reason = if expired { Discard::ExpiredOnScan } else { Discard::ExpiringOnScan };
            return Some(Due::Discard(self.evict(index, reason, now)));
        }
        if slot.retire_at <= now && !slot.marks.has(Mark::RETIRING) {
            slot.marks.set(Mark::RETIRING);
            self.retiring.insert((slot.stale_at, index));
            if let (Some(lives), Some(page)) = (&mut self.lives, slot.page.take()) {
                lives.calendar.free(page);
            }
            if ready && self.may_retire(self.busy()) {
                return Some(Due::Discard(self.evict(index, Discard::Retired, now)));
            }
            self.tell_refill();
        }
        let slot = &mut self.slots[index];
        if ready && self.ready.len() > self.keep_ready && since(slot.idle_since, self.idle_ttl) <= now {
            return Some(Due::Discard(self.evict(index, Discard::Idle, now)));
        }
        if ready && since(slot.idle_since.max(slot.checked_at), self.check_after) <= now {
            slot.phase = Phase::Care;
            let entry = self.ready.remove(&mut self.slots, index);
            self.held -= 1;
            self.care += 1;
            self.arm(index, now);
            return Some(Due::Check(entry));
        }
        self.arm(index, now);
        None
    }

    /// Sets the alarm of a usable connection to the next time that anything can be due. Times that move while it is
    /// lent or idle are looked at when they would have come at the earliest, and set again.
    fn arm(&mut self, index: u32, now: Instant) {
        let ready = self.ready.holds(&self.slots, index);
        let slot = &mut self.slots[index];
        let idle_since = if ready { slot.idle_since } else { now };
        let retirement = if slot.marks.has(Mark::RETIRING) { slot.stale_at } else { slot.retire_at };
        let idle = since(idle_since, self.idle_ttl);
        let check = since(idle_since.max(slot.checked_at), self.check_after);
        // What could not be done now (too few are ready, or it is lent) is not due again at once.
        let later = |at: Instant, again: Option<Duration>| if at <= now { since(now, again) } else { at };
        let retirement = if retirement <= now { Instant::NEVER } else { retirement };
        slot.alarm = retirement.min(later(idle, self.idle_ttl)).min(later(check, self.check_after));
        let alarm = slot.alarm;
        if alarm < self.next_alarm() {
            self.nudges.add(Nudges::EXPIRY);
        }
        self.alarms.insert((alarm, index));
    }

    /// Whether a retiring connection can go now: its replacement is there, or none is needed; or, without an
    /// overlap, no other gap is open.
    fn may_retire(&self, busy: usize) -> bool {
        let (usable, goal) = (self.usable(), self.goal(busy));
        usable > goal || (self.overlap == 0 && usable >= goal && self.opening == 0)
    }

    /// Discards the ready connection that is closest to becoming useless, if one may be retired.
    fn retire_one(&mut self, now: Instant) -> Option<Discarded<E>> {
        if self.retiring.is_empty() || !self.may_retire(self.busy()) {
            return None;
        }
        self.discard_retiring(now)
    }

    fn discard_retiring(&mut self, now: Instant) -> Option<Discarded<E>> {
        let (_, index) = *self.retiring.iter().find(|(_, index)| self.ready.holds(&self.slots, *index))?;
        Some(self.evict(index, Discard::Retired, now))
    }

    // The whole.

    /// The reservoir may own another number of connections from now on, as `config` says. [`trim`](Self::trim)
    /// follows.
    pub(crate) fn resize(&mut self, config: &Config, now: Instant) {
        self.max_open = config.max_open;
        self.keep_ready = config.keep_ready();
        self.overlap = config.overlap_or_default();
        self.low_watermark = config.watermark();
        if let Some(lives) = &mut self.lives {
            // Retirements booked so far stay; only their pages are not known to the new calendar.
            lives.calendar = lives.calendar_for(self.max_open);
            self.slots.forget_pages();
        }
        self.recount(now);
        self.want_refill();
    }

    /// After `resize`: discards up to [`BATCH`] ready connections that are too many. Returns whether there may be
    /// more; what is lent goes when it comes back.
    pub(crate) fn trim(&mut self, now: Instant, due: &mut Vec<Due<E>>) -> bool {
        for _ in 0..BATCH {
            if self.usable() <= self.bound() {
                return false;
            }
            let Some(entry) = self.ready.pop() else { return false };
            due.push(Due::Discard(self.discard(entry, Discard::Full, now)));
        }
        true
    }

    /// No more callers are served. Returns how to wake those in line.
    pub(crate) fn close(&mut self) -> Vec<W> {
        self.closed = true;
        self.nudges.add(Nudges::PROGRESS);
        std::iter::from_fn(|| self.waiters.dismiss()).collect()
    }

    /// After `close`: discards up to [`BATCH`] ready connections. Returns whether there may be more.
    pub(crate) fn empty(&mut self, now: Instant, due: &mut Vec<Due<E>>) -> bool {
        for _ in 0..BATCH {
            let Some(entry) = self.ready.pop() else { return false };
            due.push(Due::Discard(self.discard(entry, Discard::Draining, now)));
        }
        true
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Nothing is owned any more: nothing lent, nothing opening, nothing closing.
    pub(crate) fn is_drained(&self) -> bool {
        self.closed && self.slots.occupied() == 0
    }

    pub(crate) fn is_filled(&self) -> bool {
        self.usable() >= self.low_watermark
    }

    /// Ends a visit off the fast path: looks ahead for the fast path, and tells what the shell has to do.
    pub(crate) fn conclude(&mut self) -> Nudges {
        let owned = self.usable() + self.opening;
        self.outlook = Outlook {
            calm: !self.closed
                && !self.tracks_idle
                && self.waiters.is_empty()
                && self.usable() <= self.bound(),
            refill_below: if owned < self.max_open {
                self.keep_ready.saturating_sub(self.opening)
            } else {
                0
            },
        };
        std::mem::take(&mut self.nudges)
    }

    /// Whether the fast path left something for the shell to do.
    #[inline]
    pub(crate) fn is_nudged(&self) -> bool {
        !self.nudges.is_empty()
    }

    /// How to wake everyone in line.
    pub(crate) fn wakers(&mut self) -> Vec<W>
    where
        W: Clone,
    {
        self.waiters.wakers()
    }

    pub(crate) fn status(&self) -> Status {
        let owned = self.usable() + self.opening;
        Status {
            ready: self.ready.len(),
            in_use: self.held - self.ready.len(),
            in_care: self.care,
            opening: self.opening,
            closing: self.slots.occupied() - owned,
            waiting: self.waiters.len(),
            retiring: self.retiring.len(),
            max_open: self.max_open,
            target_ready: self.keep_ready.min(self.max_open),
            low_watermark: self.low_watermark,
            closed: self.closed,
            counts: self.counts,
        }
    }
}

/// What the machine must know of a connection it hands around.
pub(crate) trait Held {
    /// Its name.
    fn key(&self) -> Key;
    /// From when on it is not handed out.
    fn stale_at(&self) -> Instant;
}

/// `after` past `start`; never, if there is no such time.
fn since(start: Instant, after: Option<Duration>) -> Instant {
    after.map_or(Instant::NEVER, |after| start + after)
}
