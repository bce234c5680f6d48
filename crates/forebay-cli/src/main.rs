//! The `forebay` command.

#[cfg(any(feature = "flight", feature = "flight-local"))]
mod access;
mod demo;
#[cfg(feature = "dsql-local")]
mod dsql_local;
#[cfg(feature = "aws")]
mod fleet;
#[cfg(feature = "flight")]
mod flight;
#[cfg(feature = "flight-local")]
mod flight_local;
#[cfg(any(feature = "dsql-local", feature = "flight-local"))]
mod foreground;
#[cfg(feature = "aws")]
mod lease;
#[cfg(not(all(feature = "aws", feature = "dsql-local", feature = "flight", feature = "flight-local")))]
mod left_out;
#[cfg(feature = "aws")]
mod limiter;
mod output;
mod signals;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    #[cfg(feature = "dsql-local")]
    DsqlLocal(Box<dsql_local::DsqlLocal>),
    #[cfg(feature = "flight")]
    Flight(flight::Flight),
    #[cfg(feature = "flight-local")]
    FlightLocal(Box<flight_local::FlightLocalCommand>),
    #[cfg(feature = "aws")]
    Lease(lease::Lease),
    #[cfg(feature = "aws")]
    Limiter(limiter::Limiter),
    #[cfg(not(all(feature = "aws", feature = "dsql-local", feature = "flight", feature = "flight-local")))]
    #[command(flatten)]
    LeftOut(left_out::LeftOut),
}

fn main() -> ExitCode {
    let Forebay { command } = Forebay::parse();
    let outcome = match command {
        Command::Demo(demo) => demo.run(),
        Command::Sim(sim) => sim.run(),
        #[cfg(feature = "dsql-local")]
        Command::DsqlLocal(dsql_local) => dsql_local.run(),
        #[cfg(feature = "flight")]
        Command::Flight(flight) => flight.run(),
        #[cfg(feature = "flight-local")]
        Command::FlightLocal(flight_local) => flight_local.run(),
        #[cfg(feature = "aws")]
        Command::Lease(lease) => lease.run(),
        #[cfg(feature = "aws")]
        Command::Limiter(limiter) => limiter.run(),
        #[cfg(not(all(
            feature = "aws",
            feature = "dsql-local",
            feature = "flight",
            feature = "flight-local"
        )))]
        Command::LeftOut(left_out) => left_out.run(),
    };
    outcome.unwrap_or_else(|error| {
        output::say(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}
