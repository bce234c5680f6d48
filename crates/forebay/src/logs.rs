//! Log lines, worded as operators know them; a storm of the same line is summed up, not repeated.

use std::collections::BTreeMap;
use std::fmt;

use tracing::{Level, debug, error, info, warn};

use crate::config::Lifetime;
use crate::duration::show;
use crate::event::{Discard, Event, Failure, Observer};
use crate::status::Status;
use crate::sync::Mutex;

/// `tracing`'s macros need a level that is known when they are compiled.
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

/// An observer that writes log lines, through `tracing`.
///
/// Of lines that differ only in their numbers, one a second is written; the others of that second are counted, and the
/// count is written at its end.
#[derive(Debug, Default)]
pub struct Logs {
    pool: Option<String>,
    written: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Written {
    /// What has been written since the last report, and how often more it happened.
    lines: BTreeMap<Line, u64>,
    lifetime: Option<Lifetime>,
    /// The first fill is over: opens are routine.
    filled: bool,
    /// Below the low watermark at the last report.
    below: bool,
    /// Callers who had found the reservoir empty by the last report.
    empty: u64,
}

/// Lines that are the same but for their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    Created,
    Discarding(Discard),
    Failed(Failure),
    CareFailed,
    CloseTimedOut,
    ReleaseFailed,
}

impl Logs {
    /// Logs of a reservoir that needs no name.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Logs with the field `pool`, for processes with several reservoirs.
    #[must_use]
    pub fn pool(mut self, pool: impl Into<String>) -> Self {
        self.pool = Some(pool.into());
        self
    }

    /// Whether this line is to be written now, and not only counted.
    fn first(&self, line: Line) -> bool {
        let mut written = self.written.lock();
        match written.lines.get_mut(&line) {
            None => {
                written.lines.insert(line, 0);
                true
            }
            Some(more) => {
                *more += 1;
                false
            }
        }
    }

    /// Writes what was counted since the last report.
    fn sum_up(&self) {
        let lines = std::mem::take(&mut self.written.lock().lines);
        let pool = self.pool.as_deref();
        for (line, more) in lines.into_iter().filter(|(_, more)| *more > 0) {
            log!(line.level(), pool, repeated = more, "{line}{}, and again", line.which());
        }
    }
}

impl Line {
    /// What goes as planned is routine; what fails and is tried again is a warning; what keeps connections from
    /// coming is an error.
    fn level(self) -> Level {
        match self {
            Self::Created => Level::INFO,
            Self::Discarding(
                Discard::Retired | Discard::Idle | Discard::Draining | Discard::ExpiringOnScan,
            ) => Level::DEBUG,
            Self::Failed(Failure::RateLimit)
            | Self::Discarding(_)
            | Self::CareFailed
            | Self::CloseTimedOut
            | Self::ReleaseFailed => Level::WARN,
            Self::Failed(_) => Level::ERROR,
        }
    }

    /// Which of several that read alike, where their first line says so in its fields.
    fn which(self) -> String {
        match self {
            Self::Failed(failure) => format!(" ({failure})"),
            _ => String::new(),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created => f.write_str("Reservoir refiller: created connection"),
            Self::Discarding(reason) => write!(f, "Reservoir: discarding connection ({reason})"),
            Self::Failed(Failure::Lease | Failure::LeaseLimit) => {
                f.write_str("Reservoir refiller: lease acquire failed")
            }
            Self::Failed(Failure::Token) => f.write_str("Reservoir refiller: token provider failed"),
            Self::Failed(Failure::RateLimit) => {
                f.write_str("Reservoir refiller: failed to create connection")
            }
            Self::Failed(_) => f.write_str("Reservoir refiller: connection open failed"),
            Self::CareFailed => f.write_str("Reservoir: reset or check failed"),
            Self::CloseTimedOut => f.write_str("Reservoir: close timed out"),
            Self::ReleaseFailed => f.write_str("Reservoir: lease release failed"),
        }
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
                self.written.lock().lifetime = *lifetime;
                let base_lifetime = lifetime.map_or_else(|| "unlimited".to_owned(), |life| show(life.base));
                info!(target: "forebay", pool, target_ready, low_watermark, base_lifetime, "Reservoir refiller started");
            }
            Event::Opened { size, target, took } => {
                // Of the first fill, one line a second; later, opens are routine.
                let filled = self.written.lock().filled;
                if filled || self.first(Line::Created) {
                    let level = if filled { Level::DEBUG } else { Level::INFO };
                    let took = show(*took);
                    log!(level, pool, reservoir_size = size, target, took, "{}", Line::Created);
                }
            }
            Event::Filled { size, target, took } => {
                self.written.lock().filled = true;
                let elapsed = show(*took);
                info!(target: "forebay", pool, size, target, elapsed, "Reservoir initial fill complete");
            }
            Event::FillTimedOut { size, low_watermark, waited, last_open_error } => {
                self.written.lock().filled = true;
                let waited = show(*waited);
                let last_error = last_open_error.map(ToString::to_string);
                warn!(target: "forebay", pool, current = size, target = low_watermark, waited, last_error, "Reservoir initial fill timeout");
            }
            Event::Discarded { reason, age, remaining } => self.discarded(*reason, *age, *remaining),
            Event::OpenFailed { error, attempt, pause } => {
                let line = Line::Failed(error.failure());
                if self.first(line) {
                    let (error, retry_in) = (error.to_string(), show(*pause));
                    log!(line.level(), pool, error, attempt, retry_in, "{line}");
                }
            }
            Event::CareFailed { error } if self.first(Line::CareFailed) => {
                warn!(target: "forebay", pool, error = error.to_string(), "{}", Line::CareFailed);
            }
            Event::CloseTimedOut if self.first(Line::CloseTimedOut) => {
                warn!(target: "forebay", pool, "{}", Line::CloseTimedOut);
            }
            Event::LeaseReleaseFailed { error, attempt } if self.first(Line::ReleaseFailed) => {
                warn!(target: "forebay", pool, error = error.to_string(), attempt, "{}", Line::ReleaseFailed);
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
    /// Once a second, and not at each crossing: a single discard crosses it for as long as an open takes.
    fn compare_with_watermark(&self, status: &Status) {
        let (size, low_watermark) = (status.size(), status.low_watermark);
        let below = size < low_watermark && !status.closed;
        let mut written = self.written.lock();
        if !written.filled {
            // A reservoir that was started empty: from now on opens are routine.
            written.filled = !below;
            return;
        }
        if below == written.below {
            return;
        }
        written.below = below;
        let pool = self.pool.as_deref();
        if below {
            warn!(target: "forebay", pool, size, low_watermark, "Reservoir below low watermark");
        } else if !status.closed {
            info!(target: "forebay", pool, size, low_watermark, "Reservoir back above low watermark");
        }
    }

    /// One line a second at most, however many callers found nothing.
    fn compare_with_empty(&self, status: &Status) {
        let empty = status.counts.empty;
        let callers = empty.saturating_sub(std::mem::replace(&mut self.written.lock().empty, empty));
        if callers > 0 {
            let (pool, size) = (self.pool.as_deref(), status.size());
            let Status { opening, waiting, max_open, .. } = *status;
            warn!(target: "forebay", pool, callers, size, opening, waiting, max_open, "Reservoir empty: callers found no connection ready");
        }
    }

    fn discarded(&self, reason: Discard, age: std::time::Duration, remaining: Option<std::time::Duration>) {
        let line = Line::Discarding(reason);
        if line.level() == Level::WARN && !self.first(line) {
            return;
        }
        let pool = self.pool.as_deref();
        let guard_window = self.written.lock().lifetime.map(|life| show(life.guard));
        let (reason, age, remaining) = (reason.label(), show(age), remaining.map(show));
        log!(line.level(), pool, reason, age, remaining, guard_window, "Reservoir: discarding connection");
    }
}
