//! The production runtime: tokio's tasks and timers, the operating system's clocks.
//!
//! This is the one file that may read a clock, spawn or ask for entropy.
#![allow(clippy::disallowed_methods, reason = "the one place where time, tasks and entropy enter")]

use std::fmt;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, SystemTime};

use tokio::runtime::{Handle, RuntimeFlavor};

use super::{Runtime, Starved, Task};
use crate::sync::Mutex;
use crate::time::Instant;

/// Runs a reservoir's tasks on a tokio runtime.
#[derive(Clone)]
pub struct TokioRuntime {
    handle: Handle,
    /// The thread that last ran one of our tasks, kept for single-threaded runtimes only: blocking that thread
    /// would stop the very tasks the caller waits for.
    driver: Option<Arc<Mutex<Option<ThreadId>>>>,
}

impl TokioRuntime {
    /// The runtime this is called in.
    ///
    /// # Errors
    /// If called outside a tokio runtime.
    pub fn current() -> Result<Self, NoRuntime> {
        Handle::try_current().map(Self::new).map_err(|_| NoRuntime)
    }

    /// The runtime behind `handle`. Its time driver must be enabled.
    #[must_use]
    pub fn new(handle: Handle) -> Self {
        let single = handle.runtime_flavor() == RuntimeFlavor::CurrentThread;
        Self { handle, driver: single.then(Arc::default) }
    }
}

impl fmt::Debug for TokioRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokioRuntime({:?})", self.handle.runtime_flavor())
    }
}

/// There is no tokio runtime here: call from inside one, or name it with [`TokioRuntime::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no tokio runtime here: start the reservoir inside one, or give the builder a runtime")]
pub struct NoRuntime;

impl Runtime for TokioRuntime {
    fn now(&self) -> Instant {
        clock::now()
    }

    #[inline]
    fn coarse_now(&self) -> Instant {
        clock::coarse_now()
    }

    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    fn sleep_until(&self, at: Instant) -> Task {
        let _context = self.handle.enter();
        // tokio takes "for ever" for an overflow and sleeps thirty years, which will do.
        Box::pin(tokio::time::sleep(at.since(self.now())))
    }

    fn spawn(&self, mut task: Task) {
        match &self.driver {
            None => drop(self.handle.spawn(task)),
            Some(driver) => {
                let driver = Arc::clone(driver);
                drop(self.handle.spawn(std::future::poll_fn(move |context| {
                    *driver.lock() = Some(std::thread::current().id());
                    task.as_mut().poll(context)
                })));
            }
        }
    }

    fn entropy(&self) -> u64 {
        getrandom::u64().unwrap_or_else(|_| self.wall().subsec_nanos().into())
    }

    fn block(&self, wait: &mut dyn FnMut()) -> Result<(), Starved> {
        let inside = Handle::try_current().is_ok_and(|handle| handle.id() == self.handle.id());
        let Some(driver) = &self.driver else {
            if inside {
                // Hands this worker's other tasks to another thread while this one is parked.
                tokio::task::block_in_place(wait);
            } else {
                wait();
            }
            return Ok(());
        };
        let here = std::thread::current().id();
        // A thread of the blocking pool is inside the runtime too, but does not drive it.
        let drives = driver.lock().map_or(inside, |driver| driver == here);
        if inside && drives {
            return Err(Starved);
        }
        wait();
        Ok(())
    }
}

#[cfg(target_os = "linux")]
mod clock {
    use rustix::time::{ClockId, Timespec, clock_gettime};

    use crate::time::Instant;

    /// How far `CLOCK_MONOTONIC_COARSE` may lag: a tick of the slowest kernel configuration, 100 Hz.
    const COARSE_LAG: u64 = 10_000_000;

    pub(super) fn now() -> Instant {
        Instant::from_nanos(nanos(clock_gettime(ClockId::Monotonic)))
    }

    #[inline]
    pub(super) fn coarse_now() -> Instant {
        Instant::from_nanos(nanos(clock_gettime(ClockId::MonotonicCoarse)) + COARSE_LAG)
    }

    #[inline]
    #[allow(clippy::cast_sign_loss, reason = "a monotonic clock is not negative")]
    fn nanos(time: Timespec) -> u64 {
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

#[cfg(not(target_os = "linux"))]
mod clock {
    use std::sync::OnceLock;

    use crate::time::Instant;

    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();

    pub(super) fn now() -> Instant {
        Instant::ZERO + ORIGIN.get_or_init(std::time::Instant::now).elapsed()
    }

    pub(super) fn coarse_now() -> Instant {
        now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_coarse_clock_is_never_behind() {
        let runtime = TokioRuntime::current().unwrap();
        for _ in 0..10_000 {
            let now = runtime.now();
            let coarse = runtime.coarse_now();
            assert!(coarse >= now, "{coarse:?} is behind {now:?}");
        }
    }

    #[tokio::test]
    async fn sleeping_to_the_past_returns_at_once() {
        let runtime = TokioRuntime::current().unwrap();
        runtime.sleep_until(Instant::ZERO).await;
        runtime.sleep_until(runtime.now()).await;
    }

    #[test]
    fn outside_a_runtime_is_a_clear_error() {
        assert_eq!(TokioRuntime::current().unwrap_err(), NoRuntime);
    }
}
