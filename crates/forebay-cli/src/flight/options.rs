//! The arguments of `forebay flight sql`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use forebay_flight::ConnectOptions;

use super::connection::in_terms_of_the_shell;
use super::format::Format;
use crate::access::{self, Access, Login, TlsFiles, UsageError, secret, variable};

/// Run statements at a prompt or from a script
///
/// Reads statements from the terminal, from -c, from --file, or from stdin if it is not a terminal. All of
/// them run in one session. Ctrl-C cancels the statement that runs, on the server too. \? lists the shell's
/// own commands.
///
/// Exit status: 0 on success; 1 if a statement failed, which is then the last; 2 for a wrong argument; 130
/// after Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay flight sql grpc://localhost:4214
  forebay flight sql grpc://localhost:4214 -c 'SELECT 6 * 7 AS answer'
  forebay flight sql grpc+tls://db.example.com:443 --user ann --password-file secret --format csv --file report.sql > report.csv

Secrets come from files or from FLIGHT_SQL_USER, FLIGHT_SQL_PASSWORD and FLIGHT_SQL_TOKEN, never from the command line. The manual page is docs/flight-shell.md.")]
pub(crate) struct Options {
    /// The server: grpc://host:port or grpc+tls://host:port; or FLIGHT_SQL_URL.
    url: Option<String>,
    /// Run these statements, and leave; can be given several times.
    #[arg(short = 'c', long = "command", value_name = "SQL", allow_hyphen_values = true)]
    pub(super) commands: Vec<String>,
    /// Run the statements of this file, and leave; - is stdin.
    #[arg(short, long, value_name = "FILE", conflicts_with = "commands")]
    pub(super) file: Option<PathBuf>,
    /// The format of results.
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
    /// Show how long each statement took; the default at a prompt.
    #[arg(long)]
    pub(super) timing: bool,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
struct Server {
    #[command(flatten)]
    access: Access,
    /// A header for every call; can be given several times.
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
    /// A file with one header on each line, for secret headers.
    #[arg(long, value_name = "FILE")]
    header_file: Option<PathBuf>,
    /// How long connecting may take.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    connect_timeout: Duration,
    /// Report a session that holds something and ran no statement for this time as lost; 14m for SwanLake.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    session_idle_limit: Option<Duration>,
}

/// How often the shell runs a statement in a session that holds something, while it waits for its user.
const SESSION_KEEP_ALIVE: Duration = Duration::from_secs(5 * 60);

impl Options {
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    /// # Errors
    /// If an option is wrong, or a file cannot be read.
    pub(crate) fn connection(&self) -> Result<ConnectOptions, UsageError> {
        let url = access::url(self.url.clone(), variable)?;
        self.server.options(&url, variable)
    }
}

impl Server {
    fn options(
        &self,
        url: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<ConnectOptions, UsageError> {
        let mut options =
            ConnectOptions::new(url).map_err(usage_error)?.connect_timeout(self.connect_timeout);
        // A server that cannot close the session keeps it, so it is left clean. The limit is not for every server: on others a
        // statement may take longer than that.
        options = options
            .for_swanlake()
            .session_idle_limit(self.session_idle_limit.unwrap_or_default())
            .session_keep_alive(SESSION_KEEP_ALIVE);
        options = match self.access.login(&variable)? {
            Login::None => options,
            Login::Password(name, password) => options.basic(name, password),
            Login::Token(token) => options.bearer(token),
        };
        for (name, value) in self.headers()? {
            options = options.header(&name, &value).map_err(usage_error)?;
        }
        let is_tls = options.endpoint().is_tls();
        let TlsFiles { roots, identity, server_name } = self.access.tls_files(is_tls, variable)?;
        if let Some(roots) = roots {
            options = options.roots(roots);
        }
        if let Some((certificate, key)) = identity {
            options = options.identity(certificate, key);
        }
        if let Some(name) = server_name {
            options = options.server_name(&name);
        }
        Ok(options)
    }

    fn headers(&self) -> Result<Vec<(String, String)>, UsageError> {
        let mut headers = Vec::new();
        for header in &self.headers {
            let (name, value) = pair(header).ok_or_else(|| {
                UsageError::new(
                    "--header needs a name and a value: --header NAME=VALUE; use --header-file for secret ones",
                )
            })?;
            if name.eq_ignore_ascii_case("authorization") {
                return Err(UsageError::new(
                    "every user of this machine can read a command line: give --token-file, or --header-file",
                ));
            }
            headers.push((name, value));
        }
        if let Some(path) = &self.header_file {
            let text = secret(path)?;
            for (place, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                // The error does not repeat the line: it may be a secret.
                let header = pair(line).ok_or_else(|| {
                    UsageError::new(format!("{}, line {}: write NAME=VALUE", path.display(), place + 1))
                })?;
                headers.push(header);
            }
        }
        Ok(headers)
    }
}

fn usage_error(error: forebay_flight::Error) -> UsageError {
    UsageError::new(in_terms_of_the_shell(&error.to_string()))
}

fn pair(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let name = name.trim();
    (!name.is_empty()).then(|| (name.to_owned(), value.trim().to_owned()))
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = forebay::duration::parse(text).filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| format!("'{text}' is not a time: write 250ms, 30s or 5m"))
}

#[cfg(test)]
mod tests;
