//! Log lines, with wordings that operators rely on. Repeated lines are counted and summed up.

use std::collections::BTreeMap;
use std::fmt;

use tracing::{Level, debug, error, info, warn};

use crate::config::Lifetime;
use crate::duration::show;
use crate::event::{Discard, Event, Failure, Observer};
use crate::status::Status;
use crate::sync::Mutex;

/// The macros of `tracing` need a constant level.
macro_rules! log {
    ($level:expr, $($line:tt)+) => {
        match $level {
            Level::ERROR => error!(target: "forebay", $($line)+),
            Level::WARN => warn!(target: "forebay", $($line)+),
            Level::INFO => info!(target: "forebay", $($line)+),
            _ => debug!(target: "forebay", $($line)+),
        }
    };
}

/// An observer that writes log lines through `tracing`.
///
/// Among lines that differ only in their numbers, it writes one per second. It counts the others, and writes
/// the count at the end of the second.
#[derive(Debug, Default)]
pub struct Logs {
    pool: Option<String>,
    state: Mutex<LogState>,
}

#[derive(Debug, Default)]
struct LogState {
    /// The messages that were written since the last report, and how often each was repeated.
    repeats: BTreeMap<Message, u64>,
    lifetime: Option<Lifetime>,
    /// The first fill is over. From then on, opens are routine.
    filled: bool,
    /// Whether the size was below the low watermark at the last report.
    below: bool,
    /// The number of callers that had found no connection ready, at the last report.
    empty: u64,
}

/// Lines that differ only in their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Message {
    Created,
    Discarding(Discard),
    Failed(Failure),
    MaintenanceFailed,
    CloseTimedOut,
    ReleaseFailed,
}

impl Logs {
    /// Logs without a pool name.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the field `pool`, for processes with several reservoirs. Default: no such field.
    #[must_use]
    pub fn pool(mut self, pool: impl Into<String>) -> Self {
        self.pool = Some(pool.into());
        self
    }

    /// Whether this message must be written now, and not only counted.
    fn is_first(&self, message: Message) -> bool {
        *self.state.lock().repeats.entry(message).and_modify(|more| *more += 1).or_insert(0) == 0
    }

    /// Writes the counts since the last report.
    fn sum_up(&self) {
        let repeats = std::mem::take(&mut self.state.lock().repeats);
        let pool = self.pool.as_deref();
        for (message, more) in repeats.into_iter().filter(|(_, more)| *more > 0) {
            log!(message.level(), pool, repeated = more, "{message}{}, and again", message.which());
        }
    }
}

impl Message {
    /// Planned events are routine. Failures that are retried are warnings. Failures that prevent opens are
    /// errors.
    fn level(self) -> Level {
        match self {
            Self::Created => Level::INFO,
            Self::Discarding(
                Discard::Retired | Discard::Idle | Discard::Draining | Discard::ExpiringOnScan,
            ) => Level::DEBUG,
            Self::Failed(Failure::RateLimit)
            | Self::Discarding(_)
            | Self::MaintenanceFailed
            | Self::CloseTimedOut
            | Self::ReleaseFailed => Level::WARN,
            Self::Failed(_) => Level::ERROR,
        }
    }

    /// Tells apart messages with the same text. Their first line does so with its fields.
    fn which(self) -> String {
        match self {
            Self::Failed(failure) => format!(" ({failure})"),
            _ => String::new(),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "Reservoir refiller: created connection",
            Self::Discarding(reason) => {
                return write!(f, "Reservoir: discarding connection ({reason})");
            }
            Self::Failed(Failure::Lease | Failure::LeaseLimit) => "Reservoir refiller: lease acquire failed",
            Self::Failed(Failure::Token) => "Reservoir refiller: token provider failed",
            Self::Failed(Failure::RateLimit) => "Reservoir refiller: failed to create connection",
            Self::Failed(_) => "Reservoir refiller: connection open failed",
            Self::MaintenanceFailed => "Reservoir: reset or check failed",
            Self::CloseTimedOut => "Reservoir: close timed out",
            Self::ReleaseFailed => "Reservoir: lease release failed",
        })
    }
}

impl Observer for Logs {
    fn on(&self, event: &Event<'_>) {
        let pool = self.pool.as_deref();
        match event {
            Event::Report { status } => {
                self.sum_up();
                self.compare_with_watermark(status);
                self.compare_with_empty(status);
            }
            Event::StartDelayed { delay } => {
                let delay = show(*delay);
                info!(target: "forebay", pool, delay, "Reservoir refiller: start delayed, so that a fleet does not connect all at once");
            }
            Event::Started { target_ready, low_watermark, lifetime } => {
                self.state.lock().lifetime = *lifetime;
                let base_lifetime = lifetime.map_or_else(|| "unlimited".to_owned(), |life| show(life.base));
                info!(target: "forebay", pool, target_ready, low_watermark, base_lifetime, "Reservoir refiller started");
            }
            Event::Opened { size, target, took } => {
                // During the first fill one line per second is written. Later, opens are routine.
                let filled = self.state.lock().filled;
                if filled || self.is_first(Message::Created) {
                    let level = if filled { Level::DEBUG } else { Level::INFO };
                    let took = show(*took);
                    log!(level, pool, reservoir_size = size, target, took, "{}", Message::Created);
                }
            }
            Event::Filled { size, target, took } => {
                self.state.lock().filled = true;
                let elapsed = show(*took);
                info!(target: "forebay", pool, size, target, elapsed, "Reservoir initial fill complete");
            }
            Event::FillTimedOut { size, low_watermark, waited, last_open_error } => {
                self.state.lock().filled = true;
                let waited = show(*waited);
                let last_error = last_open_error.map(ToString::to_string);
                warn!(target: "forebay", pool, current = size, target = low_watermark, waited, last_error, "Reservoir initial fill timeout");
            }
            Event::Discarded { reason, age, remaining } => self.discarded(*reason, *age, *remaining),
            Event::OpenFailed { error, attempt, pause } => {
                let message = Message::Failed(error.failure());
                if self.is_first(message) {
                    let (error, retry_in) = (error.to_string(), show(*pause));
                    log!(message.level(), pool, error, attempt, retry_in, "{message}");
                }
            }
            Event::MaintenanceFailed { error } if self.is_first(Message::MaintenanceFailed) => {
                warn!(target: "forebay", pool, error = error.to_string(), "{}", Message::MaintenanceFailed);
            }
            Event::CloseTimedOut if self.is_first(Message::CloseTimedOut) => {
                warn!(target: "forebay", pool, "{}", Message::CloseTimedOut);
            }
            Event::LeaseReleaseFailed { error, attempt } if self.is_first(Message::ReleaseFailed) => {
                warn!(target: "forebay", pool, error = error.to_string(), attempt, "{}", Message::ReleaseFailed);
            }
            Event::Closed => info!(target: "forebay", pool, "Reservoir closed"),
            _ => {}
        }
    }

    fn wants_reports(&self) -> bool {
        true
    }
}

impl Logs {
    /// Runs once per second and not at each crossing: a single discard crosses the watermark until its
    /// replacement is open.
    fn compare_with_watermark(&self, status: &Status) {
        let (size, low_watermark) = (status.size(), status.low_watermark);
        let below = size < low_watermark && !status.closed;
        let mut state = self.state.lock();
        if !state.filled {
            // The reservoir was started with `start_empty`: its first fill ends here.
            state.filled = !below;
            return;
        }
        if below == state.below {
            return;
        }
        state.below = below;
        let pool = self.pool.as_deref();
        if below {
            warn!(target: "forebay", pool, size, low_watermark, "Reservoir below low watermark");
        } else if !status.closed {
            info!(target: "forebay", pool, size, low_watermark, "Reservoir back above low watermark");
        }
    }

    /// Writes at most one line per second, for any number of callers.
    fn compare_with_empty(&self, status: &Status) {
        let empty = status.counts.empty;
        let callers = empty.saturating_sub(std::mem::replace(&mut self.state.lock().empty, empty));
        if callers > 0 {
            let (pool, size) = (self.pool.as_deref(), status.size());
            let Status { opening, waiting, max_open, .. } = *status;
            warn!(target: "forebay", pool, callers, size, opening, waiting, max_open, "Reservoir empty: callers found no connection ready");
        }
    }

    fn discarded(&self, reason: Discard, age: std::time::Duration, remaining: Option<std::time::Duration>) {
        let message = Message::Discarding(reason);
        if message.level() == Level::WARN && !self.is_first(message) {
            return;
        }
        let pool = self.pool.as_deref();
        let guard_window = self.state.lock().lifetime.map(|life| show(life.guard));
        let (reason, age, remaining) = (reason.label(), show(age), remaining.map(show));
        log!(message.level(), pool, reason, age, remaining, guard_window, "Reservoir: discarding connection");
    }
}
