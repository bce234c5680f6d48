//! Where time, tasks and randomness come from.
//!
//! The reservoir never asks the operating system for any of them: it asks its [`Runtime`]. [`TokioRuntime`] is the
//! one for production, [`PausedTokioRuntime`] the one for tests that pause tokio's clock; [`VirtualTime`] runs the same code as fast as the machine allows and the same way each time.

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

/// A future that can be handed to a runtime.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Time, tasks and the first random number.
pub trait Runtime: Send + Sync + fmt::Debug + 'static {
    /// What time it is.
    fn now(&self) -> Instant;

    /// What time it is, cheaply: never behind [`now`](Self::now), and at most some milliseconds ahead of it.
    ///
    /// Ahead and not behind, so that a connection compared with it is never handed out too late.
    fn coarse_now(&self) -> Instant {
        self.now()
    }

    /// The time of day, as the duration since 1970-01-01 00:00 UTC. For tokens and records, never for deadlines.
    fn wall(&self) -> Duration;

    /// A future that is ready once [`now`](Self::now) has reached `at`.
    fn sleep_until(&self, at: Instant) -> Task;

    /// Runs `task` in the background. May be called from any thread, inside or outside the runtime.
    fn spawn(&self, task: Task);

    /// A number no one can guess, to seed a [`Seed`](crate::Seed) that was not given.
    fn entropy(&self) -> u64;

    /// Runs `wait`, which parks this thread, unless that would keep this runtime's own tasks from running.
    ///
    /// # Errors
    /// [`Starved`] if the tasks that `wait` waits for could only run on this very thread.
    fn block(&self, wait: &mut dyn FnMut()) -> Result<(), Starved>;
}

/// Blocking this thread would starve the runtime it was waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starved;

/// A shared runtime is a runtime.
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

/// Runs `future` for at most `limit`, in the runtime's time; none if it took longer. At a tie, the future wins.
///
/// # Cancel safety
/// As that of `future`, which is dropped when the time is up.
pub async fn within<T>(runtime: &dyn Runtime, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let deadline = runtime.sleep_until(runtime.now() + limit);
    match race::first(future, deadline).await {
        First::Left(output) => Some(output),
        First::Right(()) => None,
    }
}

/// Lets everyone else run first. It is woken through its context alone, by whichever executor: the one of a library may have its own
/// idea of when a task that yields goes on, and a thread that blocks in a task keeps that from coming.
///
/// # Cancel safety
/// Dropping it changes nothing.
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
