//! The subcommand `coordination`: what it takes to share one budget of connections and connects, and what it keeps.
//!
//! Here is what virtual time can show: the simulator's fleets run the code that ships. What needs a real store or real
//! processes has its rows beside these, from [`run`] on.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use forebay_sim::{Assertion, Outcome, Scenario, shipped};
use parking_lot::Mutex;

use crate::checkout::progress;
use crate::report::{Bound, Report};

pub mod history;

use history::Policy;

/// How much is shown.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Seeds of the random histories.
    pub seeds: u64,
}

impl Effort {
    /// Everything that is promised.
    pub const LONG: Self = Self { seeds: 1000 };
    /// The same with fewer seeds: about a minute.
    pub const SHORT: Self = Self { seeds: 60 };
}

/// Shows everything.
///
/// # Errors
/// If a scenario does not run to its end.
pub fn run(effort: Effort) -> anyhow::Result<Report> {
    let mut report = Report::new("coordination");
    histories(&mut report, effort.seeds)?;
    steady_state(&mut report)?;
    cold_start(&mut report)?;
    store_away(&mut report)?;
    report.machine.look_again();
    Ok(report)
}

/// What must hold in every history, and what it is called here.
const PROMISES: [(Assertion, &str); 5] = [
    (Assertion::LedgerAddsUp, "free + sum(slots) = capacity, after every write"),
    (Assertion::WithinLimit, "connections above the cap, beyond those of instances cut off"),
    (Assertion::Leased, "connections without a slot in the table, of instances not cut off"),
    (Assertion::WithinBucket, "connects above the bucket, clocks up to 1 s apart"),
    (Assertion::Reaped, "slots of the dead not back within lease + 2 beats"),
];

fn histories(report: &mut Report, seeds: u64) -> anyhow::Result<()> {
    progress("random histories");
    let broken: [AtomicU64; PROMISES.len()] = Default::default();
    let (next, crashes, first) = (AtomicU64::new(1), AtomicU64::new(0), Mutex::new(None::<(u64, String)>));
    let work = || -> anyhow::Result<()> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > seeds {
                return Ok(());
            }
            let outcome = play(seed)?;
            crashes.fetch_add(outcome.counts.lost_in_crashes.min(1), Ordering::Relaxed);
            for ((assertion, _), count) in PROMISES.iter().zip(&broken) {
                let verdict = outcome.verdicts.iter().find(|verdict| verdict.assertion == *assertion);
                let verdict = verdict.with_context(|| format!("{assertion} is not judged"))?;
                count.fetch_add(verdict.broken, Ordering::Relaxed);
                if let Some(finding) = verdict.findings.first() {
                    let mut first = first.lock();
                    if first.as_ref().is_none_or(|(lowest, _)| seed < *lowest) {
                        *first = Some((seed, format!("{assertion}: {finding}")));
                    }
                }
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let join =
            |worker: std::thread::ScopedJoinHandle<'_, _>| worker.join().expect("no panic in a history");
        workers.into_iter().map(join).collect::<anyhow::Result<Vec<()>>>()
    })?;
    for ((_, name), count) in PROMISES.iter().zip(&broken) {
        #[allow(clippy::cast_precision_loss, reason = "a small count")]
        let broken = count.load(Ordering::Relaxed) as f64;
        report.goal(format!("{seeds} random histories: {name}"), broken, Bound::AtMost(0.0), "times");
    }
    let crashed = crashes.load(Ordering::Relaxed);
    report.note(format!("random histories: {crashed} of {seeds} lost connections in crashes"));
    if let Some((seed, finding)) = first.into_inner() {
        report.note(format!(
            "history {seed}: {finding}; `forebay-bench history {seed} > h.yaml; forebay sim h.yaml --seed {seed}` repeats it"
        ));
    }
    Ok(())
}

/// Plays one history.
///
/// # Errors
/// If it makes no sense.
pub fn play(seed: u64) -> anyhow::Result<Outcome> {
    let text = history::text(seed, Policy::of(seed));
    let scenario = Scenario::parse(&format!("history-{seed}"), &text, &[])?;
    forebay_sim::run(&scenario, seed, &mut ()).context("nobody broke it off")
}

fn steady_state(report: &mut Report) -> anyhow::Result<()> {
    progress("steady state");
    let outcome = region(&["duration=40m", "sampleEvery=1m"])?;
    let (from, to) = (sample(&outcome, 20)?, sample(&outcome, 40)?);
    let a_second = |from: u64, to: u64| {
        #[allow(clippy::cast_precision_loss, reason = "a small count")]
        let units = (to - from) as f64;
        units / Duration::from_secs(20 * 60).as_secs_f64()
    };
    let name = "steady state, 200 instances and 10,000 connections";
    let writes = a_second(from.write_units, to.write_units);
    let reads = a_second(from.read_units, to.read_units);
    report.goal(format!("{name}: write units"), writes, Bound::AtMost(8.0), "units/s");
    report.goal(format!("{name}: read units"), reads, Bound::AtMost(14.0), "units/s");
    Ok(())
}

fn cold_start(report: &mut Report) -> anyhow::Result<()> {
    progress("cold start");
    let outcome = region(&["duration=3m", "sampleEvery=1s", "services.0.startStep=25ms"])?;
    let writes = outcome.samples.windows(2).map(|pair| pair[1].table.rate_writes - pair[0].table.rate_writes);
    #[allow(clippy::cast_precision_loss, reason = "a small count")]
    let writes = writes.max().unwrap_or(0) as f64;
    let name = "cold start of 200 instances";
    report.goal(
        format!("{name}: writes of the shared item in any second"),
        writes,
        Bound::AtMost(50.0),
        "writes/s",
    );
    // Of what a bucket of 100/s with a burst of 1,000 could have let in by then.
    let used = outcome.time_to_converge.map(|took| 100.0 * 10_000.0 / (1000.0 + 100.0 * took.as_secs_f64()));
    report.goal(format!("{name}: of the bucket used, until all are open"), used, Bound::AtLeast(90.0), "%");
    #[allow(clippy::cast_precision_loss, reason = "a small count")]
    let refused = outcome.counts.refused as f64;
    report.goal(format!("{name}: connects refused by the server"), refused, Bound::AtMost(0.0), "connects");
    Ok(())
}

fn store_away(report: &mut Report) -> anyhow::Result<()> {
    progress("store away");
    let text = shipped().iter().find(|shipped| shipped.name == "coordination-outage");
    let scenario = Scenario::parse("coordination-outage", text.context("it is not shipped")?.text, &[])?;
    let outcome = forebay_sim::run(&scenario, scenario.seed, &mut ()).context("nobody broke it off")?;
    #[allow(clippy::cast_precision_loss, reason = "a small count")]
    let failed = outcome.counts.failed() as f64;
    let name = "store away for 10 minutes under load";
    report.goal(format!("{name}: checkouts that fail"), failed, Bound::AtMost(0.0), "checkouts");
    let took = outcome.time_to_recover().map(|took| took.as_secs_f64());
    report.goal(format!("{name}: all connections there, after it is back"), took, Bound::AtMost(120.0), "s");
    #[allow(clippy::cast_precision_loss, reason = "a small count")]
    let broken = outcome.verdicts.iter().map(|verdict| verdict.broken).sum::<u64>() as f64;
    // Among them that the ledger adds up, and that whoever reaches it again has a slot for each of its connections.
    report.goal(
        format!("{name}: assertions broken, that the ledger is exact among them"),
        broken,
        Bound::AtMost(0.0),
        "times",
    );
    Ok(())
}

/// The region of 200 instances, with some keys set otherwise.
fn region(settings: &[&str]) -> anyhow::Result<Outcome> {
    let text =
        shipped().iter().find(|shipped| shipped.name == "region-10k").context("it is not shipped")?.text;
    // Nothing goes wrong.
    let settings = ["faults=[]"].iter().chain(settings);
    let settings: Vec<String> = settings.map(|setting| (*setting).to_owned()).collect();
    let scenario = Scenario::parse("region-10k", text, &settings)?;
    forebay_sim::run(&scenario, scenario.seed, &mut ()).context("nobody broke it off")
}

fn sample(outcome: &Outcome, minute: u64) -> anyhow::Result<forebay_sim::TableBill> {
    let at = Duration::from_secs(60 * minute);
    let sample = outcome.samples.iter().find(|sample| sample.at == at);
    let bill = sample.with_context(|| format!("no sample after {minute} minutes"))?.table;
    ensure!(bill.write_units > 0, "nothing was written");
    Ok(bill)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_histories_keep_every_promise() {
        for seed in 1..=12 {
            let outcome = play(seed).expect("it makes sense");
            for (assertion, _) in PROMISES {
                let verdict = outcome.verdicts.iter().find(|verdict| verdict.assertion == assertion);
                assert!(verdict.expect("it is judged").holds(), "history {seed}: {outcome}");
            }
        }
    }

    #[test]
    fn histories_repeat() {
        let hash = |seed| play(seed).expect("it makes sense").trace_hash;
        assert_eq!(hash(7), hash(7));
        assert_ne!(hash(7), hash(8));
    }
}
