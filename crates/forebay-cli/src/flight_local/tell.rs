//! `forebay flight-local tell`: controls a running server.

use std::process::ExitCode;

use clap::Args;
use flight_local::{TellError, tell};

use crate::access::{self, Access, Login, TlsFiles, UsageError, variable};

/// Set a fault of a running server, or read its counters; it must have been started with --control
///
/// COMMAND is one of: slow TIME, hang N, reset N, reset-after N, internal N, refuse TIME, reboot TIME,
/// counters.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay flight-local tell --url grpc://127.0.0.1:4214 hang 1
  FLIGHT_SQL_URL=grpc://127.0.0.1:4214 forebay flight-local tell counters

Secrets come from files or from FLIGHT_SQL_USER, FLIGHT_SQL_PASSWORD and FLIGHT_SQL_TOKEN, never from the command line.")]
pub(super) struct Tell {
    /// The URL of the server; or FLIGHT_SQL_URL.
    #[arg(long)]
    url: Option<String>,
    #[command(flatten)]
    access: Access,
    /// The command, with its argument.
    #[arg(required = true, value_name = "COMMAND", help_heading = None)]
    command: Vec<String>,
}

impl Tell {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        access::exit_status(self.tell())
    }

    fn tell(self) -> anyhow::Result<ExitCode> {
        let url = access::url(self.url, variable)?;
        let TlsFiles { roots, identity, server_name } =
            self.access.tls_files(url.starts_with("grpc+tls://"), variable)?;
        let access = flight_local::Access {
            root_pem: roots.map(text).transpose()?,
            server_name,
            identity_pem: identity
                .map(|(certificate, key)| Ok::<_, UsageError>((text(certificate)?, text(key)?)))
                .transpose()?,
            login: match self.access.login(variable)? {
                Login::None => None,
                Login::Password(user, password) => Some(flight_local::Login::Basic { user, password }),
                Login::Token(token) => Some(flight_local::Login::Bearer(token)),
            },
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let told = runtime.block_on(tell(&url, &access, &self.command.join(" ")));
        let said = told.map_err(|error| match remedy(&error) {
            Some(remedy) => anyhow::anyhow!("{error}; {remedy}"),
            None => error.into(),
        })?;
        if !said.is_empty() {
            crate::output::print(&format!("{said}\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What to do about an error.
fn remedy(error: &TellError) -> Option<&'static str> {
    match error {
        TellError::Unknown(_) => Some(access::LOG_IN),
        TellError::Refused(text) if text.contains("does not know") => {
            Some("start the server with --control: forebay flight-local --control")
        }
        TellError::Unreachable { reason, .. } if reason.contains("certificate") => Some(access::TRUST),
        TellError::Unreachable { .. } => Some(access::REACH),
        _ => None,
    }
}

fn text(pem: Vec<u8>) -> Result<String, UsageError> {
    String::from_utf8(pem).map_err(|_| UsageError::new("certificates and keys must be PEM, which is text"))
}
