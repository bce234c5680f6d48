//! The pure state machine: it decides who gets a connection, what to open, and what to close.
//!
//! Each method takes an event and the time, and returns what must be done. It does not read a clock, and does
//! not wake, close or wait for anything. [`Core`](crate::core::Core) holds the state under a lock, and does
//! these things after unlocking. `E` is a connection with its bookkeeping. A reservoir is *short* while fewer
//! connections are usable than `max_open`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::event::Discard;
use crate::sabotage::{self, Sabotage};
use crate::seed::Seed;
use crate::status::{CheckoutFailure, Counts, Status};
use crate::time::Instant;

// Operations.
mod ageing;
mod filling;
mod inspection;
mod lending;

// Their results.
mod answers;

// Parts.
mod checks;
mod governor;
mod lives;
mod retirement;
mod slots;
mod stack;
mod wait_queue;
mod waiter;
mod watermark;

pub(crate) use answers::{Condition, Discarded, Due, Effects, Placement, Refill, Shortage, TakeOutcome};
use checks::Checks;
use governor::Governor;
pub(crate) use inspection::Refilling;
pub(crate) use lending::WaitScan;
pub(crate) use lives::Life;
use lives::Lives;
pub(crate) use slots::Key;
use slots::{Mark, SlotState, Slots};
use stack::Stack;
use wait_queue::WaitQueue;
pub(crate) use waiter::{Ending, Limits, PickUp, WaitPoll, WaiterId, Waiters};
pub(crate) use watermark::Crossing;
use watermark::Watermark;

/// The queue starts on a cache line of its own, if the lock takes one word.
const _: () =
    assert!(std::mem::offset_of!(State<u64>, waiters) == 64 - size_of::<usize>() || size_of::<usize>() != 8);

/// How many connections or callers are handled under one lock, so that no checkout waits for all of them.
pub(crate) const BATCH: usize = 16;

/// How many connections or callers are looked at under one lock. Looking at one takes a few nanoseconds.
pub(crate) const SCAN: usize = 256;

/// The fields that checkouts and returns use come first, in this order. With the lock in front of them they
/// fill little more than one cache line, which threads pass to each other. The fields that waits use are in
/// the next line.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct State<E> {
    /// The connections to lend. While there are any, no caller waits.
    ready: Stack<E>,
    /// The number of checkouts. It is apart from the other counts, which change less often.
    checkouts: u64,
    hints: FastPathHints,
    effects: Effects,
    max_open: usize,
    waiters: WaitQueue<E>,
    slots: Slots,

    counts: Counts,
    /// How many connections are ready or lent. Checkouts and returns do not change it.
    ready_or_lent: usize,
    in_maintenance: usize,
    opening: usize,
    /// How many connections to keep ready, as far as `max_open` allows.
    keep_ready: usize,
    /// The refill task has been notified, and has not run yet.
    refill_notified: bool,
    /// Whether idle times are needed.
    tracks_idle: bool,
    closed: bool,

    overlap: usize,
    watermark: Watermark,
    idle_timeout: Option<Duration>,
    checks: Checks<E>,
    lives: Option<Lives>,
    /// When the expiry task looks at each slot. There is exactly one entry for each usable connection.
    alarms: BTreeSet<(Instant, u32)>,
    /// Connections whose retirement is due, ordered by the time when they become stale.
    retiring: BTreeSet<(Instant, u32)>,
    governor: Governor,
    /// Since when the reservoir has been short.
    short_since: Option<Instant>,
    /// The last open failed for a reason that waiting does not fix.
    denied: bool,
    /// A caller was refused since that failure. This justifies another attempt, even if nothing is kept
    /// ready.
    refused_since_denial: bool,
    /// How long a caller without its own limits waits.
    limits: Limits,
    /// When the task that ends waits runs next.
    waits_end_at: Instant,
    /// After a close: the slots below this were searched for connections that were not picked up.
    closed_below: u32,
}

/// What the fast path must know. Checkouts and returns do not change it, since they do not change the number
/// of usable connections. [`State::take_effects`] recomputes it after any other change.
#[derive(Debug, Default)]
struct FastPathHints {
    /// A clean, unmarked connection that is returned becomes ready, without further work.
    to_ready: bool,
    /// It goes to the first waiting caller, without further work.
    to_waiter: bool,
    /// If fewer connections than this are ready, more may have to be opened.
    refill_below: u32,
}

impl FastPathHints {
    /// A caller has joined the queue.
    fn someone_waits(&mut self) {
        self.to_waiter |= std::mem::take(&mut self.to_ready);
    }

    /// The queue is empty.
    fn nobody_waits(&mut self) {
        self.to_ready |= std::mem::take(&mut self.to_waiter);
    }
}

/// A connection, as far as the state must know it.
pub(crate) trait Lendable {
    /// The slot of the connection.
    fn key(&self) -> Key;
    /// From this time on, it is not lent.
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
            watermark: Watermark::new(config.watermark()),
            idle_timeout: config.idle_timeout,
            checks: Checks::new(config.check_after),
            lives,
            alarms: BTreeSet::new(),
            retiring: BTreeSet::new(),
            governor: Governor::new(config.inflight_limit, config.max_backoff, seed.fork("backoff").rng()),
            short_since: Some(now),
            denied: false,
            refused_since_denial: false,
            limits: Limits { wait: config.acquire_timeout, empty_wait: config.empty_wait },
            waits_end_at: Instant::NEVER,
            closed_below: 0,
        }
    }

    /// How many connections are lent or in maintenance.
    fn busy(&self) -> usize {
        self.usable() - self.ready.len()
    }

    fn usable(&self) -> usize {
        self.ready_or_lent + self.in_maintenance
    }

    /// The largest number of usable connections. While some are being replaced, it includes the overlap.
    fn capacity_with_overlap(&self) -> usize {
        self.capacity().saturating_add(self.retiring.len().min(self.overlap))
    }

    /// The largest number of usable connections without the overlap.
    fn capacity(&self) -> usize {
        if sabotage::is_on(Sabotage::Bound) { usize::MAX } else { self.max_open }
    }

    /// A discarded connection has been closed, and its lease released.
    pub(crate) fn reclaimed(&mut self, key: Key) {
        self.vacate(key.index);
    }

    /// Discards a connection that is not in the ready stack, and that nobody uses.
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

    /// Removes a connection from all bookkeeping except its slot.
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

    /// Updates what depends on the number of usable connections.
    fn recount(&mut self, now: Instant) {
        let usable = self.usable();
        let short = usable < self.max_open;
        if short != self.short_since.is_some() {
            self.short_since = short.then_some(now);
            if self.limits.empty_wait.is_some() && !self.waiters.is_empty() {
                // The callers wait for another reason now, and so for another time.
                self.effects.add(Effects::WAITS);
            }
        }
        self.end_waits_if_denied();
        self.compare_with_watermark();
        self.effects.add(Effects::PROGRESS);
    }

    /// Applies a new `max_open` and what depends on it. The caller then calls [`trim`](Self::trim).
    pub(crate) fn resize(&mut self, config: &Config, now: Instant) {
        self.max_open = config.max_open;
        self.keep_ready = config.keep_ready();
        self.overlap = config.overlap_or_default();
        self.watermark.level = config.watermark();
        if let Some(lives) = &mut self.lives {
            // Booked retirements stay. Their periods do not exist in the new schedule.
            lives.reschedule(self.max_open);
            self.slots.clear_periods();
        }
        self.recount(now);
        self.refill_if_wanted();
    }

    /// After `resize`: discards up to [`BATCH`] surplus ready connections. Returns whether there may be more.
    /// Lent connections are discarded when they are returned.
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

    /// Stops serving callers. [`end_all`](Self::end_all) follows.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        // From now on, the fast path finds nothing.
        self.ready.move_to(&mut self.checks.pending);
        self.effects.add(Effects::PROGRESS);
    }

    /// After `close`: ends a batch of waits, and then discards a batch of connections that were ready or
    /// waited for a check, and of connections that were served but not picked up. All callers get the error that the reservoir is
    /// closed. Returns whether there may be more.
    pub(crate) fn end_all(&mut self, now: Instant, due: &mut Vec<Due<E>>) -> bool {
        self.effects.add(Effects::PROGRESS);
        if self.end_some_waits(due, |_| Ending::Closed) {
            return true;
        }
        if self.start_checks(now, due) {
            return true;
        }
        // Most slots need no work.
        for _ in 0..SCAN {
            if self.closed_below as usize >= self.slots.len() {
                return false;
            }
            if let Some(entry) = self.take_back(self.closed_below) {
                due.push(Due::Discard(self.discard(entry, Discard::Draining, now)));
            }
            self.closed_below += 1;
        }
        true
    }

    /// All waiters, which callers read without the lock.
    pub(crate) fn waiters(&self) -> Arc<Waiters<E>> {
        Arc::clone(self.waiters.all())
    }

    /// The largest number of waiters that were in use together.
    #[cfg(test)]
    pub(crate) fn waiters_used(&self) -> usize {
        self.waiters.used()
    }

    /// The progress of a waiting caller, for `Debug`.
    pub(crate) fn progress(&self, waiter: WaiterId) -> String {
        match self.waiters.get(waiter).ending() {
            Some(ending) => format!("Ended({ending:?})"),
            None if self.waiters.is_queued(waiter) => "Queued".to_owned(),
            None => "Served".to_owned(),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the reservoir is closed, owns no connection, and has ended all waits.
    pub(crate) fn is_drained(&self) -> bool {
        self.closed && self.slots.occupied() == 0 && self.waiters.is_empty()
    }

    pub(crate) fn short_since(&self) -> Option<Instant> {
        self.short_since
    }

    /// Whether opens are slower than the limiter allows, because the server reported overload.
    pub(crate) fn is_slowed(&self) -> bool {
        self.governor.is_slowed()
    }

    pub(crate) fn is_filled(&self) -> bool {
        self.usable() >= self.watermark.level
    }

    /// Ends a change: recomputes the hints for the fast path, and returns the effects.
    pub(crate) fn take_effects(&mut self) -> Effects {
        let owned = self.usable() + self.opening;
        let is_simple = !self.closed && !self.tracks_idle && self.usable() <= self.capacity_with_overlap();
        self.hints = FastPathHints {
            to_ready: is_simple && self.waiters.is_empty(),
            to_waiter: is_simple && !self.waiters.is_empty(),
            refill_below: if !self.retiring.is_empty() {
                // The number that is needed depends on which connections are lent: it must be computed each
                // time.
                u32::MAX
            } else if owned < self.capacity() {
                u32::try_from(self.keep_ready.saturating_sub(self.opening)).unwrap_or(u32::MAX)
            } else {
                0
            },
        };
        std::mem::take(&mut self.effects)
    }

    /// Whether the fast path has left effects to perform.
    #[inline]
    pub(crate) fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    pub(crate) fn status(&self) -> Status {
        let owned = self.usable() + self.opening;
        Status {
            ready: self.ready.len(),
            in_use: self.ready_or_lent - self.ready.len() - self.checks.pending.len(),
            in_maintenance: self.in_maintenance + self.checks.pending.len(),
            opening: self.opening,
            closing: self.slots.occupied() - owned,
            waiting: self.waiters.len(),
            retiring: self.retiring.len(),
            max_open: self.max_open,
            target_ready: self.keep_ready.min(self.max_open),
            low_watermark: self.watermark.level,
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
