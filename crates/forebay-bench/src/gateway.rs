//! The subcommand `gateway`: the gateway beside PgBouncer and a direct connection. Each proxy runs in processes of its own, and
//! has the same server behind, with TLS: a PostgreSQL, or a local Aurora DSQL.
//!
//! ```text
//!   connect, throughput      pgbench through each proxy in turn
//!   latency                  one client of our own
//!   idle                     ten thousand of them, on two hundred connections to the server
//!   replacements, cut        connections to the server end, and no client notices
//!   rate_limit               connections to the server cannot be opened for a while
//!    ├ comparison            rates, and the processor time of the proxy
//!    ├ contestant            where clients connect: direct, pgbouncer, forebay, canned
//!    │  └ behind             the servers behind
//!    └ herd, client, wire, door    clients as small as possible
//! ```

mod behind;
mod canned;
mod client;
mod comparison;
mod connect;
mod contestant;
mod cut;
mod door;
mod forebay;
mod herd;
mod idle;
mod latency;
mod pgbench;
mod pgbouncer;
mod rate_limit;
mod replacements;
mod serve;
mod throughput;
mod wire;

use std::cell::OnceCell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use dsql_local::EngineKind;
use tempfile::TempDir;

use self::behind::Behind;
use self::contestant::Contestant;
use self::door::Access;
use self::forebay::Gateway;
use self::pgbouncer::{Mode, PgBouncer};
use crate::postgres::certificate;
use crate::process;
use crate::report::Report;
use crate::section::Selection;
use crate::unprivileged::Unprivileged;
pub(crate) use serve::serve;

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// The program `forebay`, built with the feature `gateway`. Default: this program, which has the same gateway.
    #[arg(long, value_name = "PATH")]
    forebay: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection<Section>,
}

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    /// Connect, `SELECT 1`, close.
    Connect,
    /// Clients that stay connected.
    Throughput,
    /// What a proxy adds to the latency of one client.
    Latency,
    /// Ten thousand idle clients.
    Idle,
    /// Connections to the server are replaced under live clients.
    Replacements,
    /// All idle connections to the server are cut at once.
    Cut,
    /// Clients connect while the server's rate limit is exhausted.
    RateLimit,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// How often each contestant has its turn, and for how long.
    rounds: usize,
    seconds: u32,
    /// How many clients are idle, and how long each of them asks now and then.
    idle: usize,
    trickle: Duration,
    /// How many connections to the server are replaced, and after which lifetime.
    replacements: u64,
    lifetime: Duration,
    /// How often all connections to the server are cut.
    cuts: u32,
    /// How many clients connect while the rate limit is exhausted.
    rushing: usize,
}

impl Effort {
    /// For numbers that are published.
    const FULL: Self = Self {
        rounds: 5,
        seconds: 4,
        idle: 10_000,
        trickle: Duration::from_secs(60),
        replacements: 10_000,
        lifetime: Duration::from_secs(12),
        cuts: 5,
        rushing: 1_000,
    };
    /// For a first look.
    const QUICK: Self = Self {
        rounds: 1,
        seconds: 1,
        idle: 500,
        trickle: Duration::from_secs(5),
        replacements: 100,
        lifetime: Duration::from_secs(12),
        cuts: 1,
        rushing: 200,
    };
}

/// How a proxy is set up.
#[derive(Clone, Copy, Debug)]
struct Settings<'a> {
    access: Access,
    /// What it keeps of the password, with SCRAM.
    verifier: Option<&'a str>,
    /// The mode of the gateway.
    mode: forebay::Mode,
    /// Connections to the server that the gateway has. A PgBouncer opens as many as clients need.
    backends: u32,
    /// More variables of the gateway, such as lifetimes.
    variables: &'a [(&'a str, &'a str)],
}

impl Default for Settings<'_> {
    fn default() -> Self {
        Self {
            access: Access::default(),
            verifier: None,
            mode: forebay::Mode::Session,
            backends: 100,
            variables: &[],
        }
    }
}

/// What the sections share.
#[derive(Debug)]
struct Arena {
    effort: Effort,
    /// The program `forebay`; without it, this program.
    forebay: Option<PathBuf>,
    /// `client.crt` and `client.key`, which all proxies have.
    certificates: TempDir,
    postgres: OnceCell<Behind>,
    dsql: OnceCell<Behind>,
}

impl Arena {
    fn new(effort: Effort, forebay: Option<PathBuf>) -> anyhow::Result<Self> {
        let certificates = tempfile::Builder::new().prefix("forebay-bench-").tempdir()?;
        certificate(certificates.path(), "client", Unprivileged::find()?)?;
        Ok(Self { effort, forebay, certificates, postgres: OnceCell::new(), dsql: OnceCell::new() })
    }

    /// The PostgreSQL, which starts when it is needed first.
    fn postgres(&self) -> anyhow::Result<&Behind> {
        started(&self.postgres, Behind::postgres)
    }

    /// The local Aurora DSQL, without limits.
    fn dsql(&self) -> anyhow::Result<&Behind> {
        started(&self.dsql, || Behind::dsql(EngineKind::Builtin))
    }

    fn pgbouncer(&self, mode: Mode, settings: Settings<'_>, behind: &Behind) -> anyhow::Result<Contestant> {
        let Settings { access, verifier, .. } = settings;
        PgBouncer { mode, access, verifier, certificates: self.certificates.path() }.start(behind)
    }

    fn gateway(&self, settings: Settings<'_>, behind: &Behind) -> anyhow::Result<Contestant> {
        let Settings { access, verifier, mode, backends, variables } = settings;
        let certificates = self.certificates.path();
        let program = self.forebay.as_deref();
        Gateway { program, mode, access, verifier, certificates, backends, variables }.start(behind)
    }
}

fn started(
    cell: &OnceCell<Behind>,
    start: impl FnOnce() -> anyhow::Result<Behind>,
) -> anyhow::Result<&Behind> {
    if cell.get().is_none() {
        let behind = start()?;
        return Ok(cell.get_or_init(|| behind));
    }
    cell.get().context("it was started")
}

pub(crate) fn run(load: &Load) -> anyhow::Result<Report> {
    let effort = if load.selection.quick { Effort::QUICK } else { Effort::FULL };
    let arena = Arena::new(effort, load.forebay.clone())?;
    process::raise_descriptors();
    let mut report = load.selection.run("gateway", |section, runtime, report| match section {
        Section::Connect => connect::measure(&arena, report),
        Section::Throughput => throughput::measure(&arena, report),
        Section::Latency => latency::measure(&arena, report),
        Section::Idle => idle::measure(&arena, report),
        Section::Replacements => replacements::measure(&arena, runtime, report),
        Section::Cut => cut::measure(&arena, runtime, report),
        Section::RateLimit => rate_limit::measure(&arena, runtime, report),
    })?;
    let postgres = arena.postgres.get().map(|postgres| format!("{}; ", postgres.version()));
    report.note(format!(
        "{}; {}all on the same cores, each proxy in processes of its own, with TLS to the server; processor time is user and \
         kernel time of these processes, from /proc",
        pgbouncer::version()?,
        postgres.unwrap_or_default()
    ));
    Ok(report)
}
