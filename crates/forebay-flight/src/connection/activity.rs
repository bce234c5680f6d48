//! How long a session was idle, as its server sees it.

use std::time::Duration;

use forebay::Instant;
use forebay::rt::Runtime;
use parking_lot::Mutex;

/// When a session ran its last statement.
#[derive(Debug)]
pub(crate) struct Activity(Mutex<Moment>);

/// One moment by two clocks. On a machine that was suspended only the time of day has gone on, and on the server both have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    monotonic: Instant,
    wall: Duration,
}

impl Moment {
    pub(crate) fn now(runtime: &dyn Runtime) -> Self {
        Self { monotonic: runtime.now(), wall: runtime.wall() }
    }

    /// The time from `before` to this moment.
    fn since(self, before: Self) -> Duration {
        self.monotonic.since(before.monotonic).max(self.wall.saturating_sub(before.wall))
    }
}

impl Activity {
    pub(crate) fn new(now: Moment) -> Self {
        Self(Mutex::new(now))
    }

    /// The server has answered a statement that was sent at this moment. Not when the answer came: a server may count from
    /// the beginning of a statement.
    pub(crate) fn record(&self, sent: Moment) {
        let mut last = self.0.lock();
        // The result of an earlier statement may be read to its end only now.
        if sent.monotonic >= last.monotonic {
            *last = sent;
        }
    }

    pub(crate) fn idle(&self, now: Moment) -> Duration {
        now.since(*self.0.lock())
    }
}

#[cfg(test)]
mod tests;
