//! `forebay flight`: Flight SQL from the command line.

mod catalog;
mod command;
mod completion;
mod connection;
mod editor;
mod format;
mod interrupts;
mod json;
mod options;
mod out;
mod progress;
mod running;
mod shell;
mod splitter;
mod statement;
mod table;
mod transaction;
mod values;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::access;
use options::Options;
use shell::Shell;

/// Query a Flight SQL server
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, subcommand_value_name = "COMMAND")]
pub(crate) struct Flight {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    Sql(Box<Options>),
}

impl Flight {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Subcommands::Sql(options) = self.command;
        access::exit_status(sql(&options))
    }
}

fn sql(options: &Options) -> anyhow::Result<ExitCode> {
    let has_statements = !options.commands.is_empty() || options.file.is_some();
    let is_interactive = !has_statements && io::stdin().is_terminal();
    let mut shell = Shell::new(options, is_interactive)?;
    let outcome = match &options.file {
        _ if is_interactive => shell.interact()?,
        Some(path) if path != Path::new("-") => shell.file(path),
        _ if !options.commands.is_empty() => shell.commands(&options.commands),
        _ => shell.stdin(),
    };
    shell.close(outcome);
    Ok(outcome.status())
}
