//! `forebay flight`: Flight SQL from the command line.

mod catalog;
mod command;
mod completion;
mod connection;
mod editor;
mod format;
mod history;
mod interrupts;
mod options;
mod out;
mod outcome;
mod progress;
mod running;
mod shell;
mod splitter;
mod statement;
mod table;
mod terminal;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use options::{Options, Usage};
use shell::{Shell, say};

/// Flight SQL: a shell for its servers.
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

/// The exit status of bad usage, as clap has it.
const USAGE: u8 = 2;

impl Flight {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Subcommands::Sql(options) = self.command;
        match sql(&options) {
            Err(error) if error.is::<Usage>() => {
                say(&format!("forebay: {error}"));
                Ok(ExitCode::from(USAGE))
            }
            outcome => outcome,
        }
    }
}

fn sql(options: &Options) -> anyhow::Result<ExitCode> {
    let is_asked = !options.commands.is_empty() || options.file.is_some();
    let is_interactive = !is_asked && io::stdin().is_terminal();
    let mut shell = Shell::new(options, is_interactive)?;
    let outcome = match &options.file {
        _ if is_interactive => shell.converse()?,
        Some(path) if path != Path::new("-") => shell.file(path),
        _ if !options.commands.is_empty() => shell.commands(&options.commands),
        _ => shell.text(io::stdin().lock()),
    };
    shell.close(outcome);
    Ok(outcome.status())
}
