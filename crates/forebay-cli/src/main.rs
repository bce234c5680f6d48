//! The `forebay` command.

#[cfg(not(feature = "aws"))]
mod aws_absent;
mod demo;
#[cfg(feature = "dsql-local")]
mod dsql_local;
#[cfg(not(feature = "dsql-local"))]
#[path = "dsql_local_absent.rs"]
mod dsql_local;
mod ending;
#[cfg(feature = "aws")]
mod fleet;
#[cfg(feature = "flight")]
mod flight;
#[cfg(not(feature = "flight"))]
#[path = "flight_absent.rs"]
mod flight;
#[cfg(feature = "flight-local")]
mod flight_local;
#[cfg(not(feature = "flight-local"))]
#[path = "flight_local_absent.rs"]
mod flight_local;
#[cfg(feature = "aws")]
mod lease;
#[cfg(feature = "aws")]
mod limiter;
mod output;
mod sim;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(not(feature = "aws"))]
use aws_absent::{Lease, Limiter};
#[cfg(feature = "aws")]
use {lease::Lease, limiter::Limiter};

/// A reservoir of ready connections, for databases that ration them.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, arg_required_else_help = true, subcommand_value_name = "COMMAND")]
struct Forebay {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    Sim(sim::Sim),
    DsqlLocal(Box<dsql_local::DsqlLocal>),
    Flight(flight::Flight),
    FlightLocal(Box<flight_local::FlightLocalCommand>),
    Lease(Lease),
    Limiter(Limiter),
}

fn main() -> ExitCode {
    let Forebay { command } = Forebay::parse();
    let outcome = match command {
        Command::Demo(demo) => demo.run(),
        Command::Sim(sim) => sim.run(),
        Command::DsqlLocal(dsql_local) => dsql_local.run(),
        Command::Flight(flight) => flight.run(),
        Command::FlightLocal(flight_local) => flight_local.run(),
        Command::Lease(lease) => lease.run(),
        Command::Limiter(limiter) => limiter.run(),
    };
    outcome.unwrap_or_else(|error| {
        // If even this cannot be written, the exit status still tells.
        let _ = writeln!(io::stderr(), "forebay: {error:#}");
        ExitCode::FAILURE
    })
}
