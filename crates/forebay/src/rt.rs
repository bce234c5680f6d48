//! Runtimes: the source of time, tasks and randomness.
//!
//! The reservoir never gets these from the operating system. It gets them from its [`Runtime`].
//! [`TokioRuntime`] is for production. [`PausedTokioRuntime`] is for tests that pause tokio's clock.
//! `VirtualTime` (feature `test-util`) runs the same code as fast as the machine allows, and
//! deterministically.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::race::{self, First};
use crate::time::Instant;

mod tokio;
#[cfg(feature = "test-util")]
mod virtual_time;

pub use self::tokio::{NoRuntime, PausedTokioRuntime, TokioRuntime, current};
#[cfg(feature = "test-util")]
pub use self::virtual_time::{ProcessClock, VirtualProcess, VirtualSleep, VirtualTime};

/// A future that a runtime can spawn.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A source of time, tasks and initial randomness.
pub trait Runtime: Send + Sync + fmt::Debug + 'static {
    /// The present time.
    fn now(&self) -> Instant;

    /// The present time, read cheaply. It is never behind [`now`](Self::now), and at most some milliseconds
    /// ahead of it.
    ///
    /// It runs ahead and not behind, so that no connection is lent too late.
    fn coarse_now(&self) -> Instant {
        self.now()
    }

    /// The time of day, as the duration since 1970-01-01 00:00 UTC. Use it for tokens and records, never for
    /// deadlines.
    fn wall(&self) -> Duration;

    /// Returns a future that completes once [`now`](Self::now) has reached `at`.
    fn sleep_until(&self, at: Instant) -> Task;

    /// Runs `task` in the background. It can be called from any thread, inside and outside the runtime.
    fn spawn(&self, task: Task);

    /// An unpredictable number. It becomes the [`Seed`](crate::Seed) if the configuration has none.
    fn entropy(&self) -> u64;

    /// Runs `wait`, which parks this thread, unless this would prevent the tasks of this runtime from
    /// running.
    ///
    /// # Errors
    /// Returns [`Starved`] if the tasks that `wait` waits for can run on this thread only.
    fn block(&self, wait: &mut dyn FnMut()) -> Result<(), Starved>;
}

/// Blocking this thread would starve the tasks that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starved;

impl<R: Runtime + ?Sized> Runtime for Arc<R> {
    fn now(&self) -> Instant {
        (**self).now()
    }

    fn coarse_now(&self) -> Instant {
        (**self).coarse_now()
    }

    fn wall(&self) -> Duration {
        (**self).wall()
    }

    fn sleep_until(&self, at: Instant) -> Task {
        (**self).sleep_until(at)
    }

    fn spawn(&self, task: Task) {
        (**self).spawn(task);
    }

    fn entropy(&self) -> u64 {
        (**self).entropy()
    }

    fn block(&self, wait: &mut dyn FnMut()) -> Result<(), Starved> {
        (**self).block(wait)
    }
}

/// Runs `future` for at most `limit`, by the clock of `runtime`. Returns `None` if it takes longer. On a tie,
/// the future wins.
///
/// # Cancel safety
/// The same as that of `future`, which is dropped after the timeout.
pub async fn within<T>(runtime: &dyn Runtime, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let deadline = runtime.sleep_until(runtime.now() + limit);
    match race::first(future, deadline).await {
        First::Left(output) => Some(output),
        First::Right(()) => None,
    }
}

/// Lets other tasks run first. It depends on no executor: it wakes the task through its context only. The
/// yield of an executor may defer the wake-up, and a task that blocks its thread would then delay it.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
