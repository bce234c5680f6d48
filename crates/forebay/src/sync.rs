//! The lock. Under `--cfg forebay_shuttle` it is shuttle's, so that every schedule around it can be explored.

use std::fmt;

#[cfg(not(forebay_shuttle))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(forebay_shuttle)]
pub(crate) use shuttle_parking_lot::{Mutex, MutexGuard};

/// How often a contended lock is looked at before the thread yields.
const LOOKS: usize = 12;

/// Takes a lock that others hold for tens of nanoseconds, for a caller with somebody waiting behind it.
///
/// parking_lot soon yields the processor when a lock is taken, which costs more than the wait would have. The fast path
/// is better off that way, since it leaves the other thread alone with the lock for a while; a hand-off is not.
pub(crate) fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for _ in 0..LOOKS {
        // A plain look first: trying takes the cache line from whoever holds the lock.
        let attempt = if mutex.is_locked() { None } else { mutex.try_lock() };
        if let Some(guard) = attempt {
            return guard;
        }
        std::hint::spin_loop();
    }
    mutex.lock()
}

/// What one thread puts down for another to pick up. Whichever of several comes first gets it.
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
