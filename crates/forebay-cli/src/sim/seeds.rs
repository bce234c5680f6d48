//! A range of seeds, and their results.

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use forebay::duration;
use forebay_sim::{FailedSeed, SeedReport};
use serde_json::{Value, json};

/// From one seed to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeedRange {
    from: u64,
    to: u64,
}

impl SeedRange {
    pub(super) fn seeds(self) -> RangeInclusive<u64> {
        self.from..=self.to
    }

    pub(super) fn count(self) -> u64 {
        (self.to - self.from).saturating_add(1)
    }
}

impl FromStr for SeedRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("'{text}' is not a range of seeds; write two numbers, such as 1..1000");
        let (from, to) = text.split_once("..").ok_or_else(expected)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| expected());
        let range = Self { from: number(from)?, to: number(to.trim_start_matches('='))? };
        if range.from > range.to {
            Err(format!("'{text}' is empty: the first seed is greater than the last"))
        } else {
            Ok(range)
        }
    }
}

/// The results as text.
pub(super) fn summary(name: &str, range: SeedRange, found: &SeedReport) -> String {
    let mut text = String::new();
    let worst = &found.worst;
    let of = if found.run == range.count() { String::new() } else { format!(" of {}", range.count()) };
    let show = |duration: Duration| {
        duration::show(Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(0)))
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{name}, seeds {} to {}: {}{of} run, {} failed",
        range.from, range.to, found.run, found.failed
    );
    let _ = writeln!(
        text,
        "  worst of all  {} connects a second, {} in quiet; whole after {}, again after {}; {} found it empty, {} failed, longest wait {}",
        worst.max_connects_per_sec,
        worst.max_renewals_per_sec,
        show(worst.time_to_converge),
        show(worst.time_to_recover),
        worst.empties,
        worst.failed,
        show(worst.longest_wait)
    );
    let _ = match &found.first_failure {
        Some(FailedSeed { seed, outcome: Some(outcome), .. }) => {
            writeln!(text, "\nthe first seed that fails is {seed}:\n{outcome}")
        }
        Some(FailedSeed { seed, panic, replay, .. }) => {
            let panic = panic.as_deref().unwrap_or_default();
            writeln!(
                text,
                "\nthe first seed that fails is {seed}; it panicked: {panic}\n  replay        {replay}"
            )
        }
        None if found.broken_off => writeln!(text, "  ended early; none failed so far"),
        None => writeln!(text, "  all pass"),
    };
    text
}

/// The results as JSON.
pub(super) fn record(name: &str, range: SeedRange, found: &SeedReport) -> Value {
    let worst = &found.worst;
    json!({
        "scenario": name,
        "seeds": { "from": range.from, "to": range.to },
        "run": found.run,
        "failed": found.failed,
        "passed": found.first_failure.is_none() && !found.broken_off,
        "broken_off": found.broken_off,
        "worst": {
            "max_connects_per_sec": worst.max_connects_per_sec,
            "max_renewals_per_sec": worst.max_renewals_per_sec,
            "empties": worst.empties,
            "failed": worst.failed,
            "longest_wait": seconds(worst.longest_wait),
            "time_to_converge": (found.run > 0).then_some(seconds(worst.time_to_converge)),
            "time_to_recover": seconds(worst.time_to_recover),
        },
        "events": worst.events,
        "checkouts": worst.checkouts,
        "first_failure": found.first_failure.as_ref().and_then(|failure| Some(failure.outcome.as_ref()?.json())),
        "first_panic": found.first_failure.as_ref().and_then(|failure| failure.panic.clone()),
        "first_failing_seed": found.first_failure.as_ref().map(|failure| failure.seed),
        "replay": found.first_failure.as_ref().map(|failure| failure.replay.clone()),
    })
}

/// Seconds, to the millisecond.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_include_both_ends() {
        let range: SeedRange = "1..1000".parse().unwrap();
        assert_eq!((range.seeds(), range.count()), (1..=1000, 1000));
        assert_eq!("7..=7".parse::<SeedRange>().unwrap().count(), 1);
        assert_eq!(format!("0..{}", u64::MAX).parse::<SeedRange>().unwrap().count(), u64::MAX);
        for bad in ["", "5", "a..b", "1..", "..9", "9..1", "1..2..3", "-1..4"] {
            assert!(bad.parse::<SeedRange>().is_err(), "{bad}");
        }
    }
}
