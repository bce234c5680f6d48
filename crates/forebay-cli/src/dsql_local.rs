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

use crate::foreground::{self, Form};
use crate::output;
use environment::Environment;
use token::Token;

/// A local Aurora DSQL that admits, authenticates, expires and fails like the real one.
///
/// Runs until SIGINT or SIGTERM, and removes its files then; only the template of an empty PostgreSQL (some 13 MB) stays in
/// the directory for temporary files, for the next start with that engine. The manual page is docs/dsql-local.md.
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
    /// Keys in the format of the AWS command line; tokens may be signed with any of them. Default: a key of its own.
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
    /// What runs statements.
    #[arg(long, value_enum, default_value_t = Engine::Builtin)]
    engine: Engine,
    /// Which SQL there is.
    #[arg(long, value_enum, default_value_t = RuleSet::Today)]
    rules: RuleSet,
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
    /// The port to control it by, on 127.0.0.1; 0 takes a free one.
    #[arg(long, value_name = "PORT")]
    control_port: Option<u16>,
    #[command(flatten)]
    form: Form,
    /// Where to write the certificate of its authority; removed at the end.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    figures: Figures,
    /// How fast its clock runs: 60 lets an hour pass in a minute, 0 stops it.
    #[arg(long, default_value_t = Speed::REAL, allow_negative_numbers = true)]
    speed: Speed,
    /// By which clock tokens expire.
    #[arg(long, value_enum, default_value_t = Which::Machine)]
    token_clock: Which,
    /// By how many seconds its clock is wrong when it looks at tokens.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, allow_negative_numbers = true)]
    token_skew: i64,
    /// What every random draw comes from.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// What goes wrong from the start, such as conflict:p=0.1; can be given several times.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
    /// How long a client may take to log in, in real time.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    login_timeout: Duration,
    /// How many sockets may be logging in at once.
    #[arg(long, value_name = "N", default_value_t = 8_192)]
    login_limit: usize,
    /// How long a client may take nothing of an answer, in real time.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    write_timeout: Duration,
    /// The largest result of one statement, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 10 << 20)]
    result_limit: usize,
}

/// The figures of admission.
#[derive(Debug, Args)]
struct Figures {
    /// How many connections may be open.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    connections: u32,
    /// How many may be opened a second.
    #[arg(long, value_name = "N", default_value_t = 100)]
    rate: u32,
    /// How many may be opened at once after a quiet time.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    burst: u32,
    /// How long a session may live.
    #[arg(long, value_name = "TIME", default_value = "60m", value_parser = duration)]
    session_life: Duration,
    /// How long a transaction may live.
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = duration)]
    transaction_life: Duration,
    /// When a connection is refused.
    #[arg(long, value_enum, default_value_t = Refuse::BeforeAuth)]
    refuse: Refuse,
    /// Let a refused connection cost a token of the bucket.
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
    /// What is known of the service now.
    Today,
    /// The narrower SQL of older clusters.
    Spec,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    /// The machine's, by which clients sign.
    Machine,
    /// The emulator's own.
    Emulator,
}

impl Keys {
    /// The keys of the file; without one, a well-known key that protects nothing.
    fn read(&self) -> anyhow::Result<Vec<Credentials>> {
        match &self.credentials_file {
            None => Ok(vec![Credentials::new("AKIDSQLLOCAL", "dsql-local-protects-nothing")]),
            Some(path) => {
                let profiles = Credentials::read(path)?;
                // The default profile is the one that is printed and signs.
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
        let form = self.form;
        let keys = self.keys.read()?;
        let key = keys.first().cloned().context("no key to sign with")?;
        raise_descriptors(self.figures.connections);
        foreground::run(async |mut signals| {
            let cluster = Cluster::start(self.config(keys)?)?;
            form.tell(&Environment::of(&cluster, &key))?;
            signals.either().await;
            cluster.stop();
            Ok(())
        })
    }

    /// A server that could only turn everybody away is a mistake; to play that there are faults.
    fn check(&self) -> anyhow::Result<()> {
        let Figures { connections, burst, session_life, transaction_life, .. } = self.figures;
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
                "with --{flag} 0 nobody could use the server; give more, or have a fault play it: --fault {fault}"
            ),
            None => Ok(()),
        }
    }

    fn config(self, credentials: Vec<Credentials>) -> anyhow::Result<Config> {
        let Figures { connections, rate, burst, session_life, transaction_life, refuse, refusal_costs } =
            self.figures;
        let refuse = match refuse {
            Refuse::BeforeAuth => RefuseWhen::BeforeAuth,
            Refuse::AfterAuth => RefuseWhen::AfterAuth,
        };
        let token_clock = match self.token_clock {
            Which::Machine => TokenClock::Machine,
            Which::Emulator => TokenClock::Emulator,
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

/// As many descriptors as this process may have; says so if connections will need more.
fn raise_descriptors(connections: u32) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // The limit that may not be raised is the one that counts, whether or not the other one could be.
    let (Ok(()) | Err(_)) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    if let Some(maximum) = maximum.filter(|maximum| *maximum < u64::from(connections) + 100) {
        let advice =
            format!("raise it (ulimit -Hn {}), or allow fewer (--connections)", u64::from(connections) + 100);
        output::say(&format!("{maximum} descriptors are too few for {connections} connections: {advice}"));
    }
}
