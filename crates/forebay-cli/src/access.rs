//! Where a Flight SQL server is, who to be there, and whom to trust.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::output;

/// It was called wrongly, and nothing was done.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(String);

impl Usage {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self(message.to_string())
    }
}

/// The exit status of bad usage, as clap has it.
const BAD_USAGE: u8 = 2;

/// Tells of bad usage, which has an exit status of its own.
pub(crate) fn told(outcome: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    match outcome {
        Err(error) if error.is::<Usage>() => {
            output::say(&error.to_string());
            Ok(ExitCode::from(BAD_USAGE))
        }
        outcome => outcome,
    }
}

/// What a variable of the environment says, if anything.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Where the server is.
///
/// # Errors
/// If nobody says it, or with more than an address.
pub(crate) fn url(given: Option<String>, variable: impl Fn(&str) -> Option<String>) -> Result<String, Usage> {
    let url = given.or_else(|| variable("FLIGHT_SQL_URL"));
    let url = url.ok_or_else(|| {
        Usage::new("where is the server? give its URL, such as grpc://localhost:4214, or set FLIGHT_SQL_URL")
    })?;
    if url.contains('@') {
        // Not repeated: there may be a password in it.
        return Err(Usage::new("the URL has no user and no password in it: give --user and --password-file"));
    }
    Ok(url)
}

/// Who to be there, and whom to trust.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Access {
    /// Log in as this user; or FLIGHT_SQL_USER.
    #[arg(long, value_name = "NAME", conflicts_with = "token_file")]
    user: Option<String>,
    /// The file with the user's password; or FLIGHT_SQL_PASSWORD.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The file with a bearer token; or FLIGHT_SQL_TOKEN.
    #[arg(long, value_name = "FILE", conflicts_with = "password_file")]
    token_file: Option<PathBuf>,
    /// Trust these authorities (PEM) rather than the public ones; or FLIGHT_SQL_CA_FILE.
    #[arg(long, value_name = "FILE")]
    tls_roots: Option<PathBuf>,
    /// Show the server this certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The key of that certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// The name that the server's certificate must have, if not the URL's host.
    #[arg(long, value_name = "NAME")]
    tls_server_name: Option<String>,
}

/// What to do if the server does not know the caller.
pub(crate) const LOG_IN: &str = "log in with --user and --password-file, or with --token-file";

/// What to do if the server cannot be reached.
pub(crate) const REACH: &str =
    "is the server there, and the URL right? grpc+tls:// is for servers with TLS, grpc:// for those without";

/// What to do if TLS ends with a certificate that one side does not like.
pub(crate) const TRUST: &str = "--tls-roots FILE, or FLIGHT_SQL_CA_FILE, says whom to trust; --tls-certificate and --tls-key \
                                are for servers that want to see a certificate of the client's";

/// Who to be.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Who {
    Nobody,
    User(String, String),
    Token(String),
}

/// What TLS needs, as PEM.
#[derive(Default)]
pub(crate) struct Trust {
    pub(crate) roots: Option<Vec<u8>>,
    /// A certificate and its key.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) server_name: Option<String>,
}

impl Access {
    /// What is on the command line goes before what is in the environment.
    pub(crate) fn who(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Who, Usage> {
        if let Some(path) = &self.token_file {
            return Ok(Who::Token(secret(path)?));
        }
        let is_named = self.user.is_some() || self.password_file.is_some();
        if !is_named && let Some(token) = variable("FLIGHT_SQL_TOKEN") {
            return Ok(Who::Token(token));
        }
        let user = self.user.clone().or_else(|| variable("FLIGHT_SQL_USER"));
        let password = match &self.password_file {
            Some(path) => Some(secret(path)?),
            None => variable("FLIGHT_SQL_PASSWORD"),
        };
        match (user, password) {
            (Some(user), Some(password)) => Ok(Who::User(user, password)),
            (None, None) => Ok(Who::Nobody),
            (Some(user), None) => Err(Usage::new(format!(
                "there is a user, {user}, but no password: give --password-file, or set FLIGHT_SQL_PASSWORD"
            ))),
            (None, Some(_)) => {
                Err(Usage::new("there is a password, but no user: give --user, or set FLIGHT_SQL_USER"))
            }
        }
    }

    /// What TLS needs; nothing for a server without it.
    pub(crate) fn trust(
        &self,
        is_tls: bool,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Trust, Usage> {
        if !is_tls {
            let is_about_tls =
                self.tls_roots.is_some() || self.tls_certificate.is_some() || self.tls_server_name.is_some();
            // A variable about TLS is no reason to have it.
            return match is_about_tls {
                true => {
                    Err(Usage::new("there are options for TLS, but the URL is without: write grpc+tls://"))
                }
                false => Ok(Trust::default()),
            };
        }
        let roots = self.tls_roots.clone().or_else(|| variable("FLIGHT_SQL_CA_FILE").map(PathBuf::from));
        let identity = match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            _ => None,
        };
        Ok(Trust {
            roots: roots.as_deref().map(read).transpose()?,
            identity,
            server_name: self.tls_server_name.clone(),
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Usage> {
    fs::read(path).map_err(|error| Usage::new(format!("cannot read {}: {error}", path.display())))
}

/// The text of a file without the line's end that editors leave.
pub(crate) fn secret(path: &Path) -> Result<String, Usage> {
    let text =
        String::from_utf8(read(path)?).map_err(|_| Usage::new(format!("{} is no text", path.display())))?;
    match text.trim_end_matches(['\n', '\r']) {
        "" => Err(Usage::new(format!("{} is empty", path.display()))),
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
