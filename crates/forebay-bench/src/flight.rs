//! The subcommand `flight`: this project's pools for Flight SQL beside a pool over ADBC and a bare client,
//! against one local server in a separate process.

pub(crate) mod adbc;
pub(crate) mod bare;
pub(crate) mod callers;
mod drops;
mod parallel;
mod restart;
mod select;
pub(crate) mod server;

use std::time::Duration;

use clap::ValueEnum;
use forebay_flight::PoolConfig;
use tokio::runtime::Runtime;

use crate::report::Report;
use crate::section::Selection;
pub(crate) use server::{Settings, serve};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// How often each contestant has its turn, and for how long.
    rounds: usize,
    turn: Duration,
    /// How often the server is killed.
    kills: usize,
    /// How many calls are dropped.
    drops: u32,
}

impl Effort {
    /// For numbers that are published: six minutes.
    const FULL: Self = Self { rounds: 9, turn: Duration::from_millis(1_500), kills: 5, drops: 10_000 };

    /// For a first look.
    const QUICK: Self = Self { rounds: 1, turn: Duration::from_millis(300), kills: 1, drops: 500 };
}

/// One goal. The order matters: ADBC's library starts threads that never end, and `drops` counts threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    /// Calls that are dropped before they end.
    Drops,
    /// Slow statements, side by side.
    Parallel,
    /// The server is killed and started again.
    Restart,
    /// `SELECT 1`, by more and more callers.
    Select,
}

impl Section {
    fn measure(self, runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
        match self {
            Self::Select => select::measure(runtime, effort, report),
            Self::Parallel => parallel::measure(runtime, effort, report),
            Self::Restart => runtime.block_on(restart::measure(effort, report)),
            Self::Drops => drops::measure(effort, report),
        }
    }
}

pub(crate) fn run(selection: &Selection<Section>) -> anyhow::Result<Report> {
    let effort = if selection.quick { Effort::QUICK } else { Effort::FULL };
    let mut report =
        selection.run("flight", |section, runtime, report| section.measure(runtime, effort, report))?;
    report.note(SEPARATE);
    Ok(report)
}

pub(crate) const SEPARATE: &str =
    "each section has a separate flight-local, in a separate process on the same cores";

/// A pool that opens all its connections at the start.
pub(crate) fn full(connections: usize) -> PoolConfig {
    PoolConfig { min_idle: connections, max_size: connections, ..PoolConfig::default() }
}
