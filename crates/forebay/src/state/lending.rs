//! Callers: who gets a connection, who waits for one, where one goes that comes back.

use super::slots::{Mark, Phase};
use super::waiters::Turn;
use super::{Discarded, Held, Key, Nudges, Placed, Shape, Shortage, State, Taken, Ticket, Waited};
use crate::event::Discard;
use crate::time::Instant;

impl<E: Held, W> State<E, W> {
    /// A caller wants a connection, and the next one is good: the fast path.
    #[inline]
    pub(crate) fn take_fresh(&mut self, now: Instant) -> Option<E> {
        let entry = self.ready.pop_fresh(now)?;
        self.checkouts += 1;
        if self.ready.len() < self.outlook.refill_below as usize {
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

    /// A caller found nothing and joins the line, with a limit of its own or with the configured ones.
    pub(crate) fn join(&mut self, now: Instant, deadline: Option<Instant>, waker: W) -> Ticket {
        self.counts.waits += 1;
        let ticket = self.waiters.join(now, deadline, waker);
        self.watch(ticket);
        self.want_refill();
        ticket
    }

    /// A caller in line looks again: it was woken, or its time is up. It is to be woken by `waker` from now on.
    /// `coarse` judges connections; the precise `clock` is read only for one who may have waited long enough.
    pub(crate) fn look(
        &mut self,
        ticket: Ticket,
        coarse: Instant,
        clock: impl FnOnce() -> Instant,
        waker: &W,
    ) -> Waited<E>
    where
        W: Clone,
    {
        let now = coarse;
        match self.waiters.look(ticket, waker) {
            Turn::Waiting(()) => {
                let (since, deadline) = self.waiters.patience(ticket);
                if clock() < self.patience(since, deadline) {
                    // Why it waits may have changed since the line was watched last, and with it for how long.
                    self.watch(ticket);
                    return Waited::NotYet;
                }
                self.waiters.leave(ticket);
                Waited::GaveUp(self.refuse())
            }
            Turn::Served(entry) => {
                let index = entry.key().index;
                let slot = &self.slots[index];
                if slot.marks.loss().is_none() && slot.stale_at > now {
                    self.waiters.leave(ticket);
                    self.checkouts += 1;
                    return Waited::Got(entry);
                }
                // First in line again; but if another came back meanwhile and found nobody waiting, it is ready.
                match self.ready.pop() {
                    None => {
                        self.waiters.rejoin(ticket, waker.clone());
                        self.watch(ticket);
                    }
                    Some(next) => self.waiters.serve_again(ticket, next),
                }
                let slot = &self.slots[index];
                let reason = match (slot.marks.loss(), slot.expires_at <= now) {
                    (Some(loss), _) => loss,
                    (None, true) => Discard::ExpiredOnCheckout,
                    (None, false) => Discard::GuardWindow,
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

    /// A caller gets nothing: why?
    pub(crate) fn refuse(&mut self) -> Shortage {
        if self.short_since.is_some() {
            self.counts.empty += 1;
            Shortage::Empty
        } else {
            self.counts.exhausted += 1;
            Shortage::Exhausted
        }
    }

    /// Until when a caller who waits since `since` goes on waiting, as things are.
    fn patience(&self, since: Instant, deadline: Option<Instant>) -> Instant {
        deadline.unwrap_or_else(|| {
            let longest = since + self.acquire_timeout.max(self.empty_wait);
            match self.short_since {
                Some(short_since) => (since.max(short_since) + self.empty_wait).min(longest),
                None => since + self.acquire_timeout,
            }
        })
    }

    /// Sees to it that the line is watched by the time this caller's patience ends, unless it has a timer of its own.
    fn watch(&mut self, ticket: Ticket) {
        if let (since, None) = self.waiters.patience(ticket) {
            let until = self.patience(since, None);
            if until < self.line_watched_until {
                self.line_watched_until = until;
                self.nudges.add(Nudges::LINE);
            }
        }
    }

    /// The task that watches the line looks whose patience has ended. Returns how to wake them, and when to look again.
    ///
    /// Callers without a limit of their own are as patient as each other, so it is always the head of the line that
    /// gives up next: one timer does for all of them.
    pub(crate) fn watch_line(&mut self, now: Instant) -> (Vec<W>, Instant)
    where
        W: Clone,
    {
        let mut wakers = Vec::new();
        let mut waiters = std::mem::take(&mut self.waiters);
        let next = waiters.impatient(|since| self.patience(since, None) <= now, &mut wakers);
        self.waiters = waiters;
        self.line_watched_until = next.map_or(Instant::NEVER, |since| self.patience(since, None));
        (wakers, self.line_watched_until)
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

    /// Whether something must be seen to when this lent connection comes back.
    pub(crate) fn is_marked(&self, key: Key) -> bool {
        self.closed || !self.slots[key.index].marks.is_empty()
    }

    /// A caller keeps a connection for good: it is no longer the reservoir's.
    pub(crate) fn detach(&mut self, key: Key, now: Instant) {
        self.counts.detached += 1;
        self.forget(key.index, now);
        self.vacate(key.index);
    }

    /// Finds the place of a held connection that is in nobody's hands: with a waiter, among the ready, or none.
    pub(super) fn place(&mut self, entry: E, shape: Shape, now: Instant) -> Placed<E, W> {
        let index = entry.key().index;
        let slot = &self.slots[index];
        let reason = if self.closed {
            Some(Discard::Draining)
        } else if let Some(loss) = slot.marks.loss() {
            Some(loss)
        } else if shape == Shape::Dead {
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
        self.lose(key, Mark::DEAD, now)
    }

    /// A connection's lease is taken back. One in somebody's hands goes when it comes back.
    pub(crate) fn recalled(&mut self, key: Key, now: Instant) -> Option<Discarded<E>> {
        self.lose(key, Mark::RECALLED, now)
    }

    /// A connection is of no use any more.
    fn lose(&mut self, key: Key, mark: Mark, now: Instant) -> Option<Discarded<E>> {
        let index = self.slots.resolve(key)?;
        let phase = self.slots[index].phase;
        if matches!(phase, Phase::Closing | Phase::Vacant) {
            return None;
        }
        let marks = &mut self.slots[index].marks;
        marks.set(mark);
        let reason = marks.loss()?;
        let ready = phase == Phase::Held && self.ready.holds(&self.slots, index);
        ready.then(|| self.evict(index, reason, now))
    }
}
