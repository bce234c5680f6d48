//! `forebay flight-local`, where it was not built in.

use std::process::ExitCode;

use clap::Args;

/// A local Flight SQL server (not in this build: see its error message).
#[derive(Debug, Args)]
pub(crate) struct FlightLocalCommand {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    ignored: Vec<String>,
}

impl FlightLocalCommand {
    #[allow(clippy::unused_self, reason = "it stands in for the real one")]
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { ignored } = self;
        anyhow::bail!(
            "flight-local was left out of this build; run: cargo run --release --features flight-local -- flight-local {}",
            ignored.join(" ")
        );
    }
}
