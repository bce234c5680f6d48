//! Callers: checkout, wait, return and loss of connections.

use std::task::Waker;

use super::slots::{Mark, SlotState};
use super::wait_queue::{Position, Scan};
use super::waiter::{Ending, Limits, PickUp, WaitPoll, WaiterId};
use super::{
    BATCH, Condition, Discarded, Due, Effects, Key, Lendable, Placement, SCAN, Shortage, State, TakeOutcome,
};
use crate::event::Discard;
use crate::status::CheckoutFailure;
use crate::time::Instant;

/// How far the search for waits that are over has come. Between its parts, the lock is released.
#[derive(Debug, Default)]
pub(crate) struct WaitScan {
    has_begun: bool,
    position: Option<Position>,
}

impl<E: Lendable> State<E> {
    /// The fast path: takes the first ready connection, if it is fresh.
    #[inline]
    pub(crate) fn take_fresh(&mut self, now: Instant) -> Option<E> {
        let entry = self.ready.pop_fresh(now)?;
        self.checkouts += 1;
        if self.ready.len() < self.hints.refill_below as usize {
            self.refill_if_wanted();
        }
        Some(entry)
    }

    /// Takes a connection without a wait.
    pub(crate) fn take(&mut self, now: Instant) -> TakeOutcome<E> {
        if let Some(entry) = self.take_fresh(now) {
            return TakeOutcome::Got(entry);
        }
        if self.closed {
            return TakeOutcome::Closed;
        }
        match self.ready.pop() {
            None if self.is_denied() => TakeOutcome::Denied,
            None => TakeOutcome::Nothing,
            Some(entry) => {
                let index = entry.key().index;
                let expired = self.slots[index].expires_at <= now;
                let reason = if expired { Discard::ExpiredOnCheckout } else { Discard::GuardWindow };
                TakeOutcome::Stale(self.discard(entry, reason, now))
            }
        }
    }

    /// Whether no connection is ready, and waiting may help.
    #[inline]
    pub(crate) fn must_wait(&self) -> bool {
        self.ready.len() == 0 && !self.closed && !self.denied
    }

    /// A caller found no connection and joins the queue. It has the configured limits, or its `own` ones and a
    /// timer for them. `waker` wakes it. Also returns when a caller with a timer must poll.
    #[inline]
    pub(crate) fn join(&mut self, since: Instant, own: Option<Limits>, waker: Waker) -> (WaiterId, Instant) {
        self.count_empty();
        let waiter = self.waiters.join(since, own.is_some(), waker);
        self.hints.someone_waits();
        self.schedule_wait_end(waiter);
        self.refill_if_wanted();
        let poll_at = own.map(|limits| limits.poll_again_at(since, self.short_since, since));
        (waiter, poll_at.unwrap_or(Instant::NEVER))
    }

    /// A waiting caller has no connection yet. If its time is over, it leaves the queue. Otherwise `waker`
    /// wakes it from now on.
    pub(crate) fn poll_wait(
        &mut self,
        waiter: WaiterId,
        own: Option<Limits>,
        waker: &Waker,
        now: Instant,
    ) -> WaitPoll {
        let limits = own.unwrap_or(self.limits);
        let (since, short_since) = (self.waiters.since(waiter), self.short_since);
        // A caller that is not queued has been served, or its wait has ended.
        let Some(present) = self.waiters.waker(waiter) else { return WaitPoll::Retry };
        if now < limits.end(since, short_since) {
            let is_known = present.as_ref().is_some_and(|present| present.will_wake(waker));
            let before = if is_known { None } else { present.replace(waker.clone()) };
            return WaitPoll::Wait(before, limits.poll_again_at(since, short_since, now));
        }
        let Some(before) = self.waiters.remove(waiter) else { return WaitPoll::Retry };
        let ending = Ending::GaveUp(self.refuse());
        self.waiters.get(waiter).end(ending);
        WaitPoll::GaveUp(before)
    }

    /// A caller picked up a connection that has become stale. It returns to its position in the queue, or
    /// gets another connection.
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

    /// Takes back a connection that was served and not picked up yet, if this is one. Its caller returns to
    /// its position in the queue. It was woken when it was served, so it will poll.
    pub(super) fn take_back(&mut self, index: u32) -> Option<E> {
        let waiter = self.slots[index].served?;
        let entry = self.waiters.get(waiter).take_back()?;
        self.slots[index].served = None;
        self.return_to_queue(waiter, None);
        Some(entry)
    }

    /// A caller lost its connection before it used it. `waker` is set if it is being polled.
    fn return_to_queue(&mut self, waiter: WaiterId, waker: Option<&Waker>) {
        self.checkouts -= 1;
        if self.closed {
            return self.waiters.get(waiter).end(Ending::Closed);
        }
        // A connection that was returned while nobody was queued is ready.
        if let Some(entry) = self.ready.pop() {
            return self.serve(waiter, entry);
        }
        self.waiters.rejoin(waiter, waker.cloned());
        self.schedule_wait_end(waiter);
        self.hints.someone_waits();
        self.end_waits_if_denied();
    }

    /// Delivers a connection to a caller that has left the queue.
    #[inline]
    fn serve(&mut self, waiter: WaiterId, entry: E) {
        let index = entry.key().index;
        self.checkouts += 1;
        self.waiters.get(waiter).serve(entry);
        // The previous waiter has picked this connection up; otherwise nobody else could have it.
        if let Some(before) = self.slots[index].served.replace(waiter) {
            self.waiters.recycle(before);
        }
    }

    /// Delivers a connection to the first caller in the queue. Returns its waker, if it must be woken.
    #[inline]
    fn serve_first(&mut self, entry: E) -> Result<Option<Waker>, E> {
        let Some((waiter, waker)) = self.waiters.pop() else { return Err(entry) };
        self.serve(waiter, entry);
        if self.waiters.is_empty() {
            self.hints.nobody_waits();
        }
        Ok(waker)
    }

    /// A waiting caller is cancelled. A connection that it was served goes to the next. Also returns its
    /// waker, which must be dropped outside the lock.
    pub(crate) fn cancel(&mut self, waiter: WaiterId, now: Instant) -> (Option<Placement<E>>, Option<Waker>) {
        if let Some(waker) = self.waiters.remove(waiter) {
            self.waiters.recycle(waiter);
            return (None, waker);
        }
        let PickUp::Connection(entry) = self.waiters.get(waiter).pick_up() else {
            self.ending_seen(waiter);
            return (None, None);
        };
        // The waiter is recycled when its connection is served to somebody else.
        self.checkouts -= 1;
        (Some(self.place(entry, Condition::Clean, now)), None)
    }

    /// A caller has read why its wait ended.
    pub(crate) fn ending_seen(&mut self, waiter: WaiterId) {
        self.waiters.get(waiter).clear();
        self.waiters.recycle(waiter);
    }

    /// Counts a caller that finds no connection ready while the reservoir is short: once, even if it gets one
    /// later.
    fn count_empty(&mut self) {
        self.counts.empty += u64::from(self.short_since.is_some());
    }

    /// Refuses a caller that does not wait, and returns the reason.
    pub(crate) fn refuse_at_once(&mut self) -> Shortage {
        self.count_empty();
        self.refuse()
    }

    /// Refuses a caller, and returns the reason.
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
            self.refused_since_denial = true;
            self.refill_if_wanted();
        }
        shortage
    }

    /// Whether waiting does not help: no connection is usable, and opens fail for a reason that waiting does
    /// not fix.
    pub(crate) fn is_denied(&self) -> bool {
        self.denied && self.usable() == 0
    }

    /// Ends all waits if waiting does not help any more.
    pub(super) fn end_waits_if_denied(&mut self) {
        if self.is_denied() && !self.waiters.is_empty() {
            self.waits_end_at = Instant::ZERO;
            self.effects.add(Effects::WAITS);
        }
    }

    /// Makes sure that the wait of a queued caller ends in time.
    #[inline]
    fn schedule_wait_end(&mut self, waiter: WaiterId) {
        if self.waiters.has_timer(waiter) {
            return;
        }
        let end = self.limits.end(self.waiters.since(waiter), self.short_since);
        if end < self.waits_end_at {
            self.waits_end_at = end;
            self.effects.add(Effects::WAITS);
        }
    }

    /// When the task that ends waits looks next.
    pub(crate) fn waits_end_at(&self) -> Instant {
        self.waits_end_at
    }

    /// Looks for waits that are over. Their callers are woken, and check the time themselves. If waiting does
    /// not help, it ends all waits. One call handles up to [`BATCH`] callers, and looks at up to [`SCAN`];
    /// `scan` says how far it has come. Returns whether there may be more.
    pub(crate) fn end_waits(&mut self, scan: &mut WaitScan, now: Instant, due: &mut Vec<Due<E>>) -> bool {
        if !std::mem::replace(&mut scan.has_begun, true) {
            // From now on, callers that join or return may set an earlier time.
            self.waits_end_at = Instant::NEVER;
        }
        if self.is_denied() {
            return self.end_some_waits(due, |state| Ending::GaveUp(state.refuse()));
        }
        let (limits, short_since, before) = (self.limits, self.short_since, due.len());
        let mut next = Instant::NEVER;
        scan.position = self.waiters.scan(scan.position, SCAN, |since, has_timer, waker| {
            if has_timer {
                return Scan::Continue;
            }
            let end = limits.end(since, short_since);
            if end > now {
                // The callers behind it wait at least as long.
                next = end;
                return Scan::Stop;
            }
            due.extend(waker.take().map(Due::Wake));
            if due.len() < before + BATCH { Scan::Continue } else { Scan::Pause }
        });
        self.waits_end_at = self.waits_end_at.min(next);
        scan.position.is_some()
    }

    /// Ends up to [`BATCH`] waits, whatever their time. Returns whether callers still wait.
    pub(super) fn end_some_waits(
        &mut self,
        due: &mut Vec<Due<E>>,
        ending: impl Fn(&mut Self) -> Ending,
    ) -> bool {
        for _ in 0..BATCH {
            let Some((waiter, waker)) = self.waiters.pop() else { return false };
            let ending = ending(self);
            self.waiters.get(waiter).end(ending);
            due.extend(waker.map(Due::Wake));
        }
        !self.waiters.is_empty()
    }

    /// The fast path of a return: keeps the connection, or delivers it to the first caller in the queue and
    /// returns its waker. Otherwise it returns the connection as the error.
    ///
    /// It reads no clock. If the connection became stale while it was lent, its alarm has
    /// [marked](Mark::STALE) it, and every caller that takes a connection checks the time.
    #[inline]
    pub(crate) fn keep(&mut self, entry: E) -> Result<Option<Waker>, E> {
        let index = entry.key().index;
        if !self.slots[index].marks.is_empty() {
            return Err(entry);
        }
        if self.hints.to_ready && !self.ready.is_full() {
            self.ready.push(&mut self.slots, entry);
            return Ok(None);
        }
        if self.hints.to_waiter { self.serve_first(entry) } else { Err(entry) }
    }

    /// Whether a lent connection needs attention when it is returned.
    pub(crate) fn is_marked(&self, key: Key) -> bool {
        self.closed || !self.slots[key.index].marks.is_empty()
    }

    /// A caller takes a connection out of the reservoir for good.
    pub(crate) fn detach(&mut self, key: Key, now: Instant) {
        self.counts.detached += 1;
        self.unregister(key.index, now);
        self.vacate(key.index);
    }

    /// Decides where a connection goes that nobody uses: to a waiting caller, to the ready stack, or away.
    pub(crate) fn place(&mut self, entry: E, condition: Condition, now: Instant) -> Placement<E> {
        let index = entry.key().index;
        if condition == Condition::Bad {
            self.found_dead(entry.key(), now);
        }
        let slot = &self.slots[index];
        let reason = if self.closed {
            Some(Discard::Draining)
        } else if let Some(loss) = slot.marks.loss() {
            Some(loss)
        } else if condition == Condition::Dead {
            Some(Discard::Died)
        } else if condition == Condition::Bad {
            Some(Discard::Bad)
        } else if condition == Condition::Broken {
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
        } else if self.usable() > self.capacity_with_overlap() {
            Some(Discard::Full)
        } else {
            None
        };
        if let Some(reason) = reason {
            return Placement::Discarded(self.discard(entry, reason, now));
        }
        if condition == Condition::Dirty {
            return Placement::Reset(self.start_maintenance(entry));
        }
        let slot = &mut self.slots[index];
        slot.idle_since = now;
        if self.checks.is_suspect(slot.heard_at, now) {
            return Placement::Check(self.start_maintenance(entry));
        }
        match self.serve_first(entry) {
            Ok(waker) => Placement::Served(waker),
            Err(entry) => {
                self.ready.push(&mut self.slots, entry);
                Placement::Kept
            }
        }
    }

    /// A reset or a health check has ended.
    pub(crate) fn maintained(&mut self, entry: E, condition: Condition, now: Instant) -> Placement<E> {
        let index = entry.key().index;
        self.in_maintenance -= 1;
        self.ready_or_lent += 1;
        let slot = &mut self.slots[index];
        slot.state = SlotState::ReadyOrLent;
        if condition == Condition::Clean {
            slot.heard_at = now;
        }
        let idle_since = slot.idle_since;
        let placed = self.place(entry, condition, now);
        if matches!(placed, Placement::Kept) {
            // Maintenance is not use: the idle time continues.
            self.slots[index].idle_since = idle_since;
        }
        placed
    }

    /// A connection has died. If somebody uses it, it is discarded when it is returned.
    pub(crate) fn died(&mut self, key: Key, now: Instant) -> Option<Discarded<E>> {
        self.mark_lost(key, Mark::DEAD, now)
    }

    /// The application retires a connection. If somebody uses it, it is discarded when it is returned.
    pub(crate) fn retired(&mut self, key: Key, now: Instant) -> Option<Discarded<E>> {
        self.mark_lost(key, Mark::RETIRED, now)
    }

    /// The lease of a connection was recalled. If somebody uses it, it is discarded when it is returned.
    pub(crate) fn recalled(&mut self, key: Key, now: Instant) -> Option<Discarded<E>> {
        self.mark_lost(key, Mark::RECALLED, now)
    }

    /// Marks a connection as lost, and discards it if nobody uses it.
    fn mark_lost(&mut self, key: Key, mark: Mark, now: Instant) -> Option<Discarded<E>> {
        let index = self.slots.resolve(key)?;
        let state = self.slots[index].state;
        if matches!(state, SlotState::Closing | SlotState::Vacant) {
            return None;
        }
        let marks = &mut self.slots[index].marks;
        marks.set(mark);
        let reason = marks.loss()?;
        if state != SlotState::ReadyOrLent {
            return None;
        }
        if self.ready.holds(&self.slots, index) {
            return Some(self.evict(index, reason, now));
        }
        // A connection that was served and not picked up is not in use yet.
        self.take_back(index).map(|entry| self.discard(entry, reason, now))
    }
}
