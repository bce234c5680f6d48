//! Runs a suggestion in the simulator, and compares it with the prediction.

use std::fmt::Write;
use std::time::Duration;

use forebay::Discard;
use forebay_sim::{Outcome, Scenario};

use super::cost::Cost;
use super::fleet::Fleet;
use super::number::exact;
use super::prediction::{Fit, Prediction};
use super::turnover;

/// The largest error of a prediction, as a part of what was simulated.
const TOLERANCE: f64 = 0.1;
/// One slow open more or less decides about a fill of less than a second: such an error does not count.
const SLACK: f64 = 0.3;
/// The time between two samples.
const SAMPLE: Duration = Duration::from_secs(5);

/// A cluster with a name as long as those of AWS: it is part of the size of every item.
const ENDPOINT: &str = "abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws";

/// A simulation that is about to run.
pub(super) struct Check {
    fleet: Fleet,
    pub(super) scenario: Scenario,
}

/// The prediction beside the simulation.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub(super) seed: u64,
    pub(super) virtual_time: Duration,
    pub(super) rows: Vec<Row>,
    pub(super) holding: usize,
    pub(super) assertions: usize,
    /// The assertions that failed, with what was found.
    pub(super) failures: Vec<String>,
}

/// One number, predicted and simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) predicted: (f64, f64),
    pub(super) simulated: f64,
    pub(super) verdict: RowVerdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    PerSecond,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowVerdict {
    Holds,
    Off,
}

impl Row {
    /// Holds if the simulation is within the range, give or take a tenth.
    fn judged(name: &'static str, unit: Unit, predicted: (f64, f64), simulated: f64, slack: f64) -> Self {
        let (low, high) = predicted;
        let beyond = (low - simulated).max(simulated - high);
        let holds = beyond <= (TOLERANCE * simulated).max(slack);
        let verdict = if holds { RowVerdict::Holds } else { RowVerdict::Off };
        Self { name, unit, predicted, simulated, verdict }
    }

    /// The error of the prediction in hundredths; none of a range.
    pub(super) fn error_percent(&self) -> Option<f64> {
        let (low, high) = self.predicted;
        (low == high && self.simulated > 0.0).then(|| (low / self.simulated - 1.0) * 100.0)
    }
}

impl Check {
    /// Prepares the simulation of a sound fleet. The simulator has one reservoir in each process, so the pools of a
    /// process are one.
    ///
    /// # Errors
    /// If the simulator does not accept the fleet.
    pub(super) fn of(fleet: &Fleet) -> anyhow::Result<Self> {
        let fleet = fleet.with_one_pool();
        let prediction = Prediction::of(&fleet);
        let text = scenario(&fleet, &prediction);
        let scenario = Scenario::parse("plan", &text, &[])?;
        Ok(Self { fleet, scenario })
    }

    /// Compares the prediction with what the scenario has come to.
    pub(super) fn compare(&self, outcome: &Outcome) -> Checked {
        let prediction = Prediction::of(&self.fleet);
        let exactly = |number: f64| (number, number);
        let mut rows = Vec::new();
        if let Some(took) = outcome.time_to_converge {
            let fill = prediction.fill.time.as_secs_f64();
            // Collecting slots from several shards takes up to four times as long.
            let range = if prediction.fit == Fit::Split { (fill, 4.0 * fill) } else { exactly(fill) };
            rows.push(Row::judged("fill time of the fleet", Unit::Seconds, range, took.as_secs_f64(), SLACK));
        }
        let peak = prediction.fill.peak;
        let simulated = outcome.max_connects_per_sec as f64;
        rows.push(Row::judged("peak opens, cold start", Unit::PerSecond, peak, simulated, 0.0));
        if let (Some(turnover), Some(from)) = (prediction.turnover, self.settled(outcome)) {
            let steady = replaced(outcome, from);
            rows.push(Row::judged("opens, steady", Unit::PerSecond, exactly(turnover.steady), steady, 0.0));
            let (low, high) = (turnover.peak.0 as f64, turnover.peak.1 as f64);
            let worst = outcome.max_renewals_per_sec as f64;
            rows.push(Row::judged("worst second, steady", Unit::PerSecond, (low, high), worst, 0.0));
            if self.fleet.leases.is_some() {
                let (least, most) = Cost::range(&self.fleet, turnover.steady);
                let (writes, reads) = billed(outcome, from);
                let judged =
                    |name, range, simulated| Row::judged(name, Unit::PerSecond, range, simulated, 0.0);
                rows.push(judged("write units, steady", (least.writes, most.writes), writes));
                rows.push(judged("read units, steady", (least.reads, most.reads), reads));
            }
        }
        let failures = outcome.verdicts.iter().filter(|verdict| !verdict.holds());
        let failures = failures.map(|verdict| {
            let found = verdict.findings.first().map(|finding| format!(": {finding}")).unwrap_or_default();
            format!("{}{found}", verdict.assertion)
        });
        Checked {
            seed: outcome.seed,
            virtual_time: outcome.virtual_time,
            rows,
            holding: outcome.verdicts.iter().filter(|verdict| verdict.holds()).count(),
            assertions: outcome.verdicts.len(),
            failures: failures.collect(),
        }
    }

    /// When the first generation has been replaced.
    fn settled(&self, outcome: &Outcome) -> Option<Duration> {
        Some(outcome.time_to_converge? + turnover::first_generation(&self.fleet)?)
    }
}

impl Checked {
    /// Whether every prediction is within its tolerance, and every assertion holds.
    pub(super) fn passed(&self) -> bool {
        self.failures.is_empty()
            && self.rows.len() >= 4
            && self.rows.iter().all(|row| row.verdict != RowVerdict::Off)
    }
}

/// Replacements per second from this time on.
fn replaced(outcome: &Outcome, from: Duration) -> f64 {
    let reasons = Discard::ALL.map(Discard::index);
    let counted = outcome.samples.iter().filter(|sample| sample.at > from);
    let count: u64 =
        counted.map(|sample| reasons.iter().map(|reason| sample.discards[*reason]).sum::<u64>()).sum();
    // The first of these samples counts from the one before it.
    let start = outcome.samples.iter().filter(|sample| sample.at <= from).map(|sample| sample.at).max();
    count as f64 / outcome.virtual_time.saturating_sub(start.unwrap_or_default()).as_secs_f64().max(1.0)
}

/// Write and read units per second from this time on.
fn billed(outcome: &Outcome, from: Duration) -> (f64, f64) {
    let Some((first, last)) =
        outcome.samples.iter().find(|sample| sample.at >= from).zip(outcome.samples.last())
    else {
        return (0.0, 0.0);
    };
    let seconds = last.at.saturating_sub(first.at).as_secs_f64().max(1.0);
    let per_second = |first: u64, last: u64| last.saturating_sub(first) as f64 / seconds;
    let (before, after) = (first.table, last.table);
    (per_second(before.write_units, after.write_units), per_second(before.read_units, after.read_units))
}

/// The scenario: a cold start, the first generation, and some more.
fn scenario(fleet: &Fleet, prediction: &Prediction) -> String {
    let fill = prediction.fill.time;
    let settled = fill + turnover::first_generation(fleet).unwrap_or_default();
    let life = prediction.turnover.map_or(Duration::ZERO, |turnover| turnover.life);
    let generations = u32::try_from(turnover::generations(fleet)).unwrap_or(u32::MAX);
    let duration = settled + life.saturating_mul(generations) + SAMPLE * 2;
    // The prediction is judged apart; this only tells a slow fill from one that never ends.
    let converge = fill * 5 + Duration::from_secs(60);
    let (rate, burst) = if fleet.sharing.is_some() {
        (fleet.rate.per_second as f64, fleet.rate.burst)
    } else {
        (fleet.local_rate.per_second, fleet.local_rate.burst)
    };
    let mut text = format!(
        "endpoint: {ENDPOINT}\nduration: {}s\nsampleEvery: {}\nlimiterPerSec: {}\nlimiterBurst: {}\nassertConvergeWithin: {}s\n\
         clocks: {{skew: 100ms}}\ncluster: {{maxConnections: {}}}\n",
        duration.as_secs() + 1,
        exact(SAMPLE),
        rate,
        burst,
        converge.as_secs(),
        fleet.cluster_limit,
    );
    // Writing to a string cannot fail.
    let _ = match fleet.leases {
        Some(_) => writeln!(
            text,
            "leases: {{limit: {}, beat: {}}}\ntable: {{}}",
            fleet.limit,
            exact(fleet.heartbeat)
        ),
        None => writeln!(text, "limiterScope: instance"),
    };
    text += "services:\n";
    // Each process starts at its own time, as its startup delay has it: evenly spaced.
    for process in 0..fleet.processes() {
        let delay = fleet.startup_jitter.mul_f64((process as f64 + 0.5) / fleet.processes() as f64);
        let _ = writeln!(
            text,
            "  - {{name: p{process}, targetReady: {}, baseLifetime: {}, jitter: {}, guardWindow: {}, startDelay: {}ms}}",
            fleet.connections,
            exact(fleet.lifetime),
            exact(fleet.jitter),
            exact(fleet.guard_window),
            delay.as_millis()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(predicted: (f64, f64), simulated: f64, slack: f64) -> Row {
        Row::judged("fill time of the fleet", Unit::Seconds, predicted, simulated, slack)
    }

    #[test]
    fn a_tenth_more_or_less_holds() {
        let verdict = |predicted, simulated| row((predicted, predicted), simulated, 0.0).verdict;
        assert_eq!(verdict(91.0, 100.0), RowVerdict::Holds);
        assert_eq!(verdict(109.0, 100.0), RowVerdict::Holds);
        assert_eq!(verdict(89.0, 100.0), RowVerdict::Off);
        assert_eq!(verdict(111.0, 100.0), RowVerdict::Off);
        assert_eq!(row((0.1, 0.1), 0.35, SLACK).verdict, RowVerdict::Holds, "one slow open");
        assert_eq!(row((2.0, 4.0), 4.4, 0.0).verdict, RowVerdict::Holds);
        assert_eq!(row((2.0, 4.0), 5.0, 0.0).verdict, RowVerdict::Off);
        let error = row((90.0, 90.0), 100.0, 0.0).error_percent();
        assert!(error.is_some_and(|error| (error + 10.0).abs() < 1e-9), "{error:?}");
        assert_eq!(row((2.0, 4.0), 3.0, 0.0).error_percent(), None, "a range has no error");
    }

    #[test]
    fn a_check_fails_with_any_of_its_parts() {
        let good = row((1.0, 1.0), 1.0, 0.0);
        let checked = Checked {
            seed: 1,
            virtual_time: Duration::ZERO,
            rows: vec![good; 4],
            holding: 18,
            assertions: 18,
            failures: Vec::new(),
        };
        assert!(checked.passed());
        let off = Row { verdict: RowVerdict::Off, ..good };
        assert!(!Checked { rows: vec![good, good, good, off], ..checked.clone() }.passed());
        assert!(!Checked { failures: vec!["one".to_owned()], ..checked.clone() }.passed());
        assert!(!Checked { rows: vec![good; 2], ..checked }.passed(), "it never converged");
    }

    #[test]
    fn the_scenario_has_the_fleet_s_settings() {
        let fleet = Fleet { cluster_limit: 9_000, limit: 8_000, ..Fleet::of(2, 2, 2, 10) };
        let scenario = Check::of(&fleet).expect("a valid scenario").scenario;
        assert_eq!((scenario.services.len(), scenario.target()), (4, 80), "the pools of a process are one");
        assert_eq!(scenario.leases.map(|leases| leases.limit), Some(8_000));
        assert_eq!(scenario.cluster.max_connections, Some(9_000));
        let delays: Vec<u128> = scenario.services.iter().map(|one| one.start_delay.as_millis()).collect();
        assert_eq!(delays, [625, 1875, 3125, 4375]);
        let alone = Fleet { leases: None, sharing: None, ..Fleet::of(1, 1, 1, 10) };
        let scenario = Check::of(&alone).expect("a valid scenario").scenario;
        assert!(!scenario.is_coordinated() && !scenario.limiter.shared);
        assert_eq!((scenario.limiter.per_second, scenario.limiter.burst), (10.0, 100));
    }
}
