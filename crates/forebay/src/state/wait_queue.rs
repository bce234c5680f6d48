//! The queue of callers that wait for a connection.
//!
//! # The rules of the queue
//!
//! 1. **Order.** A caller gets a ticket when it joins, and keeps it while it waits. The queue is sorted by
//!    ticket, and the lowest ticket is served next. So nobody is overtaken.
//! 2. **Ready or queued.** While a caller is queued, no connection is ready. A returned connection goes to
//!    the first caller under the same lock. So a new caller cannot take what somebody else waits for.
//! 3. **Served.** A served caller has left the queue, and its connection is in its [`Waiter`]. It picks the
//!    connection up without the lock. Until then, the state can take it back.
//! 4. **Lost before it was picked up.** If that connection dies, is recalled or becomes stale, the state
//!    takes it back, and the caller returns to the position of its ticket, not to the front. The caller does
//!    not have to be polled for that. If the caller itself finds the connection stale, it returns to its
//!    position, too.
//! 5. **Deadlines.** All callers with the configured limits wait equally long. So their waits end in the
//!    order of their tickets, and one timer is enough. A caller with its own limits has its own timer.
//! 6. **Close.** A close ends all waits: those of queued callers, of served callers that have not picked up,
//!    and of callers that would return to the queue. Nobody joins or returns afterwards. So every future
//!    completes.
//! 7. **No long work.** No method takes longer because more callers wait. What concerns all callers is done
//!    in parts, and the lock is released in between.

use std::sync::Arc;
use std::task::Waker;

use super::waiter::{MOST, Waiter, WaiterId, Waiters};
use crate::sabotage::{self, Sabotage};
use crate::time::Instant;

/// The waiting callers: a linked list of places, sorted by ticket. The place of a caller and its waiter have
/// the same number.
///
/// The fields that joining and serving write fill one cache line.
#[derive(Debug)]
#[repr(C)]
pub(super) struct WaitQueue<E> {
    first: Link,
    last: Link,
    len: u32,
    /// The first unused place. The others follow it.
    spare: Link,
    /// How many places were ever used.
    used: u32,
    next: Ticket,
    /// When the last caller joined. Clocks are read before the lock is taken, so times can arrive out of
    /// order.
    last_joined: Instant,
    /// Blocks of fixed size: no place ever moves.
    places: Vec<Box<[Place; BLOCK]>>,
    all: Arc<Waiters<E>>,
}

const BLOCK: usize = 64;

/// The number of a place, or [`NONE`].
type Link = u32;

const NONE: Link = Link::MAX;

/// The position of a caller in the queue. It keeps it while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ticket(u64);

impl Ticket {
    const FIRST: Self = Self(u64::MAX / 2);
}

/// A caller in the queue. It has its own cache line, since one thread writes it and another reads it.
#[derive(Debug)]
#[repr(align(64))]
struct Place {
    ticket: Ticket,
    since: Instant,
    /// `None` after the caller was woken, until it is polled again.
    waker: Option<Waker>,
    /// Not kept up to date in the first place of the queue.
    before: Link,
    /// In a spare place, the next spare one.
    behind: Link,
    has_timer: bool,
    is_queued: bool,
}

/// How far a scan of the queue has come. Between two parts of a scan, callers come and go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    place: Link,
    ticket: Ticket,
}

/// What to do after one caller was looked at.
pub(super) enum Scan {
    Continue,
    /// This part is complete. Another one follows.
    Pause,
    /// The whole scan is complete.
    Stop,
}

impl<E> Default for WaitQueue<E> {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
            len: 0,
            spare: NONE,
            used: 0,
            next: Ticket::FIRST,
            last_joined: Instant::ZERO,
            places: Vec::new(),
            all: Arc::default(),
        }
    }
}

impl<E> WaitQueue<E> {
    pub(super) fn all(&self) -> &Arc<Waiters<E>> {
        &self.all
    }

    #[inline]
    pub(super) fn get(&self, waiter: WaiterId) -> &Waiter<E> {
        self.all.get(waiter)
    }

    /// The number of queued callers.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many callers have ever joined.
    pub(super) fn joined(&self) -> u64 {
        self.next.0.abs_diff(Ticket::FIRST.0)
    }

    pub(super) fn is_queued(&self, waiter: WaiterId) -> bool {
        self.place(waiter.0).is_queued
    }

    /// Since when a caller has waited.
    pub(super) fn since(&self, waiter: WaiterId) -> Instant {
        self.place(waiter.0).since
    }

    /// Whether a caller has its own timer.
    pub(super) fn has_timer(&self, waiter: WaiterId) -> bool {
        self.place(waiter.0).has_timer
    }

    /// The waker of a queued caller.
    pub(super) fn waker(&mut self, waiter: WaiterId) -> Option<&mut Option<Waker>> {
        let place = self.place_mut(waiter.0);
        place.is_queued.then_some(&mut place.waker)
    }

    /// A caller joins the end of the queue.
    #[inline]
    pub(super) fn join(&mut self, since: Instant, has_timer: bool, waker: Waker) -> WaiterId {
        // Later callers must not have an earlier end.
        self.last_joined = self.last_joined.max(since);
        let (ticket, since) = (self.next, self.last_joined);
        let number = self.take_spare();
        let place = self.place_mut(number);
        (place.ticket, place.since, place.has_timer, place.waker) = (ticket, since, has_timer, Some(waker));
        if sabotage::is_on(Sabotage::FirstComeFirstServed) {
            self.next = Ticket(ticket.0 - 1);
            self.link(number, NONE, self.first);
        } else {
            self.next = Ticket(ticket.0 + 1);
            self.link(number, self.last, NONE);
        }
        WaiterId(number)
    }

    /// Removes the first caller. Returns its waker, if it must be woken.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(WaiterId, Option<Waker>)> {
        let first = WaiterId(self.first);
        let waker = if first.0 == NONE { None } else { self.remove(first) };
        waker.map(|waker| (first, waker))
    }

    /// Removes a caller at any position, if it is queued. Returns its waker.
    #[inline]
    pub(super) fn remove(&mut self, waiter: WaiterId) -> Option<Option<Waker>> {
        let place = self.place_mut(waiter.0);
        if !std::mem::take(&mut place.is_queued) {
            return None;
        }
        let (before, behind, waker) = (place.before, place.behind, place.waker.take());
        self.len -= 1;
        if self.first == waiter.0 {
            // The next place keeps its old link: that of the first one is not read. So a serve writes one place.
            self.first = behind;
            if behind == NONE {
                self.last = NONE;
            }
        } else {
            *self.behind(before) = behind;
            *self.before(behind) = before;
        }
        Some(waker)
    }

    /// Returns a served caller to its position. `waker` is `None` if the caller is about to poll anyway.
    pub(super) fn rejoin(&mut self, waiter: WaiterId, waker: Option<Waker>) {
        let place = self.place_mut(waiter.0);
        place.waker = waker;
        let ticket = place.ticket;
        // It is near the front: only other callers that returned can be ahead of it.
        let (mut before, mut behind) = (NONE, self.first);
        while behind != NONE && self.place(behind).ticket < ticket {
            (before, behind) = (behind, self.place(behind).behind);
        }
        self.link(waiter.0, before, behind);
    }

    /// Keeps an unused waiter for the next caller.
    #[inline]
    pub(super) fn recycle(&mut self, waiter: WaiterId) {
        self.place_mut(waiter.0).behind = self.spare;
        self.spare = waiter.0;
    }

    /// Looks at up to `limit` callers, from the one behind `position` on, or from the first. Returns where to
    /// continue, unless the scan is complete.
    pub(super) fn scan(
        &mut self,
        position: Option<Position>,
        limit: usize,
        mut look: impl FnMut(Instant, bool, &mut Option<Waker>) -> Scan,
    ) -> Option<Position> {
        // If the caller has left meanwhile, its place says nothing any more.
        let is_valid = |position: &Position| {
            let place = self.place(position.place);
            place.is_queued && place.ticket == position.ticket
        };
        let mut next = position.filter(is_valid).map_or(self.first, |at| self.place(at.place).behind);
        let mut last = None;
        for _ in 0..limit {
            if next == NONE {
                return None;
            }
            let place = self.place_mut(next);
            let looked = look(place.since, place.has_timer, &mut place.waker);
            last = Some(Position { place: next, ticket: place.ticket });
            next = place.behind;
            match looked {
                Scan::Continue => {}
                Scan::Pause => break,
                Scan::Stop => return None,
            }
        }
        last
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used as usize
    }

    fn link(&mut self, number: Link, before: Link, behind: Link) {
        let place = self.place_mut(number);
        (place.before, place.behind, place.is_queued) = (before, behind, true);
        *self.behind(before) = number;
        *self.before(behind) = number;
        self.len += 1;
    }

    /// The link from `number` to the place behind it.
    fn behind(&mut self, number: Link) -> &mut Link {
        if number == NONE { &mut self.first } else { &mut self.place_mut(number).behind }
    }

    /// The link from `number` to the place before it.
    fn before(&mut self, number: Link) -> &mut Link {
        if number == NONE { &mut self.last } else { &mut self.place_mut(number).before }
    }

    #[inline]
    fn place(&self, number: Link) -> &Place {
        &self.places[number as usize / BLOCK][number as usize % BLOCK]
    }

    #[inline]
    fn place_mut(&mut self, number: Link) -> &mut Place {
        &mut self.places[number as usize / BLOCK][number as usize % BLOCK]
    }

    #[inline]
    fn take_spare(&mut self) -> Link {
        if self.spare == NONE {
            return self.another();
        }
        let number = self.spare;
        self.spare = self.place(number).behind;
        number
    }

    #[cold]
    fn another(&mut self) -> Link {
        let number = self.used;
        assert!((number as usize) < MOST, "at most {MOST} callers can wait together");
        if number as usize == self.places.len() * BLOCK {
            self.places.push(Box::new(std::array::from_fn(|_| Place {
                ticket: Ticket::FIRST,
                since: Instant::ZERO,
                waker: None,
                before: NONE,
                behind: NONE,
                has_timer: false,
                is_queued: false,
            })));
        }
        self.used += 1;
        number
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use proptest::prelude::*;

    use super::*;

    fn join(queue: &mut WaitQueue<u32>, since: u64, has_timer: bool) -> WaiterId {
        queue.join(Instant::from_nanos(since), has_timer, Waker::noop().clone())
    }

    fn pop(queue: &mut WaitQueue<u32>) -> Option<WaiterId> {
        queue.pop().map(|(waiter, _)| waiter)
    }

    #[test]
    fn callers_that_return_keep_their_order() {
        let mut queue = WaitQueue::default();
        let waiters = [1, 2, 3].map(|at| join(&mut queue, at, false));
        let (first, second) = (pop(&mut queue).unwrap(), pop(&mut queue).unwrap());
        queue.rejoin(second, None);
        queue.rejoin(first, None);
        assert_eq!([0; 3].map(|_| pop(&mut queue).unwrap()), waiters);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_clock_that_was_read_too_early_does_not_put_deadlines_out_of_order() {
        let mut queue = WaitQueue::default();
        join(&mut queue, 50, false);
        let late = join(&mut queue, 20, false);
        assert_eq!(queue.since(late), Instant::from_nanos(50));
    }

    #[test]
    fn a_scan_goes_on_where_it_was_interrupted_even_if_that_caller_has_left() {
        let mut queue = WaitQueue::default();
        let waiters: Vec<_> = (0..10).map(|at| join(&mut queue, at, false)).collect();
        let mut seen = Vec::new();
        let mut scan = |queue: &mut WaitQueue<u32>, position| {
            queue.scan(position, 3, |since, _, _| {
                seen.push(since.as_nanos());
                Scan::Continue
            })
        };
        let position = scan(&mut queue, None);
        let position = scan(&mut queue, position);
        queue.remove(waiters[5]);
        // The caller behind which it would continue is gone: it starts again.
        let mut position = scan(&mut queue, position);
        while position.is_some() {
            position = scan(&mut queue, position);
        }
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 6, 7, 8, 9]);
    }

    /// Counts its wake-ups.
    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    proptest! {
        /// Compared with a map that has the callers in the order in which they joined.
        #[test]
        fn behaves_like_a_sorted_map(steps in prop::collection::vec((0u8..6, 0usize..8, 1usize..5), 0..200)) {
            let mut queue: WaitQueue<u32> = WaitQueue::default();
            let mut queued: BTreeMap<u64, (WaiterId, bool)> = BTreeMap::new();
            let mut served: Vec<(u64, WaiterId, bool)> = Vec::new();
            let mut joined = 0;
            for (step, which, part) in steps {
                match step {
                    0..=2 => {
                        let waiter = join(&mut queue, joined, which % 2 == 0);
                        queued.insert(joined, (waiter, which % 2 == 0));
                        joined += 1;
                    }
                    3 => {
                        let first = queued.pop_first();
                        prop_assert_eq!(pop(&mut queue), first.map(|(_, (waiter, _))| waiter));
                        served.extend(first.map(|(ticket, (waiter, has_timer))| (ticket, waiter, has_timer)));
                    }
                    4 if !served.is_empty() => {
                        let (ticket, waiter, has_timer) = served.swap_remove(which % served.len());
                        queued.insert(ticket, (waiter, has_timer));
                        queue.rejoin(waiter, None);
                    }
                    _ => if let Some(ticket) = queued.keys().nth(which).copied() {
                        let (waiter, _) = queued.remove(&ticket).unwrap();
                        prop_assert!(queue.remove(waiter).is_some());
                        prop_assert!(queue.remove(waiter).is_none());
                        queue.recycle(waiter);
                    },
                }
                prop_assert_eq!(queue.len(), queued.len());
                prop_assert_eq!(queue.is_empty(), queued.is_empty());
                prop_assert_eq!(queue.joined(), joined);
                prop_assert_eq!(queue.used(), queued.len() + served.len() + queue.spares(), "no place is lost");
                let counting = Arc::new(Counting(AtomicUsize::new(0)));
                for (waiter, _) in queued.values() {
                    *queue.waker(*waiter).unwrap() = Some(Waker::from(Arc::clone(&counting)));
                }
                let (mut seen, mut wakers, mut position) = (Vec::new(), Vec::new(), None);
                loop {
                    position = queue.scan(position, part, |since, has_timer, waker| {
                        seen.push((since.as_nanos(), has_timer));
                        wakers.extend(waker.take());
                        Scan::Continue
                    });
                    if position.is_none() {
                        break;
                    }
                }
                let expected: Vec<_> = queued.iter().map(|(ticket, (_, has_timer))| (*ticket, *has_timer)).collect();
                prop_assert_eq!(seen, expected);
                prop_assert_eq!(wakers.len(), queued.len());
                prop_assert_eq!(counting.0.load(Ordering::Relaxed), 0, "taken, not used");
            }
        }
    }

    impl WaitQueue<u32> {
        /// The number of unused places.
        fn spares(&self) -> usize {
            let link = |number: Link| (number != NONE).then_some(number);
            std::iter::successors(link(self.spare), |number| link(self.place(*number).behind)).count()
        }
    }
}
