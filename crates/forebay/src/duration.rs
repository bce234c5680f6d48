//! Durations as Go writes them: `45s`, `1h30m`, `1.5s`, `-2m`.

use std::time::Duration;

/// A duration that may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signed {
    /// Whether it is below zero.
    pub negative: bool,
    /// Its length.
    pub magnitude: Duration,
}

impl Signed {
    /// Whether it is above zero.
    #[must_use]
    pub fn is_positive(self) -> bool {
        !self.negative && !self.magnitude.is_zero()
    }
}

/// Parses a duration that Go's `time.ParseDuration` accepts and that is not negative.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(forebay::duration::parse("1h30m"), Some(Duration::from_secs(5400)));
/// assert_eq!(forebay::duration::parse("soon"), None);
/// ```
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    parse_signed(text).filter(|signed| !signed.negative).map(|signed| signed.magnitude)
}

/// Parses a duration that Go's `time.ParseDuration` accepts.
#[must_use]
pub fn parse_signed(text: &str) -> Option<Signed> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(Signed { negative: false, magnitude: Duration::ZERO });
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let unit = unit(&after[..end])?;
        // More digits are below a nanosecond.
        let fraction = &fraction[..fraction.len().min(18)];
        let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
        nanos = nanos.checked_add(whole.checked_mul(unit)?)?.checked_add(part * unit / scale)?;
        rest = &after[end..];
    }
    // Go uses 63 bits of nanoseconds.
    let nanos = u64::try_from(nanos).ok().filter(|nanos| i64::try_from(*nanos).is_ok())?;
    Some(Signed { negative: negative && nanos > 0, magnitude: Duration::from_nanos(nanos) })
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn unit(name: &str) -> Option<u128> {
    Some(match name {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// Formats a duration as Go does: `11m0s`, `1h30m0s`, `1.5s`, `100ms`.
#[must_use]
pub fn show(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let decimal = |whole: u128, per: u128| {
        let (units, rest) = (whole / per, whole % per);
        let digits = per.ilog10() as usize;
        let fraction = format!("{rest:0digits$}");
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() { units.to_string() } else { format!("{units}.{fraction}") }
    };
    match nanos {
        0 => "0s".into(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}µs", decimal(nanos, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(nanos, 1_000_000)),
        _ => {
            let minutes = nanos / 60_000_000_000;
            let seconds = decimal(nanos % 60_000_000_000, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nanos(text: &str) -> Option<i128> {
        let signed = parse_signed(text)?;
        let magnitude = i128::try_from(signed.magnitude.as_nanos()).unwrap();
        Some(if signed.negative { -magnitude } else { magnitude })
    }

    #[test]
    fn reads_what_go_reads() {
        let second = 1_000_000_000;
        for (text, expected) in [
            ("0", 0),
            ("+0", 0),
            ("-0s", 0),
            ("5s", 5 * second),
            ("11m", 660 * second),
            ("1h30m", 5400 * second),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("1.s", second),
            ("-2m", -120 * second),
            ("100ms", 100_000_000),
            ("3us", 3_000),
            ("3µs", 3_000),
            ("7ns", 7),
            ("0.000000001s", 1),
            ("0.0000000001s", 0),
            ("39h9m14.425s", 140_954_425_000_000),
            ("2562047h47m16.854775807s", i128::from(i64::MAX)),
        ] {
            assert_eq!(nanos(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in [
            "",
            "3",
            "-",
            "s",
            ".",
            "-.",
            ".s",
            "+.s",
            "1d",
            "1 s",
            "5s ",
            "2562047h47m16.854775808s",
            "ten",
            "1e3s",
        ] {
            assert_eq!(nanos(text), None, "{text}");
        }
    }

    #[test]
    fn prints_as_go_prints() {
        for (duration, expected) in [
            (Duration::ZERO, "0s"),
            (Duration::from_secs(660), "11m0s"),
            (Duration::from_secs(45), "45s"),
            (Duration::from_secs(5400), "1h30m0s"),
            (Duration::from_millis(1500), "1.5s"),
            (Duration::from_millis(100), "100ms"),
            (Duration::from_micros(2), "2µs"),
            (Duration::from_nanos(1100), "1.1µs"),
            (Duration::from_nanos(3), "3ns"),
        ] {
            assert_eq!(show(duration), expected);
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_can_be_read(nanos in 0..u64::MAX / 2) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_signed(&show(duration)).map(|signed| signed.magnitude), Some(duration));
        }

        #[test]
        fn nothing_makes_it_panic(text in "[-+0-9.hmsnuµ ]{0,12}") {
            let _parsed = parse_signed(&text);
        }
    }
}
