//! `forebay dsql-local`: a local Aurora DSQL.

mod environment;
mod token;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use dsql_local::{
    Cluster, Config, Credentials, EngineKind, Fault, Limits, RefuseWhen, Rules, Speed, TokenClock, duration,
};

use crate::foreground::{self, InfoFormat};
use crate::{descriptors, output};
use environment::Environment;
use token::Token;

/// Run a local Aurora DSQL
///
/// It admits, authenticates, expires and fails as the real one does. It runs until SIGINT or SIGTERM, and
/// then removes its files. Only the template of an empty PostgreSQL (about 13 MB) stays in the directory for
/// temporary files, for the next start with that engine. The manual page is docs/dsql-local.md.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  forebay dsql-local --port 5433
  forebay dsql-local --port 5433 --control-port 5434 --print-env > dsql.env &    # and in any shell: . ./dsql.env
  forebay dsql-local --engine postgres --speed 60 --fault conflict:p=0.1"
)]
pub(crate) struct DsqlLocal {
    #[command(subcommand)]
    command: Option<Subcommands>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    Token(Token),
}

#[derive(Debug, Args)]
struct Keys {
    /// Keys in the format of the AWS command line; tokens may be signed with any of them. Default: a
    /// well-known key.
    #[arg(long, value_name = "FILE")]
    credentials_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Place {
    /// The host name that clients connect to and sign tokens for, such as abc.dsql.us-east-1.on.aws.
    /// Default: localhost.
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
    /// The region that tokens are signed for. Default: the one in the endpoint's name, or else us-east-1.
    #[arg(long)]
    region: Option<String>,
}

impl Place {
    fn endpoint(&self) -> String {
        self.endpoint.clone().unwrap_or_else(|| "localhost".to_owned())
    }

    fn region(&self) -> String {
        self.region.clone().unwrap_or_else(|| region_in(&self.endpoint()).to_owned())
    }
}

/// The region in the name of an endpoint: `{cluster}.dsql{suffix}.{region}.on.aws`.
fn region_in(endpoint: &str) -> &str {
    let parts: Vec<&str> = endpoint.split('.').collect();
    match parts[..] {
        [_, service, region, "on", "aws"] if service.starts_with("dsql") => region,
        _ => "us-east-1",
    }
}

#[derive(Debug, Args)]
struct Serve {
    /// The engine that runs statements.
    #[arg(long, value_enum, default_value_t = Engine::Builtin)]
    engine: Engine,
    /// The SQL that the server accepts.
    #[arg(long, value_enum, default_value_t = RuleSet::Today)]
    rules: RuleSet,
    /// Accept LEFT JOIN LATERAL with references to the outer query. The service refuses it with 42804.
    #[arg(long)]
    allow_lateral: bool,
    #[command(flatten)]
    keys: Keys,
    #[command(flatten)]
    place: Place,
    /// The port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The address to listen on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,
    /// The port of the control interface, on 127.0.0.1; 0 takes a free one.
    #[arg(long, value_name = "PORT")]
    control_port: Option<u16>,
    #[command(flatten)]
    format: InfoFormat,
    /// The file for the certificate of its authority; it is removed at the end.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    limits: LimitArgs,
    /// How fast its clock runs: 60 lets an hour pass in a minute, 0 stops it.
    #[arg(long, default_value_t = Speed::REAL, allow_negative_numbers = true)]
    speed: Speed,
    /// The clock by which tokens expire.
    #[arg(long, value_enum, default_value_t = Clock::Machine)]
    token_clock: Clock,
    /// The error of its clock when it checks tokens.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, allow_negative_numbers = true)]
    token_skew: i64,
    /// The seed of everything random.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A fault from the start, such as conflict:p=0.1; can be given several times.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
    /// How long a client may take to log in, in real time.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    login_timeout: Duration,
    /// How many sockets may be logging in at once.
    #[arg(long, value_name = "N", default_value_t = 8_192)]
    login_limit: usize,
    /// How long a client may not read its answer, in real time.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    write_timeout: Duration,
    /// The largest result of one statement, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 10 << 20)]
    result_limit: usize,
}

/// The limits of admission.
#[derive(Debug, Args)]
struct LimitArgs {
    /// How many connections may be open at once.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    connections: u32,
    /// How many connections may open in a second.
    #[arg(long, value_name = "N", default_value_t = 100)]
    rate: u32,
    /// How many connections may open at once after a quiet time.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    burst: u32,
    /// How long a session may live.
    #[arg(long, value_name = "TIME", default_value = "60m", value_parser = duration)]
    session_life: Duration,
    /// How long a transaction may live.
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = duration)]
    transaction_life: Duration,
    /// When a connection is refused: before or after the login.
    #[arg(long, value_enum, default_value_t = Refuse::BeforeAuth)]
    refuse: Refuse,
    /// A refused connection also takes a token of the bucket.
    #[arg(long)]
    refusal_costs: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Refuse {
    BeforeAuth,
    AfterAuth,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Engine {
    /// SQLite, in this process: needs nothing installed.
    Builtin,
    /// A private PostgreSQL, started and stopped with it; needs PostgreSQL installed.
    Postgres,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RuleSet {
    /// The SQL of the service today.
    Today,
    /// The narrower SQL of older clusters.
    Spec,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Clock {
    /// The machine's clock, by which clients sign.
    Machine,
    /// The emulator's clock.
    Emulator,
}

impl Keys {
    /// The keys of the file; without one, a well-known key that protects nothing.
    fn read(&self) -> anyhow::Result<Vec<Credentials>> {
        match &self.credentials_file {
            None => Ok(vec![Credentials::new("AKIDSQLLOCAL", "dsql-local-protects-nothing")]),
            Some(path) => {
                let profiles = Credentials::read(path)?;
                // The default profile is the first: --print-env prints it, and it signs.
                let (mut first, rest): (Vec<_>, Vec<_>) =
                    profiles.into_iter().partition(|(profile, _)| profile == "default");
                first.extend(rest);
                Ok(first.into_iter().map(|(_, credentials)| credentials).collect())
            }
        }
    }
}

impl DsqlLocal {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Some(Subcommands::Token(token)) => token.run(),
            None => self.serve.run(),
        }
    }
}

impl Serve {
    fn run(self) -> anyhow::Result<ExitCode> {
        self.check()?;
        let format = self.format;
        let keys = self.keys.read()?;
        let key = keys.first().cloned().context("no key to sign with")?;
        raise_descriptors(self.limits.connections);
        foreground::run(async |mut signals| {
            let cluster = Cluster::start(self.config(keys)?)?;
            format.print(&Environment::of(&cluster, &key))?;
            signals.recv().await;
            cluster.stop();
            Ok(())
        })
    }

    /// A server that refuses everybody is a mistake; there are faults to play that.
    fn check(&self) -> anyhow::Result<()> {
        let LimitArgs { connections, burst, session_life, transaction_life, .. } = self.limits;
        let nothing = [
            ("connections", connections == 0, "refuse:how=53300"),
            ("burst", burst == 0, "refuse:how=53400"),
            ("session-life", session_life.is_zero(), "sever"),
            ("transaction-life", transaction_life.is_zero(), "drop:at=before-commit"),
            ("login-limit", self.login_limit == 0, "refuse:how=close"),
            ("login-timeout", self.login_timeout.is_zero(), "refuse:how=close"),
            ("write-timeout", self.write_timeout.is_zero(), "sever"),
        ];
        match nothing.into_iter().find(|(_, zero, _)| *zero) {
            Some((flag, _, fault)) => anyhow::bail!(
                "with --{flag} 0 nobody can use the server; give more, or use a fault for it: --fault {fault}"
            ),
            None => Ok(()),
        }
    }

    fn config(self, credentials: Vec<Credentials>) -> anyhow::Result<Config> {
        let LimitArgs { connections, rate, burst, session_life, transaction_life, refuse, refusal_costs } =
            self.limits;
        let refuse = match refuse {
            Refuse::BeforeAuth => RefuseWhen::BeforeAuth,
            Refuse::AfterAuth => RefuseWhen::AfterAuth,
        };
        let token_clock = match self.token_clock {
            Clock::Machine => TokenClock::Machine,
            Clock::Emulator => TokenClock::Emulator,
        };
        let engine = match self.engine {
            Engine::Builtin => EngineKind::Builtin,
            Engine::Postgres => EngineKind::Postgres,
        };
        let rules = match self.rules {
            RuleSet::Today => Rules::Today,
            RuleSet::Spec => Rules::Spec,
        };
        Ok(Config {
            engine,
            rules,
            allow_lateral: self.allow_lateral,
            region: self.place.region(),
            endpoint: self.place.endpoint(),
            listen: SocketAddr::new(self.listen, self.port),
            control: self.control_port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            credentials,
            limits: Limits {
                connections,
                per_second: rate,
                burst,
                session_life,
                transaction_life,
                refuse,
                refusal_costs,
            },
            speed: self.speed,
            token_clock,
            token_skew: self.token_skew,
            seed: self.seed,
            faults: self.faults,
            notice: Some(output::say),
            ca_file: self.ca_file.map(std::path::absolute).transpose()?,
            login_timeout: self.login_timeout,
            login_limit: self.login_limit,
            write_timeout: self.write_timeout,
            result_limit: self.result_limit,
            ..Config::default()
        })
    }
}

/// Warns if there are too few descriptors for so many connections.
fn raise_descriptors(connections: u32) {
    let needed = u64::from(connections) + 100;
    if let Some(maximum) = descriptors::raise(needed) {
        let advice = format!("raise it (ulimit -Hn {needed}), or allow fewer (--connections)");
        output::say(&format!("{maximum} descriptors are too few for {connections} connections: {advice}"));
    }
}
