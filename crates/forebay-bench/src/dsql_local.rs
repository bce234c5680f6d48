//! What the local Aurora DSQL costs: memory of idle connections, processor time of a connect, statements a second.
//!
//! The server runs in a process of its own, so that its memory and its time are its own.

mod beside;
mod client;
mod postgres;
mod server;

use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};
use dsql_local::EngineKind;
use tokio::task::JoinSet;

use crate::checkout::progress;
use crate::race::{Figures, Lane, race};
use crate::report::{Bound, Report, Table};
use client::Client;
use postgres::Postgres;
pub use server::serve;
pub(crate) use server::{KEY, SECRET, Server, processor_time};

/// How many connections are held idle.
const IDLE: usize = 10_000;
/// How many connects the processor time is measured over.
const CONNECTS: usize = 4_000;
/// How many connects are in flight.
const AT_ONCE: usize = 16;
/// How many connections SELECT 1 is sent over.
const LINES: u32 = 16;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    seconds: u32,
    rounds: usize,
}

impl Effort {
    /// For figures.
    pub const FULL: Self = Self { seconds: 5, rounds: 5 };
    /// For a look.
    pub const QUICK: Self = Self { seconds: 2, rounds: 3 };
}

/// Measures an engine.
///
/// # Errors
/// If the server cannot be started.
pub fn run(engine: EngineKind, effort: Effort) -> anyhow::Result<Report> {
    let mut report = Report::new("dsql-local");
    if engine == EngineKind::Postgres {
        beside::run(&mut report, effort)?;
        report.machine.look_again();
        return Ok(report);
    }
    raise_descriptors(&mut report);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(connects(&mut report))?;
    runtime.block_on(idle(&mut report))?;
    statements(&mut report, effort)?;
    report.machine.look_again();
    Ok(report)
}

/// As many descriptors as the machine allows, for this process and the server it starts.
fn raise_descriptors(report: &mut Report) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let enough = limit.maximum.is_none_or(|maximum| maximum > IDLE as u64 + 500);
    if raised.is_err() || !enough {
        report.note(format!(
            "too few descriptors for {IDLE} connections: raise the limit, as with ulimit -Hn 20000"
        ));
    }
}

/// Processor time of the server for each connect, token check included.
async fn connects(report: &mut Report) -> anyhow::Result<()> {
    progress("processor time of a connect");
    let server = Server::start(EngineKind::Builtin)?;
    report.goal(
        "from the start of the server until it listens",
        server.started_in.as_secs_f64(),
        Bound::AtMost(1.0),
        "s",
    );
    let client = Client::new(&server)?;
    // So that caches and threads are warm, and nothing is measured that happens once.
    hold(&client, 200).await?;
    let before = server.processor_time()?;
    let mut made = 0;
    while made < CONNECTS {
        made += hold(&client, 500).await?.len();
    }
    #[allow(clippy::cast_precision_loss, reason = "some thousands")]
    let each = (server.processor_time()? - before).as_secs_f64() * 1e6 / made as f64;
    report.goal("server CPU per accepted TLS connection", each, Bound::AtMost(400.0), "us");
    report.note(
        "a connect is direct TLS 1.3 (ECDSA P-256, no resumption), start-up, password, token check and close; \
         the processor time of all threads of the server, user and kernel, by /proc",
    );
    Ok(())
}

/// Memory of the server while connections do nothing.
async fn idle(report: &mut Report) -> anyhow::Result<()> {
    progress("memory of idle connections");
    let name = "memory of the server with 10,000 idle TLS connections";
    let server = Server::start(EngineKind::Builtin)?;
    let client = Client::new(&server)?;
    let empty = server.memory()?;
    let held = match hold(&client, IDLE).await {
        Ok(held) => held,
        Err(error) => {
            report.goal(name, None, Bound::AtMost(600.0), "MB");
            report.note(format!("could not hold {IDLE} connections: {error:#}"));
            return Ok(());
        }
    };
    let full = server.memory()?;
    report.goal(name, full, Bound::AtMost(600.0), "MB");
    #[allow(clippy::cast_precision_loss, reason = "10,000")]
    let each = (full - empty) * 1_000.0 / held.len() as f64;
    report.note(format!("resident memory: {empty:.1} MB without connections, {each:.1} KB more for each"));
    Ok(())
}

/// Opens so many connections, some at a time.
async fn hold(client: &Client, count: usize) -> anyhow::Result<Vec<client::Line>> {
    let mut held = Vec::with_capacity(count);
    let mut opening = JoinSet::new();
    for _ in 0..count {
        if opening.len() >= AT_ONCE {
            held.push(opening.join_next().await.context("nothing is opening")???);
        }
        let client = client.clone();
        opening.spawn(async move { client.connect().await });
    }
    while let Some(line) = opening.join_next().await {
        held.push(line??);
    }
    Ok(held)
}

/// `SELECT 1` by pgbench, against this and against a PostgreSQL on the same machine, in turn.
fn statements(report: &mut Report, effort: Effort) -> anyhow::Result<()> {
    progress("SELECT 1, beside a PostgreSQL");
    let goal = "SELECT 1 over 16 TLS connections, against a PostgreSQL's";
    let postgres = match Postgres::start() {
        Ok(postgres) => postgres,
        Err(error) => {
            report.goal(goal, None, Bound::AtLeast(1.0), "times");
            report.note(format!("no PostgreSQL to measure beside: {error:#}"));
            return Ok(());
        }
    };
    let server = Server::start(EngineKind::Builtin)?;
    let script = tempfile::NamedTempFile::new()?;
    fs::write(script.path(), "SELECT 1;\n")?;
    for mode in ["simple", "prepared"] {
        let bench = |variables: Vec<(&'static str, String)>| {
            let mut command = Command::new("pgbench");
            command.args(["-n", "-j", "2", "-M", mode]);
            command
                .args(["-c", &LINES.to_string(), "-T", &effort.seconds.to_string(), "-f"])
                .arg(script.path());
            command.envs(variables);
            move || per_second(&mut command)
        };
        let lanes = vec![
            Lane::new("dsql-local", bench(server.variables())),
            Lane::new("PostgreSQL", bench(postgres.variables())),
        ];
        let rows: Vec<Figures> = race(effort.rounds, lanes)?;
        let table =
            Table { name: format!("SELECT 1 over {LINES} TLS connections, {mode}"), unit: "1/s", rows };
        if mode == "simple" {
            let ratio = table.median("dsql-local")? / table.median("PostgreSQL")?;
            report.goal(goal, ratio, Bound::AtLeast(1.0), "times");
        }
        report.tables.push(table);
    }
    report.note(format!("both servers were asked by pgbench on the same two cores; {}", postgres.version()));
    Ok(())
}

fn per_second(pgbench: &mut Command) -> anyhow::Result<f64> {
    let output = pgbench.output().context("pgbench could not be run; it comes with PostgreSQL")?;
    let (text, problems) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "pgbench failed: {problems}");
    let figure = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split_whitespace().next());
    figure.and_then(|figure| figure.parse().ok()).with_context(|| format!("pgbench said no figure: {text}"))
}
