//! What came of a run.

use std::fmt;
use std::time::Duration;

use forebay::{Discard, duration};
use serde_json::{Value, json};

use crate::judge::{Recovery, Verdict};
use crate::record::Sample;
use crate::replay;
use crate::world::World;

/// What came of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The scenario's name.
    pub scenario: String,
    /// The seed it ran with.
    pub seed: u64,
    /// The keys that were overridden on the command line, as `path=value`.
    pub settings: Vec<String>,
    /// The whole course of the run as one number: the same for the same scenario and seed, on every machine.
    pub trace_hash: String,
    /// How many events it was made from.
    pub events: u64,
    /// How long the run took, in its own time, before it was shut down.
    pub virtual_time: Duration,
    /// How many instances there were.
    pub instances: usize,
    /// How many connections they were to own.
    pub target: usize,
    /// How many connections they let themselves open in a second, together.
    pub limiter_per_sec: f64,
    /// The most connects the cluster saw in one second.
    pub max_connects_per_sec: u64,
    /// The same, in seconds in which nothing was wrong.
    pub max_renewals_per_sec: u64,
    /// The most connections that reservoirs closed by their own decision in one second.
    pub max_closures_per_sec: u64,
    /// The most connections that were open at a time, as the cluster counted.
    pub peak_connections: usize,
    /// How long it took until all instances owned what they should.
    pub time_to_converge: Option<Duration>,
    /// How each disturbance went.
    pub recoveries: Vec<Recovery>,
    /// Counts of what happened.
    pub counts: Counts,
    /// How long callers waited.
    pub waits: Waits,
    /// What was asserted.
    pub verdicts: Vec<Verdict>,
    /// How things stood over time.
    pub samples: Vec<Sample>,
}

/// Counts of what happened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Counts {
    /// Connects the cluster saw.
    pub connects: u64,
    /// Those it refused because of its limits.
    pub refused: u64,
    /// Those it refused because it was told to.
    pub refused_on_purpose: u64,
    /// Connections that became usable.
    pub opened: u64,
    /// Attempts that failed, for whatever reason.
    pub open_failures: u64,
    /// Connections handed to callers.
    pub checkouts: u64,
    /// Of those, after a wait.
    pub waits: u64,
    /// Callers who got nothing because the reservoir was short.
    pub empties: u64,
    /// Callers who got nothing because all were in use.
    pub exhausted: u64,
    /// Uses that were cut short because the connection died.
    pub broken_work: u64,
    /// Connections discarded, by reason, in the order of [`Discard::ALL`].
    pub discards: [u64; Discard::ALL.len()],
}

/// How long callers waited: percentiles over all checkouts.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Waits {
    /// Half of them.
    pub p50: Duration,
    /// All but one in a hundred.
    pub p99: Duration,
    /// All but one in a thousand.
    pub p999: Duration,
    /// All.
    pub max: Duration,
}

impl Outcome {
    pub(crate) fn of(world: &World, seed: u64) -> Self {
        let scenario = &world.scenario;
        let mut books = world.books.lock();
        let (totals, peaks, waits) = (books.totals, books.judge.peaks(), books.waits());
        let wait = |quantile| Duration::from_micros(waits.value_at_quantile(quantile));
        let record = std::mem::replace(&mut books.record, crate::record::Record::new(world.start));
        Self {
            scenario: scenario.name.clone(),
            seed,
            settings: scenario.settings.clone(),
            trace_hash: books.trace.hash(),
            events: books.trace.events(),
            virtual_time: scenario.duration,
            instances: scenario.services.len(),
            target: scenario.target(),
            limiter_per_sec: scenario.fleet_rate(),
            max_connects_per_sec: peaks.connects,
            max_renewals_per_sec: peaks.renewals,
            max_closures_per_sec: peaks.closures,
            peak_connections: world.cluster.lock().peak(),
            time_to_converge: books.judge.converged(),
            recoveries: books.judge.recoveries(),
            counts: Counts {
                connects: totals.connects,
                refused: totals.refused_by_limits,
                refused_on_purpose: totals.refused_on_purpose,
                opened: totals.opened,
                open_failures: totals.open_failures,
                checkouts: totals.checkouts,
                waits: totals.waits,
                empties: totals.empty,
                exhausted: totals.exhausted,
                broken_work: totals.broken_work,
                discards: totals.discards,
            },
            waits: Waits { p50: wait(0.5), p99: wait(0.99), p999: wait(0.999), max: wait(1.0) },
            verdicts: books.judge.verdicts(),
            samples: record.into_samples(),
        }
    }

    /// Whether everything that was asserted holds.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.verdicts.iter().all(Verdict::holds)
    }

    /// The command that runs it again.
    #[must_use]
    pub fn replay(&self) -> String {
        replay::command(&self.scenario, self.seed, &self.settings)
    }

    /// The longest recovery, and how it compares to what the limiter allows; none if nothing had to recover.
    #[must_use]
    pub fn time_to_recover(&self) -> Option<Duration> {
        self.recoveries.iter().filter_map(|recovery| recovery.took).max()
    }

    /// The whole, without what happened over time, as one JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        let counts = &self.counts;
        let discards: serde_json::Map<String, Value> = Discard::ALL
            .iter()
            .map(|reason| (reason.label().to_owned(), counts.discards[reason.index()].into()))
            .collect();
        json!({
            "scenario": self.scenario,
            "seed": self.seed,
            "passed": self.passed(),
            "trace_hash": self.trace_hash,
            "events": self.events,
            "virtual_seconds": seconds(self.virtual_time),
            "instances": self.instances,
            "target": self.target,
            "limiter_per_sec": self.limiter_per_sec,
            "max_connects_per_sec": self.max_connects_per_sec,
            "max_renewals_per_sec": self.max_renewals_per_sec,
            "max_closures_per_sec": self.max_closures_per_sec,
            "peak_connections": self.peak_connections,
            "time_to_converge": self.time_to_converge.map(seconds),
            "time_to_recover": self.time_to_recover().map(seconds),
            "recoveries": self.recoveries.iter().map(recovery).collect::<Value>(),
            "connects": counts.connects,
            "refused": counts.refused,
            "refused_on_purpose": counts.refused_on_purpose,
            "opened": counts.opened,
            "open_failures": counts.open_failures,
            "checkouts": counts.checkouts,
            "waits": counts.waits,
            "empties": counts.empties,
            "exhausted": counts.exhausted,
            "broken_work": counts.broken_work,
            "discards": discards,
            "wait_ms": {
                "p50": millis(self.waits.p50),
                "p99": millis(self.waits.p99),
                "p999": millis(self.waits.p999),
                "max": millis(self.waits.max),
            },
            "assertions": self.verdicts.iter().map(verdict).collect::<Value>(),
            "replay": self.replay(),
        })
    }
}

fn recovery(recovery: &Recovery) -> Value {
    json!({
        "disturbance": recovery.disturbance,
        "began": seconds(recovery.began),
        "over": recovery.over.map(seconds),
        "deficit": recovery.deficit,
        "bucket_seconds": seconds(recovery.bucket),
        "allowed_seconds": seconds(recovery.allowed),
        "took_seconds": recovery.took.map(seconds),
    })
}

fn verdict(verdict: &Verdict) -> Value {
    json!({
        "name": verdict.assertion.name(),
        "holds": verdict.holds(),
        "broken": verdict.broken,
        "findings": verdict.findings,
    })
}

/// Seconds, to the millisecond: more digits would say nothing.
pub(crate) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

/// Milliseconds, to the microsecond.
pub(crate) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1000.0
}

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

/// The summary that `forebay sim` prints.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { counts, waits, .. } = self;
        writeln!(
            f,
            "{}, seed {}: {} instances, {} connections, {} of virtual time",
            self.scenario,
            self.seed,
            self.instances,
            grouped(self.target as u64),
            about(self.virtual_time)
        )?;
        let mut line = |label: &str, text: String| writeln!(f, "  {label:<13} {text}");
        line("whole after", self.time_to_converge.map_or_else(|| "never".to_owned(), about))?;
        line(
            "opened",
            format!(
                "{} ({} failed); at most {} connects a second, {} in quiet; at most {} open at a time",
                grouped(counts.opened),
                grouped(counts.open_failures),
                self.max_connects_per_sec,
                self.max_renewals_per_sec,
                grouped(self.peak_connections as u64)
            ),
        )?;
        let discards: Vec<String> = Discard::ALL
            .iter()
            .filter(|reason| counts.discards[reason.index()] > 0)
            .map(|reason| format!("{} {}", grouped(counts.discards[reason.index()]), reason.label()))
            .collect();
        line("discarded", if discards.is_empty() { "none".to_owned() } else { discards.join(", ") })?;
        if counts.checkouts + counts.empties + counts.exhausted > 0 {
            line(
                "checkouts",
                format!(
                    "{}; {} waited, {} found it empty, {} exhausted; wait p50 {}, p99 {}, p99.9 {}, longest {}",
                    grouped(counts.checkouts),
                    grouped(counts.waits),
                    grouped(counts.empties),
                    grouped(counts.exhausted),
                    about(waits.p50),
                    about(waits.p99),
                    about(waits.p999),
                    about(waits.max)
                ),
            )?;
        }
        let kept = 5;
        for recovery in self.recoveries.iter().take(kept) {
            let took = recovery
                .took
                .map_or_else(|| "not yet whole".to_owned(), |took| format!("whole after {}", about(took)));
            line(
                "disturbed",
                format!(
                    "at {}: {}; {} missing, {took}, {} allowed",
                    about(recovery.began),
                    recovery.disturbance,
                    grouped(recovery.deficit as u64),
                    about(recovery.allowed)
                ),
            )?;
        }
        if self.recoveries.len() > kept {
            let longest = self.time_to_recover().map_or_else(|| "-".to_owned(), about);
            line("", format!("and {} more; the longest took {longest}", self.recoveries.len() - kept))?;
        }
        line("trace", format!("{} over {} events", self.trace_hash, grouped(self.events)))?;
        for verdict in self.verdicts.iter().filter(|verdict| !verdict.holds()) {
            line("FAILED", format!("{}, {} times", verdict.assertion, grouped(verdict.broken)))?;
            for finding in &verdict.findings {
                line("", finding.clone())?;
            }
        }
        let held = self.verdicts.iter().filter(|verdict| verdict.holds()).count();
        line("assertions", format!("{held} of {} hold", self.verdicts.len()))?;
        if self.passed() { Ok(()) } else { line("replay", self.replay()) }
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
        assert_eq!(seconds(Duration::from_micros(1_234_567)).to_string(), "1.235");
    }
}
