//! Wall time: the only file of this crate that may read a clock or sleep.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures wall time")]

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// Measures how long something takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Nanoseconds since the first call, for points in time that several tasks compare.
pub(crate) fn nanos() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    whole_nanos(ORIGIN.get_or_init(Instant::now).elapsed())
}

/// A duration in whole nanoseconds, at most 584 years.
pub(crate) fn whole_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Suspends the task.
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Blocks the thread.
pub(crate) fn nap(duration: Duration) {
    std::thread::sleep(duration);
}

/// Today in UTC, such as `2026-01-31`.
pub(crate) fn today() -> String {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let midnight = Duration::from_secs(since_1970.as_secs() / 86_400 * 86_400);
    forebay_sim::rfc3339(midnight).chars().take("2026-01-31".len()).collect()
}
