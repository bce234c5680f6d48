//! The program `forebay-bench`.

use ::dsql_local::EngineKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use forebay_bench::checkout::{self, Effort, Section, contended};
use forebay_bench::coordination::{self, history};
use forebay_bench::fleet_processes::{self, Plan};
use forebay_bench::report::Report;
use forebay_bench::twin_tables;
use forebay_bench::{dsql, dsql_local, flight, flight_cancel, instructions, sim};

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
    /// SQLite, in the process.
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
    /// What it costs to borrow a connection: alone, in a crowd, fairly, while connections expire and are opened.
    Checkout {
        /// Measure less: under half a minute instead of some two minutes.
        #[arg(long)]
        quick: bool,
        /// Measure only this; can be given several times.
        #[arg(long, value_enum, value_name = "SECTION")]
        only: Vec<Section>,
        #[command(flatten)]
        output: Output,
    },
    /// What a simulated fleet costs to run, and what it shows: herds, recoveries, every shipped scenario.
    Sim {
        /// Fewer seeds: about a minute instead of three.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        output: Output,
    },
    /// What it takes to share one budget across a fleet, and what that keeps: random histories, costs, cold starts, outages.
    Coordination {
        /// Everything that is promised, with 1,000 histories: some minutes.
        #[arg(long)]
        long: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Print the random history with this seed, as a scenario for `forebay sim`.
    #[command(hide = true)]
    History {
        /// Which.
        seed: u64,
    },
    /// How many instructions a checkout takes, counted by valgrind's callgrind.
    Instructions {
        #[command(flatten)]
        output: Output,
    },
    /// Run one shipped scenario, and print what that cost this process.
    #[command(hide = true)]
    Simulate {
        /// Which.
        scenario: String,
    },
    /// What the local Aurora DSQL costs: memory when idle, processor time of a connect, statements a second.
    DsqlLocal {
        /// Which engine: `builtin` on its own, or `postgres` beside a PostgreSQL without rules.
        #[arg(long, value_enum, default_value_t)]
        engine: Engine,
        /// Measure less.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        output: Output,
    },
    /// This project's connections to Aurora DSQL beside those of its peers, against a local one.
    Dsql {
        /// Shorter: some two minutes instead of a quarter of an hour.
        #[arg(long)]
        quick: bool,
        /// Measure only this; can be given several times.
        #[arg(long, value_enum, value_name = "SECTION")]
        only: Vec<dsql::Section>,
        #[command(flatten)]
        output: Output,
    },
    /// This project's pools for Flight SQL beside a pool over ADBC and a bare client, against a local server.
    Flight {
        /// Shorter: some seconds for each section.
        #[arg(long)]
        quick: bool,
        /// Measure only this; can be given several times.
        #[arg(long, value_enum, value_name = "SECTION")]
        only: Vec<flight::Section>,
        #[command(flatten)]
        output: Output,
    },
    /// What becomes of Flight SQL statements whose callers give up, and of large results.
    FlightCancel {
        /// Shorter: some seconds for each section.
        #[arg(long)]
        quick: bool,
        /// Measure only this; can be given several times.
        #[arg(long, value_enum, value_name = "SECTION")]
        only: Vec<flight_cancel::Section>,
        #[command(flatten)]
        output: Output,
    },
    /// A client of Flight SQL whose memory is measured: the one above starts it.
    #[command(hide = true)]
    FlightRead {
        #[command(flatten)]
        reading: flight_cancel::Reading,
    },
    /// The Flight SQL server that is measured: the two above start it.
    #[command(hide = true)]
    FlightLocalServe {
        #[command(flatten)]
        settings: flight::Settings,
    },
    /// The part of `coordination` with a DynamoDB: real processes that share it while they are killed at random, and histories that must end as
    /// on the table in memory.
    FleetProcesses {
        /// For three minutes, instead of some seconds.
        #[arg(long)]
        long: bool,
        #[command(flatten)]
        output: Output,
    },
    /// One of those processes.
    #[command(hide = true)]
    FleetWorker,
    /// The local Aurora DSQL that is measured: `dsql` and `dsql-local` start it.
    #[command(hide = true)]
    DsqlLocalServe {
        /// Which engine.
        #[arg(long, value_enum, default_value_t)]
        engine: Engine,
    },
    /// Borrow and give back, for a profiler to watch.
    #[command(hide = true)]
    Spin {
        /// How often.
        #[arg(long)]
        turns: u32,
        /// Not alone, but in a crowd of tasks that yield while they hold, on so many connections.
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
    fn print(&self, report: &Report) {
        if self.json { println!("{:#}", report.json()) } else { print!("{}", report.text()) }
    }
}

/// A goal that is missed is a finding, not a failure: the exit status is 0 either way.
fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Checkout { quick, only, output } => {
            output.print(&checkout::run(if quick { Effort::QUICK } else { Effort::FULL }, &only)?);
        }
        Command::Sim { quick, output } => {
            output.print(&sim::run(if quick { sim::Effort::QUICK } else { sim::Effort::FULL })?);
        }
        Command::Coordination { long, output } => {
            let effort = if long { coordination::Effort::LONG } else { coordination::Effort::SHORT };
            let mut report = coordination::run(effort)?;
            on_a_real_table(&mut report, long)?;
            output.print(&report);
        }
        Command::History { seed } => print!("{}", history::text(seed, history::Policy::of(seed))),
        Command::Simulate { scenario } => println!("{}", sim::simulate(&scenario)?),
        Command::Instructions { output } => {
            let mut report = Report::new("instructions");
            instructions::measure(&mut report);
            report.machine.look_again();
            output.print(&report);
        }
        Command::DsqlLocal { engine, quick, output } => {
            let effort = if quick { dsql_local::Effort::QUICK } else { dsql_local::Effort::FULL };
            output.print(&dsql_local::run(engine.into(), effort)?);
        }
        Command::Dsql { quick, only, output } => {
            output.print(&dsql::run(if quick { dsql::Effort::QUICK } else { dsql::Effort::FULL }, &only)?);
        }
        Command::Flight { quick, only, output } => {
            output.print(&flight::run(
                if quick { flight::Effort::QUICK } else { flight::Effort::FULL },
                &only,
            )?);
        }
        Command::FlightCancel { quick, only, output } => {
            let effort = if quick { flight_cancel::Effort::QUICK } else { flight_cancel::Effort::FULL };
            output.print(&flight_cancel::run(effort, &only)?);
        }
        Command::FlightRead { reading } => flight_cancel::read(&reading)?,
        Command::FlightLocalServe { settings } => flight::serve(&settings)?,
        Command::FleetProcesses { long, output } => {
            let mut report = Report::new("fleet-processes");
            on_a_real_table(&mut report, long)?;
            output.print(&report);
        }
        Command::FleetWorker => forebay_bench::fleet_processes::work()?,
        Command::DsqlLocalServe { engine } => dsql_local::serve(engine.into())?,
        Command::Spin { turns, crowd: None } => instructions::spin(turns)?,
        Command::Spin { turns, crowd: Some(connections) } => contended::spin(connections, turns)?,
    }
    Ok(())
}

/// What of coordination virtual time cannot show.
fn on_a_real_table(report: &mut Report, long: bool) -> anyhow::Result<()> {
    let (plan, seeds) = if long { (Plan::LONG, 100) } else { (Plan::SHORT, 4) };
    fleet_processes::show(report, plan)?;
    twin_tables::show(report, seeds)?;
    report.machine.look_again();
    Ok(())
}
