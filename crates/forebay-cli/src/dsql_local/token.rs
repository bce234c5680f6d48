//! `forebay dsql-local token`: a connect token for clients that cannot sign one.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use dsql_local::{Action, Credentials, duration};

use super::{Keys, Place, region_in};

/// Print a connect token, for clients that cannot sign one: PGPASSWORD=$(forebay dsql-local token ...)
///
/// Without flags, endpoint, region and key come from the environment, as --print-env prints it: from
/// CLUSTER_ENDPOINT, REGION and AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN. Without
/// variables they are the server's defaults. Region and key are read only if CLUSTER_ENDPOINT is set and
/// --endpoint is not given.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  PGPASSWORD=$(forebay dsql-local token) psql")]
pub(super) struct Token {
    #[command(flatten)]
    keys: Keys,
    #[command(flatten)]
    place: Place,
    /// The role to connect as; the token of `admin` differs from all others.
    #[arg(long, default_value = "admin")]
    role: String,
    /// How long the token is valid.
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = duration)]
    expires_in: Duration,
}

impl Token {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let (endpoint, region, key) = self.subject()?;
        if self.expires_in > dsql_local::LONGEST_LIFE || self.expires_in.as_secs() == 0 {
            anyhow::bail!("a token is valid for at least a second and at most a week (168h)");
        }
        let action = Action::for_role(&self.role);
        let token = dsql_local::sign_now(&key, &endpoint, &region, action, self.expires_in);
        writeln!(std::io::stdout(), "{token}")?;
        Ok(ExitCode::SUCCESS)
    }

    /// Endpoint, region and key: from the flags, or else from the environment, or else the server's defaults.
    fn subject(&self) -> anyhow::Result<(String, String, Credentials)> {
        for (flag, value) in [("endpoint", &self.place.endpoint), ("region", &self.place.region)] {
            if value.as_ref().is_some_and(String::is_empty) {
                anyhow::bail!("--{flag} must not be empty");
            }
        }
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let exported = variable("CLUSTER_ENDPOINT").filter(|_| self.place.endpoint.is_none());
        let key = match (&exported, variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
            (Some(_), Some(id), Some(secret)) if self.keys.credentials_file.is_none() => {
                Credentials { session_token: variable("AWS_SESSION_TOKEN"), ..Credentials::new(id, secret) }
            }
            _ => self.keys.read()?.into_iter().next().context("no key to sign with")?,
        };
        let Some(endpoint) = exported else { return Ok((self.place.endpoint(), self.place.region(), key)) };
        let region = self.place.region.clone().or_else(|| variable("REGION"));
        let region = region.unwrap_or_else(|| region_in(&endpoint).to_owned());
        Ok((endpoint, region, key))
    }
}
