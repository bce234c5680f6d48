//! The arguments of each connection to a Flight SQL server: URL, login and TLS.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::output;

/// An argument is wrong, and nothing was done.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(String);

impl UsageError {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self(message.to_string())
    }
}

/// clap's exit status for a wrong argument.
const BAD_USAGE: u8 = 2;

/// Reports a usage error, which has an exit status of its own.
pub(crate) fn exit_status(outcome: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    match outcome {
        Err(error) if error.is::<UsageError>() => {
            output::say(&error.to_string());
            Ok(ExitCode::from(BAD_USAGE))
        }
        outcome => outcome,
    }
}

/// A variable of the environment, unless it is empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The server's URL.
///
/// # Errors
/// If there is none, or if it has a user.
pub(crate) fn url(
    given: Option<String>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<String, UsageError> {
    let url = given.or_else(|| variable("FLIGHT_SQL_URL"));
    let url = url.ok_or_else(|| {
        UsageError::new("no server: give its URL, such as grpc://localhost:4214, or set FLIGHT_SQL_URL")
    })?;
    if url.contains('@') {
        // The error does not repeat the URL: it may have a password.
        return Err(UsageError::new(
            "the URL must not have a user or a password: give --user and --password-file",
        ));
    }
    Ok(url)
}

/// Login and TLS.
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
    /// The client's certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The key of that certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// The name in the server's certificate, if it is not the URL's host.
    #[arg(long, value_name = "NAME")]
    tls_server_name: Option<String>,
}

/// The remedy if the server does not know the caller.
pub(crate) const LOG_IN: &str = "log in with --user and --password-file, or with --token-file";

/// The remedy if the server cannot be reached.
pub(crate) const REACH: &str =
    "check the URL, and that the server runs; grpc+tls:// is for servers with TLS, grpc:// for those without";

/// The remedy if one side refuses the other's certificate.
pub(crate) const TRUST: &str = "--tls-roots FILE, or FLIGHT_SQL_CA_FILE, has the authorities to trust; --tls-certificate \
                                and --tls-key are for servers that require a certificate of the client";

/// How to log in.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Login {
    None,
    /// A user and a password.
    Password(String, String),
    Token(String),
}

/// The files for TLS, as PEM.
#[derive(Default)]
pub(crate) struct TlsFiles {
    pub(crate) roots: Option<Vec<u8>>,
    /// A certificate and its key.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) server_name: Option<String>,
}

impl Access {
    /// An option overrides its variable.
    pub(crate) fn login(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Login, UsageError> {
        if let Some(path) = &self.token_file {
            return Ok(Login::Token(secret(path)?));
        }
        let is_named = self.user.is_some() || self.password_file.is_some();
        if !is_named && let Some(token) = variable("FLIGHT_SQL_TOKEN") {
            return Ok(Login::Token(token));
        }
        let user = self.user.clone().or_else(|| variable("FLIGHT_SQL_USER"));
        let password = match &self.password_file {
            Some(path) => Some(secret(path)?),
            None => variable("FLIGHT_SQL_PASSWORD"),
        };
        match (user, password) {
            (Some(user), Some(password)) => Ok(Login::Password(user, password)),
            (None, None) => Ok(Login::None),
            (Some(user), None) => Err(UsageError::new(format!(
                "user {user} has no password: give --password-file, or set FLIGHT_SQL_PASSWORD"
            ))),
            (None, Some(_)) => {
                Err(UsageError::new("the password has no user: give --user, or set FLIGHT_SQL_USER"))
            }
        }
    }

    /// No files for a server without TLS.
    pub(crate) fn tls_files(
        &self,
        is_tls: bool,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<TlsFiles, UsageError> {
        if !is_tls {
            let is_about_tls =
                self.tls_roots.is_some() || self.tls_certificate.is_some() || self.tls_server_name.is_some();
            // A variable about TLS does not turn TLS on.
            return match is_about_tls {
                true => {
                    Err(UsageError::new("there are options for TLS, but the URL has none: write grpc+tls://"))
                }
                false => Ok(TlsFiles::default()),
            };
        }
        let roots = self.tls_roots.clone().or_else(|| variable("FLIGHT_SQL_CA_FILE").map(PathBuf::from));
        let identity = match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            _ => None,
        };
        Ok(TlsFiles {
            roots: roots.as_deref().map(read).transpose()?,
            identity,
            server_name: self.tls_server_name.clone(),
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, UsageError> {
    fs::read(path).map_err(|error| UsageError::new(format!("cannot read {}: {error}", path.display())))
}

/// The text of a file, without the line feed at its end.
pub(crate) fn secret(path: &Path) -> Result<String, UsageError> {
    let text = String::from_utf8(read(path)?)
        .map_err(|_| UsageError::new(format!("{} is not text", path.display())))?;
    match text.trim_end_matches(['\n', '\r']) {
        "" => Err(UsageError::new(format!("{} is empty", path.display()))),
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
