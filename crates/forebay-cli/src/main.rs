//! The `forebay` command.

#[cfg(any(feature = "flight", feature = "flight-local"))]
mod access;
mod demo;
mod descriptors;
#[cfg(feature = "aws")]
mod doctor;
mod dsql_local;
#[cfg(feature = "aws")]
mod fleet_args;
#[cfg(feature = "flight")]
mod flight;
#[cfg(feature = "flight-local")]
mod flight_local;
mod foreground;
#[cfg(feature = "gateway")]
mod gateway;
mod key_signer;
#[cfg(feature = "aws")]
mod lease;
#[cfg(feature = "aws")]
mod limiter;
#[cfg(test)]
mod manual;
mod missing_features;
mod output;
mod packaging;
mod plan;
#[cfg(any(feature = "flight", feature = "schema"))]
mod printable;
mod progress_bar;
#[cfg(feature = "schema")]
mod schema;
mod signals;
mod sim;

use std::fmt::Write;
use std::process::ExitCode;

use clap::builder::Styles;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// A reservoir of ready connections, for databases that limit how fast they open.
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
    Plan(Box<plan::Plan>),
    #[cfg(feature = "aws")]
    Doctor(doctor::Doctor),
    DsqlLocal(Box<dsql_local::DsqlLocal>),
    #[cfg(feature = "flight")]
    Flight(flight::Flight),
    #[cfg(feature = "flight-local")]
    FlightLocal(Box<flight_local::FlightLocalCommand>),
    #[cfg(feature = "gateway")]
    Gateway(Box<gateway::Gateway>),
    #[cfg(feature = "aws")]
    Lease(lease::Lease),
    #[cfg(feature = "aws")]
    Limiter(limiter::Limiter),
    #[cfg(feature = "schema")]
    Schema(Box<schema::Schema>),
    Completions(packaging::Completions),
    Man(packaging::Man),
}

/// The commands by task, in the order of the help.
const TASKS: [(&str, &[&str]); 6] = [
    ("Try it", &["demo", "sim"]),
    ("Local servers", &["dsql-local", "flight-local"]),
    ("Aurora DSQL", &["gateway", "schema"]),
    ("Flight SQL", &["flight"]),
    ("Operate a fleet", &["plan", "doctor", "lease", "limiter"]),
    ("This program", &["completions", "man", "help"]),
];

/// The whole command line. clap cannot group commands by itself.
fn command() -> clap::Command {
    let command = missing_features::add(Forebay::command());
    // clap adds `help` when it builds the command.
    let mut built = command.clone();
    built.build();
    let (header, literal) = (*Styles::styled().get_header(), *Styles::styled().get_literal());
    let mut help = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (task, names) in TASKS {
        let _ = write!(help, "\n{header}{task}:{header:#}\n");
        for command in names.iter().filter_map(|name| built.find_subcommand(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(help, "  {literal}{:<12}{literal:#}  {about}", command.get_name());
        }
    }
    let _ = write!(help, "\n{header}Options:{header:#}\n{{options}}");
    command.help_template(help)
}

fn main() -> ExitCode {
    let matches = command().get_matches();
    let outcome = missing_features::check(&matches).and_then(|()| {
        match Forebay::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command {
            Command::Demo(demo) => demo.run(),
            Command::Sim(sim) => sim.run(),
            Command::Plan(plan) => plan.run(),
            #[cfg(feature = "aws")]
            Command::Doctor(doctor) => doctor.run(),
            Command::DsqlLocal(dsql_local) => dsql_local.run(),
            #[cfg(feature = "flight")]
            Command::Flight(flight) => flight.run(),
            #[cfg(feature = "flight-local")]
            Command::FlightLocal(flight_local) => flight_local.run(),
            #[cfg(feature = "gateway")]
            Command::Gateway(gateway) => gateway.run(),
            #[cfg(feature = "aws")]
            Command::Lease(lease) => lease.run(),
            #[cfg(feature = "aws")]
            Command::Limiter(limiter) => limiter.run(),
            #[cfg(feature = "schema")]
            Command::Schema(schema) => schema.run(),
            Command::Completions(completions) => completions.run(),
            Command::Man(man) => man.run(),
        }
    });
    outcome.unwrap_or_else(|error| {
        output::say(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_sound_and_each_command_has_one_task() {
        let mut command = command();
        command.build();
        command.clone().debug_assert();
        let listed = TASKS.iter().flat_map(|(_, names)| *names).copied().collect::<Vec<_>>();
        for command in command.get_subcommands() {
            let name = command.get_name();
            assert_eq!(listed.iter().filter(|one| **one == name).count(), 1, "{name}");
        }
        assert_eq!(command.get_subcommands().count(), listed.len());
    }
}
