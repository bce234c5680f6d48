//! The subcommand `sim`: what a simulated fleet costs to run, and its results.
//!
//! Costs are processor time and peak memory of a process that does nothing else, so that neither other
//! processes nor earlier measurements count.

use std::ops::ControlFlow;

use anyhow::Context;
use forebay_sim::{Outcome, Scenario, SeedReport, run_seeds, shipped};
use serde_json::{Value, json};

use crate::clock::Stopwatch;
use crate::process;
use crate::race::Figures;
use crate::report::Report;
use crate::section::progress;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// How often `ecs-400wps` runs; the median counts.
    rounds: usize,
    /// Seeds of `small-fleet`.
    seeds: u64,
    /// Seeds of `herd`, `herd-fleet` and `mass-drop`.
    herd_seeds: u64,
}

impl Effort {
    /// For numbers that are published.
    const FULL: Self = Self { rounds: 9, seeds: 1000, herd_seeds: 100 };
    /// For a first look.
    const QUICK: Self = Self { rounds: 3, seeds: 100, herd_seeds: 10 };
}

/// What a run cost its process.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Processor time in user mode, in seconds.
    user: f64,
    /// Peak memory, in MiB.
    memory: f64,
}

const MEGABYTE: f64 = 1_048_576.0;

pub(crate) fn run(quick: bool) -> anyhow::Result<Report> {
    let effort = if quick { Effort::QUICK } else { Effort::FULL };
    let mut report = Report::new("sim");
    ecs(&mut report, effort.rounds)?;
    region(&mut report)?;
    small_fleet(&mut report, effort.seeds)?;
    herds(&mut report, effort.herd_seeds)?;
    mass_drop(&mut report, effort.herd_seeds)?;
    all_shipped(&mut report)?;
    report.note("user CPU and memory are those of a separate process, by the kernel, in ticks of 10 ms");
    Ok(report)
}

fn ecs(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    progress("ecs-400wps");
    let costs: Vec<Cost> =
        (0..rounds).map(|_| alone("ecs-400wps").map(|(cost, _)| cost)).collect::<Result<_, _>>()?;
    let user = Figures::of("ecs-400wps, user CPU", costs.iter().map(|cost| cost.user).collect())?;
    let memory = Figures::of("ecs-400wps, memory", costs.iter().map(|cost| cost.memory).collect())?;
    report.at_most("ecs-400wps, 30 virtual minutes: user CPU", user.median, 1.3, "s");
    report.at_most("ecs-400wps: memory", memory.max, 150.0, "MB");
    report.table("ecs-400wps, user CPU", "s", vec![user]);
    Ok(())
}

fn region(report: &mut Report) -> anyhow::Result<()> {
    progress("region-10k");
    let (cost, outcome) = alone("region-10k")?;
    report.at_most("region-10k, 24 virtual hours: user CPU", cost.user, 60.0, "s");
    report.at_most("region-10k: memory", cost.memory, 1024.0, "MB");
    report.at_least("region-10k: checkouts", outcome["checkouts"].as_f64(), 20e6, "checkouts");
    report.note(format!("region-10k: {} events, {} opens", outcome["events"], outcome["opened"]));
    Ok(())
}

fn small_fleet(report: &mut Report, seeds: u64) -> anyhow::Result<()> {
    progress("small-fleet");
    let watch = Stopwatch::start();
    let found = many("small-fleet", seeds)?;
    let wall = watch.elapsed().as_secs_f64();
    let for_1000 = wall * 1000.0 / seeds as f64;
    report.at_most("small-fleet: 1,000 seeds, wall time", for_1000, 60.0, "s");
    report.at_most("small-fleet: seeds that fail", found.failed, 0.0, "seeds");
    report.note(format!(
        "small-fleet: {seeds} seeds on all cores in {wall:.1} s, {} events",
        found.worst.events
    ));
    Ok(())
}

fn herds(report: &mut Report, seeds: u64) -> anyhow::Result<()> {
    for (name, what, most) in
        [("herd", "one reservoir of 10,000", 5.0), ("herd-fleet", "200 reservoirs of 50", 7.0)]
    {
        progress(name);
        let peak = many(name, seeds)?.worst.max_renewals_per_sec;
        let goal = format!("{name}, {what}, {seeds} seeds: opens in any later second");
        report.at_most(goal, peak, most, "opens/s");
    }
    Ok(())
}

fn mass_drop(report: &mut Report, seeds: u64) -> anyhow::Result<()> {
    progress("mass-drop");
    let scenario = scenario("mass-drop", &[])?;
    let mut ratios = Vec::new();
    for seed in 1..=seeds {
        for recovery in finish(&scenario, seed)?.recoveries {
            let took = recovery.took.context("mass-drop never recovered")?;
            ratios.push(took.as_secs_f64() / recovery.limiter_time.as_secs_f64());
        }
    }
    let figures = Figures::of("mass-drop", ratios)?;
    let goal = format!("mass-drop, median of {seeds} seeds: recovery over what the bucket allows");
    report.at_most(goal, figures.median, 1.1, "times");
    report.note(format!(
        "mass-drop: the worst of {seeds} seeds took {:.2} times what the bucket allows: its last connection \
         was a slow one",
        figures.max
    ));
    report.table("mass-drop, recovery over bucket", "times", vec![figures]);
    Ok(())
}

fn all_shipped(report: &mut Report) -> anyhow::Result<()> {
    let mut failing = 0.0;
    for shipped in shipped() {
        progress(shipped.name);
        let (_, outcome) = alone(shipped.name)?;
        if outcome["passed"] != true {
            failing += 1.0;
            report.note(format!("{} does not pass: forebay sim {}", shipped.name, shipped.name));
        }
    }
    let goal = format!("shipped scenarios, of {}, that do not pass", shipped().len());
    report.at_most(goal, failing, 0.0, "scenarios");
    Ok(())
}

/// A shipped scenario, with these keys changed.
pub(crate) fn scenario(name: &str, settings: &[&str]) -> anyhow::Result<Scenario> {
    let shipped = shipped().iter().find(|shipped| shipped.name == name);
    let shipped = shipped.with_context(|| format!("no scenario '{name}' is shipped"))?;
    let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
    Ok(Scenario::parse(name, shipped.text, &settings)?)
}

/// Runs a scenario to its end.
pub(crate) fn finish(scenario: &Scenario, seed: u64) -> anyhow::Result<Outcome> {
    forebay_sim::run(scenario, seed, &mut ()).context("the run was interrupted")
}

fn many(name: &str, seeds: u64) -> anyhow::Result<SeedReport> {
    Ok(run_seeds(&scenario(name, &[])?, 1..=seeds, true, &|_| ControlFlow::Continue(())))
}

/// Runs a scenario in a separate process. Returns its cost and its outcome.
fn alone(name: &str) -> anyhow::Result<(Cost, Value)> {
    let result = process::json_of(process::this_program("simulate")?.arg(name))?;
    let number = |key: &str| result[key].as_f64().with_context(|| format!("{key} is missing"));
    let cost = Cost { user: number("user_seconds")?, memory: number("peak_bytes")? / MEGABYTE };
    Ok((cost, result["outcome"].clone()))
}

/// Runs a scenario in this process. Returns its cost and its outcome as JSON.
pub(crate) fn simulate(name: &str) -> anyhow::Result<Value> {
    let scenario = scenario(name, &[])?;
    let outcome = finish(&scenario, scenario.seed)?;
    let (user, peak) = (process::user_time()?, process::memory("self", "VmHWM")?);
    Ok(json!({ "user_seconds": user, "peak_bytes": peak, "outcome": outcome.json() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_reports_its_cost_and_outcome() {
        let result = simulate("local").expect("a shipped scenario");
        assert!(result["user_seconds"].as_f64() >= Some(0.0));
        assert_eq!(result["outcome"]["passed"], true);
        assert!(result["peak_bytes"].as_f64() > Some(MEGABYTE));
        assert!(simulate("nope").is_err());
    }
}
