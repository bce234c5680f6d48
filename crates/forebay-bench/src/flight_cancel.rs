//! The subcommand `flight-cancel`: what becomes of statements whose callers have given up, and of large results, against a local
//! Flight SQL server in a process of its own.

mod consumer;
mod ingest;
mod rows;
mod shell;
mod stop;
mod stubborn;

use anyhow::Context;
use tokio::runtime::Runtime;

use crate::checkout;
use crate::flight::finish;
use crate::report::Report;
pub use rows::{Reading, read};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How often.
    rounds: usize,
    /// Rows that are read.
    read: u64,
    /// Rows that are loaded.
    loaded: usize,
    /// Batches that the slow consumer takes.
    taken: u32,
}

impl Effort {
    /// For figures that are to be kept: some four minutes.
    pub const FULL: Self = Self { rounds: 9, read: 100_000_000, loaded: 1_000_000, taken: 100 };

    /// For a first look.
    pub const QUICK: Self = Self { rounds: 1, read: 2_000_000, loaded: 20_000, taken: 20 };
}

/// One part of what is measured: a row of the goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Section {
    /// A statement of a minute that is given up in every way.
    Stop,
    /// The same by Ctrl-C in the shell.
    Shell,
    /// Servers that do not stop statements.
    Stubborn,
    /// A hundred million rows.
    Rows,
    /// A reader who takes his time.
    Consumer,
    /// A million rows into a table.
    Ingest,
}

impl Section {
    const ALL: [Self; 6] =
        [Self::Stop, Self::Shell, Self::Stubborn, Self::Rows, Self::Consumer, Self::Ingest];

    fn measure(self, runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
        match self {
            Self::Stop => runtime.block_on(stop::measure(effort, report)),
            Self::Shell => shell::measure(effort, report),
            Self::Stubborn => runtime.block_on(stubborn::measure(report)),
            Self::Rows => rows::measure(effort, report),
            Self::Consumer => runtime.block_on(consumer::measure(effort, report)),
            Self::Ingest => ingest::measure(runtime, effort, report),
        }
    }
}

/// Measures everything, or only some of it.
///
/// # Errors
/// If a server cannot be started, or nobody can connect to it.
pub fn run(effort: Effort, only: &[Section]) -> anyhow::Result<Report> {
    let mut report = Report::new("flight-cancel");
    let runtime = checkout::runtime()?;
    for section in Section::ALL {
        if only.is_empty() || only.contains(&section) {
            section.measure(&runtime, effort, &mut report).with_context(|| format!("section {section:?}"))?;
        }
    }
    finish(&mut report);
    Ok(report)
}
