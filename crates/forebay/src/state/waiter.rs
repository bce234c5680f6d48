//! One caller that waits: what it shares with the state, and what the state knows of it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::Waker;

use super::Shortage;
use crate::sync::Handover;
use crate::time::Instant;

/// A caller's position in the queue. It keeps it for as long as it waits.
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

/// How long a caller waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) since: Instant,
    /// It gives up then, whatever the reason.
    pub(crate) deadline: Instant,
    /// It gives up once the reservoir has been short of connections for so many nanoseconds.
    pub(crate) empty_wait: u64,
    /// It has a timer for its deadline. The others share one.
    pub(crate) has_timer: bool,
}

impl Limits {
    /// Waits as long while the reservoir is short as for any other reason.
    pub(crate) const PATIENT: u64 = u64::MAX;

    #[inline]
    pub(super) fn is_impatient(&self) -> bool {
        self.empty_wait != Self::PATIENT
    }

    /// When the caller gives up, in a reservoir that has been short since `short_since`.
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

/// A caller that waits: what it and the state share.
///
/// The state puts a connection in under its own lock. The caller takes it out without that lock, unless the state has taken it
/// back before. Everything else is written and read by the state under its lock, except the ending, which the caller reads: atomics,
/// since the compiler cannot know that. It is on a cache line of its own, since two threads pass it to and fro.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Waiter<E> {
    /// A connection to pick up.
    connection: Handover<E>,
    ticket: AtomicU64,
    since: AtomicU64,
    deadline: AtomicU64,
    empty_wait: AtomicU64,
    has_timer: AtomicBool,
    /// Why no connection will come: the code of an [`Ending`], or zero.
    ending: AtomicU8,
}

/// Why a caller gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It has waited long enough, or waiting is of no use.
    GaveUp(Shortage),
    /// The reservoir is closed.
    Closed,
}

/// What a caller finds when it looks.
#[derive(Debug)]
pub(crate) enum PickUp<E> {
    /// Nothing yet.
    Nothing,
    /// A connection. The caller still has to look at the time.
    Connection(E),
    Ending(Ending),
}

/// The answer to a caller that found nothing.
#[derive(Debug)]
pub(crate) enum WaitPoll {
    /// There is something by now.
    Retry,
    /// It goes on waiting. Its waker before this one is to be dropped outside the lock: dropping it may run anything.
    Wait(Option<Waker>),
    /// Its time is up. It finds why, once its waker has been dropped.
    GaveUp(Option<Waker>),
}

impl Ending {
    const ALL: [Self; 4] = [
        Self::Closed,
        Self::GaveUp(Shortage::Empty),
        Self::GaveUp(Shortage::Exhausted),
        Self::GaveUp(Shortage::Denied),
    ];

    /// As a number above zero.
    fn code(self) -> u8 {
        match self {
            Self::Closed => 1,
            Self::GaveUp(Shortage::Empty) => 2,
            Self::GaveUp(Shortage::Exhausted) => 3,
            Self::GaveUp(Shortage::Denied) => 4,
        }
    }

    fn of_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
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
            ending: AtomicU8::new(0),
        }
    }
}

impl<E> Waiter<E> {
    /// The caller looks what there is for it, and takes it.
    #[inline]
    pub(crate) fn pick_up(&self) -> PickUp<E> {
        if let Some(entry) = self.connection.take() {
            return PickUp::Connection(entry);
        }
        self.ending().map_or(PickUp::Nothing, PickUp::Ending)
    }

    /// Why the caller gets nothing, if it is told so already.
    pub(crate) fn ending(&self) -> Option<Ending> {
        Ending::of_code(self.ending.load(Ordering::Acquire))
    }

    // What follows is for the state, under its lock.

    /// The caller is out of the queue, with this connection to pick up.
    #[inline]
    pub(super) fn serve(&self, ticket: Ticket, limits: &Limits, entry: E) {
        self.ticket.store(ticket.0, Ordering::Relaxed);
        self.since.store(limits.since.as_nanos(), Ordering::Relaxed);
        self.deadline.store(limits.deadline.as_nanos(), Ordering::Relaxed);
        self.empty_wait.store(limits.empty_wait, Ordering::Relaxed);
        self.has_timer.store(limits.has_timer, Ordering::Relaxed);
        self.connection.put(entry);
    }

    /// What a caller that was served returns to the queue with.
    pub(super) fn served(&self) -> (Ticket, Limits) {
        let limits = Limits {
            since: Instant::from_nanos(self.since.load(Ordering::Relaxed)),
            deadline: Instant::from_nanos(self.deadline.load(Ordering::Relaxed)),
            empty_wait: self.empty_wait.load(Ordering::Relaxed),
            has_timer: self.has_timer.load(Ordering::Relaxed),
        };
        (Ticket(self.ticket.load(Ordering::Relaxed)), limits)
    }

    /// The caller has gone away, and with it what it was to be told.
    pub(super) fn clear(&self) {
        self.ending.store(0, Ordering::Relaxed);
    }

    /// It is out of the queue, with nothing to come.
    pub(super) fn end(&self, ending: Ending) {
        self.ending.store(ending.code(), Ordering::Release);
    }

    /// Takes back what it was served and has not picked up yet, if there is something. A caller that looks now finds nothing, and
    /// asks the state.
    pub(super) fn take_back(&self) -> Option<E> {
        self.connection.take()
    }
}

/// The number of a waiter in its [slab](Waiters).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaiterId(u32);

/// All waiters there have ever been at the same time, at addresses that do not change. So a caller reaches its waiter without the
/// lock and without counting references.
#[derive(Debug)]
pub(crate) struct Waiters<E> {
    first: Box<[Waiter<E>; FIRST]>,
    /// Chunk `k` holds [`FIRST`] times two to the `k` more.
    more: [OnceLock<Box<[Waiter<E>]>>; 26],
}

/// How many waiters there are from the beginning: these are reached fastest.
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
    fn endings_and_their_codes_agree() {
        assert!(Ending::ALL.iter().all(|ending| Ending::of_code(ending.code()) == Some(*ending)));
        assert_eq!((Ending::of_code(0), Ending::of_code(5)), (None, None));
    }

    #[test]
    fn each_waiter_has_a_place_of_its_own_that_does_not_move() {
        let waiters = Waiters::<u32>::default();
        let address = |id| std::ptr::from_ref(waiters.get(WaiterId(id))) as usize;
        let before: Vec<usize> = (0..1_000).map(address).collect();
        assert_eq!(before.iter().collect::<std::collections::BTreeSet<_>>().len(), 1_000);
        address(100_000);
        assert_eq!((0..1_000).map(address).collect::<Vec<_>>(), before);
    }
}
