//! What happened, told to an observer outside the lock.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::config::Lifetime;
use crate::error::{BoxError, OpenError};
use crate::status::Status;

/// Why a connection was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Discard {
    /// Inside its guard window when a caller asked for it or gave it back.
    GuardWindow,
    /// Past its life when a caller asked for it.
    ExpiredOnCheckout,
    /// Past its life when it was given back.
    ExpiredOnReturn,
    /// Past its life when the expiry task came by.
    ExpiredOnScan,
    /// Inside its guard window when the expiry task came by.
    ExpiringOnScan,
    /// Given back while the reservoir owned more than it may.
    Full,
    /// Marked bad by its user, or found unusable by the connector.
    Bad,
    /// Could not be made clean.
    ResetFailed,
    /// Reported dead, or failed its health check.
    Died,
    /// Idle for longer than the idle time-to-live.
    Idle,
    /// Retired on schedule; its replacement was there already.
    Retired,
    /// The reservoir is closing.
    Draining,
    /// Its lease was taken back: the shared store is away, and others could be given its place.
    Recalled,
}

impl Discard {
    /// Every reason, in the order of [`index`](Self::index).
    pub const ALL: [Self; 13] = [
        Self::GuardWindow,
        Self::ExpiredOnCheckout,
        Self::ExpiredOnReturn,
        Self::ExpiredOnScan,
        Self::ExpiringOnScan,
        Self::Full,
        Self::Bad,
        Self::ResetFailed,
        Self::Died,
        Self::Idle,
        Self::Retired,
        Self::Draining,
        Self::Recalled,
    ];

    /// Its place in a table of counts.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The label metrics carry.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::GuardWindow => "insufficient_remaining_lifetime",
            Self::ExpiredOnCheckout => "expired_on_checkout",
            Self::ExpiredOnReturn => "expired_on_return",
            Self::ExpiredOnScan => "expired_on_scan",
            Self::ExpiringOnScan => "expiring_soon_on_scan",
            Self::Full => "reservoir_full",
            Self::Bad => "bad",
            Self::ResetFailed => "reset_failed",
            Self::Died => "died",
            Self::Idle => "idle",
            Self::Retired => "retired",
            Self::Draining => "draining",
            Self::Recalled => "recalled",
        }
    }
}

impl fmt::Display for Discard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// Why an attempt to open a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Failure {
    /// The lease store could not be asked.
    Lease,
    /// The lease store said that the fleet has no connection left.
    LeaseLimit,
    /// The limiter gave no permit in its time.
    RateLimit,
    /// No token could be had.
    Token,
    /// The connection could not be opened: refused, unreachable, broken off.
    Open,
    /// The open took longer than its timeout.
    Timeout,
    /// The server refused the credentials.
    Auth,
    /// The server said that connections come too fast.
    Throttled,
    /// The server said that it has too many connections.
    TooManyConnections,
}

impl Failure {
    /// Every reason, in the order of [`index`](Self::index).
    pub const ALL: [Self; 9] = [
        Self::Lease,
        Self::LeaseLimit,
        Self::RateLimit,
        Self::Token,
        Self::Open,
        Self::Timeout,
        Self::Auth,
        Self::Throttled,
        Self::TooManyConnections,
    ];

    /// Its place in a table of counts.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The label metrics carry. Both failures of the lease store share one.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Lease | Self::LeaseLimit => "lease_acquire",
            Self::RateLimit => "rate_limit",
            Self::Token => "token_provider",
            Self::Open => "connection_open",
            Self::Timeout => "connect_timeout",
            Self::Auth => "auth",
            Self::Throttled => "throttled",
            Self::TooManyConnections => "too_many_connections",
        }
    }

    /// The longest pause between two attempts that fail for this reason.
    pub(crate) const fn max_backoff(self) -> Duration {
        match self {
            // Nothing scarce is spent on finding out whether there are tokens again.
            Self::Token => Duration::from_secs(1),
            // Long enough for a fleet of hundreds to stay within its rate while it finds out, and short enough for
            // callers to be served soon after.
            _ => Duration::from_secs(10),
        }
    }

    /// Whether the server itself asked for fewer or slower connections.
    #[must_use]
    pub const fn is_pushback(self) -> bool {
        matches!(self, Self::Throttled | Self::TooManyConnections)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// Something that happened in the background or at the end of a connection's life.
///
/// Checkouts are not events: they are too many. [`Status`](crate::Status) counts them.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The first open is delayed by a random time: see [`Config::startup_jitter`](crate::Config::startup_jitter).
    StartDelayed {
        /// How long.
        delay: Duration,
    },
    /// The refill begins.
    Started {
        /// How many connections are to be ready.
        target_ready: usize,
        /// How many usable ones are enough.
        low_watermark: usize,
        /// How long they live, if that is limited.
        lifetime: Option<Lifetime>,
    },
    /// A connection was opened and is usable.
    Opened {
        /// How long the open itself took, without waiting for lease and permit.
        took: Duration,
        /// Usable connections, this one included.
        size: usize,
        /// How many are to be ready.
        target: usize,
    },
    /// A caller who had to wait got a connection.
    Waited {
        /// How long it waited.
        waited: Duration,
    },
    /// An attempt to open a connection failed; another follows.
    OpenFailed {
        /// Why.
        error: &'a OpenError,
        /// How many attempts in a row have failed for this reason.
        attempt: u32,
        /// How long no new attempt is made.
        pause: Duration,
    },
    /// A connection left the reservoir.
    Discarded {
        /// Why.
        reason: Discard,
        /// How old it was.
        age: Duration,
        /// How much of its life was left; none if lives are not limited.
        remaining: Option<Duration>,
    },
    /// A connection could not be reset, or failed its health check.
    MaintenanceFailed {
        /// What the connector said.
        error: &'a BoxError,
    },
    /// A connection did not close in time. It was dropped; its lease is released now.
    CloseTimedOut,
    /// A lease could not be released; it is tried again.
    LeaseReleaseFailed {
        /// What the store said.
        error: &'a BoxError,
        /// How often it has been tried.
        attempt: u32,
    },
    /// The first fill reached the low watermark.
    Filled {
        /// Usable connections.
        size: usize,
        /// How many were to be ready.
        target: usize,
        /// How long it took.
        took: Duration,
    },
    /// The first fill did not reach the low watermark in time; the reservoir serves with what it has.
    FillTimedOut {
        /// Usable connections.
        size: usize,
        /// How many it waited for.
        low_watermark: usize,
        /// How long it waited.
        waited: Duration,
        /// Why the last open failed, if none has succeeded since.
        last_open_error: Option<&'a OpenError>,
    },
    /// Fewer usable connections than the low watermark.
    BelowWatermark {
        /// Usable connections.
        size: usize,
        /// How many would be enough.
        low_watermark: usize,
    },
    /// As many usable connections as the low watermark again.
    AboveWatermark {
        /// Usable connections.
        size: usize,
    },
    /// No more callers are served.
    Closed,
    /// Once a second, if an observer [wants](Observer::wants_reports) it, and at the end of a drain: how things stand.
    Report {
        /// How things stand.
        status: &'a Status,
    },
}

/// Hears of every [`Event`].
///
/// Called outside the lock, on whatever thread the event happened: it must not block, and must not check out.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn on(&self, event: &Event<'_>);

    /// Whether to send [`Event::Report`] once a second.
    fn wants_reports(&self) -> bool {
        false
    }
}

/// Several observers as one.
#[derive(Default)]
pub(crate) struct Observers(pub(crate) Vec<Box<dyn Observer>>);

impl Observer for Observers {
    fn on(&self, event: &Event<'_>) {
        for observer in &self.0 {
            // An observer that panics has printed why; it must not take the reservoir's own work with it.
            drop(catch_unwind(AssertUnwindSafe(|| observer.on(event))));
        }
    }

    fn wants_reports(&self) -> bool {
        self.0.iter().any(|observer| observer.wants_reports())
    }
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Observer for F {
    fn on(&self, event: &Event<'_>) {
        self(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_the_order_of_their_indices() {
        assert!(Discard::ALL.iter().enumerate().all(|(i, reason)| reason.index() == i));
        assert!(Failure::ALL.iter().enumerate().all(|(i, reason)| reason.index() == i));
    }
}
