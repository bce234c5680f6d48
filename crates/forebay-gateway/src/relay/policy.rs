//! How a session is treated.

use std::time::Duration;

use crate::config::Timeouts;
use crate::users::{Mode, User};

/// How a session is treated. A limit that is `None` does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// How long it keeps a backend.
    pub(crate) mode: Mode,
    /// In elastic mode, after how long an idle session gives its backend back although nobody waits.
    pub(crate) release_after: Option<Duration>,
    /// A statement may take this long.
    pub(crate) query_timeout: Option<Duration>,
    /// A transaction may take this long.
    pub(crate) transaction_timeout: Option<Duration>,
    /// A session may do nothing for this long inside of a transaction.
    pub(crate) idle_in_transaction_timeout: Option<Duration>,
    /// A session may do nothing for this long.
    pub(crate) idle_timeout: Option<Duration>,
    /// A client may leave its results unread for this long.
    pub(crate) unread_timeout: Option<Duration>,
    /// A client that has waited this long for a backend is told why.
    pub(crate) notice_after: Option<Duration>,
    /// How long a backend may take to answer what it was asked, once its client is gone.
    pub(crate) linger: Duration,
    /// How often limits and the age of the backend are looked at.
    pub(crate) tick: Duration,
}

/// A client that has waited this long for a backend is told why.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

/// Longer than most statements take, and than a new backend does.
const LINGER: Duration = Duration::from_secs(1);

impl Policy {
    /// How sessions of `user` are treated.
    pub(crate) fn new(user: &User, timeouts: &Timeouts) -> Self {
        let policy = Self {
            mode: user.mode,
            release_after: (user.mode == Mode::Elastic).then_some(user.release_after),
            query_timeout: timeouts.query,
            transaction_timeout: timeouts.transaction,
            idle_in_transaction_timeout: timeouts.idle_in_transaction,
            idle_timeout: timeouts.idle,
            unread_timeout: Some(timeouts.write),
            notice_after: Some(NOTICE_AFTER),
            linger: LINGER,
            tick: Duration::from_secs(1),
        };
        policy.with_fitting_tick()
    }

    /// The same, with a tick that suits its limits.
    fn with_fitting_tick(mut self) -> Self {
        let limits = [
            self.release_after,
            self.query_timeout,
            self.transaction_timeout,
            self.idle_in_transaction_timeout,
            self.idle_timeout,
            self.unread_timeout,
            self.notice_after,
        ];
        let shortest = limits.into_iter().flatten().min().unwrap_or(Duration::MAX);
        self.tick = (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        self
    }
}
