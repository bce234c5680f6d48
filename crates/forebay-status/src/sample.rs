//! One sample of a pool: plain numbers, so that everything that is derived from them is a pure function.

use std::time::Duration;

use forebay::{CheckoutFailure, Counts, Discard, Failure, Fill, Instant, RefillStatus, Status};

use crate::source::{FleetSnapshot, PoolSnapshot, TokenSnapshot};

/// A pool at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    /// The time of day, since 1970.
    pub(crate) wall: Duration,
    pub(crate) levels: Levels,
    pub(crate) totals: Totals,
    pub(crate) refill: Refill,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) mode: Option<String>,
    pub(crate) fleet: Option<FleetSnapshot>,
    pub(crate) token: Option<TokenSnapshot>,
}

/// How many connections and callers are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Levels {
    pub(crate) ready: usize,
    pub(crate) in_use: usize,
    pub(crate) in_maintenance: usize,
    pub(crate) opening: usize,
    pub(crate) closing: usize,
    pub(crate) waiting: usize,
    pub(crate) retiring: usize,
    pub(crate) max_open: usize,
    pub(crate) target_ready: usize,
    pub(crate) low_watermark: usize,
    pub(crate) closed: bool,
}

impl Levels {
    /// The usable connections.
    pub(crate) fn usable(&self) -> usize {
        self.ready + self.in_use + self.in_maintenance
    }

    /// How many connections should be usable now.
    pub(crate) fn goal(&self) -> usize {
        let busy = self.in_use + self.in_maintenance;
        (busy + self.target_ready.max(self.waiting)).min(self.max_open)
    }

    /// How many usable connections are missing, whether they are being opened or not.
    pub(crate) fn lacking(&self) -> usize {
        if self.closed { 0 } else { self.goal().saturating_sub(self.usable()) }
    }

    pub(crate) fn is_below_watermark(&self) -> bool {
        !self.closed && self.usable() < self.low_watermark
    }

    /// Connections that are not closed yet.
    pub(crate) fn left(&self) -> usize {
        self.usable() + self.opening + self.closing
    }
}

/// Counters since the pool started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) checkouts: u64,
    pub(crate) waits: u64,
    pub(crate) empty: u64,
    pub(crate) exhausted: u64,
    pub(crate) opened: u64,
    pub(crate) detached: u64,
    pub(crate) checkout_failures: [u64; CheckoutFailure::ALL.len()],
    pub(crate) discards: [u64; Discard::ALL.len()],
    pub(crate) open_failures: [u64; Failure::ALL.len()],
}

impl Totals {
    pub(crate) fn discards(&self, reasons: &[Discard]) -> u64 {
        reasons.iter().map(|reason| self.discards[reason.index()]).sum()
    }

    pub(crate) fn all_discards(&self) -> u64 {
        self.discards.iter().sum()
    }

    pub(crate) fn all_open_failures(&self) -> u64 {
        self.open_failures.iter().sum()
    }
}

/// What the refill does, and what it waits for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refill {
    pub(crate) missing: usize,
    pub(crate) waiting_for_token: usize,
    pub(crate) waiting_for_lease: usize,
    pub(crate) waiting_for_permit: usize,
    pub(crate) paused_for: Option<Duration>,
    pub(crate) rate_share: f64,
    pub(crate) per_second: f64,
    pub(crate) at_once: u32,
    pub(crate) limiter: &'static str,
    pub(crate) last_failure: Option<OpenFailure>,
}

impl Default for Refill {
    fn default() -> Self {
        Self {
            missing: 0,
            waiting_for_token: 0,
            waiting_for_lease: 0,
            waiting_for_permit: 0,
            paused_for: None,
            rate_share: 1.0,
            per_second: 10.0,
            at_once: 0,
            limiter: "the rate limiter",
            last_failure: None,
        }
    }
}

/// The last open that failed, if none has succeeded since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenFailure {
    pub(crate) reason: Failure,
    /// The whole text, which begins with the reason.
    pub(crate) text: String,
    pub(crate) permanent: bool,
}

/// The settings that say when connections are opened, and how long they live.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lifecycle {
    pub(crate) on_demand: bool,
    pub(crate) replace_ahead: bool,
    pub(crate) lifetime: Option<forebay::Lifetime>,
    pub(crate) server_limit: Option<Duration>,
    pub(crate) rate: f64,
    pub(crate) burst: u32,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::of(&forebay::Config::default())
    }
}

impl Lifecycle {
    fn of(config: &forebay::Config) -> Self {
        Self {
            on_demand: matches!(config.fill, Fill::OnDemand { .. }),
            replace_ahead: config.replace_ahead,
            lifetime: config.lifetime,
            server_limit: config.server_limit,
            rate: config.rate,
            burst: config.burst,
        }
    }
}

impl Sample {
    pub(crate) fn new(at: Instant, wall: Duration, snapshot: PoolSnapshot) -> Self {
        let PoolSnapshot { status, refill, config, mode, fleet, token } = snapshot;
        Self {
            at,
            wall,
            levels: levels(&status),
            totals: totals(&status.counts),
            refill: refilling(&refill),
            lifecycle: Lifecycle::of(&config),
            mode,
            fleet,
            token,
        }
    }
}

fn levels(status: &Status) -> Levels {
    Levels {
        ready: status.ready,
        in_use: status.in_use,
        in_maintenance: status.in_maintenance,
        opening: status.opening,
        closing: status.closing,
        waiting: status.waiting,
        retiring: status.retiring,
        max_open: status.max_open,
        target_ready: status.target_ready,
        low_watermark: status.low_watermark,
        closed: status.closed,
    }
}

fn totals(counts: &Counts) -> Totals {
    Totals {
        checkouts: counts.checkouts,
        waits: counts.waits,
        empty: counts.empty,
        exhausted: counts.exhausted,
        opened: counts.refills,
        detached: counts.detached,
        checkout_failures: CheckoutFailure::ALL.map(|reason| counts.checkout_failures(reason)),
        discards: Discard::ALL.map(|reason| counts.discards(reason)),
        open_failures: Failure::ALL.map(|reason| counts.failures(reason)),
    }
}

fn refilling(refill: &RefillStatus) -> Refill {
    // A text that describes attempts in flight is no failure: the numbers say the same.
    let failed = refill.last_failure.as_ref().filter(|error| !error.is_pending());
    Refill {
        missing: refill.missing,
        waiting_for_token: refill.waiting_for_token,
        waiting_for_lease: refill.waiting_for_lease,
        waiting_for_permit: refill.waiting_for_permit,
        paused_for: refill.paused_for,
        rate_share: refill.rate_share,
        per_second: refill.pace.per_second,
        at_once: refill.pace.at_once,
        limiter: refill.limiter,
        last_failure: failed.map(|error| OpenFailure {
            reason: error.failure(),
            text: error.to_string(),
            permanent: error.is_permanent(),
        }),
    }
}
