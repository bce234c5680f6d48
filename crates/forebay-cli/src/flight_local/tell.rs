//! `forebay flight-local tell`: a running server does as it is told.

use std::process::ExitCode;

use clap::Args;
use flight_local::{Login, TellError, tell};

use crate::access::{self, Access, Trust, Usage, Who, variable};

/// Tell a running server what is to go wrong, or ask what has happened; it must have been started with --control.
///
/// COMMAND is one of: slow TIME, hang N, reset N, reset-after N, internal N, refuse TIME, reboot TIME, counters.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay flight-local tell --url grpc://127.0.0.1:4214 hang 1
  FLIGHT_SQL_URL=grpc://127.0.0.1:4214 forebay flight-local tell counters

Secrets come from files or from FLIGHT_SQL_USER, FLIGHT_SQL_PASSWORD and FLIGHT_SQL_TOKEN, never from the command line.")]
pub(super) struct Tell {
    /// Where it is; or FLIGHT_SQL_URL.
    #[arg(long)]
    url: Option<String>,
    #[command(flatten)]
    access: Access,
    /// What to tell it.
    #[arg(required = true, value_name = "COMMAND", help_heading = None)]
    command: Vec<String>,
}

impl Tell {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        access::told(self.tell())
    }

    fn tell(self) -> anyhow::Result<ExitCode> {
        let url = access::url(self.url, variable)?;
        let Trust { roots, identity, server_name } =
            self.access.trust(url.starts_with("grpc+tls://"), variable)?;
        let access = flight_local::Access {
            root_pem: roots.map(text).transpose()?,
            server_name,
            identity_pem: identity
                .map(|(certificate, key)| Ok::<_, Usage>((text(certificate)?, text(key)?)))
                .transpose()?,
            login: match self.access.who(variable)? {
                Who::Nobody => None,
                Who::User(user, password) => Some(Login::Basic { user, password }),
                Who::Token(token) => Some(Login::Bearer(token)),
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

/// What to do about an error beyond what it says itself.
fn remedy(error: &TellError) -> Option<&'static str> {
    match error {
        TellError::Unknown(_) => Some(access::LOG_IN),
        TellError::Refused(text) if text.contains("does not know") => {
            Some("a server of flight-local listens to it if you start it with --control")
        }
        TellError::Unreachable { reason, .. } if reason.contains("certificate") => Some(access::TRUST),
        TellError::Unreachable { .. } => Some(access::REACH),
        _ => None,
    }
}

fn text(pem: Vec<u8>) -> Result<String, Usage> {
    String::from_utf8(pem).map_err(|_| Usage::new("certificates and keys must be PEM, which is text"))
}
