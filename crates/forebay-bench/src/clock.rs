//! Wall time: the one file here that may read a clock or sleep.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures wall time")]

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// Measures how long something takes.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts one.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// How long it has been running.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Nanoseconds since the first call: for points in time that several tasks compare.
#[must_use]
pub fn nanos() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    whole_nanos(ORIGIN.get_or_init(Instant::now).elapsed())
}

/// A duration in whole nanoseconds, at most 584 years.
#[must_use]
pub fn whole_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Sleeps.
pub async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Today, as `2026-01-31`, by UTC.
#[must_use]
pub fn today() -> String {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = civil(since_1970.as_secs() / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Year, month and day of the `days`th day after 1970-01-01. Years begin in March here, so that the leap day is the
/// last of its year and months have a regular pattern; `era` is 400 years, after which the calendar repeats.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_based = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_based + 2) / 5 + 1;
    let month = if march_based < 10 { march_based + 3 } else { march_based - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(59), (1970, 3, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_453), (2025, 12, 31));
        assert_eq!(civil(20_454), (2026, 1, 1));
    }
}
