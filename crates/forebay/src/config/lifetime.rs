//! The lifetime of connections.

use std::time::Duration;

/// How long a connection lives, and when it becomes too old to be lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The mean lifetime.
    pub base: Duration,
    /// The width of the range that lifetimes are drawn from: `base - jitter/2` to `base + jitter/2`.
    pub jitter: Duration,
    /// The guard window: a connection with less time left than this is not lent.
    pub guard: Duration,
}

impl Lifetime {
    /// The same lifetime for all connections, without jitter and without a guard window.
    #[must_use]
    pub const fn new(base: Duration) -> Self {
        Self { base, jitter: Duration::ZERO, guard: Duration::ZERO }
    }

    /// Draws each lifetime from `base - jitter/2` to `base + jitter/2`. Default: zero.
    #[must_use]
    pub const fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Does not lend a connection with less time left than this. Choose it longer than the longest
    /// transaction. Default: zero.
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

/// 11 min with a jitter of 2 min, and a guard window of 45 s.
impl Default for Lifetime {
    fn default() -> Self {
        Self::new(Duration::from_secs(11 * 60))
            .jitter(Duration::from_secs(2 * 60))
            .guard_window(Duration::from_secs(45))
    }
}
