//! The callers that wait for a connection, in the order in which they came.
//!
//! # The rules of the queue
//!
//! 1. **Order.** A caller draws a ticket when it joins, and keeps it for as long as it waits. The queue is sorted by
//!    ticket, and the lowest one is served next. So nobody is overtaken.
//! 2. **Ready or queued.** While a caller is queued, no connection is ready. What comes back goes to the first in the
//!    queue under the same hold of the lock, so a newcomer finds nothing that somebody else waits for.
//! 3. **Served.** A served caller has left the queue, and its connection is in its [`Waiter`]. It picks it up without the lock of
//!    the state. Until then the state can take it back.
//! 4. **Lost before it was picked up.** If that connection dies, is recalled or becomes too old, the state takes it back
//!    and the caller returns to the position of its ticket, not to the front. It does not have to be polled for that.
//!    If the caller finds its connection too old, it returns to its position, too.
//! 5. **Deadlines.** A deadline is fixed when a caller joins. All callers without a limit of their own have the same
//!    patience, so their deadlines are in the order of their tickets, and one timer serves them all.
//! 6. **Close.** Closing ends every caller: those in the queue, those that are served and have not picked up, and those
//!    that would return to the queue. Nobody joins or returns afterwards. So every future completes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use super::waiter::{Limits, Ticket, Waiter, WaiterId, Waiters};
use crate::sabotage::{self, Sabotage};
use crate::time::Instant;

/// The callers that wait.
///
/// Everything that joining and serving write is in one cache line, the entry of the queue apart: two threads pass it to and fro.
#[derive(Debug)]
#[repr(C)]
pub(super) struct WaitQueue<E> {
    /// Sorted by ticket. A caller that went away leaves a gap, which costs less than closing up.
    queue: VecDeque<Queued>,
    next: Ticket,
    /// When the last one joined. Clocks are read before the lock is taken, and so may come in the wrong order.
    last_joined: Instant,
    gaps: u32,
    /// How many of them give up early while the reservoir is short.
    impatient: u32,
    /// A waiter that nobody uses.
    spare: Option<WaiterId>,
    /// More of them.
    more_spare: Vec<WaiterId>,
    /// The first that has never been used.
    unused: WaiterId,
    all: Arc<Waiters<E>>,
}

/// One caller in the queue. It has a cache line of its own: one thread writes it, and another reads it.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Queued {
    pub(super) ticket: Ticket,
    pub(super) limits: Limits,
    /// Wakes the caller. None after it was woken, until it is polled again.
    pub(super) waker: Option<Waker>,
    pub(super) waiter: WaiterId,
    /// It has gone away.
    is_gap: bool,
}

impl<E> Default for WaitQueue<E> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            next: Ticket::FIRST,
            last_joined: Instant::ZERO,
            gaps: 0,
            impatient: 0,
            spare: None,
            more_spare: Vec::new(),
            unused: WaiterId::FIRST,
            all: Arc::default(),
        }
    }
}

impl<E> WaitQueue<E> {
    /// All waiters, for callers that look without the lock.
    pub(super) fn all(&self) -> &Arc<Waiters<E>> {
        &self.all
    }

    #[inline]
    pub(super) fn get(&self, waiter: WaiterId) -> &Waiter<E> {
        self.all.get(waiter)
    }

    /// How many are queued.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.queue.len() - self.gaps as usize
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many have ever joined.
    pub(super) fn joined(&self) -> u64 {
        self.next.distance(Ticket::FIRST)
    }

    /// Whether any caller gives up early while the reservoir is short.
    pub(super) fn has_impatient(&self) -> bool {
        self.impatient > 0
    }

    /// Joins the end of the queue.
    #[inline]
    pub(super) fn join(&mut self, mut limits: Limits, waker: Waker) -> (Ticket, WaiterId) {
        if limits.since < self.last_joined {
            if !limits.has_timer {
                limits.deadline = limits.deadline + self.last_joined.since(limits.since);
            }
            limits.since = self.last_joined;
        }
        self.last_joined = limits.since;
        let ticket = self.next;
        let is_reversed = sabotage::is_on(Sabotage::FirstComeFirstServed);
        self.next = if is_reversed { ticket.before() } else { ticket.after() };
        let waiter = self.spare.take().unwrap_or_else(|| self.another_spare());
        self.impatient += u32::from(limits.is_impatient());
        let queued = Queued { ticket, limits, waker: Some(waker), waiter, is_gap: false };
        if is_reversed {
            self.queue.push_front(queued);
        } else {
            self.queue.push_back(queued);
        }
        (ticket, waiter)
    }

    /// Takes the first one.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Queued> {
        loop {
            let queued = self.queue.pop_front()?;
            if !queued.is_gap {
                self.impatient -= u32::from(queued.limits.is_impatient());
                return Some(queued);
            }
            self.gaps -= 1;
        }
    }

    /// Puts a caller that was served back to its own position. `waker` wakes it; none if it is going to look anyway.
    pub(super) fn rejoin(&mut self, waiter: WaiterId, waker: Option<Waker>) {
        let (ticket, limits) = self.get(waiter).served();
        self.impatient += u32::from(limits.is_impatient());
        // Near the front: only callers that came back, too, can be ahead of it.
        let at = self.queue.partition_point(|other| other.ticket < ticket);
        self.queue.insert(at, Queued { ticket, limits, waker, waiter, is_gap: false });
    }

    /// A caller, if it is queued.
    pub(super) fn find(&mut self, ticket: Ticket) -> Option<&mut Queued> {
        let at = self.position(ticket)?;
        Some(&mut self.queue[at])
    }

    /// Takes one out, wherever it is. Returns its waker.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Option<Waker>> {
        let at = self.position(ticket)?;
        let queued = &mut self.queue[at];
        queued.is_gap = true;
        let waker = queued.waker.take();
        self.impatient -= u32::from(queued.limits.is_impatient());
        self.gaps += 1;
        // Gaps at the ends go at once, and all of them when they are most of the queue: so they cost nothing in the long run.
        while self.queue.front().is_some_and(|queued| queued.is_gap) {
            self.queue.pop_front();
            self.gaps -= 1;
        }
        while self.queue.back().is_some_and(|queued| queued.is_gap) {
            self.queue.pop_back();
            self.gaps -= 1;
        }
        if self.queue.len() > 2 * self.len() + 16 {
            self.queue.retain(|queued| !queued.is_gap);
            self.gaps = 0;
        }
        Some(waker)
    }

    pub(super) fn is_queued(&self, ticket: Ticket) -> bool {
        self.position(ticket).is_some()
    }

    /// Where a caller is in the queue, if it has not gone away.
    fn position(&self, ticket: Ticket) -> Option<usize> {
        let at = self.queue.binary_search_by_key(&ticket, |queued| queued.ticket).ok()?;
        (!self.queue[at].is_gap).then_some(at)
    }

    /// Keeps a waiter that nobody uses any more for the next caller.
    #[inline]
    pub(super) fn recycle(&mut self, waiter: WaiterId) {
        if let Some(more) = self.spare.replace(waiter) {
            self.more_spare.push(more);
        }
    }

    #[cold]
    fn another_spare(&mut self) -> WaiterId {
        self.more_spare.pop().unwrap_or_else(|| {
            let waiter = self.unused;
            self.unused = waiter.next();
            waiter
        })
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.unused.number()
    }

    /// Takes the wakers of those whose time is up at `now`, in their order, and tells when the next one's is. Callers with a timer of
    /// their own are left to it.
    pub(super) fn overdue(&mut self, now: Instant, short_since: Option<Instant>) -> (Vec<Waker>, Instant) {
        let (mut wakers, mut next) = (Vec::new(), Instant::NEVER);
        for queued in self.queue.iter_mut().filter(|queued| !queued.is_gap) {
            let end = queued.limits.shared_end(short_since);
            if end <= now {
                wakers.extend(queued.waker.take());
                continue;
            }
            next = next.min(end);
            if !queued.limits.has_timer && self.impatient == 0 {
                // All behind it are at least as patient.
                break;
            }
        }
        (wakers, next)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn limits(since: u64, has_timer: bool, empty_wait: Option<u64>) -> Limits {
        let since = Instant::from_nanos(since);
        Limits {
            since,
            deadline: since + Duration::from_nanos(1000),
            has_timer,
            empty_wait: empty_wait.unwrap_or(Limits::PATIENT),
        }
    }

    fn join(queue: &mut WaitQueue<u32>, limits: Limits) -> Ticket {
        queue.join(limits, Waker::noop().clone()).0
    }

    fn pop(queue: &mut WaitQueue<u32>) -> Option<WaiterId> {
        queue.pop().map(|queued| {
            queue.get(queued.waiter).serve(queued.ticket, &queued.limits, 0);
            queued.waiter
        })
    }

    #[test]
    fn two_that_return_stand_in_their_old_order() {
        let mut queue = WaitQueue::default();
        let tickets = [1, 2, 3].map(|at| join(&mut queue, limits(at, false, None)));
        let (first, second) = (pop(&mut queue).unwrap(), pop(&mut queue).unwrap());
        queue.rejoin(first, None);
        queue.rejoin(second, None);
        let left = [0; 3].map(|_| pop(&mut queue).unwrap());
        assert_eq!(left.map(|waiter| queue.get(waiter).served().0), tickets);
    }

    #[test]
    fn a_clock_that_was_read_too_early_does_not_put_deadlines_out_of_order() {
        let mut queue = WaitQueue::default();
        join(&mut queue, limits(50, false, None));
        let late = join(&mut queue, limits(20, false, None));
        assert_eq!(queue.find(late).unwrap().limits.deadline, Instant::from_nanos(1050));
    }

    #[test]
    fn gaps_do_not_pile_up_behind_one_that_waits_for_long() {
        let mut queue = WaitQueue::default();
        join(&mut queue, limits(0, false, None));
        let mut last = join(&mut queue, limits(0, false, None));
        for _ in 0..10_000 {
            let next = join(&mut queue, limits(0, false, None));
            assert!(queue.remove(last).is_some());
            last = next;
        }
        assert_eq!(queue.len(), 2);
        assert!(queue.queue.len() < 40, "{}", queue.queue.len());
    }

    /// Counts how often it is used.
    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    proptest! {
        /// Against a map from tickets to limits.
        #[test]
        fn behaves_like_a_sorted_map(steps in prop::collection::vec((0u8..5, 0usize..8, 0u64..3000), 0..200)) {
            let mut queue: WaitQueue<u32> = WaitQueue::default();
            let mut queued: BTreeMap<Ticket, Limits> = BTreeMap::new();
            let mut served: Vec<WaiterId> = Vec::new();
            for (step, which, time) in steps {
                match step {
                    0 | 1 => {
                        let empty_wait = (which % 3 == 0).then_some(time);
                        let ticket = join(&mut queue, limits(time, which % 2 == 0, empty_wait));
                        queued.insert(ticket, queue.find(ticket).unwrap().limits);
                    }
                    2 => {
                        let first = pop(&mut queue);
                        let expected = queued.pop_first().map(|(ticket, _)| ticket);
                        prop_assert_eq!(first.map(|waiter| queue.get(waiter).served().0), expected);
                        served.extend(first);
                    }
                    3 if !served.is_empty() => {
                        let waiter = served.swap_remove(which % served.len());
                        let (ticket, limits) = queue.get(waiter).served();
                        queued.insert(ticket, limits);
                        queue.rejoin(waiter, None);
                    }
                    _ => if let Some(ticket) = queued.keys().nth(which).copied() {
                        prop_assert!(queue.remove(ticket).is_some());
                        prop_assert!(queue.remove(ticket).is_none());
                        queued.remove(&ticket);
                    },
                }
                prop_assert_eq!(queue.len(), queued.len());
                prop_assert_eq!(queue.is_empty(), queued.is_empty());
                let now = Instant::from_nanos(time);
                for short_since in [None, Some(Instant::from_nanos(which as u64 * 100))] {
                    let counting = Arc::new(Counting(AtomicUsize::new(0)));
                    for ticket in queued.keys() {
                        queue.find(*ticket).unwrap().waker = Some(Waker::from(Arc::clone(&counting)));
                    }
                    let (wakers, next) = queue.overdue(now, short_since);
                    let ends: Vec<Instant> = queued.values().map(|limits| limits.shared_end(short_since)).collect();
                    prop_assert_eq!(wakers.len(), ends.iter().filter(|end| **end <= now).count());
                    let later = ends.into_iter().filter(|end| *end > now).min();
                    prop_assert_eq!(next, later.unwrap_or(Instant::NEVER));
                    prop_assert_eq!(counting.0.load(Ordering::Relaxed), 0, "taken, not used");
                }
            }
        }
    }
}
