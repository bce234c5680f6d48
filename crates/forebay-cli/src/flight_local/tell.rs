//! `forebay flight-local tell`: a running server does as it is told.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use flight_local::{Access, tell};

use super::read;

/// Tell a running server what is to go wrong, or ask what has happened; it must have been started with --control.
///
/// COMMAND is one of: slow TIME, hang N, reset N, reset-after N, internal N, refuse on, refuse off, reboot TIME, counters.
#[derive(Debug, Args)]
pub(super) struct Tell {
    /// Where it is. Default: FLIGHT_SQL_URL.
    #[arg(long)]
    url: Option<String>,
    /// What to verify its certificate with (PEM). Default: FLIGHT_SQL_CA_FILE.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Where a bearer token is, on its first line.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// What to tell it.
    #[arg(required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Tell {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let url = self.url.or_else(|| env::var("FLIGHT_SQL_URL").ok());
        let url = url
            .context("where is it? Give --url, or set FLIGHT_SQL_URL: --print-env of the server prints it")?;
        let ca_file = self.ca_file.or_else(|| env::var_os("FLIGHT_SQL_CA_FILE").map(PathBuf::from));
        let token = self.token_file.as_deref().map(read).transpose()?;
        let access = Access {
            root_pem: ca_file.as_deref().map(read).transpose()?,
            token: token.as_deref().and_then(|text| text.lines().next()).map(str::to_owned),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let said = runtime.block_on(tell(&url, &access, &self.command.join(" ")))?;
        if !said.is_empty() {
            crate::output::print(&format!("{said}\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
