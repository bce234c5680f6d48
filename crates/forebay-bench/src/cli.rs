//! The command line.

use std::net::SocketAddr;

use ::dsql_local::EngineKind;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::checkout::{self, contended};
use crate::fleet_processes::{self, Plan};
use crate::history::{self, Policy};
use crate::report::Report;
use crate::section::Selection;
use crate::{coordination, dsql, dsql_local, flight, flight_cancel, instructions, sim, twin_tables};

/// Measures forebay and its peers, side by side in one run.
#[derive(Parser)]
#[command(name = "forebay-bench", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// An engine of the local Aurora DSQL.
#[derive(Clone, Copy, Default, ValueEnum)]
enum Engine {
    /// SQLite, inside the server's process.
    #[default]
    Builtin,
    /// A private PostgreSQL.
    Postgres,
}

impl From<Engine> for EngineKind {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Builtin => Self::Builtin,
            Engine::Postgres => Self::Postgres,
        }
    }
}

#[derive(Subcommand)]
enum Command {
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
    /// Pools for Flight SQL, beside a pool over ADBC and a bare client, against a local server.
    Flight {
        #[command(flatten)]
        selection: Selection<flight::Section>,
        #[command(flatten)]
        output: Output,
    },
    /// Flight SQL statements whose callers give up, and large results.
    FlightCancel {
        #[command(flatten)]
        selection: Selection<flight_cancel::Section>,
        #[command(flatten)]
        output: Output,
    },
    /// A Flight SQL client whose memory is measured. `flight-cancel` starts it.
    #[command(hide = true)]
    FlightRead {
        #[command(flatten)]
        reading: flight_cancel::Reading,
    },
    /// The Flight SQL server that is measured. `flight` and `flight-cancel` start it.
    #[command(hide = true)]
    FlightLocalServe {
        #[command(flatten)]
        settings: flight::Settings,
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
    /// The local Aurora DSQL that is measured. `dsql` and `dsql-local` start it.
    #[command(hide = true)]
    DsqlLocalServe {
        /// The engine.
        #[arg(long, value_enum, default_value_t)]
        engine: Engine,
    },
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

#[derive(Args)]
struct Output {
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

impl Output {
    fn print(&self, mut report: Report) {
        report.machine.look_again();
        if self.json { println!("{:#}", report.json()) } else { print!("{}", report.text()) }
    }
}

/// Runs the program. A goal that is missed is a result, not a failure: the exit status is 0 either way.
///
/// # Errors
/// If a section cannot be measured.
pub fn run() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Checkout { selection, output } => output.print(checkout::run(&selection)?),
        Command::Sim { quick, output } => output.print(sim::run(quick)?),
        Command::Coordination { long, output } => {
            let mut report = coordination::run(long)?;
            on_dynamodb(&mut report, long)?;
            output.print(report);
        }
        Command::History { seed } => print!("{}", history::text(seed, Policy::of(seed))),
        Command::Simulate { scenario } => println!("{}", sim::simulate(&scenario)?),
        Command::Instructions { output } => {
            let mut report = Report::new("instructions");
            instructions::measure(&mut report);
            output.print(report);
        }
        Command::DsqlLocal { engine, quick, output } => output.print(dsql_local::run(engine.into(), quick)?),
        Command::Dsql { selection, output } => output.print(dsql::run(&selection)?),
        Command::StatusPageWatch { address } => dsql::watch_status_page(address)?,
        Command::Flight { selection, output } => output.print(flight::run(&selection)?),
        Command::FlightCancel { selection, output } => output.print(flight_cancel::run(&selection)?),
        Command::FlightRead { reading } => flight_cancel::read(&reading)?,
        Command::FlightLocalServe { settings } => flight::serve(&settings)?,
        Command::FleetProcesses { long, output } => {
            let mut report = Report::new("fleet-processes");
            on_dynamodb(&mut report, long)?;
            output.print(report);
        }
        Command::FleetWorker => fleet_processes::work()?,
        Command::DsqlLocalServe { engine } => dsql_local::serve(engine.into())?,
        Command::Spin { turns, crowd: None } => instructions::spin(turns)?,
        Command::Spin { turns, crowd: Some(connections) } => contended::spin(connections, turns)?,
    }
    Ok(())
}

/// The part of `coordination` that virtual time cannot show.
fn on_dynamodb(report: &mut Report, long: bool) -> anyhow::Result<()> {
    let (plan, seeds) = if long { (Plan::LONG, 100) } else { (Plan::SHORT, 4) };
    fleet_processes::measure(report, plan)?;
    twin_tables::measure(report, seeds)
}
