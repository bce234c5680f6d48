//! Numbers and reasons as a reader wants them.

use std::time::Duration;

use forebay::{Failure, duration};

/// A duration as a reader wants it: to the millisecond below a minute, to the second above.
pub(crate) fn about(duration: Duration) -> String {
    let unit = if duration < Duration::from_secs(60) { 1_000_000 } else { 1_000_000_000 };
    let rounded = (duration.as_nanos() + unit / 2) / unit * unit;
    duration::show(Duration::from_nanos(u64::try_from(rounded).unwrap_or(u64::MAX)))
}

/// A number with its thousands apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// One or more of something.
pub(crate) fn plural(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", grouped(number))
}

/// Why an open failed. Metrics have one label for both failures of a lease store; here they are told apart.
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
