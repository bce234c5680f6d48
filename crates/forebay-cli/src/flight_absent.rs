//! `forebay flight`, where it was not built in.

use std::process::ExitCode;

use clap::Args;

/// Flight SQL: a shell for its servers (not in this build: see its error message).
#[derive(Debug, Args)]
pub(crate) struct Flight {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    ignored: Vec<String>,
}

impl Flight {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { ignored } = self;
        anyhow::bail!(
            "flight was left out of this build; run: cargo run --release --features flight -- flight {}",
            ignored.join(" ")
        );
    }
}
