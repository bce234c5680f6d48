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

use super::waiter::{Limits, Ticket, Waiter};
use crate::sabotage::{self, Sabotage};
use crate::time::Instant;

/// Waiters that are kept for the next callers, so that a wait does not allocate.
const SPARE: usize = 1024;

/// The callers that wait.
#[derive(Debug)]
pub(super) struct WaitQueue<E> {
    /// Sorted by ticket. A caller that went away leaves a gap, which costs less than closing up.
    queue: VecDeque<(Ticket, Option<Queued<E>>)>,
    /// How many are queued: the entries that are no gaps.
    len: usize,
    /// How many of them give up early while the reservoir is short.
    impatient: usize,
    next: Ticket,
    /// When the last one joined. Clocks are read before the lock is taken, and so may come in the wrong order.
    last_joined: Instant,
    spare: Vec<Arc<Waiter<E>>>,
}

#[derive(Debug)]
struct Queued<E> {
    waiter: Arc<Waiter<E>>,
    /// Wakes the caller. None after it was woken, until it is polled again.
    waker: Option<Waker>,
}

impl<E> Default for WaitQueue<E> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            len: 0,
            impatient: 0,
            next: Ticket::FIRST,
            last_joined: Instant::ZERO,
            spare: Vec::new(),
        }
    }
}

impl<E> WaitQueue<E> {
    /// How many are queued.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether any caller gives up early while the reservoir is short.
    pub(super) fn has_impatient(&self) -> bool {
        self.impatient > 0
    }

    /// Joins the end of the queue.
    pub(super) fn join(&mut self, mut limits: Limits, waker: Waker) -> (Ticket, Arc<Waiter<E>>) {
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
        let waiter = self.spare.pop().unwrap_or_default();
        waiter.begin(ticket, &limits);
        self.added(&waiter);
        let queued = Queued { waiter: Arc::clone(&waiter), waker: Some(waker) };
        if is_reversed {
            self.queue.push_front((ticket, Some(queued)));
        } else {
            self.queue.push_back((ticket, Some(queued)));
        }
        (ticket, waiter)
    }

    /// Takes the first one, and what wakes it.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(Arc<Waiter<E>>, Option<Waker>)> {
        while let Some((_, entry)) = self.queue.pop_front() {
            if let Some(Queued { waiter, waker }) = entry {
                self.removed(&waiter);
                return Some((waiter, waker));
            }
        }
        None
    }

    /// Puts a caller back to its own position. `waker` wakes it; none if it is going to look anyway.
    pub(super) fn rejoin(&mut self, waiter: Arc<Waiter<E>>, waker: Option<Waker>) {
        let ticket = waiter.ticket();
        self.added(&waiter);
        // Near the front: only callers that came back, too, can be ahead of it.
        let at = self.queue.partition_point(|(other, _)| *other < ticket);
        self.queue.insert(at, (ticket, Some(Queued { waiter, waker })));
    }

    /// The limits of a caller and what wakes it, if it is queued.
    pub(super) fn find(&mut self, ticket: Ticket) -> Option<(Limits, &mut Option<Waker>)> {
        let at = self.position(ticket)?;
        self.queue[at].1.as_mut().map(|queued| (queued.waiter.limits(), &mut queued.waker))
    }

    /// Takes one out, wherever it is. Returns its waker.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<(Arc<Waiter<E>>, Option<Waker>)> {
        let at = self.position(ticket)?;
        let Queued { waiter, waker } = self.queue[at].1.take()?;
        self.removed(&waiter);
        // Gaps at the ends go at once, and all of them when they are most of the queue: so they cost nothing in the long run.
        while self.queue.front().is_some_and(|(_, queued)| queued.is_none()) {
            self.queue.pop_front();
        }
        while self.queue.back().is_some_and(|(_, queued)| queued.is_none()) {
            self.queue.pop_back();
        }
        if self.queue.len() > 2 * self.len + 16 {
            self.queue.retain(|(_, queued)| queued.is_some());
        }
        Some((waiter, waker))
    }

    pub(super) fn is_queued(&self, ticket: Ticket) -> bool {
        self.position(ticket).is_some_and(|at| self.queue[at].1.is_some())
    }

    fn position(&self, ticket: Ticket) -> Option<usize> {
        self.queue.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()
    }

    /// Keeps a waiter that nobody uses any more for the next caller.
    #[inline]
    pub(super) fn recycle(&mut self, waiter: Arc<Waiter<E>>) {
        if self.spare.len() < SPARE {
            self.spare.push(waiter);
        }
    }

    /// Takes the wakers of those whose time is up at `now`, in their order, and tells when the next one's is. Callers with a timer of
    /// their own are left to it.
    pub(super) fn overdue(&mut self, now: Instant, short_since: Option<Instant>) -> (Vec<Waker>, Instant) {
        let (mut wakers, mut next) = (Vec::new(), Instant::NEVER);
        for (_, queued) in &mut self.queue {
            let Some(Queued { waiter, waker }) = queued else { continue };
            let limits = waiter.limits();
            let end = limits.shared_end(short_since);
            if end <= now {
                wakers.extend(waker.take());
                continue;
            }
            next = next.min(end);
            if !limits.has_timer && self.impatient == 0 {
                // All behind it are at least as patient.
                break;
            }
        }
        (wakers, next)
    }

    #[inline]
    fn added(&mut self, waiter: &Waiter<E>) {
        self.len += 1;
        self.impatient += usize::from(waiter.is_impatient());
    }

    #[inline]
    fn removed(&mut self, waiter: &Waiter<E>) {
        self.len -= 1;
        self.impatient -= usize::from(waiter.is_impatient());
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

    fn pop(queue: &mut WaitQueue<u32>) -> Option<Arc<Waiter<u32>>> {
        queue.pop().map(|(waiter, _)| waiter)
    }

    #[test]
    fn two_that_return_stand_in_their_old_order() {
        let mut queue = WaitQueue::default();
        let tickets = [1, 2, 3].map(|at| join(&mut queue, limits(at, false, None)));
        let (first, second) = (pop(&mut queue).unwrap(), pop(&mut queue).unwrap());
        queue.rejoin(first, None);
        queue.rejoin(second, None);
        assert_eq!([0; 3].map(|_| pop(&mut queue).unwrap().ticket()), tickets);
    }

    #[test]
    fn a_clock_that_was_read_too_early_does_not_put_deadlines_out_of_order() {
        let mut queue = WaitQueue::default();
        join(&mut queue, limits(50, false, None));
        let late = join(&mut queue, limits(20, false, None));
        assert_eq!(queue.find(late).unwrap().0.deadline, Instant::from_nanos(1050));
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
            let mut served: Vec<Arc<Waiter<u32>>> = Vec::new();
            for (step, which, time) in steps {
                match step {
                    0 | 1 => {
                        let empty_wait = (which % 3 == 0).then_some(time);
                        let ticket = join(&mut queue, limits(time, which % 2 == 0, empty_wait));
                        queued.insert(ticket, queue.find(ticket).unwrap().0);
                    }
                    2 => {
                        let first = pop(&mut queue);
                        let expected = queued.pop_first().map(|(ticket, _)| ticket);
                        prop_assert_eq!(first.as_ref().map(|waiter| waiter.ticket()), expected);
                        served.extend(first);
                    }
                    3 if !served.is_empty() => {
                        let waiter = served.swap_remove(which % served.len());
                        queued.insert(waiter.ticket(), waiter.limits());
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
                        *queue.find(*ticket).unwrap().1 = Some(Waker::from(Arc::clone(&counting)));
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
