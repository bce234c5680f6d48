//! What `forebay flight sql` is called with.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use forebay_flight::ConnectOptions;

use super::format::Format;

/// A shell for Flight SQL servers.
///
/// Reads statements from the terminal, from -c, from --file, or from a stdin that is no terminal. All of them run in one
/// session. Ctrl-C cancels the statement that runs, on the server too. \? lists the shell's own commands.
///
/// Exit status: 0; 1 if a statement failed, and none after it was run; 2 for bad usage; 130 if interrupted.
#[derive(Debug, Args)]
#[command(
    after_help = "Secrets come from files or from FLIGHT_SQL_USER, FLIGHT_SQL_PASSWORD and FLIGHT_SQL_TOKEN, never from the command line. The manual page is docs/flight-shell.md."
)]
pub(crate) struct Options {
    /// Where the server is: grpc://host:port or grpc+tls://host:port; or FLIGHT_SQL_URL.
    url: Option<String>,
    /// Run this, and leave. May be given several times.
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    pub(super) commands: Vec<String>,
    /// Run the statements of this file, and leave; - is stdin.
    #[arg(short, long, value_name = "FILE", conflicts_with = "commands")]
    pub(super) file: Option<PathBuf>,
    /// How results are written.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write results to this file.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Cancel a statement after this time: 250ms, 30s, 5m.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) timeout: Option<Duration>,
    /// Tell how long each statement took. A shell for a terminal does.
    #[arg(long)]
    pub(super) timing: bool,
    #[command(flatten)]
    server: Server,
}

/// How to reach the server, and who to be there.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
struct Server {
    /// Log in as this user; or FLIGHT_SQL_USER.
    #[arg(long, value_name = "NAME", conflicts_with = "token_file")]
    user: Option<String>,
    /// The file with the user's password; or FLIGHT_SQL_PASSWORD.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The file with a bearer token; or FLIGHT_SQL_TOKEN.
    #[arg(long, value_name = "FILE", conflicts_with = "password_file")]
    token_file: Option<PathBuf>,
    /// A header for every call. May be given several times.
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
    /// A file with a header a line, for those that are secret.
    #[arg(long, value_name = "FILE")]
    header_file: Option<PathBuf>,
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
    /// How long connecting may take.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    connect_timeout: Duration,
}

/// It was called wrongly, and nothing was done.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(String);

impl Usage {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self(message.to_string())
    }
}

impl Options {
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    /// How to connect.
    ///
    /// # Errors
    /// If an option is none, or a file cannot be read.
    pub(crate) fn connection(&self) -> Result<ConnectOptions, Usage> {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let url = self.url.clone().or_else(|| variable("FLIGHT_SQL_URL"));
        let url =
            url.ok_or_else(|| Usage::new("where is the server? give its URL, or set FLIGHT_SQL_URL"))?;
        self.server.options(&url, variable)
    }
}

/// Who to be.
#[derive(Clone, PartialEq, Eq)]
enum Who {
    Nobody,
    User(String, String),
    Token(String),
}

impl Server {
    fn options(&self, url: &str, variable: impl Fn(&str) -> Option<String>) -> Result<ConnectOptions, Usage> {
        if url.contains('@') {
            // Not repeated: there may be a password in it.
            return Err(Usage::new(
                "the URL has no user and no password in it: give --user and --password-file",
            ));
        }
        let mut options = ConnectOptions::new(url).map_err(Usage::new)?.connect_timeout(self.connect_timeout);
        options = match self.who(&variable)? {
            Who::Nobody => options,
            Who::User(name, password) => options.basic(name, password),
            Who::Token(token) => options.bearer(token),
        };
        for (name, value) in self.headers()? {
            options = options.header(&name, &value).map_err(Usage::new)?;
        }
        // A variable about TLS is no reason to have it.
        let variable_roots = variable("FLIGHT_SQL_CA_FILE").filter(|_| options.endpoint().is_tls());
        if let Some(path) = self.tls_roots.clone().or_else(|| variable_roots.map(PathBuf::from)) {
            options = options.roots(read(&path)?);
        }
        if let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) {
            options = options.identity(read(certificate)?, read(key)?);
        }
        if let Some(name) = &self.tls_server_name {
            options = options.server_name(name);
        }
        let is_about_tls =
            self.tls_roots.is_some() || self.tls_certificate.is_some() || self.tls_server_name.is_some();
        if is_about_tls && !options.endpoint().is_tls() {
            return Err(Usage::new("there are options for TLS, but the URL is without: write grpc+tls://"));
        }
        Ok(options)
    }

    /// What is on the command line goes before what is in the environment.
    fn who(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Who, Usage> {
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

    fn headers(&self) -> Result<Vec<(String, String)>, Usage> {
        let mut headers = Vec::new();
        for header in &self.headers {
            let (name, value) = pair(header).ok_or_else(|| {
                Usage::new(
                    "--header wants a name and a value: --header NAME=VALUE; --header-file for secret ones",
                )
            })?;
            if name.eq_ignore_ascii_case("authorization") {
                return Err(Usage::new(
                    "credentials are for everybody to see on a command line: give --token-file, or --header-file",
                ));
            }
            headers.push((name, value));
        }
        if let Some(path) = &self.header_file {
            let text = secret(path)?;
            for (place, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                // The line is not repeated: it may be a secret.
                let header = pair(line).ok_or_else(|| {
                    Usage::new(format!("{}, line {}: write NAME=VALUE", path.display(), place + 1))
                })?;
                headers.push(header);
            }
        }
        Ok(headers)
    }
}

fn pair(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let name = name.trim();
    (!name.is_empty()).then(|| (name.to_owned(), value.trim().to_owned()))
}

fn read(path: &Path) -> Result<Vec<u8>, Usage> {
    fs::read(path).map_err(|error| Usage::new(format!("cannot read {}: {error}", path.display())))
}

/// The text of a file without the line's end that editors leave.
fn secret(path: &Path) -> Result<String, Usage> {
    let text =
        String::from_utf8(read(path)?).map_err(|_| Usage::new(format!("{} is no text", path.display())))?;
    match text.trim_end_matches(['\n', '\r']) {
        "" => Err(Usage::new(format!("{} is empty", path.display()))),
        text => Ok(text.to_owned()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = forebay::duration::parse(text).filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| format!("'{text}' is no time: write 250ms, 30s or 5m"))
}

#[cfg(test)]
mod tests;
