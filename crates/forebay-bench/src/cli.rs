//! The command line.

use clap::{Args, Parser, Subcommand};

use crate::report::Report;
#[cfg(feature = "flight")]
use crate::section::Selection;
#[cfg(feature = "flight")]
use crate::{flight, flight_cancel};

#[cfg(feature = "cluster")]
mod on_cluster;
#[cfg(feature = "all")]
mod others;

/// Measures forebay and its peers, side by side in one run.
#[derive(Parser)]
#[command(name = "forebay-bench", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Pools for Flight SQL, beside a pool over ADBC and a bare client, against a local server.
    #[cfg(feature = "flight")]
    Flight {
        #[command(flatten)]
        selection: Selection<flight::Section>,
        #[command(flatten)]
        output: Output,
    },
    /// Flight SQL statements whose callers give up, and large results.
    #[cfg(feature = "flight")]
    FlightCancel {
        #[command(flatten)]
        selection: Selection<flight_cancel::Section>,
        #[command(flatten)]
        output: Output,
    },
    /// A Flight SQL client whose memory is measured. `flight-cancel` starts it.
    #[cfg(feature = "flight")]
    #[command(hide = true)]
    FlightRead {
        #[command(flatten)]
        reading: flight_cancel::Reading,
    },
    /// The Flight SQL server that is measured. `flight` and `flight-cancel` start it.
    #[cfg(feature = "flight")]
    #[command(hide = true)]
    FlightLocalServe {
        #[command(flatten)]
        settings: flight::Settings,
    },
    #[cfg(feature = "cluster")]
    #[command(flatten)]
    OnCluster(on_cluster::Command),
    #[cfg(feature = "all")]
    #[command(flatten)]
    Others(others::Command),
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
        #[cfg(feature = "flight")]
        Command::Flight { selection, output } => output.print(flight::run(&selection)?),
        #[cfg(feature = "flight")]
        Command::FlightCancel { selection, output } => output.print(flight_cancel::run(&selection)?),
        #[cfg(feature = "flight")]
        Command::FlightRead { reading } => flight_cancel::read(&reading)?,
        #[cfg(feature = "flight")]
        Command::FlightLocalServe { settings } => flight::serve(&settings)?,
        #[cfg(feature = "cluster")]
        Command::OnCluster(command) => command.run()?,
        #[cfg(feature = "all")]
        Command::Others(command) => command.run()?,
    }
    Ok(())
}
