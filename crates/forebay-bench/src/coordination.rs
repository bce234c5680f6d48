//! The subcommand `coordination`: what a shared budget of connections and connects costs, and what it
//! guarantees.
//!
//! This file measures in virtual time: the simulator's fleets run the code that ships. `fleet_processes` and
//! `twin_tables` add what needs real processes or a real table.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use forebay_sim::{Assertion, Outcome, Scenario};
use parking_lot::Mutex;

use crate::history::{self, Policy};
use crate::report::Report;
use crate::section::progress;
use crate::sim::{finish, scenario};

/// `long` runs 1,000 random histories, otherwise 60: about a minute.
pub(crate) fn run(long: bool) -> anyhow::Result<Report> {
    let mut report = Report::new("coordination");
    histories(&mut report, if long { 1000 } else { 60 })?;
    steady_state(&mut report)?;
    cold_start(&mut report)?;
    store_outage(&mut report)?;
    Ok(report)
}

/// The assertions that must hold in every history, and their names in the report.
const ASSERTIONS: [(Assertion, &str); 5] = [
    (Assertion::LedgerAddsUp, "free + sum(slots) = capacity, after every write"),
    (Assertion::WithinLimit, "connections above the limit, beyond those of instances cut off"),
    (Assertion::Leased, "connections without a slot in the table, of instances not cut off"),
    (Assertion::WithinBucket, "connects above the bucket, clocks up to 1 s apart"),
    (Assertion::Reaped, "slots of dead instances not free within lease + 2 heartbeats"),
];

fn histories(report: &mut Report, seeds: u64) -> anyhow::Result<()> {
    progress("random histories");
    let broken: [AtomicU64; ASSERTIONS.len()] = Default::default();
    let (next, crashes, first) = (AtomicU64::new(1), AtomicU64::new(0), Mutex::new(None::<(u64, String)>));
    let work = || -> anyhow::Result<()> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > seeds {
                return Ok(());
            }
            let outcome = run_history(seed)?;
            crashes.fetch_add(outcome.counts.lost_in_crashes.min(1), Ordering::Relaxed);
            for ((assertion, _), count) in ASSERTIONS.iter().zip(&broken) {
                let verdict = outcome.verdicts.iter().find(|verdict| verdict.assertion == *assertion);
                let verdict = verdict.with_context(|| format!("{assertion} is not checked"))?;
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
    for ((_, name), count) in ASSERTIONS.iter().zip(&broken) {
        let broken = count.load(Ordering::Relaxed);
        report.at_most(format!("{seeds} random histories: {name}"), broken, 0.0, "times");
    }
    let crashed = crashes.load(Ordering::Relaxed);
    report.note(format!("random histories: {crashed} of {seeds} lost connections in crashes"));
    if let Some((seed, finding)) = first.into_inner() {
        report.note(format!(
            "history {seed}: {finding}; `forebay-bench history {seed} > h.yaml; forebay sim h.yaml --seed \
             {seed}` repeats it"
        ));
    }
    Ok(())
}

fn run_history(seed: u64) -> anyhow::Result<Outcome> {
    let text = history::text(seed, Policy::of(seed));
    finish(&Scenario::parse(&format!("history-{seed}"), &text, &[])?, seed)
}

fn steady_state(report: &mut Report) -> anyhow::Result<()> {
    progress("steady state");
    let outcome = region(&["duration=40m", "sampleEvery=1m"])?;
    let (from, to) = (sample(&outcome, 20)?, sample(&outcome, 40)?);
    let a_second = |from: u64, to: u64| (to - from) as f64 / (20.0 * 60.0);
    let name = "steady state, 200 instances and 10,000 connections";
    let writes = a_second(from.write_units, to.write_units);
    let reads = a_second(from.read_units, to.read_units);
    report.at_most(format!("{name}: write units"), writes, 8.0, "units/s");
    report.at_most(format!("{name}: read units"), reads, 14.0, "units/s");
    Ok(())
}

fn cold_start(report: &mut Report) -> anyhow::Result<()> {
    progress("cold start");
    let outcome = region(&["duration=3m", "sampleEvery=1s", "services.0.startStep=25ms"])?;
    let writes = outcome.samples.windows(2).map(|pair| pair[1].table.rate_writes - pair[0].table.rate_writes);
    let writes = writes.max().unwrap_or(0);
    let name = "cold start of 200 instances";
    report.at_most(format!("{name}: writes of the shared item in any second"), writes, 50.0, "writes/s");
    // The share of what a bucket of 100/s with a burst of 1,000 allows by then.
    let used = outcome.time_to_converge.map(|took| 100.0 * 10_000.0 / (1000.0 + 100.0 * took.as_secs_f64()));
    report.at_least(format!("{name}: of the bucket used, until all are open"), used, 90.0, "%");
    let refused = outcome.counts.refused;
    report.at_most(format!("{name}: connects refused by the server"), refused, 0.0, "connects");
    Ok(())
}

fn store_outage(report: &mut Report) -> anyhow::Result<()> {
    progress("an outage of the store");
    let scenario = scenario("coordination-outage", &[])?;
    let outcome = finish(&scenario, scenario.seed)?;
    let failed = outcome.counts.failed();
    let name = "store unreachable for 10 minutes under load";
    report.at_most(format!("{name}: checkouts that fail"), failed, 0.0, "checkouts");
    let took = outcome.time_to_recover().map(|took| took.as_secs_f64());
    report.at_most(format!("{name}: all connections are open, after it is back"), took, 120.0, "s");
    let broken = outcome.verdicts.iter().map(|verdict| verdict.broken).sum::<u64>();
    // Among them: the ledger adds up, and each instance that reaches it again has a slot for each connection.
    report.at_most(format!("{name}: broken assertions, an exact ledger among them"), broken, 0.0, "times");
    Ok(())
}

/// The region of 200 instances without faults, with these keys changed.
fn region(settings: &[&str]) -> anyhow::Result<Outcome> {
    let scenario = scenario("region-10k", &[&["faults=[]"], settings].concat())?;
    finish(&scenario, scenario.seed)
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
    fn a_few_histories_break_no_assertion() {
        for seed in 1..=12 {
            let outcome = run_history(seed).expect("a valid scenario");
            for (assertion, _) in ASSERTIONS {
                let verdict = outcome.verdicts.iter().find(|verdict| verdict.assertion == assertion);
                assert!(verdict.expect("it is checked").holds(), "history {seed}: {outcome}");
            }
        }
    }

    #[test]
    fn histories_repeat() {
        let hash = |seed| run_history(seed).expect("a valid scenario").trace_hash;
        assert_eq!(hash(7), hash(7));
        assert_ne!(hash(7), hash(8));
    }
}
