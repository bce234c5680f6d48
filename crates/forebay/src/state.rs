//! The machine: who owns which connection, who gets the next one, what is due.
//!
//! It is pure. Each method takes what happened and the time, and answers with what is to be done; it neither
//! reads a clock, nor wakes, closes or waits for anything. Its shell, [`Core`](crate::core::Core), holds it under a
//! lock and does those things after unlocking. `E` is a connection with all that belongs to it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::config::Config;
use crate::event::Discard;
use crate::sabotage::{self, Sabotage};
use crate::seed::Seed;
use crate::status::{CheckoutFailure, Counts, Status};
use crate::time::Instant;

// What it does.
mod ageing;
mod filling;
mod lending;

// What it says.
mod answers;

// What it is made of.
mod governor;
mod lives;
mod retirement;
mod slots;
mod stack;
mod wait_queue;
mod waiter;

pub(crate) use answers::{Condition, Discarded, Due, Effects, Placement, Refill, Shortage, TakeOutcome};
use governor::Governor;
pub(crate) use lives::Life;
use lives::Lives;
pub(crate) use slots::Key;
use slots::{Mark, SlotState, Slots};
use stack::Stack;
use wait_queue::{Queued, WaitQueue};
pub(crate) use waiter::{Ending, Limits, PickUp, Ticket, WaitPoll, Waiter, WaiterId, Waiters};

/// The queue begins on a cache line of its own, if the lock takes one word.
const _: () =
    assert!(std::mem::offset_of!(State<u64>, waiters) == 64 - size_of::<usize>() || size_of::<usize>() != 8);

/// How many alarms one hold of the lock handles, so that no checkout waits for a whole scan.
pub(crate) const BATCH: usize = 16;

/// What a checkout and a return touch comes first, and in this order: with the lock in front of it, it fills little more
/// than one cache line, and that is what two threads pass to and fro. What a wait touches is in the line behind it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct State<E> {
    /// Connections to hand out. Whenever there are any, nobody waits.
    ready: Stack<E>,
    /// Connections handed to callers; the other counts are not touched as often.
    checkouts: u64,
    hints: FastPathHints,
    effects: Effects,
    max_open: usize,
    waiters: WaitQueue<E>,
    slots: Slots,

    counts: Counts,
    /// How many are ready or lent. Taking and giving back leave it as it is.
    ready_or_lent: usize,
    in_maintenance: usize,
    opening: usize,
    /// How many should be ready, as far as `max_open` leaves room.
    keep_ready: usize,
    /// The refill task has been told that there is work, and has not looked yet.
    refill_notified: bool,
    /// Idle times matter.
    tracks_idle: bool,
    closed: bool,

    overlap: usize,
    low_watermark: usize,
    below_watermark: bool,
    idle_timeout: Option<Duration>,
    check_after: Option<Duration>,
    lives: Option<Lives>,
    /// When the expiry task is to look at which slot: exactly one entry for each usable connection.
    alarms: BTreeSet<(Instant, u32)>,
    /// Connections past their booked retirement, by the time they become useless.
    retiring: BTreeSet<(Instant, u32)>,
    governor: Governor,
    /// Since when fewer connections are usable than may be owned.
    short_since: Option<Instant>,
    /// The last open failed for a cause that waiting does not cure.
    denied: bool,
    /// Since then a caller was refused for it: reason enough to try again, also where nothing is kept ready.
    refused_since_denial: bool,
    /// When the task that ends waits looks next.
    waits_end_at: Instant,
    /// After the close: the slots below this have been looked at for waiters that did not pick up.
    closed_below: u32,
}

/// What the fast path needs to know of everything else. Taking and giving back do not change it, since they leave
/// the number of usable connections as it is; whatever else happens, [`State::take_effects`] makes it anew.
#[derive(Debug, Default)]
struct FastPathHints {
    /// A clean, unmarked connection that comes back goes to the ready list, and that is all.
    to_ready: bool,
    /// It goes to the first in the queue, and that is all.
    to_waiter: bool,
    /// With fewer ready than this, more are wanted.
    refill_below: u32,
}

impl FastPathHints {
    /// Somebody has joined the queue.
    fn someone_waits(&mut self) {
        self.to_waiter |= std::mem::take(&mut self.to_ready);
    }

    /// The queue is empty.
    fn nobody_waits(&mut self) {
        self.to_ready |= std::mem::take(&mut self.to_waiter);
    }
}

/// What the machine must know of a connection it hands around.
pub(crate) trait Lendable {
    /// Its name.
    fn key(&self) -> Key;
    /// From when on it is not handed out.
    fn stale_at(&self) -> Instant;
}

impl<E: Lendable> State<E> {
    /// `wall` is the time of day at `now`.
    pub(crate) fn new(config: &Config, seed: Seed, now: Instant, wall: Duration) -> Self {
        let overlap = config.overlap_or_default();
        let lives = config
            .lifetime
            .map(|lifetime| Lives::new(lifetime, config, seed.fork("lifetime").rng(), now, wall));
        Self {
            slots: Slots::with_capacity(config.max_open + overlap),
            ready: Stack::with_capacity(config.max_open + overlap),
            waiters: WaitQueue::default(),
            ready_or_lent: 0,
            in_maintenance: 0,
            opening: 0,
            max_open: config.max_open,
            keep_ready: config.keep_ready(),
            checkouts: 0,
            counts: Counts::default(),
            effects: Effects::default(),
            hints: FastPathHints::default(),
            refill_notified: false,
            tracks_idle: config.idle_timeout.is_some() || config.check_after.is_some(),
            closed: false,
            overlap,
            low_watermark: config.watermark(),
            // So that the first fill is not announced as a recovery, nor its beginning as a loss.
            below_watermark: true,
            idle_timeout: config.idle_timeout,
            check_after: config.check_after,
            lives,
            alarms: BTreeSet::new(),
            retiring: BTreeSet::new(),
            governor: Governor::new(config.inflight_limit, config.max_backoff, seed.fork("backoff").rng()),
            short_since: Some(now),
            denied: false,
            refused_since_denial: false,
            waits_end_at: Instant::NEVER,
            closed_below: 0,
        }
    }

    // The numbers.

    /// In somebody's hands, a caller's or a connector's.
    fn busy(&self) -> usize {
        self.usable() - self.ready.len()
    }

    fn usable(&self) -> usize {
        self.ready_or_lent + self.in_maintenance
    }

    /// How many usable connections there may be at most: an overlap while replacements and what they replace are
    /// both there.
    fn capacity_with_overlap(&self) -> usize {
        self.capacity().saturating_add(self.retiring.len().min(self.overlap))
    }

    /// How many connections may be owned, an overlap apart.
    fn capacity(&self) -> usize {
        if sabotage::is_on(Sabotage::Bound) { usize::MAX } else { self.max_open }
    }

    // The end of a connection.

    /// A discarded connection has been closed and its lease released.
    pub(crate) fn reclaimed(&mut self, key: Key) {
        self.vacate(key.index);
    }

    /// Discards a held connection that is neither ready nor in anybody's hands.
    fn discard(&mut self, entry: E, reason: Discard, now: Instant) -> Discarded<E> {
        let key = entry.key();
        self.counts.discards[reason.index()] += 1;
        self.unregister(key.index, now);
        self.slots[key.index].state = SlotState::Closing;
        Discarded { key, entry, reason }
    }

    /// Discards a ready connection.
    fn evict(&mut self, index: u32, reason: Discard, now: Instant) -> Discarded<E> {
        let entry = self.ready.remove(&mut self.slots, index);
        self.discard(entry, reason, now)
    }

    /// Removes every trace of a held connection but its slot.
    fn unregister(&mut self, index: u32, now: Instant) {
        self.ready_or_lent -= 1;
        let slot = &mut self.slots[index];
        self.alarms.remove(&(slot.alarm, index));
        if slot.marks.has(Mark::RETIRING) {
            self.retiring.remove(&(slot.stale_at, index));
        }
        if let (Some(lives), Some(period)) = (&mut self.lives, slot.period.take()) {
            lives.free(period);
        }
        self.recount(now);
        self.refill_if_wanted();
    }

    fn vacate(&mut self, index: u32) {
        self.slots.vacate(index);
        self.effects.add(Effects::PROGRESS);
    }

    /// Notes what a changed number of usable connections means.
    fn recount(&mut self, now: Instant) {
        let usable = self.usable();
        let short = usable < self.max_open;
        if short != self.short_since.is_some() {
            self.short_since = short.then_some(now);
            if self.waiters.has_impatient() {
                // They wait for another reason now, and for another time.
                self.effects.add(Effects::WAITS);
            }
        }
        self.end_waits_if_denied();
        let below = usable < self.low_watermark;
        if below != self.below_watermark && !self.closed {
            self.below_watermark = below;
            self.effects.add(Effects::WATERMARK);
        }
        self.effects.add(Effects::PROGRESS);
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
            // Retirements booked so far stay; only their periods are not known to the new schedule.
            lives.reschedule(self.max_open);
            self.slots.clear_periods();
        }
        self.recount(now);
        self.refill_if_wanted();
    }

    /// After `resize`: discards up to [`BATCH`] ready connections that are too many. Returns whether there may be
    /// more; what is lent goes when it comes back.
    pub(crate) fn trim(&mut self, now: Instant, due: &mut Vec<Due<E>>) -> bool {
        for _ in 0..BATCH {
            if self.usable() <= self.capacity_with_overlap() {
                return false;
            }
            let Some(entry) = self.ready.pop() else { return false };
            due.push(Due::Discard(self.discard(entry, Discard::Full, now)));
        }
        true
    }

    /// No more callers are served. Returns how to wake those in the queue.
    pub(crate) fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        self.effects.add(Effects::PROGRESS);
        let mut wakers = Vec::new();
        while let Some(Queued { waiter, waker, .. }) = self.waiters.pop() {
            self.waiters.get(waiter).end(Ending::Closed);
            wakers.extend(waker);
        }
        wakers
    }

    /// After `close`: discards a batch of connections that are ready, or that were served to callers who have not picked them up:
    /// those are told that the reservoir is closed. Returns whether there may be more.
    pub(crate) fn discard_all(&mut self, now: Instant, due: &mut Vec<Due<E>>) -> bool {
        for _ in 0..BATCH {
            let Some(entry) = self.ready.pop() else { break };
            due.push(Due::Discard(self.discard(entry, Discard::Draining, now)));
        }
        // Most of these are nothing but a look.
        for _ in 0..16 * BATCH {
            if self.closed_below as usize >= self.slots.len() {
                return self.ready.len() > 0;
            }
            if let Some(entry) = self.take_back(self.closed_below) {
                due.push(Due::Discard(self.discard(entry, Discard::Draining, now)));
            }
            self.closed_below += 1;
        }
        true
    }

    /// All waiters, for callers that look without the lock.
    pub(crate) fn waiters(&self) -> Arc<Waiters<E>> {
        Arc::clone(self.waiters.all())
    }

    /// How many waiters there have ever been at the same time.
    #[cfg(test)]
    pub(crate) fn waiters_used(&self) -> usize {
        self.waiters.used()
    }

    /// How far a waiting caller has come, for people.
    pub(crate) fn progress(&self, ticket: Ticket, waiter: &Waiter<E>) -> String {
        match waiter.ending() {
            Some(ending) => format!("Ended({ending:?})"),
            None if self.waiters.is_queued(ticket) => "Queued".to_owned(),
            None => "Served".to_owned(),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Nothing is owned any more: nothing lent, nothing opening, nothing closing.
    pub(crate) fn is_drained(&self) -> bool {
        self.closed && self.slots.occupied() == 0
    }

    /// Since when fewer connections are usable than may be owned.
    pub(crate) fn short_since(&self) -> Option<Instant> {
        self.short_since
    }

    /// Whether opens are slower than the limiter allows, since the server pushed back.
    pub(crate) fn is_slowed(&self) -> bool {
        self.governor.is_slowed()
    }

    pub(crate) fn is_filled(&self) -> bool {
        self.usable() >= self.low_watermark
    }

    /// Ends a visit off the fast path: looks ahead for the fast path, and tells what the shell has to do.
    pub(crate) fn take_effects(&mut self) -> Effects {
        let owned = self.usable() + self.opening;
        let is_simple = !self.closed && !self.tracks_idle && self.usable() <= self.capacity_with_overlap();
        self.hints = FastPathHints {
            to_ready: is_simple && self.waiters.is_empty(),
            to_waiter: is_simple && !self.waiters.is_empty(),
            refill_below: if !self.retiring.is_empty() {
                // What is wanted depends on who is lent: ask each time.
                u32::MAX
            } else if owned < self.capacity() {
                u32::try_from(self.keep_ready.saturating_sub(self.opening)).unwrap_or(u32::MAX)
            } else {
                0
            },
        };
        std::mem::take(&mut self.effects)
    }

    /// Whether the fast path left something for the shell to do.
    #[inline]
    pub(crate) fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    pub(crate) fn status(&self) -> Status {
        let owned = self.usable() + self.opening;
        Status {
            ready: self.ready.len(),
            in_use: self.ready_or_lent - self.ready.len(),
            in_maintenance: self.in_maintenance,
            opening: self.opening,
            closing: self.slots.occupied() - owned,
            waiting: self.waiters.len(),
            retiring: self.retiring.len(),
            max_open: self.max_open,
            target_ready: self.keep_ready.min(self.max_open),
            low_watermark: self.low_watermark,
            closed: self.closed,
            counts: Counts {
                checkouts: self.checkouts,
                waits: self.waiters.joined(),
                exhausted: self.counts.checkout_failures(CheckoutFailure::Exhausted),
                ..self.counts
            },
        }
    }
}
