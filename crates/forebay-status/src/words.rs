//! Numbers and durations as people write them.

use std::time::Duration;

/// `10,000`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// [`count`] of a number in memory.
pub(crate) fn size(number: usize) -> String {
    count(number as u64)
}

/// `1 caller`, `2 callers`.
pub(crate) fn many(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `0.3 s`, `4.2 s`, `14 s`, `3 min`, `1 h 5 min`: two digits are enough.
pub(crate) fn duration(duration: Duration) -> String {
    let tenths = (duration.as_millis() + 50) / 100;
    let seconds = (duration.as_millis() + 500) / 1000;
    if tenths < 1 {
        return "0.1 s".into();
    }
    if tenths < 100 {
        let (whole, rest) = (tenths / 10, tenths % 10);
        return if rest == 0 { format!("{whole} s") } else { format!("{whole}.{rest} s") };
    }
    if seconds < 120 {
        return format!("{seconds} s");
    }
    let minutes = (seconds + 30) / 60;
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

/// `8/s`, `0.5/s`, `1.5/s`, `1,200/s`.
pub(crate) fn rate(per_second: f64) -> String {
    if per_second >= 9.95 {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rounded positive number"
        )]
        return format!("{}/s", count(per_second.round() as u64));
    }
    let text = if per_second >= 0.095 { format!("{per_second:.1}") } else { format!("{per_second:.2}") };
    format!("{}/s", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators() {
        let numbers = [0, 7, 999, 1_000, 10_000, 1_234_567];
        assert_eq!(numbers.map(count), ["0", "7", "999", "1,000", "10,000", "1,234,567"]);
        assert_eq!([1, 2].map(|n| many(n, "caller")), ["1 caller", "2 callers"]);
    }

    #[test]
    fn durations_have_two_digits() {
        let seconds = [0.0, 0.26, 1.0, 4.23, 9.96, 13.6, 119.0, 121.0, 3_600.0, 3_900.0, 86_400.0];
        assert_eq!(
            seconds.map(|seconds| duration(Duration::from_secs_f64(seconds))),
            ["0.1 s", "0.3 s", "1 s", "4.2 s", "10 s", "14 s", "119 s", "2 min", "1 h", "1 h 5 min", "24 h"]
        );
    }

    #[test]
    fn rates_are_short() {
        let rates = [0.02, 0.5, 1.0, 7.96, 8.04, 9.99, 12.4, 1_200.0];
        assert_eq!(rates.map(rate), ["0.02/s", "0.5/s", "1/s", "8/s", "8/s", "10/s", "12/s", "1,200/s"]);
    }
}
