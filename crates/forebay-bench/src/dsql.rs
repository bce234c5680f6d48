//! The subcommand `dsql`: connections to Aurora DSQL by this project and by its peers, against one local Aurora DSQL in a
//! process of its own.

mod borrow;
mod callers;
mod cluster;
mod contestants;
mod counting;
mod cut;
mod disconnects;
mod fill;
mod hurry;
mod outage;
mod renewal;

use std::time::Duration;

use anyhow::Context;
use dsql_local::EngineKind;
use tokio::runtime::Runtime;

use crate::checkout;
use crate::report::Report;
use cluster::Cluster;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How long a session may live where many end.
    session: Duration,
    /// For how long that is watched.
    watched: Duration,
    /// How often each contestant borrows, and for how long.
    rounds: usize,
    /// See `rounds`.
    turn: Duration,
    /// Transactions that are counted.
    transactions: u32,
}

impl Effort {
    /// For figures that are to be kept: twenty minutes.
    pub const FULL: Self = Self {
        session: Duration::from_secs(60),
        watched: Duration::from_secs(180),
        rounds: 9,
        turn: Duration::from_secs(2),
        transactions: 2_000,
    };

    /// For a first look.
    pub const QUICK: Self = Self {
        session: Duration::from_secs(8),
        watched: Duration::from_secs(24),
        rounds: 3,
        turn: Duration::from_millis(500),
        transactions: 500,
    };
}

/// One part of what is measured: a row of the goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Section {
    /// Acquire, `SELECT 1`, give back.
    Borrow,
    /// Two hundred connections from nothing.
    Fill,
    /// Every socket is cut.
    Cut,
    /// Transactions under conflicts and cuts.
    Counting,
    /// Transfers under mass disconnects and a throttle.
    Disconnects,
    /// Sessions that the server ends.
    Renewal,
    /// A token service that is away. The last, since it lets the server's clock run ahead.
    Outage,
}

impl Section {
    const ALL: [Self; 7] =
        [Self::Borrow, Self::Fill, Self::Cut, Self::Counting, Self::Disconnects, Self::Renewal, Self::Outage];

    fn measure(
        self,
        runtime: &Runtime,
        cluster: &Cluster,
        effort: Effort,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        runtime.block_on(cluster.as_new())?;
        match self {
            Self::Borrow => borrow::measure(runtime, effort, report),
            Self::Fill => runtime.block_on(fill::measure(cluster, report)),
            Self::Cut => runtime.block_on(cut::measure(cluster, report)),
            Self::Counting => runtime.block_on(counting::measure(cluster, effort, report)),
            Self::Disconnects => runtime.block_on(disconnects::measure(cluster, effort, report)),
            Self::Renewal => runtime.block_on(renewal::measure(cluster, effort, report)),
            Self::Outage => runtime.block_on(outage::measure(cluster, report)),
        }
    }
}

/// Measures everything, or only some of it.
///
/// # Errors
/// If the server cannot be started, or a contestant cannot connect to it.
pub fn run(effort: Effort, only: &[Section]) -> anyhow::Result<Report> {
    let mut report = Report::new("dsql");
    let runtime: Runtime = checkout::runtime()?;
    let cluster = Cluster::start(EngineKind::Postgres)?;
    for section in Section::ALL {
        if only.is_empty() || only.contains(&section) {
            section
                .measure(&runtime, &cluster, effort, &mut report)
                .with_context(|| format!("section {section:?}"))?;
        }
    }
    report.note(
        "one dsql-local for all, with engine postgres, in a process of its own on the same cores; its limits are set \
         for each section on its control port",
    );
    if cfg!(debug_assertions) {
        report.note("THIS IS A DEBUG BUILD: its figures mean nothing, use --release");
    }
    report.machine.look_again();
    Ok(report)
}
