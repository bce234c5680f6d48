//! One waiting caller: what it shares with the state.

use std::sync::OnceLock;
use std::task::Waker;
use std::time::Duration;

use crossbeam_utils::atomic::AtomicCell;

use super::Shortage;
use crate::sync::Handover;
use crate::time::Instant;

/// How long a caller waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For any reason.
    pub(crate) wait: Duration,
    /// Once the reservoir is short, and as long as it remains so.
    pub(crate) empty_wait: Option<Duration>,
}

impl Limits {
    /// When a wait ends that began at `since`, in a reservoir that has been short since `short_since`.
    pub(super) fn end(&self, since: Instant, short_since: Option<Instant>) -> Instant {
        let end = since + self.wait;
        match (short_since, self.empty_wait) {
            (Some(short_since), Some(empty_wait)) => end.min(since.max(short_since) + empty_wait),
            _ => end,
        }
    }

    /// When a caller with its own timer must poll again. While the reservoir is full, it looks often enough
    /// to notice a shortage in time: nobody else keeps track of its `empty_wait`.
    pub(super) fn poll_again_at(
        &self,
        since: Instant,
        short_since: Option<Instant>,
        now: Instant,
    ) -> Instant {
        let end = self.end(since, short_since);
        match (short_since, self.empty_wait) {
            (None, Some(empty_wait)) => end.min(now + empty_wait.max(SHORTEST_PAUSE)),
            _ => end,
        }
    }
}

/// The shortest time between two polls of a caller that waits.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// A waiting caller, as it and the state share it.
///
/// The state stores a connection under its lock. The caller takes it without the lock, unless the state has
/// taken it back. A waiter has its own cache line, since two threads pass it to each other.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Waiter<E> {
    /// The connection to pick up.
    connection: Handover<E>,
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

/// The result of a poll that found nothing. The previous waker must be dropped outside the lock, since its
/// drop may run any code.
#[derive(Debug)]
pub(crate) enum WaitPoll {
    /// The caller was served or its wait ended meanwhile.
    Retry,
    /// The wait continues. A caller with its own timer polls again at this time.
    Wait(Option<Waker>, Instant),
    /// The time is over. The caller finds the reason in its waiter.
    GaveUp(Option<Waker>),
}

impl<E> Default for Waiter<E> {
    fn default() -> Self {
        Self { connection: Handover::default(), ending: AtomicCell::new(None) }
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
    pub(super) fn serve(&self, entry: E) {
        self.connection.put(entry);
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
pub(crate) struct WaiterId(pub(super) u32);

/// All waiters that were ever in use together, at fixed addresses. So a caller reaches its waiter without the
/// lock and without reference counts.
#[derive(Debug)]
pub(crate) struct Waiters<E> {
    first: Box<[Waiter<E>; BLOCK]>,
    /// Groups of [`BLOCKS`] blocks, each of [`BLOCK`] waiters. A block is allocated when the first of its
    /// waiters is needed: this happens under the lock, so it must not take long.
    more: Box<[Group<E>; GROUPS]>,
}

type Block<E> = OnceLock<Box<[Waiter<E>; BLOCK]>>;
type Group<E> = OnceLock<Box<[Block<E>; BLOCKS]>>;

/// How many waiters are allocated at the start, and how many more at a time.
const BLOCK: usize = 64;
const BLOCKS: usize = 256;
const GROUPS: usize = 256;

/// The largest number of callers that can wait together.
pub(super) const MOST: usize = BLOCK * BLOCKS * GROUPS;

impl<E> Default for Waiters<E> {
    fn default() -> Self {
        Self { first: Box::new(block()), more: Box::new([const { OnceLock::new() }; GROUPS]) }
    }
}

fn block<E>() -> [Waiter<E>; BLOCK] {
    std::array::from_fn(|_| Waiter::default())
}

impl<E> Waiters<E> {
    #[inline]
    pub(crate) fn get(&self, id: WaiterId) -> &Waiter<E> {
        let id = id.0 as usize;
        if id < BLOCK { &self.first[id] } else { self.get_more(id) }
    }

    #[cold]
    fn get_more(&self, id: usize) -> &Waiter<E> {
        let (block_number, waiter) = (id / BLOCK, id % BLOCK);
        let group =
            self.more[block_number / BLOCKS].get_or_init(|| Box::new([const { OnceLock::new() }; BLOCKS]));
        &group[block_number % BLOCKS].get_or_init(|| Box::new(block()))[waiter]
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
        let before: Vec<usize> = (0..100_000).map(address).collect();
        assert_eq!(before.iter().collect::<std::collections::BTreeSet<_>>().len(), 100_000);
        #[allow(clippy::cast_possible_truncation, reason = "it fits")]
        address(MOST as u32 - 1);
        assert_eq!((0..100_000).map(address).collect::<Vec<_>>(), before);
    }
}
