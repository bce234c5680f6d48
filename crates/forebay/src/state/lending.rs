//! Callers: who gets a connection, who waits for one, where one goes that comes back.

use std::task::Waker;

use super::slots::{Mark, Phase};
use super::wait_queue::Queued;
use super::waiter::{Ending, Found, Limits, Looked, Ticket, WaiterId};
use super::{Discarded, Effects, Held, Key, Placed, Shape, Shortage, State, Taken};
use crate::event::Discard;
use crate::status::CheckoutFailure;
use crate::time::Instant;

impl<E: Held> State<E> {
    /// A caller wants a connection, and the next one is good: the fast path.
    #[inline]
    pub(crate) fn take_fresh(&mut self, now: Instant) -> Option<E> {
        let entry = self.ready.pop_fresh(now)?;
        self.checkouts += 1;
        if self.ready.len() < self.hints.refill_below as usize {
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
            None if self.is_denied() => Taken::Denied,
            None => Taken::Nothing,
            Some(entry) => {
                let index = entry.key().index;
                let expired = self.slots[index].expires_at <= now;
                let reason = if expired { Discard::ExpiredOnCheckout } else { Discard::GuardWindow };
                Taken::Stale(self.discard(entry, reason, now))
            }
        }
    }

    /// Whether there is nothing to take, and a caller that waits will get something.
    #[inline]
    pub(crate) fn must_wait(&self) -> bool {
        self.ready.len() == 0 && !self.closed && !self.denied
    }

    /// A caller found nothing and joins the queue. It is woken by `waker`.
    #[inline]
    pub(crate) fn join(&mut self, limits: Limits, waker: Waker) -> (Ticket, WaiterId) {
        self.found_nothing();
        let joined = self.waiters.join(limits, waker);
        self.hints.someone_waits();
        self.watch(limits);
        self.want_refill();
        joined
    }

    /// A caller that waits found nothing. It leaves the queue if its time is up; otherwise it is woken by `waker` from now on.
    pub(crate) fn look(&mut self, ticket: Ticket, waker: &Waker, now: Instant) -> Looked {
        let short_since = self.short_since;
        // One that is not queued has been served or told meanwhile.
        let Some(queued) = self.waiters.find(ticket) else { return Looked::LookAgain };
        let (limits, waiter, present) = (queued.limits, queued.waiter, &mut queued.waker);
        if now < limits.end(short_since) {
            let is_known = present.as_ref().is_some_and(|present| present.will_wake(waker));
            let before = if is_known { None } else { present.replace(waker.clone()) };
            // Why it waits may have changed since it was watched last, and with it for how long.
            self.watch(limits);
            return Looked::Wait(before);
        }
        let Some(before) = self.waiters.remove(ticket) else { return Looked::LookAgain };
        let ending = Ending::GaveUp(self.refuse());
        self.waiters.get(waiter).end(ending);
        Looked::GaveUp(before)
    }

    /// A caller picked up a connection that has become too old: back to its position in the queue, or to another connection.
    pub(crate) fn picked_up_stale(&mut self, entry: E, waker: &Waker, now: Instant) -> Discarded<E> {
        let index = entry.key().index;
        if let Some(waiter) = self.slots[index].served.take() {
            self.return_to_queue(waiter, Some(waker));
        }
        let slot = &self.slots[index];
        let reason = match (slot.marks.loss(), slot.expires_at <= now) {
            (Some(loss), _) => loss,
            (None, true) => Discard::ExpiredOnCheckout,
            (None, false) => Discard::GuardWindow,
        };
        self.discard(entry, reason, now)
    }

    /// Takes back a connection that was served and not picked up yet, if this is one. Its caller returns to its position in the
    /// queue. It was woken when it was served, so it is going to look.
    pub(super) fn take_back(&mut self, index: u32) -> Option<E> {
        let waiter = self.slots[index].served?;
        let entry = self.waiters.get(waiter).take_back()?;
        self.slots[index].served = None;
        self.return_to_queue(waiter, None);
        Some(entry)
    }

    /// A caller lost its connection before it could use it. `waker` is for one that is being polled.
    fn return_to_queue(&mut self, waiter: WaiterId, waker: Option<&Waker>) {
        self.checkouts -= 1;
        if self.closed {
            return self.waiters.get(waiter).end(Ending::Closed);
        }
        // If another connection came back meanwhile and found nobody waiting, it is ready.
        let (ticket, limits) = self.waiters.get(waiter).served();
        if let Some(entry) = self.ready.pop() {
            return self.serve(waiter, ticket, &limits, entry);
        }
        self.watch(limits);
        self.waiters.rejoin(waiter, waker.cloned());
        self.hints.someone_waits();
        self.end_waits_if_denied();
    }

    /// Hands a connection to a caller that is out of the queue.
    #[inline]
    fn serve(&mut self, waiter: WaiterId, ticket: Ticket, limits: &Limits, entry: E) {
        let index = entry.key().index;
        self.checkouts += 1;
        self.waiters.get(waiter).serve(ticket, limits, entry);
        // The one before has picked this connection up, or else nobody else could have it.
        if let Some(before) = self.slots[index].served.replace(waiter) {
            self.waiters.recycle(before);
        }
    }

    /// Hands a connection to the first in the queue, if there is one. Returns how to wake it, if it has to be woken.
    #[inline]
    fn serve_first(&mut self, entry: E) -> Result<Option<Waker>, E> {
        let Some(Queued { ticket, limits, waker, waiter, .. }) = self.waiters.pop() else {
            return Err(entry);
        };
        self.serve(waiter, ticket, &limits, entry);
        if self.waiters.is_empty() {
            self.hints.nobody_waits();
        }
        Ok(waker)
    }

    /// A waiting caller goes away. What it was served goes to the next. Also returns its waker, to be dropped outside the lock.
    pub(crate) fn cancel(
        &mut self,
        ticket: Ticket,
        waiter: WaiterId,
        now: Instant,
    ) -> (Option<Placed<E>>, Option<Waker>) {
        if let Some(waker) = self.waiters.remove(ticket) {
            self.waiters.recycle(waiter);
            return (None, waker);
        }
        let Found::Connection(entry) = self.waiters.get(waiter).look() else {
            self.saw_ending(waiter);
            return (None, None);
        };
        // The waiter itself is recycled when its connection is served to somebody else.
        self.checkouts -= 1;
        (Some(self.place(entry, Shape::Clean, now)), None)
    }

    /// A caller has seen why it gets nothing, and is gone.
    pub(crate) fn saw_ending(&mut self, waiter: WaiterId) {
        self.waiters.get(waiter).clear();
        self.waiters.recycle(waiter);
    }

    /// A caller finds nothing ready. Each one is counted once, whether or not it gets a connection later.
    fn found_nothing(&mut self) {
        self.counts.empty += u64::from(self.short_since.is_some());
    }

    /// A caller that does not wait gets nothing: why?
    pub(crate) fn refuse_at_once(&mut self) -> Shortage {
        self.found_nothing();
        self.refuse()
    }

    /// A caller gets nothing: why?
    fn refuse(&mut self) -> Shortage {
        let shortage = if self.is_denied() {
            Shortage::Denied
        } else if self.short_since.is_some() {
            Shortage::Empty
        } else {
            Shortage::Exhausted
        };
        self.counts.refused[CheckoutFailure::from(shortage).index()] += 1;
        if shortage == Shortage::Denied {
            self.refused_since = true;
            self.want_refill();
        }
        shortage
    }

    /// Whether waiting is of no use: nothing is usable, and what keeps connections from opening does not pass.
    pub(crate) fn is_denied(&self) -> bool {
        self.denied && self.usable() == 0
    }

    /// Has the waits of all callers ended if waiting is of no use any more.
    pub(super) fn end_waits_if_denied(&mut self) {
        if self.is_denied() && !self.waiters.is_empty() {
            self.waits_end_at = Instant::ZERO;
            self.effects.add(Effects::WAITS);
        }
    }

    /// Sees to it that a wait is ended in time.
    fn watch(&mut self, limits: Limits) {
        let end = limits.shared_end(self.short_since);
        if end < self.waits_end_at {
            self.waits_end_at = end;
            self.effects.add(Effects::WAITS);
        }
    }

    /// Looks whose time is up. Returns how to wake them, so that they look themselves whether it still is, and when to do so again.
    /// If waiting is of no use, all waits end here and now.
    pub(crate) fn end_waits(&mut self, now: Instant) -> (Vec<Waker>, Instant) {
        let (wakers, next) = if self.is_denied() {
            let mut wakers = Vec::new();
            while let Some(Queued { waiter, waker, .. }) = self.waiters.pop() {
                let ending = Ending::GaveUp(self.refuse());
                self.waiters.get(waiter).end(ending);
                wakers.extend(waker);
            }
            (wakers, Instant::NEVER)
        } else {
            self.waiters.overdue(now, self.short_since)
        };
        self.waits_end_at = next;
        (wakers, next)
    }

    /// A caller is done with a connection, and it can be kept as it is, or handed to the first in the queue: the fast path. Returns
    /// how to wake that one. Hands the connection back otherwise.
    ///
    /// No clock is read here: a connection that came of age while it was lent has been [marked](Mark::STALE) by its
    /// alarm, and every caller that takes one looks at the time.
    #[inline]
    pub(crate) fn keep(&mut self, entry: E) -> Result<Option<Waker>, E> {
        let index = entry.key().index;
        if !self.slots[index].marks.is_empty() {
            return Err(entry);
        }
        if self.hints.calm && !self.ready.is_full() {
            self.ready.push(&mut self.slots, entry);
            return Ok(None);
        }
        if self.hints.hands_over { self.serve_first(entry) } else { Err(entry) }
    }

    /// A caller is done with a connection.
    pub(crate) fn give_back(&mut self, entry: E, shape: Shape, now: Instant) -> Placed<E> {
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
    pub(super) fn place(&mut self, entry: E, shape: Shape, now: Instant) -> Placed<E> {
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
            slot.phase = Phase::InMaintenance;
            self.held -= 1;
            self.in_maintenance += 1;
            return Placed::Reset(entry);
        }
        slot.idle_since = now;
        match self.serve_first(entry) {
            Ok(waker) => Placed::Served(waker),
            Err(entry) => {
                self.ready.push(&mut self.slots, entry);
                Placed::Kept
            }
        }
    }

    /// A reset or a health check is over.
    pub(crate) fn maintained(&mut self, entry: E, shape: Shape, now: Instant) -> Placed<E> {
        let index = entry.key().index;
        self.in_maintenance -= 1;
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
        if phase != Phase::Held {
            return None;
        }
        if self.ready.holds(&self.slots, index) {
            return Some(self.evict(index, reason, now));
        }
        // Nobody uses it yet that was served and not picked up.
        self.take_back(index).map(|entry| self.discard(entry, reason, now))
    }
}
