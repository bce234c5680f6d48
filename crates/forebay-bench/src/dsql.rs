//! The subcommand `dsql`: connections to Aurora DSQL by this project and by its peers, against one local
//! Aurora DSQL in a separate process.

mod borrow;
mod callers;
mod contestants;
mod counting;
mod cut;
mod disconnects;
mod fill;
mod outage;
mod renewal;
mod status_page;

use std::time::Duration;

use clap::ValueEnum;
use dsql_local::EngineKind;
use tokio::runtime::Runtime;

use crate::cluster::Cluster;
use crate::report::Report;
use crate::section::Selection;
pub(crate) use status_page::watch as watch_status_page;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// The lifetime of a session in the section `renewal`.
    session: Duration,
    /// How long that section runs.
    watched: Duration,
    /// How often each contestant has its turn, and for how long.
    rounds: usize,
    turn: Duration,
    /// Transactions of the section `counting`.
    transactions: u32,
}

impl Effort {
    /// For numbers that are published: twenty minutes.
    const FULL: Self = Self {
        session: Duration::from_secs(60),
        watched: Duration::from_secs(180),
        rounds: 9,
        turn: Duration::from_secs(2),
        transactions: 2_000,
    };

    /// For a first look: two minutes.
    const QUICK: Self = Self {
        session: Duration::from_secs(8),
        watched: Duration::from_secs(24),
        rounds: 3,
        turn: Duration::from_millis(500),
        transactions: 500,
    };
}

/// One goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    /// Acquire, `SELECT 1`, return.
    Borrow,
    /// A cold fill of two hundred connections.
    Fill,
    /// Every socket is cut.
    Cut,
    /// Transactions under conflicts and cuts.
    Counting,
    /// Transfers under mass disconnects and a throttle.
    Disconnects,
    /// Sessions that the server ends.
    Renewal,
    /// A service with a status page.
    StatusPage,
    /// An outage of the token service. It comes last, since it sets the server's clock ahead.
    Outage,
}

impl Section {
    fn measure(
        self,
        runtime: &Runtime,
        cluster: &Cluster,
        effort: Effort,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        runtime.block_on(cluster.reset())?;
        match self {
            Self::Borrow => borrow::measure(runtime, effort, report),
            Self::Fill => runtime.block_on(fill::measure(cluster, report)),
            Self::Cut => runtime.block_on(cut::measure(cluster, report)),
            Self::Counting => runtime.block_on(counting::measure(cluster, effort, report)),
            Self::Disconnects => runtime.block_on(disconnects::measure(cluster, effort, report)),
            Self::Renewal => runtime.block_on(renewal::measure(cluster, effort, report)),
            Self::StatusPage => status_page::measure(runtime, effort, report),
            Self::Outage => runtime.block_on(outage::measure(cluster, report)),
        }
    }
}

pub(crate) fn run(selection: &Selection<Section>) -> anyhow::Result<Report> {
    let effort = if selection.quick { Effort::QUICK } else { Effort::FULL };
    let cluster = Cluster::start(EngineKind::Postgres)?;
    let mut report = selection
        .run("dsql", |section, runtime, report| section.measure(runtime, &cluster, effort, report))?;
    report.note(
        "all contestants share one dsql-local with engine postgres, in a separate process on the same cores; \
         each section sets its limits on its control port",
    );
    Ok(report)
}
