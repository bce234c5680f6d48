//! How long connections live, and when each is to be retired.

use std::time::Duration;

use super::calendar::Calendar;
use crate::config::{Config, Lifetime};
use crate::seed::Draws;
use crate::time::Instant;

/// Lifetimes and their calendar.
#[derive(Debug)]
pub(super) struct Lives {
    pub(super) lifetime: Lifetime,
    /// How long before it becomes useless a connection is to be retired, so that its replacement has time to open.
    pub(super) lead: Duration,
    pub(super) calendar: Calendar,
    pub(super) draws: Draws,
}

impl Lives {
    pub(super) fn new(lifetime: Lifetime, config: &Config, mut draws: Draws) -> Self {
        let lead = config.open_timeout.min(lifetime.shortest().saturating_sub(lifetime.guard) / 10);
        let calendar = Self::calendar(lifetime, lead, config.max_open, draws.bits());
        Self { lifetime, lead, calendar, draws }
    }

    fn calendar(lifetime: Lifetime, lead: Duration, connections: usize, draw: u64) -> Calendar {
        let shortest = lifetime.shortest().saturating_sub(lifetime.guard).saturating_sub(lead);
        Calendar::new(connections, shortest, lifetime.longest(), draw)
    }

    pub(super) fn calendar_for(&mut self, connections: usize) -> Calendar {
        Self::calendar(self.lifetime, self.lead, connections, self.draws.bits())
    }
}

/// When a connection was born and when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) born_at: Instant,
    /// From here on it is not handed out.
    pub(crate) stale_at: Instant,
    pub(crate) expires_at: Instant,
}

impl Life {
    /// How much is left; none if it is not limited.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        (self.expires_at != Instant::NEVER).then(|| self.expires_at.since(now))
    }
}
