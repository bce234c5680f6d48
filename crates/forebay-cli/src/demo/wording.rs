//! How figures read.

use std::time::Duration;

/// A whole number, with its thousands apart.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut spaced = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            spaced.push(',');
        }
        spaced.push(digit);
    }
    spaced
}

/// A wait, in milliseconds: three digits are enough.
pub(super) fn millis(wait: Duration) -> String {
    let millis = wait.as_secs_f64() * 1e3;
    match millis {
        ..10.0 => format!("{millis:.2} ms"),
        10.0..100.0 => format!("{millis:.1} ms"),
        _ => format!("{} ms", count(wait.as_millis().try_into().unwrap_or(u64::MAX))),
    }
}

/// A length of time, in seconds, without zeros at the end.
pub(super) fn seconds(length: Duration) -> String {
    format!("{} s", length.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn waits_have_three_digits() {
        let read = [96, 9_994, 10_060, 99_940, 1_002_495].map(|micros| millis(Duration::from_micros(micros)));
        assert_eq!(read, ["0.10 ms", "9.99 ms", "10.1 ms", "99.9 ms", "1,002 ms"]);
    }

    #[test]
    fn seconds_have_no_idle_zeros() {
        assert_eq!([1_000, 7_250].map(|ms| seconds(Duration::from_millis(ms))), ["1 s", "7.25 s"]);
    }
}
