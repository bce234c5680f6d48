//! The subcommand `sim`: what a simulated fleet costs to run, and what it shows.
//!
//! Costs are processor time and peak memory of a process that does nothing else, so that neither a neighbour nor what
//! was measured before counts.

use std::fs;
use std::ops::ControlFlow;
use std::process::Command;

use anyhow::{Context, ensure};
use forebay_sim::{Scenario, SeedReport, Worst, run_seeds, shipped};
use serde_json::{Value, json};

use crate::checkout::progress;
use crate::clock::Stopwatch;
use crate::race::Figures;
use crate::report::{Bound, Report, Table};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How often `ecs-400wps` runs; the median counts.
    pub rounds: usize,
    /// Seeds of the small fleet.
    pub seeds: u64,
    /// Seeds of each herd, and of the mass drop.
    pub herd_seeds: u64,
}

impl Effort {
    /// For figures that are to be kept.
    pub const FULL: Self = Self { rounds: 9, seeds: 1000, herd_seeds: 100 };
    /// For a first look.
    pub const QUICK: Self = Self { rounds: 3, seeds: 100, herd_seeds: 10 };
}

/// What a run cost its process.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Processor time in user mode, in seconds.
    user: f64,
    /// Most memory at a time, in megabytes.
    memory: f64,
}

const MEGABYTE: f64 = 1_048_576.0;

/// Measures everything.
///
/// # Errors
/// If a program cannot be started or says nothing sensible.
pub fn run(effort: Effort) -> anyhow::Result<Report> {
    let mut report = Report::new("sim");
    ecs(&mut report, effort.rounds)?;
    region(&mut report)?;
    small_fleet(&mut report, effort.seeds)?;
    herds(&mut report, effort.herd_seeds)?;
    mass_drop(&mut report, effort.herd_seeds)?;
    all_shipped(&mut report)?;
    report.note(
        "user CPU and memory are of a process of their own, as the kernel counts them; a tick is 10 ms",
    );
    report.machine.look_again();
    Ok(report)
}

fn ecs(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    progress("ecs-400wps");
    let costs: Vec<Cost> =
        (0..rounds).map(|_| alone("ecs-400wps").map(|(cost, _)| cost)).collect::<Result<_, _>>()?;
    let user = Figures::of("ecs-400wps, user CPU", costs.iter().map(|cost| cost.user).collect())?;
    let memory = Figures::of("ecs-400wps, memory", costs.iter().map(|cost| cost.memory).collect())?;
    report.goal("ecs-400wps, 30 virtual minutes: user CPU", user.median, Bound::AtMost(1.3), "s");
    report.goal("ecs-400wps: memory", memory.max, Bound::AtMost(150.0), "MB");
    report.tables.push(Table { name: "ecs-400wps, user CPU".to_owned(), unit: "s", rows: vec![user] });
    Ok(())
}

fn region(report: &mut Report) -> anyhow::Result<()> {
    progress("region-10k");
    let (cost, outcome) = alone("region-10k")?;
    report.goal("region-10k, 24 virtual hours: user CPU", cost.user, Bound::AtMost(60.0), "s");
    report.goal("region-10k: memory", cost.memory, Bound::AtMost(1024.0), "MB");
    report.goal("region-10k: checkouts", outcome["checkouts"].as_f64(), Bound::AtLeast(20e6), "checkouts");
    report.note(format!("region-10k: {} events, {} opens", outcome["events"], outcome["opened"]));
    Ok(())
}

fn small_fleet(report: &mut Report, seeds: u64) -> anyhow::Result<()> {
    progress("small-fleet");
    let watch = Stopwatch::start();
    let found = many("small-fleet", seeds)?;
    let wall = watch.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "a small count")]
    let for_1000 = wall * 1000.0 / seeds as f64;
    report.goal("small-fleet: 1,000 seeds, wall time", for_1000, Bound::AtMost(60.0), "s");
    report.goal("small-fleet: seeds that fail", failures(&found), Bound::AtMost(0.0), "seeds");
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
        let Worst { max_renewals_per_sec, .. } = many(name, seeds)?.worst;
        #[allow(clippy::cast_precision_loss, reason = "a small count")]
        let peak = max_renewals_per_sec as f64;
        let goal = format!("{name}, {what}, {seeds} seeds: opens in any later second");
        report.goal(goal, peak, Bound::AtMost(most), "opens/s");
    }
    Ok(())
}

fn mass_drop(report: &mut Report, seeds: u64) -> anyhow::Result<()> {
    progress("mass-drop");
    let scenario = scenario("mass-drop")?;
    let mut ratios = Vec::new();
    for seed in 1..=seeds {
        let outcome = forebay_sim::run(&scenario, seed, &mut ()).context("nobody broke it off")?;
        for recovery in &outcome.recoveries {
            let took = recovery.took.context("mass-drop never recovered")?;
            ratios.push(took.as_secs_f64() / recovery.limiter_time.as_secs_f64());
        }
    }
    let figures = Figures::of("mass-drop", ratios)?;
    report.goal(
        format!("mass-drop, median of {seeds} seeds: recovery over what the bucket allows"),
        figures.median,
        Bound::AtMost(1.1),
        "times",
    );
    report.note(format!(
        "mass-drop: the worst of {seeds} seeds took {:.2} times what the bucket allows; the last to be opened was a slow one",
        figures.max
    ));
    report.tables.push(Table {
        name: "mass-drop, recovery over bucket".to_owned(),
        unit: "times",
        rows: vec![figures],
    });
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
    report.goal(
        format!("shipped scenarios, of {}, that do not pass", shipped().len()),
        failing,
        Bound::AtMost(0.0),
        "scenarios",
    );
    Ok(())
}

fn failures(found: &SeedReport) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a small count")]
    let failed = found.failed as f64;
    failed
}

fn scenario(name: &str) -> anyhow::Result<Scenario> {
    let shipped = shipped().iter().find(|shipped| shipped.name == name);
    let shipped = shipped.with_context(|| format!("no scenario '{name}' is shipped"))?;
    Ok(Scenario::parse(name, shipped.text, &[])?)
}

fn many(name: &str, seeds: u64) -> anyhow::Result<SeedReport> {
    Ok(run_seeds(&scenario(name)?, 1..=seeds, true, &|_| ControlFlow::Continue(())))
}

/// Runs a scenario in a process of its own. Returns what that cost, and the outcome.
fn alone(name: &str) -> anyhow::Result<(Cost, Value)> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let output =
        Command::new(program).args(["simulate", name]).output().context("cannot start this program again")?;
    ensure!(output.status.success(), "simulating {name} failed: {}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
    let number = |key: &str| told[key].as_f64().with_context(|| format!("{key} is missing"));
    Ok((
        Cost { user: number("user_seconds")?, memory: number("peak_bytes")? / MEGABYTE },
        told["outcome"].clone(),
    ))
}

/// Runs a scenario in this process, and tells what that cost as JSON.
///
/// # Errors
/// If there is no such scenario, or the kernel does not tell.
pub fn simulate(name: &str) -> anyhow::Result<Value> {
    let scenario = scenario(name)?;
    let outcome = forebay_sim::run(&scenario, scenario.seed, &mut ()).context("nobody broke it off")?;
    let Cost { user, memory } = own_cost()?;
    Ok(json!({ "user_seconds": user, "peak_bytes": memory * MEGABYTE, "outcome": outcome.json() }))
}

/// What this process has cost so far, from the kernel's own account.
fn own_cost() -> anyhow::Result<Cost> {
    let stat = fs::read_to_string("/proc/self/stat").context("this needs Linux's /proc")?;
    // The name, in parentheses, may contain anything; user time is the twelfth field after it, in ticks of 10 ms.
    let after_name = stat.rsplit(')').next().unwrap_or("");
    let ticks: f64 = after_name.split_whitespace().nth(11).context("no user time")?.parse()?;
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no peak memory")?;
    let kilobytes: f64 = peak.trim().trim_end_matches("kB").trim().parse()?;
    Ok(Cost { user: ticks / 100.0, memory: kilobytes / 1024.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_what_it_cost() {
        let cost = own_cost().expect("on Linux");
        assert!(cost.memory > 1.0 && cost.user >= 0.0, "{cost:?}");
    }

    #[test]
    fn a_simulation_tells_its_cost_and_outcome() {
        let told = simulate("local").expect("it is shipped");
        assert_eq!(told["outcome"]["passed"], true);
        assert!(told["peak_bytes"].as_f64() > Some(MEGABYTE));
        assert!(simulate("nope").is_err());
    }
}
