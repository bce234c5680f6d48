//! Axes and their labels.

use std::time::Duration;

use forebay::duration;

use crate::latency::truncate;
use crate::outcome::{about, grouped};

/// An axis with its labels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) ticks: Vec<Tick>,
}

/// A labelled position.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

/// The most labels on a time axis: more would overlap.
const TIMES: f64 = 10.0;

impl Scale {
    /// From zero to at least `most`, in round steps.
    pub(super) fn counts(most: f64) -> Self {
        let most = if most.is_finite() { most.max(1.0) } else { 1.0 };
        let step = round_step(most / 5.0).max(1.0);
        let steps = (most / step).ceil();
        let ticks = (0..).map(|place| f64::from(place) * step).take_while(|at| *at <= (steps + 0.5) * step);
        Self { low: 0.0, high: steps * step, ticks: ticks.map(|at| Tick { at, label: amount(at) }).collect() }
    }

    /// Powers of ten around the waits from `least` to `most`, both above zero.
    pub(super) fn waits(least: Duration, most: Duration) -> Self {
        let (low, high) = (decade(least).floor(), decade(most).ceil());
        // The shortest wait must be visible, so the axis begins below it.
        let low = if decade(least) - low < 0.1 { low - 1.0 } else { low };
        let high = high.max(low + 1.0);
        let ticks = (0..).map(|place| low + f64::from(place)).take_while(|at| *at <= high + 0.5);
        let label = |at: f64| duration::show(Duration::from_secs_f64(libm::pow(10.0, at)));
        Self { low, high, ticks: ticks.map(|at| Tick { at, label: label(at) }).collect() }
    }

    /// From zero to `span`, in round steps.
    pub(super) fn time(span: Duration) -> Self {
        const STEPS: [u32; 20] = [
            1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
            172_800, 604_800,
        ];
        let high = span.as_secs_f64().max(1.0);
        let step = STEPS.into_iter().map(f64::from).find(|step| high / step <= TIMES);
        let step = step.unwrap_or_else(|| round_step(high / TIMES));
        let ticks = (0..).map(|place| f64::from(place) * step).take_while(|at| *at <= high);
        Self { low: 0.0, high, ticks: ticks.map(|at| Tick { at, label: time_label(span, at) }).collect() }
    }

    /// The position on the axis, from zero to one.
    pub(super) fn share(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// The decimal logarithm of a wait in seconds, at least of a nanosecond.
pub(super) fn decade(wait: Duration) -> f64 {
    libm::log10(wait.as_secs_f64().max(1e-9))
}

/// The smallest whole number not below `least` that is 1, 2, 2.5 or 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = libm::pow(10.0, libm::log10(least).floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|times| times * power);
    let step = steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9) && step.fract() == 0.0);
    step.unwrap_or(10.0 * power)
}

/// A number with at most two decimals.
pub(super) fn amount(number: f64) -> String {
    let hundredths = (number.max(0.0) * 100.0).round();
    let (whole, rest) = (truncate(hundredths / 100.0), truncate(hundredths % 100.0));
    let fraction = format!("{rest:02}");
    match fraction.trim_end_matches('0') {
        "" => grouped(whole),
        fraction => format!("{}.{fraction}", grouped(whole)),
    }
}

/// A duration without zeros at its end: `2h`, not `2h0m0s`.
pub(super) fn length(duration: Duration) -> String {
    let full = about(duration);
    let minutes = full.strip_suffix("0s").filter(|rest| rest.ends_with('m')).unwrap_or(&full);
    let hours = minutes.strip_suffix("0m").filter(|rest| rest.ends_with('h')).unwrap_or(minutes);
    hours.to_owned()
}

/// The unit of the labels of a time axis.
pub(super) fn time_unit(span: Duration) -> &'static str {
    match span.as_secs() {
        0..=60 => "s",
        61..=3600 => "m:ss",
        _ => "h:mm",
    }
}

fn time_label(span: Duration, seconds: f64) -> String {
    let seconds = truncate(seconds.round());
    match time_unit(span) {
        "s" => seconds.to_string(),
        "m:ss" => format!("{}:{:02}", seconds / 60, seconds % 60),
        _ => format!("{}:{:02}", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn counts_have_round_steps() {
        assert_eq!(labels(&Scale::counts(200.0)), ["0", "50", "100", "150", "200"]);
        assert_eq!(labels(&Scale::counts(10_500.0)), ["0", "2,500", "5,000", "7,500", "10,000", "12,500"]);
        assert_eq!(labels(&Scale::counts(0.0)), ["0", "1"]);
        assert_eq!(labels(&Scale::counts(3.0)), ["0", "1", "2", "3"]);
        for most in 1..3000 {
            let scale = Scale::counts(f64::from(most));
            assert!(
                scale.high >= f64::from(most) && (2..=6).contains(&scale.ticks.len()),
                "{most}: {scale:?}"
            );
            assert!((scale.ticks[scale.ticks.len() - 1].at - scale.high).abs() < 1e-9, "{most}: {scale:?}");
            assert!(scale.ticks.iter().all(|tick| tick.at.fract() == 0.0), "{most}: {scale:?}");
        }
    }

    #[test]
    fn odd_numbers_are_accepted() {
        for most in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert!(Scale::counts(most).ticks.len() >= 2, "{most}");
        }
        assert!(Scale::time(Duration::ZERO).ticks.len() >= 2);
        assert!(Scale::time(Duration::from_secs(u64::from(u32::MAX))).ticks.len() <= 11);
    }

    #[test]
    fn waits_have_a_logarithmic_scale() {
        let scale = Scale::waits(Duration::from_micros(1500), Duration::from_millis(450));
        assert_eq!(labels(&scale), ["1ms", "10ms", "100ms", "1s"]);
        let scale = Scale::waits(Duration::from_millis(10), Duration::from_millis(10));
        assert_eq!(labels(&scale), ["1ms", "10ms"]);
        assert!(scale.share(decade(Duration::from_millis(10))) > 0.99);
    }

    #[test]
    fn times_suit_the_length_of_the_run() {
        let at = |secs| Scale::time(Duration::from_secs(secs));
        assert_eq!(labels(&at(30)), ["0", "5", "10", "15", "20", "25", "30"]);
        assert_eq!(
            labels(&at(600)),
            ["0:00", "1:00", "2:00", "3:00", "4:00", "5:00", "6:00", "7:00", "8:00", "9:00", "10:00"]
        );
        assert_eq!(
            labels(&at(7200)),
            ["0:00", "0:15", "0:30", "0:45", "1:00", "1:15", "1:30", "1:45", "2:00"]
        );
        assert_eq!(labels(&at(86_400))[3], "9:00");
    }

    #[test]
    fn lengths_do_not_end_in_zeros() {
        let shown = |secs| length(Duration::from_secs(secs));
        assert_eq!(
            [0, 10, 60, 90, 600, 3600, 5400, 7210].map(shown),
            ["0s", "10s", "1m", "1m30s", "10m", "1h", "1h30m", "2h0m10s"]
        );
    }

    #[test]
    fn amounts_have_only_the_decimals_they_need() {
        assert_eq!(
            [0.0, 0.5, 12.25, 1234.0, 99_999.999].map(amount),
            ["0", "0.5", "12.25", "1,234", "100,000"]
        );
    }
}
