//! Events, which observers receive outside the lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::config::Lifetime;
use crate::error::{BoxError, OpenError};
use crate::status::Status;

/// Defines an enum of reasons, each with its label in metrics.
macro_rules! reasons {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $reason:ident $label:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $reason,)*
        }

        impl $name {
            /// All reasons, in the order of [`index`](Self::index).
            pub const ALL: [Self; [$($label),*].len()] = [$(Self::$reason),*];

            /// The index of this reason in tables of counts.
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }

            /// The value of the label `reason` in metrics.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$reason => $label,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.label())
            }
        }
    };
}
pub(crate) use reasons;

reasons! {
    /// Why a connection was discarded.
    Discard {
        /// It was in its guard window at a checkout or a return.
        GuardWindow "insufficient_remaining_lifetime",
        /// It had expired at a checkout.
        ExpiredOnCheckout "expired_on_checkout",
        /// It had expired at a return.
        ExpiredOnReturn "expired_on_return",
        /// The expiry task found that it had expired.
        ExpiredOnScan "expired_on_scan",
        /// The expiry task found it in its guard window.
        ExpiringOnScan "expiring_soon_on_scan",
        /// It was returned while there were more connections than allowed.
        Full "reservoir_full",
        /// The caller marked it bad, or the connector found it unusable.
        Bad "bad",
        /// It could not be reset.
        ResetFailed "reset_failed",
        /// It was reported dead, or failed its health check.
        Died "died",
        /// It was idle for longer than `idle_timeout`.
        Idle "idle",
        /// It was retired: on schedule, when its replacement was ready, or because the application asked for it.
        Retired "retired",
        /// The reservoir is closed.
        Draining "draining",
        /// Its lease was recalled: the lease store is unreachable, and may give the lease to another process.
        Recalled "recalled",
    }
}

reasons! {
    /// Why an attempt to open a connection failed.
    Failure {
        /// The lease store did not answer.
        Lease "lease_acquire",
        /// The lease store has no free lease for this process.
        LeaseLimit "lease_acquire",
        /// The limiter granted no permit in time.
        RateLimit "rate_limit",
        /// No token was available.
        Token "token_provider",
        /// The connection failed: refused, unreachable or interrupted.
        Open "connection_open",
        /// The open took longer than its timeout.
        Timeout "connect_timeout",
        /// The server rejected the credentials.
        Auth "auth",
        /// The server reported that connections are opened too fast.
        Throttled "throttled",
        /// The server reported that there are too many connections.
        TooManyConnections "too_many_connections",
    }
}

impl Failure {
    /// The longest pause between attempts that fail for this reason.
    pub(crate) const fn max_backoff(self) -> Duration {
        match self {
            // Trying again to get a token uses no scarce resource.
            Self::Token => Duration::from_secs(1),
            // Long enough for a fleet of hundreds to stay within its rate while it retries, and short enough
            // to serve callers soon after the recovery.
            _ => Duration::from_secs(10),
        }
    }

    /// Whether the server itself requires fewer or slower connections.
    #[must_use]
    pub const fn is_pushback(self) -> bool {
        matches!(self, Self::Throttled | Self::TooManyConnections)
    }
}

/// Something that happened in the background, or at the end of a connection's life.
///
/// A checkout is not an event, since there are too many of them. [`Status`](crate::Status) counts them.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The first open waits for a random time; see [`Config::startup_jitter`](crate::Config::startup_jitter).
    StartDelayed {
        /// How long it waits.
        delay: Duration,
    },
    /// The reservoir begins to open connections.
    Started {
        /// How many connections will be kept ready.
        target_ready: usize,
        /// How many usable connections are enough.
        low_watermark: usize,
        /// How long connections live. `None`: without limit.
        lifetime: Option<Lifetime>,
    },
    /// A connection was opened and is usable.
    Opened {
        /// How long the open took, without the wait for a lease and a permit.
        took: Duration,
        /// The number of usable connections, with this one.
        size: usize,
        /// How many connections are kept ready.
        target: usize,
    },
    /// A caller that had to wait got a connection.
    Waited {
        /// How long it waited.
        waited: Duration,
    },
    /// An attempt to open a connection failed. Another one follows.
    OpenFailed {
        /// The error.
        error: &'a OpenError,
        /// How many attempts in a row failed for this reason.
        attempt: u32,
        /// How long the reservoir waits before the next attempt.
        pause: Duration,
    },
    /// A connection was discarded.
    Discarded {
        /// Why it was discarded.
        reason: Discard,
        /// How old the connection was.
        age: Duration,
        /// How long it would have lived. `None` if lifetimes are not limited.
        remaining: Option<Duration>,
    },
    /// A connection could not be reset, or failed its health check.
    MaintenanceFailed {
        /// The error of the connector.
        error: &'a BoxError,
    },
    /// A close took too long. The connection was dropped, and its lease is released next.
    CloseTimedOut,
    /// The release of a lease failed. It is retried.
    LeaseReleaseFailed {
        /// The error of the lease store.
        error: &'a BoxError,
        /// How many attempts have failed.
        attempt: u32,
    },
    /// The first fill reached the low watermark.
    Filled {
        /// The number of usable connections.
        size: usize,
        /// How many connections are kept ready.
        target: usize,
        /// How long it took.
        took: Duration,
    },
    /// The first fill did not reach the low watermark in time. The reservoir serves with the connections it
    /// has.
    FillTimedOut {
        /// The number of usable connections.
        size: usize,
        /// How many usable connections it waited for.
        low_watermark: usize,
        /// How long it waited.
        waited: Duration,
        /// The error of the last open, if none has succeeded since.
        last_open_error: Option<&'a OpenError>,
    },
    /// The number of usable connections fell below the low watermark.
    BelowWatermark {
        /// The number of usable connections.
        size: usize,
        /// How many usable connections are enough.
        low_watermark: usize,
    },
    /// The number of usable connections reached the low watermark again.
    AboveWatermark {
        /// The number of usable connections.
        size: usize,
    },
    /// The reservoir was closed: it serves no more callers.
    Closed,
    /// A status report: once a second if an observer [wants reports](Observer::wants_reports), and at the end
    /// of a drain.
    Report {
        /// The status.
        status: &'a Status,
    },
}

/// Receives every [`Event`].
///
/// It runs outside the lock, on the thread where the event happened. It must not block, and must not check
/// out a connection.
pub trait Observer: Send + Sync + 'static {
    /// Receives an event.
    fn on(&self, event: &Event<'_>);

    /// Whether this observer needs an [`Event::Report`] every second. Default: no.
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
            // An observer that panics has printed why. It must not interrupt the work of the reservoir.
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
