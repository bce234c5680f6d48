//! How long connections live.

use std::time::Duration;

/// How long a connection lives, and when it is too old to be handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The mean length of a life.
    pub base: Duration,
    /// How far lives differ: from `base - jitter/2` to `base + jitter/2`.
    pub jitter: Duration,
    /// A connection with less than this left is not handed out.
    pub guard: Duration,
}

impl Lifetime {
    /// Lives of length `base`, all alike, handed out to the end.
    #[must_use]
    pub const fn new(base: Duration) -> Self {
        Self { base, jitter: Duration::ZERO, guard: Duration::ZERO }
    }

    /// Draws each life from `base - jitter/2` to `base + jitter/2`.
    #[must_use]
    pub const fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Does not hand out a connection with less than this left: longer than the longest transaction.
    #[must_use]
    pub const fn guard_window(mut self, guard: Duration) -> Self {
        self.guard = guard;
        self
    }

    pub(crate) fn shortest(&self) -> Duration {
        self.base.saturating_sub(self.jitter / 2)
    }

    pub(crate) fn longest(&self) -> Duration {
        self.base.saturating_add(self.jitter / 2)
    }
}

/// 11 minutes, give or take one, and 45 seconds of guard window.
impl Default for Lifetime {
    fn default() -> Self {
        Self::new(Duration::from_secs(11 * 60))
            .jitter(Duration::from_secs(2 * 60))
            .guard_window(Duration::from_secs(45))
    }
}
