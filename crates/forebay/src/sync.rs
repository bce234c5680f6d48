//! The lock. Under `--cfg forebay_shuttle` it is the one of shuttle, which explores schedules.

use std::fmt;

#[cfg(not(forebay_shuttle))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(forebay_shuttle)]
pub(crate) use shuttle_parking_lot::{Mutex, MutexGuard};

/// How often a contended lock is tried before the thread yields.
const SPINS: usize = 12;

/// Takes a lock that is held for tens of nanoseconds, on behalf of a caller that others wait for.
///
/// parking_lot soon yields the processor if a lock is taken, which costs more than the wait. For the fast
/// path this is better, since the other thread has the lock to itself for a while. For a hand-off it is
/// worse.
pub(crate) fn lock_spinning<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for _ in 0..SPINS {
        // A read comes first: `try_lock` would take the cache line from the holder of the lock.
        let attempt = if mutex.is_locked() { None } else { mutex.try_lock() };
        if let Some(guard) = attempt {
            return guard;
        }
        std::hint::spin_loop();
    }
    mutex.lock()
}

/// A value that one thread stores for another. The first one to take it gets it.
pub(crate) struct Handover<T>(HandoverCell<T>);

#[cfg(not(forebay_shuttle))]
type HandoverCell<T> = crossbeam_utils::atomic::AtomicCell<Option<T>>;
#[cfg(forebay_shuttle)]
type HandoverCell<T> = Mutex<Option<T>>;

impl<T> Default for Handover<T> {
    fn default() -> Self {
        Self(HandoverCell::new(None))
    }
}

impl<T> fmt::Debug for Handover<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").finish_non_exhaustive()
    }
}

impl<T> Handover<T> {
    #[inline]
    pub(crate) fn put(&self, value: T) {
        #[cfg(not(forebay_shuttle))]
        self.0.store(Some(value));
        #[cfg(forebay_shuttle)]
        self.0.lock().replace(value);
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        #[cfg(not(forebay_shuttle))]
        return self.0.take();
        #[cfg(forebay_shuttle)]
        self.0.lock().take()
    }
}

#[cfg(all(test, not(forebay_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_boxed_value_is_handed_over_without_a_lock() {
        assert!(HandoverCell::<Box<u8>>::is_lock_free());
    }
}
