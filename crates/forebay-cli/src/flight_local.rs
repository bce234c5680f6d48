//! `forebay flight-local`: a local Flight SQL server.

mod address;
mod tell;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use flight_local::{Actions, Auth, Config, FlightLocal, SessionKey, Support, Tls};

use crate::foreground::{self, InfoFormat};
use address::Address;
use tell::Tell;

/// Run a local Flight SQL server
///
/// Each connection has a SQLite session of its own, in this process. Transactions, temporary tables, prepared
/// statements and options end with it. Statements can be interrupted by every means that Flight has. The
/// server runs until SIGINT or SIGTERM, and then removes its files. The manual page is docs/flight-local.md.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  forebay flight-local --port 4214
  forebay flight-local --port 4214 --control --print-env > flight.env &    # and in any shell: . ./flight.env
  forebay flight-local --tls --user ann --password-file secret --session-linger 15m"
)]
pub(crate) struct FlightLocalCommand {
    #[command(subcommand)]
    command: Option<Subcommands>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    Tell(Tell),
}

impl FlightLocalCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Some(Subcommands::Tell(tell)) => tell.run(),
            None => self.serve.run(),
        }
    }
}

#[derive(Debug, Args)]
struct Serve {
    /// The port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The address to listen on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,
    #[command(flatten)]
    format: InfoFormat,
    /// The SQLite database to serve. Default: a private one, which is removed at the end.
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
    #[command(flatten)]
    security: Security,
    #[command(flatten)]
    sessions: Sessions,
    #[command(flatten)]
    behaviour: Behaviour,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Security")]
struct Security {
    /// Use TLS, with a certificate of an authority made for this run.
    #[arg(long, conflicts_with = "cert")]
    tls: bool,
    /// The file for the certificate of that authority; it is removed at the end. Default: a temporary file.
    #[arg(long, value_name = "FILE", requires = "tls")]
    ca_file: Option<PathBuf>,
    /// Use TLS, with this certificate chain (PEM).
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Require a client certificate of this authority (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    client_ca: Option<PathBuf>,
    /// The user whose handshake is accepted; --password-file has the password.
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// The file with the user's password on its first line.
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// The file with the bearer tokens that are accepted, one on each line.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Sessions")]
struct Sessions {
    /// How many sessions may exist, with those that outlive their connection.
    #[arg(long, value_name = "N", default_value_t = 100)]
    session_limit: usize,
    /// How long a session outlives its last connection, such as 15m. Default: it ends with it.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    session_linger: Option<Duration>,
    /// What identifies a session.
    #[arg(long, value_enum, default_value_t = Key::Connection)]
    session_key: Key,
    /// How long a writer waits for another session's transaction.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    busy_timeout: Duration,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Behaviour and faults")]
struct Behaviour {
    /// Behave like another server; other flags still apply.
    #[arg(long, value_enum)]
    like: Option<Like>,
    /// Accept `forebay flight-local tell` on the same port.
    #[arg(long)]
    control: bool,
    /// List this action, but refuse it with UNIMPLEMENTED; can be given several times.
    #[arg(long, value_enum, value_name = "ACTION")]
    refuse: Vec<ActionName>,
    /// Do not list this action, and do not know it; can be given several times.
    #[arg(long, value_enum, value_name = "ACTION")]
    forget: Vec<ActionName>,
    /// Do not stop a statement when its call is dropped.
    #[arg(long)]
    run_on: bool,
    /// How many rows a batch may have.
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    max_batch_rows: usize,
    /// How many endpoints each result has.
    #[arg(long, value_name = "N", default_value_t = 1)]
    endpoints: usize,
    /// How many more listeners there are; the endpoints of a result name them in turn.
    #[arg(long, value_name = "N", default_value_t = 0)]
    further_listeners: usize,
    /// A delay for each statement.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    slow: Duration,
    /// How many statements hang from the start, until they are interrupted.
    #[arg(long, value_name = "N", default_value_t = 0)]
    hang_next: u32,
    /// How many statements lose their connection from the start; they are not executed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    reset_next: u32,
    /// How many statements fail with INTERNAL from the start; they are not executed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    internal_next: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Key {
    /// The peer's address and port: a connection is a session.
    Connection,
    /// A cookie, which the first answer sets.
    Cookie,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Like {
    /// Sessions linger for 15 minutes, nothing can be cancelled, every error is INTERNAL, every update counts
    /// 0 rows.
    Swanlake,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ActionName {
    BeginTransaction,
    CancelFlightInfo,
    CancelQuery,
    CloseSession,
    GetSessionOptions,
    PollFlightInfo,
    SetSessionOptions,
}

fn duration(text: &str) -> Result<Duration, String> {
    forebay::duration::parse(text).ok_or_else(|| "give a time such as 250ms, 5s or 15m".to_owned())
}

impl Serve {
    fn run(self) -> anyhow::Result<ExitCode> {
        foreground::run(async |mut signals| {
            let (config, authority) = self.config()?;
            let server = FlightLocal::start(config).await?;
            self.behaviour.set_faults(&server);
            let address = Address::new(&server, authority, self.security.ca_file.as_deref())?;
            self.format.print(&address)?;
            signals.recv().await;
            server.stop().await;
            Ok(())
        })
    }

    /// The server's configuration, and the certificate of the authority that was made for it.
    fn config(&self) -> anyhow::Result<(Config, Option<String>)> {
        let base = match self.behaviour.like {
            Some(Like::Swanlake) => Config::like_swanlake(),
            None => Config::default(),
        };
        let (tls, authority) = self.security.tls()?;
        let Sessions { session_limit, session_linger, session_key, busy_timeout } = self.sessions;
        let config = Config {
            listen: SocketAddr::new(self.listen, self.port),
            tls,
            auth: self.security.auth()?,
            database: self.database.clone(),
            session_limit,
            session_linger: session_linger.unwrap_or(base.session_linger),
            session_key: match session_key {
                Key::Connection => SessionKey::Connection,
                Key::Cookie => SessionKey::Cookie,
            },
            actions: self.behaviour.actions(base.actions),
            interrupt_on_drop: base.interrupt_on_drop && !self.behaviour.run_on,
            max_batch_rows: self.behaviour.max_batch_rows,
            endpoints_per_result: self.behaviour.endpoints,
            further_listeners: self.behaviour.further_listeners,
            busy_timeout,
            control: self.behaviour.control,
            ..base
        };
        Ok((config, authority))
    }
}

impl Security {
    fn tls(&self) -> anyhow::Result<(Option<Tls>, Option<String>)> {
        if self.tls {
            let made = Tls::self_signed()?;
            return Ok((Some(made.tls), Some(made.root_pem)));
        }
        let (Some(cert), Some(key)) = (&self.cert, &self.key) else { return Ok((None, None)) };
        let client_ca_pem = self.client_ca.as_deref().map(read).transpose()?;
        Ok((Some(Tls { certificate_pem: read(cert)?, key_pem: read(key)?, client_ca_pem }), None))
    }

    /// Secrets come from files: every user of the machine can read a command line.
    fn auth(&self) -> anyhow::Result<Option<Auth>> {
        let tokens = self.token_file.as_deref().map(read).transpose()?;
        let tokens: Vec<String> =
            tokens.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned).collect();
        let login = match (&self.user, &self.password_file) {
            (Some(user), Some(file)) => {
                let text = read(file)?;
                let password = text.lines().next().filter(|password| !password.is_empty());
                Some(Auth::basic(
                    user,
                    password.with_context(|| format!("there is no password in {}", file.display()))?,
                ))
            }
            _ => None,
        };
        Ok(match (login, tokens.is_empty()) {
            (None, true) => None,
            (login, _) => Some(Auth { tokens, ..login.unwrap_or_default() }),
        })
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

impl Behaviour {
    fn actions(&self, base: Actions) -> Actions {
        let mut actions = base;
        let refused = self.refuse.iter().map(|action| (action, Support::Refused));
        let forgotten = self.forget.iter().map(|action| (action, Support::Unknown));
        for (action, support) in refused.chain(forgotten) {
            let slot = match action {
                ActionName::BeginTransaction => &mut actions.begin_transaction,
                ActionName::CancelFlightInfo => &mut actions.cancel_flight_info,
                ActionName::CancelQuery => &mut actions.cancel_query,
                ActionName::CloseSession => &mut actions.close_session,
                ActionName::GetSessionOptions => &mut actions.get_session_options,
                ActionName::PollFlightInfo => &mut actions.poll_flight_info,
                ActionName::SetSessionOptions => &mut actions.set_session_options,
            };
            *slot = support;
        }
        actions
    }

    /// Sets the faults from the start.
    fn set_faults(&self, server: &FlightLocal) {
        let faults = server.faults();
        faults.slow(self.slow);
        faults.hang_next(self.hang_next);
        faults.reset_next(self.reset_next);
        faults.internal_next(self.internal_next);
    }
}
