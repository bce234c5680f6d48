//! The subcommand `checkout`: what it costs to borrow a connection, here and elsewhere.
//!
//! Each section measures one row of the goals, with all contestants that can take part in it.

use std::time::Duration;

use anyhow::Context;
use tokio::runtime::Runtime;

use crate::report::{Report, Table};
use crate::{allocations, instructions};

pub mod contended;
pub mod expiry;
pub mod fairness;
pub mod refill;
pub mod uncontended;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How often each contestant runs.
    pub rounds: usize,
    /// Checkouts in one run of one task that is alone.
    pub turns_alone: u32,
    /// Checkouts in one run of each of several tasks.
    pub turns_each: u32,
    /// Fairness is measured so often, for so long.
    pub fairness_runs: usize,
    /// See `fairness_runs`.
    pub fairness_time: Duration,
    /// Before opens are counted.
    pub refill_warm_up: Duration,
    /// While opens are counted.
    pub refill_window: Duration,
}

impl Effort {
    /// For figures that are to be kept: about two minutes.
    pub const FULL: Self = Self {
        rounds: 21,
        turns_alone: 400_000,
        turns_each: 12_500,
        fairness_runs: 5,
        fairness_time: Duration::from_secs(5),
        refill_warm_up: Duration::from_secs(2),
        refill_window: Duration::from_secs(5),
    };

    /// For a first look: less than half a minute.
    pub const QUICK: Self = Self {
        rounds: 5,
        turns_alone: 100_000,
        turns_each: 5_000,
        fairness_runs: 1,
        fairness_time: Duration::from_secs(1),
        refill_warm_up: Duration::from_secs(1),
        refill_window: Duration::from_secs(2),
    };
}

/// The worker threads that tasks run on.
const THREADS: usize = 2;

/// One part of what is measured: a row of the goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Section {
    /// One task, calls that never wait.
    Try,
    /// One task, calls that may wait.
    Await,
    /// Tasks that give back at once.
    Crowd,
    /// Tasks that yield while they hold.
    Yield,
    /// A thousand tasks on ten connections.
    Fairness,
    /// The expiry scan.
    Expiry,
    /// Opens a second.
    Refill,
    /// Allocations of a checkout.
    Allocations,
    /// Instructions of a checkout.
    Instructions,
}

impl Section {
    /// Those that run programs of their own come last, when nothing else is left running.
    const ALL: [Self; 9] = [
        Self::Try,
        Self::Await,
        Self::Crowd,
        Self::Yield,
        Self::Fairness,
        Self::Expiry,
        Self::Refill,
        Self::Allocations,
        Self::Instructions,
    ];

    fn measure(self, runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
        match self {
            Self::Try => uncontended::at_once(runtime, effort, report),
            Self::Await => uncontended::awaited(runtime, effort, report),
            Self::Crowd => contended::given_back_at_once(runtime, effort, report),
            Self::Yield => contended::held_over_a_yield(runtime, effort, report),
            Self::Fairness => fairness::measure(runtime, effort, report),
            Self::Expiry => expiry::measure(runtime, effort, report),
            Self::Refill => refill::measure(runtime, effort, report),
            Self::Allocations => {
                allocations::measure(report);
                Ok(())
            }
            Self::Instructions => {
                instructions::measure(report);
                Ok(())
            }
        }
    }
}

/// Measures everything, or only some of it.
///
/// # Errors
/// If a contestant refuses to lend, or the runtime cannot be made.
pub fn run(effort: Effort, only: &[Section]) -> anyhow::Result<Report> {
    let mut report = Report::new("checkout");
    let runtime = runtime()?;
    for section in Section::ALL {
        if only.is_empty() || only.contains(&section) {
            section.measure(&runtime, effort, &mut report).with_context(|| format!("section {section:?}"))?;
        }
    }
    report.note(
        "forebay's counters are always on, and its deadlines are compared: there is no build without them",
    );
    report.note(
        "peers have their best settings: nothing checked on loan, no lifetimes, no timeouts where possible",
    );
    if cfg!(debug_assertions) {
        report.note("THIS IS A DEBUG BUILD: its figures mean nothing, use --release");
    }
    report.machine.look_again();
    Ok(report)
}

/// The runtime everyone runs on.
///
/// # Errors
/// If the operating system does not give it its threads.
pub fn runtime() -> anyhow::Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    runtime.context("starting the tokio runtime")
}

/// Says what is being measured, on standard error, so that standard output is the report and nothing else.
pub(crate) fn progress(what: &str) {
    eprintln!("measuring {what} ...");
}

/// How many times `peer`'s figure is ours, where less is better.
fn times_less(table: &Table, ours: &str, peers: &[&str]) -> anyhow::Result<f64> {
    let mut best = f64::INFINITY;
    for peer in peers {
        best = best.min(table.median(peer)?);
    }
    Ok(best / table.median(ours)?)
}

/// How many times our figure is `peer`'s, where more is better.
fn times_more(table: &Table, ours: &str, peers: &[&str]) -> anyhow::Result<f64> {
    let mut best = 0.0_f64;
    for peer in peers {
        best = best.max(table.median(peer)?);
    }
    Ok(table.median(ours)? / best)
}
