//! The subcommand `flight-cancel`: statements whose callers give up, and large results, against a local
//! Flight SQL server in a separate process.

mod consumer;
mod ingest;
mod rows;
mod shell;
mod stop;
mod stubborn;

use clap::ValueEnum;
use tokio::runtime::Runtime;

use crate::flight::SEPARATE;
use crate::report::Report;
use crate::section::Selection;
pub(crate) use rows::{Reading, read};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// How often each measurement is repeated.
    rounds: usize,
    /// Rows that are read.
    read: u64,
    /// Rows that are loaded.
    loaded: usize,
    /// Batches that the slow consumer takes.
    taken: u32,
}

impl Effort {
    /// For numbers that are published: four minutes.
    const FULL: Self = Self { rounds: 9, read: 100_000_000, loaded: 1_000_000, taken: 100 };

    /// For a first look.
    const QUICK: Self = Self { rounds: 1, read: 2_000_000, loaded: 20_000, taken: 20 };
}

/// One goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    /// A long statement that is cancelled in every way.
    Stop,
    /// The same by Ctrl-C in the shell.
    Shell,
    /// Servers that do not stop statements.
    Stubborn,
    /// A hundred million rows.
    Rows,
    /// A slow reader.
    Consumer,
    /// A million rows into a table.
    Ingest,
}

impl Section {
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

pub(crate) fn run(selection: &Selection<Section>) -> anyhow::Result<Report> {
    let effort = if selection.quick { Effort::QUICK } else { Effort::FULL };
    let mut report = selection
        .run("flight-cancel", |section, runtime, report| section.measure(runtime, effort, report))?;
    report.note(SEPARATE);
    Ok(report)
}
