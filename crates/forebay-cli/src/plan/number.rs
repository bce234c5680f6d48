//! Conversions and texts of numbers.

use std::time::Duration;

use forebay::duration;
use forebay_sim::grouped;

/// The smallest whole number that is not below `number`; zero below zero.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates at both ends")]
pub(super) fn ceil(number: f64) -> u64 {
    number.ceil() as u64
}

/// The nearest whole number; zero below zero.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates at both ends")]
pub(super) fn round(number: f64) -> u64 {
    number.round() as u64
}

/// Seconds as a duration. What is too long for one is longer than anything that is planned.
pub(super) fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number.max(0.0)).unwrap_or(Duration::from_secs(u64::from(u32::MAX)))
}

/// A rate with three significant digits, and commas in large ones.
pub(super) fn rate(number: f64) -> String {
    match number {
        n if n >= 100.0 => grouped(round(n)),
        n if n >= 10.0 => format!("{n:.1}"),
        n if n >= 1.0 => format!("{n:.2}"),
        n => format!("{n:.3}"),
    }
}

/// A duration to a tenth of a second below ten seconds, to a second below an hour, and to a minute above.
pub(super) fn about(time: Duration) -> String {
    let unit = match time.as_secs() {
        0..10 => 0.1,
        10..3600 => 1.0,
        _ => 60.0,
    };
    // Whole tenths of a second, so that no rounding error shows.
    let tenths = round((time.as_secs_f64() / unit).round() * unit * 10.0);
    let shown = duration::show(Duration::from_millis(tenths.saturating_mul(100)));
    // "1h5m0s" and "5m0s" without the zeros.
    let shown = shown.strip_suffix("m0s").map_or(shown.clone(), |short| format!("{short}m"));
    shown.strip_suffix("h0m").map_or(shown.clone(), |short| format!("{short}h"))
}

/// A setting's duration, exactly, without trailing zeros.
pub(super) fn exact(time: Duration) -> String {
    let shown = duration::show(time);
    let shown = shown.strip_suffix("m0s").map_or(shown.clone(), |short| format!("{short}m"));
    shown.strip_suffix("h0m").map_or(shown.clone(), |short| format!("{short}h"))
}

/// A number with its noun.
pub(super) fn plural(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", grouped(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        let rates = [0.0758, 0.0, 1.234, 12.34, 99.96, 1234.5].map(rate);
        assert_eq!(rates, ["0.076", "0.000", "1.23", "12.3", "100.0", "1,235"]);
        let times = [0.0, 0.44, 5.0, 81.3, 300.0, 3600.0, 3930.0].map(|time| about(seconds(time)));
        assert_eq!(times, ["0s", "400ms", "5s", "1m21s", "5m", "1h", "1h6m"]);
        assert_eq!([45, 660, 3600].map(|time| exact(Duration::from_secs(time))), ["45s", "11m", "1h"]);
        assert_eq!((ceil(0.2), round(-1.0), round(2.5)), (1, 0, 3));
        assert_eq!(seconds(f64::INFINITY), Duration::from_secs(u64::from(u32::MAX)));
        assert_eq!([1, 2_000].map(|number| plural(number, "pool")), ["1 pool", "2,000 pools"]);
    }
}
