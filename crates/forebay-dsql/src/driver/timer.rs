//! A timer that serves one statement after the other.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Waker};

use forebay::Instant;
use forebay::rt::{Runtime, Task};
use parking_lot::Mutex;

/// Wakes a task at a time or earlier. It is set for one statement, and left alone when that is answered: a later one finds it set, and
/// moves it only when it fires. So a statement that is answered in time costs no timer of its own.
pub(crate) struct Timer {
    runtime: Arc<dyn Runtime>,
    /// A mutex only so that connections can be shared; it is never locked.
    set: Mutex<Option<Set>>,
}

struct Set {
    at: Instant,
    sleep: Task,
    waker: Waker,
}

impl Timer {
    pub(crate) fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self { runtime, set: Mutex::new(None) }
    }

    /// The present time; see [`Runtime::coarse_now`].
    pub(crate) fn now(&self) -> Instant {
        self.runtime.coarse_now()
    }

    /// Wakes the task at this time, or earlier. `now` may be a little behind.
    pub(crate) fn wake_at(&mut self, at: Instant, now: Instant, context: &mut Context<'_>) {
        let set = self.set.get_mut();
        match set {
            Some(set) if set.at <= at && set.at > now => {
                if set.waker.will_wake(context.waker()) {
                    return;
                }
                set.waker.clone_from(context.waker());
            }
            _ => {
                let sleep = self.runtime.sleep_until(at);
                *set = Some(Set { at, sleep, waker: context.waker().clone() });
            }
        }
        if set.as_mut().is_some_and(|set| set.sleep.as_mut().poll(context).is_ready()) {
            *set = None;
            context.waker().wake_by_ref();
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timer")
    }
}
