//! `forebay lease` and `forebay limiter`, where they were not built in.

use std::process::ExitCode;

use clap::Args;

/// The connections a fleet shares (not in this build: see its error message).
#[derive(Debug, Args)]
pub(crate) struct Lease {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    ignored: Vec<String>,
}

/// The connect rate a fleet shares (not in this build: see its error message).
#[derive(Debug, Args)]
pub(crate) struct Limiter {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    ignored: Vec<String>,
}

impl Lease {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        left_out("lease", &self.ignored)
    }
}

impl Limiter {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        left_out("limiter", &self.ignored)
    }
}

fn left_out(command: &str, arguments: &[String]) -> anyhow::Result<ExitCode> {
    let call = [&[command.to_owned()], arguments].concat().join(" ");
    anyhow::bail!("{command} was left out of this build; run: cargo run --release --features aws -- {call}");
}
