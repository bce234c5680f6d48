//! The subcommand `checkout`: what a checkout costs, here and in other pools.
//!
//! Each section measures one goal, with all contestants that can take part in it.

use std::time::Duration;

use clap::ValueEnum;
use tokio::runtime::Runtime;

use crate::report::{Report, Table};
use crate::section::Selection;
use crate::{allocations, instructions};

/// One lane for each pool.
macro_rules! lanes {
    ($lane:ident $arguments:tt: $($pool:ty),*) => { vec![$($lane::<$pool> $arguments ?),*] };
}

pub(crate) mod contended;
mod expiry;
mod fairness;
mod queue;
mod refill;
pub(crate) mod uncontended;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// How often each contestant runs.
    rounds: usize,
    /// Checkouts in one run of one task that is alone.
    turns_alone: u32,
    /// Checkouts in one run of each of several tasks.
    turns_each: u32,
    /// How often fairness is measured, and for how long.
    fairness_runs: usize,
    fairness_time: Duration,
    /// How long a refill runs before its opens are counted.
    refill_warm_up: Duration,
    /// How long opens are counted.
    refill_window: Duration,
}

impl Effort {
    /// For numbers that are published: about two minutes.
    const FULL: Self = Self {
        rounds: 21,
        turns_alone: 400_000,
        turns_each: 12_500,
        fairness_runs: 5,
        fairness_time: Duration::from_secs(5),
        refill_warm_up: Duration::from_secs(2),
        refill_window: Duration::from_secs(5),
    };
    /// For a first look: less than half a minute.
    const QUICK: Self = Self {
        rounds: 5,
        turns_alone: 100_000,
        turns_each: 5_000,
        fairness_runs: 1,
        fairness_time: Duration::from_secs(1),
        refill_warm_up: Duration::from_secs(1),
        refill_window: Duration::from_secs(2),
    };
}

/// One goal. The sections that start other programs come last, when nothing else is left running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    /// One task, calls that never wait.
    Try,
    /// One task, calls that may wait.
    Await,
    /// Several tasks that return connections at once.
    Crowd,
    /// Several tasks that yield while they hold a connection.
    Yield,
    /// A thousand tasks on ten connections.
    Fairness,
    /// The expiry scan.
    Expiry,
    /// The lock while many callers wait.
    Queue,
    /// Opens a second.
    Refill,
    /// Allocations of a checkout.
    Allocations,
    /// Instructions of a checkout.
    Instructions,
}

impl Section {
    fn measure(self, runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
        match self {
            Self::Try => uncontended::never_waiting(runtime, effort, report)?,
            Self::Await => uncontended::awaited(runtime, effort, report)?,
            Self::Crowd => contended::returned_at_once(runtime, effort, report)?,
            Self::Yield => contended::held_across_a_yield(runtime, effort, report)?,
            Self::Fairness => fairness::measure(runtime, effort, report)?,
            Self::Expiry => expiry::measure(runtime, effort, report)?,
            Self::Queue => queue::measure(effort, report)?,
            Self::Refill => refill::measure(runtime, effort, report)?,
            Self::Allocations => allocations::measure(report),
            Self::Instructions => instructions::measure(report),
        }
        Ok(())
    }
}

pub(crate) fn run(selection: &Selection<Section>) -> anyhow::Result<Report> {
    let effort = if selection.quick { Effort::QUICK } else { Effort::FULL };
    let mut report =
        selection.run("checkout", |section, runtime, report| section.measure(runtime, effort, report))?;
    report.note("forebay counts events and compares deadlines: there is no build without that");
    report.note("peers have their best settings: no checks, no lifetimes, no timeouts where possible");
    Ok(report)
}

/// The best peer's number over ours, where less is better.
fn times_less(table: &Table, ours: &str, peers: &[&str]) -> anyhow::Result<f64> {
    peers.iter().try_fold(f64::INFINITY, |best, peer| Ok(best.min(table.ratio(peer, ours)?)))
}

/// Our number over the best peer's, where more is better.
fn times_more(table: &Table, ours: &str, peers: &[&str]) -> anyhow::Result<f64> {
    peers.iter().try_fold(f64::INFINITY, |best, peer| Ok(best.min(table.ratio(ours, peer)?)))
}
