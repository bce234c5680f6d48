//! The production runtime: tasks and timers of tokio, clocks of the operating system.
//!
//! This is the only file that may read a clock, spawn a task, or get entropy.
#![allow(clippy::disallowed_methods, reason = "the one place where time, tasks and entropy enter")]

use std::fmt;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, SystemTime};

use tokio::runtime::{Handle, RuntimeFlavor};

use super::{Runtime, Starved, Task};
use crate::sync::Mutex;
use crate::time::Instant;

/// Runs the tasks of a reservoir on a tokio runtime, with the clocks of the operating system. For tests that
/// pause tokio's clock, use [`PausedTokioRuntime`].
#[derive(Clone)]
pub struct TokioRuntime {
    handle: Handle,
    /// The thread that last ran one of our tasks. It is kept for single-threaded runtimes only: if a caller
    /// blocked that thread, the tasks that it waits for could not run.
    driver: Option<Arc<Mutex<Option<ThreadId>>>>,
}

impl TokioRuntime {
    /// The runtime that this is called in.
    ///
    /// # Errors
    /// Returns an error outside a tokio runtime.
    pub fn current() -> Result<Self, NoRuntime> {
        Handle::try_current().map(Self::new).map_err(|_| NoRuntime)
    }

    /// The runtime of `handle`. Its time driver must be enabled.
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

/// There is no tokio runtime. Call from inside one, or use [`TokioRuntime::new`].
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
        // tokio limits the sleep to thirty years, which is long enough.
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
                // Moves the other tasks of this worker to another thread while this one is parked.
                tokio::task::block_in_place(wait);
            } else {
                wait();
            }
            return Ok(());
        };
        let here = std::thread::current().id();
        // Threads of the blocking pool are inside the runtime, but do not drive it.
        let drives = driver.lock().map_or(inside, |driver| driver == here);
        if inside && drives {
            return Err(Starved);
        }
        wait();
        Ok(())
    }
}

/// The tokio runtime that this is called in, with the clock of its timers: tokio's own clock if it is paused,
/// as under `start_paused`, and otherwise the clock of the operating system.
///
/// # Errors
/// Returns an error outside a tokio runtime.
pub fn current() -> Result<Arc<dyn Runtime>, NoRuntime> {
    let runtime = TokioRuntime::current()?;
    Ok(if is_paused() { Arc::new(PausedTokioRuntime::new(runtime)) } else { Arc::new(runtime) })
}

/// Whether tokio's clock stands still while the clock of the operating system runs.
fn is_paused() -> bool {
    let (tokios, systems) = (tokio::time::Instant::now(), std::time::Instant::now());
    while std::time::Instant::now() == systems {}
    tokio::time::Instant::now() == tokios
}

/// Runs the tasks of a reservoir on a tokio runtime whose clock can be paused and advanced, for tests with
/// `tokio::time::pause`.
///
/// [`TokioRuntime`] reads the clocks of the operating system, which run while tokio's clock stands still.
/// Deadlines and lifetimes would come too early, or never. This runtime reads tokio's clock. A reservoir that
/// starts while tokio's clock is paused uses it by default. Pass it to the builder if the test pauses the
/// clock later. `VirtualTime` (feature `test-util`) needs no tokio, and is deterministic.
#[derive(Clone, Debug)]
pub struct PausedTokioRuntime {
    runtime: TokioRuntime,
    origin: tokio::time::Instant,
    wall_at_origin: Duration,
}

impl PausedTokioRuntime {
    /// The runtime that this is called in.
    ///
    /// # Errors
    /// Returns an error outside a tokio runtime.
    pub fn current() -> Result<Self, NoRuntime> {
        TokioRuntime::current().map(Self::new)
    }

    fn new(runtime: TokioRuntime) -> Self {
        let wall_at_origin = runtime.wall();
        Self { runtime, origin: tokio::time::Instant::now(), wall_at_origin }
    }

    fn elapsed(&self) -> Duration {
        // Outside the runtime, tokio's clock is the one of the operating system.
        let _context = self.runtime.handle.enter();
        self.origin.elapsed()
    }
}

impl Runtime for PausedTokioRuntime {
    fn now(&self) -> Instant {
        // Not zero, so that earlier instants exist.
        Instant::from_nanos(u64::MAX / 4) + self.elapsed()
    }

    fn wall(&self) -> Duration {
        self.wall_at_origin + self.elapsed()
    }

    fn sleep_until(&self, at: Instant) -> Task {
        let _context = self.runtime.handle.enter();
        Box::pin(tokio::time::sleep(at.since(self.now())))
    }

    fn spawn(&self, task: Task) {
        self.runtime.spawn(task);
    }

    fn entropy(&self) -> u64 {
        self.runtime.entropy()
    }

    fn block(&self, wait: &mut dyn FnMut()) -> Result<(), Starved> {
        self.runtime.block(wait)
    }
}

#[cfg(target_os = "linux")]
mod clock {
    use rustix::time::{ClockId, Timespec, clock_gettime};

    use crate::time::Instant;

    /// The largest lag of `CLOCK_MONOTONIC_COARSE`: one tick of the slowest kernel configuration, 100 Hz.
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

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_is_noticed_and_followed() {
        assert!(is_paused());
        let runtime = current().unwrap();
        assert!(format!("{runtime:?}").starts_with("PausedTokioRuntime"), "{runtime:?}");
        let (now, wall) = (runtime.now(), runtime.wall());
        runtime.sleep_until(now + Duration::from_secs(3600)).await;
        assert_eq!(runtime.now().since(now), Duration::from_secs(3600));
        assert_eq!(runtime.wall() - wall, Duration::from_secs(3600));
        // Threads outside the runtime read tokio's clock as well.
        let asked = runtime.clone();
        let elsewhere = std::thread::spawn(move || asked.coarse_now()).join().unwrap();
        assert_eq!(elsewhere, runtime.now());
    }

    #[tokio::test]
    async fn a_running_clock_is_the_one_of_the_system() {
        assert!(!is_paused());
        assert!(format!("{:?}", current().unwrap()).starts_with("TokioRuntime"));
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
