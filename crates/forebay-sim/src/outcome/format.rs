//! Numbers and reasons for readers.

use std::time::Duration;

use forebay::{Failure, duration};

/// A duration rounded to the millisecond below a minute, and to the second above.
pub(crate) fn about(duration: Duration) -> String {
    let unit = if duration < Duration::from_secs(60) { 1_000_000 } else { 1_000_000_000 };
    let rounded = (duration.as_nanos() + unit / 2) / unit * unit;
    duration::show(Duration::from_nanos(u64::try_from(rounded).unwrap_or(u64::MAX)))
}

/// A number with a comma between thousands.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number with its noun.
pub(crate) fn plural(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", grouped(number))
}

/// Why an open failed. Unlike the metrics, it has a label of its own for the lease limit.
pub(crate) fn cause(failure: Failure) -> &'static str {
    match failure {
        Failure::LeaseLimit => "lease_limit",
        other => other.label(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(about(Duration::from_micros(1_234_567)), "1.235s");
        assert_eq!(about(Duration::from_millis(61_600)), "1m2s");
        assert_eq!([0, 1, 2].map(|n| plural(n, "time")), ["0 times", "1 time", "2 times"]);
    }
}
