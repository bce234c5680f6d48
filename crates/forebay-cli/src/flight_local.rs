//! `forebay flight-local`: a local Flight SQL server.

mod place;
mod tell;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use flight_local::{Actions, Auth, Config, FlightLocal, SessionKey, Support, Tls};

use crate::foreground::{self, Form};
use place::Place;
use tell::Tell;

/// A local Flight SQL server with one real SQL session for each connection.
///
/// Its sessions are SQLite's, in this process: transactions, temporary tables, prepared statements and options live in
/// them and end with them. Statements can be interrupted by every means that Flight has. Runs until SIGINT or SIGTERM,
/// and removes its files then. The manual page is docs/flight-local.md.
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
    form: Form,
    /// A SQLite database to serve. Default: a private one, which is removed at the end.
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
    #[command(flatten)]
    security: Security,
    #[command(flatten)]
    sessions: Sessions,
    #[command(flatten)]
    habits: Habits,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Security")]
struct Security {
    /// Encrypt, with a certificate of an authority made for this run.
    #[arg(long, conflicts_with = "cert")]
    tls: bool,
    /// Where to write the certificate of that authority; removed at the end. Default: a file of its own.
    #[arg(long, value_name = "FILE", requires = "tls")]
    ca_file: Option<PathBuf>,
    /// Encrypt, with this certificate chain (PEM).
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Clients must show a certificate of this authority (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    client_ca: Option<PathBuf>,
    /// Whose handshake is accepted; the password comes from the file.
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// Where the user's password is, on its first line.
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// Bearer tokens that are accepted, one in each line.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Sessions")]
struct Sessions {
    /// How many sessions there may be, lingering ones included.
    #[arg(long, value_name = "N", default_value_t = 100)]
    session_limit: usize,
    /// How long a session outlives its last connection, such as 15m. Default: not at all.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    session_linger: Option<Duration>,
    /// By what a session is found again.
    #[arg(long, value_enum, default_value_t = Key::Connection)]
    session_key: Key,
    /// How long a writer waits for another session's transaction.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    busy_timeout: Duration,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Habits and faults")]
struct Habits {
    /// Have the habits of a server in the wild; other flags still count.
    #[arg(long, value_enum)]
    like: Option<Like>,
    /// Listen to `forebay flight-local tell` on the same port.
    #[arg(long)]
    control: bool,
    /// List an action and refuse it with UNIMPLEMENTED; can be given several times.
    #[arg(long, value_enum, value_name = "ACTION")]
    refuse: Vec<Known>,
    /// Do not know an action; can be given several times.
    #[arg(long, value_enum, value_name = "ACTION")]
    forget: Vec<Known>,
    /// Let a statement run on when its call is dropped.
    #[arg(long)]
    run_on: bool,
    /// How many rows a batch may have.
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    max_batch_rows: usize,
    /// Over how many endpoints each result is spread.
    #[arg(long, value_name = "N", default_value_t = 1)]
    endpoints: usize,
    /// How many more listeners there are; the endpoints of a result name them in turn.
    #[arg(long, value_name = "N", default_value_t = 0)]
    further_listeners: usize,
    /// How much longer each statement takes.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    slow: Duration,
    /// The first statements hang until they are interrupted.
    #[arg(long, value_name = "N", default_value_t = 0)]
    hang_next: u32,
    /// The connections of the first statements are cut; they are not executed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    reset_next: u32,
    /// The first statements fail with INTERNAL; they are not executed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    internal_next: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Key {
    /// The peer's address and port: a connection is a session.
    Connection,
    /// A cookie, which is set with the first answer.
    Cookie,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Like {
    /// Sessions linger for 15 minutes, nothing can be cancelled, every error is INTERNAL, every update counts 0 rows.
    Swanlake,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Known {
    BeginTransaction,
    CancelFlightInfo,
    CancelQuery,
    CloseSession,
    GetSessionOptions,
    PollFlightInfo,
    SetSessionOptions,
}

/// Reads a duration as the other commands do.
fn duration(text: &str) -> Result<Duration, String> {
    forebay::duration::parse(text).ok_or_else(|| "give a time such as 250ms, 5s or 15m".to_owned())
}

impl Serve {
    fn run(self) -> anyhow::Result<ExitCode> {
        foreground::run(async |mut signals| {
            let (config, authority) = self.config()?;
            let server = FlightLocal::start(config).await?;
            self.habits.begin(&server);
            let place = Place::new(&server, authority, self.security.ca_file.as_deref())?;
            self.form.tell(&place)?;
            signals.either().await;
            server.stop().await;
            Ok(())
        })
    }

    /// What to start, and the certificate of the authority that was made for it.
    fn config(&self) -> anyhow::Result<(Config, Option<String>)> {
        let base = match self.habits.like {
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
            actions: self.habits.actions(base.actions),
            interrupt_on_drop: base.interrupt_on_drop && !self.habits.run_on,
            max_batch_rows: self.habits.max_batch_rows,
            endpoints_per_result: self.habits.endpoints,
            further_listeners: self.habits.further_listeners,
            busy_timeout,
            control: self.habits.control,
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

    /// Secrets come from files: a command line is for everybody on the machine to see.
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

impl Habits {
    fn actions(&self, base: Actions) -> Actions {
        let mut actions = base;
        let refused = self.refuse.iter().map(|known| (known, Support::Refused));
        let forgotten = self.forget.iter().map(|known| (known, Support::Unknown));
        for (known, support) in refused.chain(forgotten) {
            let place = match known {
                Known::BeginTransaction => &mut actions.begin_transaction,
                Known::CancelFlightInfo => &mut actions.cancel_flight_info,
                Known::CancelQuery => &mut actions.cancel_query,
                Known::CloseSession => &mut actions.close_session,
                Known::GetSessionOptions => &mut actions.get_session_options,
                Known::PollFlightInfo => &mut actions.poll_flight_info,
                Known::SetSessionOptions => &mut actions.set_session_options,
            };
            *place = support;
        }
        actions
    }

    /// What goes wrong from the start.
    fn begin(&self, server: &FlightLocal) {
        let faults = server.faults();
        faults.slow(self.slow);
        faults.hang_next(self.hang_next);
        faults.reset_next(self.reset_next);
        faults.internal_next(self.internal_next);
    }
}
