//! One waiting caller: what it shares with the state.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use crossbeam_utils::atomic::AtomicCell;

use super::Shortage;
use crate::sync::Handover;
use crate::time::Instant;

/// The position of a caller in the queue. It keeps it while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

impl Ticket {
    pub(super) const FIRST: Self = Self(u64::MAX / 2);

    pub(super) fn after(self) -> Self {
        Self(self.0 + 1)
    }

    pub(super) fn before(self) -> Self {
        Self(self.0 - 1)
    }

    pub(super) fn distance(self, other: Self) -> u64 {
        self.0.abs_diff(other.0)
    }
}

/// The limits of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) since: Instant,
    /// The wait ends then, for any reason.
    pub(crate) deadline: Instant,
    /// The wait ends once the reservoir has been short for this many nanoseconds.
    pub(crate) empty_wait: u64,
    /// The caller has its own timer for the deadline. The others share one.
    pub(crate) has_timer: bool,
}

impl Limits {
    /// No shorter limit while the reservoir is short.
    pub(crate) const PATIENT: u64 = u64::MAX;

    #[inline]
    pub(super) fn is_impatient(&self) -> bool {
        self.empty_wait != Self::PATIENT
    }

    /// When the wait ends in a reservoir that has been short since `short_since`.
    pub(super) fn end(&self, short_since: Option<Instant>) -> Instant {
        self.deadline.min(self.end_while_short(short_since))
    }

    /// The same, without a deadline that has its own timer.
    pub(super) fn shared_end(&self, short_since: Option<Instant>) -> Instant {
        if self.has_timer { self.end_while_short(short_since) } else { self.end(short_since) }
    }

    fn end_while_short(&self, short_since: Option<Instant>) -> Instant {
        match short_since {
            Some(short_since) => self.since.max(short_since).plus_nanos(self.empty_wait),
            None => Instant::NEVER,
        }
    }
}

/// A waiting caller, as it and the state share it.
///
/// The state stores a connection under its lock. The caller takes it without the lock, unless the state has
/// taken it back. All other fields are used by the state under its lock, except the ending, which the caller
/// reads. They are atomics because the compiler cannot verify that. A waiter has its own cache line, since
/// two threads pass it to each other.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Waiter<E> {
    /// The connection to pick up.
    connection: Handover<E>,
    ticket: AtomicU64,
    since: AtomicU64,
    deadline: AtomicU64,
    empty_wait: AtomicU64,
    has_timer: AtomicBool,
    /// Why no connection will come, once that is known.
    ending: AtomicCell<Option<Ending>>,
}

/// Why a wait ended without a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It took too long, or waiting does not help.
    GaveUp(Shortage),
    Closed,
}

/// What a waiting caller finds.
#[derive(Debug)]
pub(crate) enum PickUp<E> {
    Nothing,
    /// A connection. The caller must check whether it is stale.
    Connection(E),
    Ending(Ending),
}

/// The result of a poll that found nothing.
#[derive(Debug)]
pub(crate) enum WaitPoll {
    /// The caller was served or its wait ended meanwhile.
    Retry,
    /// The wait continues. The previous waker must be dropped outside the lock, since its drop may run any
    /// code.
    Wait(Option<Waker>),
    /// The time is over. The caller finds the reason in its waiter. The waker must be dropped outside the
    /// lock.
    GaveUp(Option<Waker>),
}

impl<E> Default for Waiter<E> {
    fn default() -> Self {
        Self {
            connection: Handover::default(),
            ticket: AtomicU64::new(0),
            since: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            empty_wait: AtomicU64::new(0),
            has_timer: AtomicBool::new(false),
            ending: AtomicCell::new(None),
        }
    }
}

impl<E> Waiter<E> {
    /// Takes what the caller was served.
    #[inline]
    pub(crate) fn pick_up(&self) -> PickUp<E> {
        if let Some(entry) = self.connection.take() {
            return PickUp::Connection(entry);
        }
        self.ending().map_or(PickUp::Nothing, PickUp::Ending)
    }

    /// Why the wait ended, if it has.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ending.load()
    }

    // The following methods are for the state, under its lock.

    /// Delivers a connection to the caller, which has left the queue.
    #[inline]
    pub(super) fn serve(&self, ticket: Ticket, limits: &Limits, entry: E) {
        self.ticket.store(ticket.0, Ordering::Relaxed);
        self.since.store(limits.since.as_nanos(), Ordering::Relaxed);
        self.deadline.store(limits.deadline.as_nanos(), Ordering::Relaxed);
        self.empty_wait.store(limits.empty_wait, Ordering::Relaxed);
        self.has_timer.store(limits.has_timer, Ordering::Relaxed);
        self.connection.put(entry);
    }

    /// The ticket and limits of a served caller, for its return to the queue.
    pub(super) fn served(&self) -> (Ticket, Limits) {
        let limits = Limits {
            since: Instant::from_nanos(self.since.load(Ordering::Relaxed)),
            deadline: Instant::from_nanos(self.deadline.load(Ordering::Relaxed)),
            empty_wait: self.empty_wait.load(Ordering::Relaxed),
            has_timer: self.has_timer.load(Ordering::Relaxed),
        };
        (Ticket(self.ticket.load(Ordering::Relaxed)), limits)
    }

    /// Clears the ending, for the next use.
    pub(super) fn clear(&self) {
        self.ending.store(None);
    }

    /// Ends the wait without a connection.
    pub(super) fn end(&self, ending: Ending) {
        self.ending.store(Some(ending));
    }

    /// Takes back a connection that was not picked up. If the caller polls now, it finds nothing and locks
    /// the state.
    pub(super) fn take_back(&self) -> Option<E> {
        self.connection.take()
    }
}

/// The index of a waiter in [`Waiters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaiterId(u32);

/// All waiters that were ever in use together, at fixed addresses. So a caller reaches its waiter without the
/// lock and without reference counts.
#[derive(Debug)]
pub(crate) struct Waiters<E> {
    first: Box<[Waiter<E>; FIRST]>,
    /// Chunk `k` has [`FIRST`] times 2^`k` waiters.
    more: [OnceLock<Box<[Waiter<E>]>>; 26],
}

/// How many waiters are allocated at the start. Access to them is fastest.
const FIRST: usize = 64;

impl<E> Default for Waiters<E> {
    fn default() -> Self {
        Self {
            first: Box::new(std::array::from_fn(|_| Waiter::default())),
            more: [const { OnceLock::new() }; 26],
        }
    }
}

impl<E> Waiters<E> {
    #[inline]
    pub(crate) fn get(&self, id: WaiterId) -> &Waiter<E> {
        let id = id.0 as usize;
        if id < FIRST { &self.first[id] } else { self.get_more(id / FIRST, id) }
    }

    #[cold]
    fn get_more(&self, multiple: usize, id: usize) -> &Waiter<E> {
        let chunk = multiple.ilog2();
        let size = FIRST << chunk;
        let waiters =
            self.more[chunk as usize].get_or_init(|| (0..size).map(|_| Waiter::default()).collect());
        &waiters[id - size]
    }
}

impl WaiterId {
    pub(super) const FIRST: Self = Self(0);

    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    #[cfg(test)]
    pub(super) fn number(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_is_stored_without_a_lock_and_can_be_cleared() {
        assert!(AtomicCell::<Option<Ending>>::is_lock_free());
        let waiter = Waiter::<u32>::default();
        assert!(waiter.ending().is_none());
        waiter.end(Ending::GaveUp(Shortage::Denied));
        assert_eq!(waiter.ending(), Some(Ending::GaveUp(Shortage::Denied)));
        waiter.clear();
        assert!(waiter.ending().is_none());
    }

    #[test]
    fn each_waiter_has_its_own_fixed_address() {
        let waiters = Waiters::<u32>::default();
        let address = |id| std::ptr::from_ref(waiters.get(WaiterId(id))) as usize;
        let before: Vec<usize> = (0..1_000).map(address).collect();
        assert_eq!(before.iter().collect::<std::collections::BTreeSet<_>>().len(), 1_000);
        address(100_000);
        assert_eq!((0..1_000).map(address).collect::<Vec<_>>(), before);
    }
}
