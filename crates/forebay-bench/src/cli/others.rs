//! The subcommands that do not measure Flight SQL.

use std::net::SocketAddr;

use clap::Subcommand;

use super::Output;
use super::on_cluster::Engine;
use crate::checkout::{self, contended};
use crate::fleet_processes::{self, Plan};
use crate::history::{self, Policy};
use crate::report::Report;
use crate::section::Selection;
use crate::{coordination, dsql, dsql_local, instructions, sim, twin_tables};

#[derive(Subcommand)]
pub(super) enum Command {
    /// The cost of a checkout: alone, contended, fairness, expiry and refill. Two minutes; --quick: half a
    /// minute.
    Checkout {
        #[command(flatten)]
        selection: Selection<checkout::Section>,
        #[command(flatten)]
        output: Output,
    },
    /// The cost of a simulated fleet, and its results: herds, recoveries, every shipped scenario.
    Sim {
        /// Fewer seeds: about a minute instead of three.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        output: Output,
    },
    /// A budget that a fleet shares: its guarantees in random histories, its costs, cold starts, outages.
    Coordination {
        /// All that is promised, with 1,000 histories: some minutes.
        #[arg(long)]
        long: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Print the random history with this seed, as a scenario for `forebay sim`.
    #[command(hide = true)]
    History {
        /// The seed.
        seed: u64,
    },
    /// Instructions of a checkout, counted by valgrind's callgrind.
    Instructions {
        #[command(flatten)]
        output: Output,
    },
    /// Run one shipped scenario, and print what it cost this process.
    #[command(hide = true)]
    Simulate {
        /// The name of the scenario.
        scenario: String,
    },
    /// The cost of the local Aurora DSQL: memory when idle, processor time of a connect, statements a second.
    DsqlLocal {
        /// `builtin` is measured on its own, `postgres` beside a PostgreSQL without rules.
        #[arg(long, value_enum, default_value_t)]
        engine: Engine,
        /// Measure less, for a first look.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Connections to Aurora DSQL, beside its peers, against a local one. Twenty minutes; --quick: two.
    Dsql {
        #[command(flatten)]
        selection: Selection<dsql::Section>,
        #[command(flatten)]
        output: Output,
    },
    /// Has a status page open. `dsql` starts it.
    #[command(hide = true)]
    StatusPageWatch {
        /// Where the page is served.
        address: SocketAddr,
    },
    /// The part of `coordination` with a DynamoDB: real processes that are killed at random, and histories
    /// that must end as on the table in memory.
    FleetProcesses {
        /// Kill processes for three minutes, instead of some seconds.
        #[arg(long)]
        long: bool,
        #[command(flatten)]
        output: Output,
    },
    /// One of the processes of `fleet-processes`.
    #[command(hide = true)]
    FleetWorker,
    /// Check out and return, for a profiler.
    #[command(hide = true)]
    Spin {
        /// How many turns each task takes.
        #[arg(long)]
        turns: u32,
        /// Run several tasks that yield while they hold, on this many connections, instead of one task.
        #[arg(long)]
        crowd: Option<usize>,
    },
}

impl Command {
    /// # Errors
    /// If a section cannot be measured.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Checkout { selection, output } => output.print(checkout::run(&selection)?),
            Self::Sim { quick, output } => output.print(sim::run(quick)?),
            Self::Coordination { long, output } => {
                let mut report = coordination::run(long)?;
                on_dynamodb(&mut report, long)?;
                output.print(report);
            }
            Self::History { seed } => print!("{}", history::text(seed, Policy::of(seed))),
            Self::Simulate { scenario } => println!("{}", sim::simulate(&scenario)?),
            Self::Instructions { output } => {
                let mut report = Report::new("instructions");
                instructions::measure(&mut report);
                output.print(report);
            }
            Self::DsqlLocal { engine, quick, output } => output.print(dsql_local::run(engine.into(), quick)?),
            Self::Dsql { selection, output } => output.print(dsql::run(&selection)?),
            Self::StatusPageWatch { address } => dsql::watch_status_page(address)?,
            Self::FleetProcesses { long, output } => {
                let mut report = Report::new("fleet-processes");
                on_dynamodb(&mut report, long)?;
                output.print(report);
            }
            Self::FleetWorker => fleet_processes::work()?,
            Self::Spin { turns, crowd: None } => instructions::spin(turns)?,
            Self::Spin { turns, crowd: Some(connections) } => contended::spin(connections, turns)?,
        }
        Ok(())
    }
}

/// The part of `coordination` that virtual time cannot show.
fn on_dynamodb(report: &mut Report, long: bool) -> anyhow::Result<()> {
    let (plan, seeds) = if long { (Plan::LONG, 100) } else { (Plan::SHORT, 4) };
    fleet_processes::measure(report, plan)?;
    twin_tables::measure(report, seeds)
}
