//! The subcommand `flight`: this project's pools for Flight SQL beside a pool over ADBC and a bare client, against one local
//! server in a process of its own.

pub(crate) mod adbc;
pub(crate) mod bare;
pub(crate) mod callers;
mod drops;
mod parallel;
mod restart;
mod select;
pub(crate) mod server;

use std::time::Duration;

use anyhow::Context;
use forebay_flight::PoolConfig;
use tokio::runtime::Runtime;

use crate::checkout;
use crate::report::Report;
pub use server::{Settings, serve};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How often each contestant has its turn, and for how long.
    rounds: usize,
    /// See `rounds`.
    turn: Duration,
    /// How often the server is killed.
    kills: usize,
    /// How many calls are dropped.
    drops: u32,
}

impl Effort {
    /// For figures that are to be kept: some six minutes.
    pub const FULL: Self = Self { rounds: 9, turn: Duration::from_millis(1_500), kills: 5, drops: 10_000 };

    /// For a first look.
    pub const QUICK: Self = Self { rounds: 1, turn: Duration::from_millis(300), kills: 1, drops: 500 };
}

/// One part of what is measured: a row of the goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Section {
    /// `SELECT 1`, by more and more callers.
    Select,
    /// Statements that take their time, side by side.
    Parallel,
    /// The server is killed and started again.
    Restart,
    /// Calls that are dropped half-way.
    Drops,
}

impl Section {
    /// In this order: where ADBC takes part, its library starts threads that never end, and some are counted before.
    const ALL: [Self; 4] = [Self::Drops, Self::Parallel, Self::Restart, Self::Select];

    fn measure(self, runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
        match self {
            Self::Select => select::measure(runtime, effort, report),
            Self::Parallel => parallel::measure(runtime, effort, report),
            Self::Restart => runtime.block_on(restart::measure(effort, report)),
            Self::Drops => drops::measure(effort, report),
        }
    }
}

/// Measures everything, or only some of it.
///
/// # Errors
/// If the server cannot be started, or a contestant cannot connect to it.
pub fn run(effort: Effort, only: &[Section]) -> anyhow::Result<Report> {
    let mut report = Report::new("flight");
    let runtime = checkout::runtime()?;
    for section in Section::ALL {
        if only.is_empty() || only.contains(&section) {
            section.measure(&runtime, effort, &mut report).with_context(|| format!("section {section:?}"))?;
        }
    }
    finish(&mut report);
    Ok(report)
}

pub(crate) fn finish(report: &mut Report) {
    report.note("each section has a flight-local of its own, in a process of its own on the same cores");
    if cfg!(debug_assertions) {
        report.note("THIS IS A DEBUG BUILD: its figures mean nothing, use --release");
    }
    report.machine.look_again();
}

/// A pool that has all its connections from the start.
pub(crate) fn full(connections: usize) -> PoolConfig {
    PoolConfig { min_idle: connections, max_size: connections, ..PoolConfig::default() }
}
