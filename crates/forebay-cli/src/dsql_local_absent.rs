//! `forebay dsql-local`, where it was not built in.

use std::process::ExitCode;

use clap::Args;

/// A local Aurora DSQL (not in this build: see its error message).
#[derive(Debug, Args)]
pub(crate) struct DsqlLocal {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    ignored: Vec<String>,
}

impl DsqlLocal {
    #[allow(clippy::unused_self, reason = "it stands in for the real one")]
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { ignored } = self;
        anyhow::bail!(
            "dsql-local was left out of this build; run: cargo run --release --features dsql-local -- dsql-local {}",
            ignored.join(" ")
        );
    }
}
