//! The subcommand `dsql-local`: memory of idle connections, processor time of a connect, statements a second.
//!
//! The server runs in a separate process, so that its memory and its time can be measured.

mod client;
mod comparison;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use dsql_local::EngineKind;
use tokio::task::JoinSet;

use crate::cluster::{Server, Variables};
use crate::postgres::Postgres;
use crate::process;
use crate::race::{Figures, Lane, race};
use crate::report::{Report, Table};
use crate::section::{progress, runtime};
use client::{Client, Connection};

/// How many connections are held idle.
const IDLE: usize = 10_000;
/// How many connects the processor time is measured over.
const CONNECTS: usize = 4_000;
/// How many connects run at once.
const AT_ONCE: usize = 16;
/// How many clients pgbench has.
const CLIENTS: u32 = 16;
/// The settings of the PostgreSQL beside it.
const POSTGRES: &[&str] = &["max_connections=50"];

/// How long to measure.
#[derive(Clone, Copy, Debug)]
struct Effort {
    seconds: u32,
    rounds: usize,
}

impl Effort {
    /// For numbers that are published.
    const FULL: Self = Self { seconds: 5, rounds: 5 };
    /// For a first look.
    const QUICK: Self = Self { seconds: 2, rounds: 3 };
}

pub(crate) fn run(engine: EngineKind, quick: bool) -> anyhow::Result<Report> {
    let effort = if quick { Effort::QUICK } else { Effort::FULL };
    let mut report = Report::new("dsql-local");
    if engine == EngineKind::Postgres {
        comparison::run(&mut report, effort)?;
        return Ok(report);
    }
    raise_descriptors(&mut report);
    let runtime = runtime()?;
    runtime.block_on(connects(&mut report))?;
    runtime.block_on(idle(&mut report))?;
    statements(&mut report, effort)?;
    Ok(report)
}

/// Raises the limit of file descriptors, for this process and the server that it starts.
fn raise_descriptors(report: &mut Report) {
    if process::raise_descriptors().is_some_and(|limit| limit <= IDLE as u64 + 500) {
        report.note(format!(
            "too few file descriptors for {IDLE} connections: raise the limit, for example with ulimit -Hn \
             20000"
        ));
    }
}

/// Processor time of the server for each connect, with the token check.
async fn connects(report: &mut Report) -> anyhow::Result<()> {
    progress("processor time of a connect");
    let server = Server::start(EngineKind::Builtin)?;
    let goal = "from the start of the server until it listens";
    report.at_most(goal, server.started_in.as_secs_f64(), 1.0, "s");
    let client = Client::new(&server)?;
    // Warm up caches and threads.
    hold(&client, 200).await?;
    let before = server.processor_time()?;
    let mut made = 0;
    while made < CONNECTS {
        made += hold(&client, 500).await?.len();
    }
    let each = (server.processor_time()? - before).as_secs_f64() * 1e6 / made as f64;
    report.at_most("server CPU per accepted TLS connection", each, 400.0, "us");
    report.note(
        "a connect is direct TLS 1.3 (ECDSA P-256, no resumption), start-up, password, token check and \
         close; processor time is that of all threads of the server, user and kernel, from /proc",
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
            report.at_most(name, None, 600.0, "MB");
            report.note(format!("could not hold {IDLE} connections: {error:#}"));
            return Ok(());
        }
    };
    let full = server.memory()?;
    report.at_most(name, full, 600.0, "MB");
    let each = (full - empty) * 1_000.0 / held.len() as f64;
    report.note(format!("resident memory: {empty:.1} MB without connections, {each:.1} KB more for each"));
    Ok(())
}

/// Opens `count` connections, some at a time.
async fn hold(client: &Client, count: usize) -> anyhow::Result<Vec<Connection>> {
    let mut held = Vec::with_capacity(count);
    let mut opening = JoinSet::new();
    for _ in 0..count {
        if opening.len() >= AT_ONCE {
            held.push(opening.join_next().await.context("nothing is opening")???);
        }
        let client = client.clone();
        opening.spawn(async move { client.connect().await });
    }
    while let Some(connection) = opening.join_next().await {
        held.push(connection??);
    }
    Ok(held)
}

/// `SELECT 1` by pgbench, against dsql-local and a PostgreSQL on the same machine, in turn.
fn statements(report: &mut Report, effort: Effort) -> anyhow::Result<()> {
    progress("SELECT 1, beside a PostgreSQL");
    let goal = "SELECT 1 over 16 TLS connections, against a PostgreSQL's";
    let postgres = match Postgres::start(POSTGRES) {
        Ok(postgres) => postgres,
        Err(error) => {
            report.at_least(goal, None, 1.0, "times");
            report.note(format!("there is no PostgreSQL to compare with: {error:#}"));
            return Ok(());
        }
    };
    let server = Server::start(EngineKind::Builtin)?;
    for mode in ["simple", "prepared"] {
        let rows = race_pgbench(effort, "SELECT 1;\n", mode, 2, &server.variables(), &postgres.variables())?;
        let table = Table::new(format!("SELECT 1 over {CLIENTS} TLS connections, {mode}"), "1/s", rows);
        if mode == "simple" {
            report.at_least(goal, table.ratio("dsql-local", "PostgreSQL")?, 1.0, "times");
        }
        report.tables.push(table);
    }
    report.note(format!("pgbench ran against both servers on the same two cores; {}", postgres.version));
    Ok(())
}

/// Runs a script by pgbench against dsql-local and a PostgreSQL, in turn.
fn race_pgbench(
    effort: Effort,
    script: &str,
    mode: &str,
    threads: u32,
    local: &Variables,
    postgres: &Variables,
) -> anyhow::Result<Vec<Figures>> {
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), script)?;
    let bench = |variables: &Variables| {
        let mut command = pgbench(file.path(), mode, effort, threads);
        command.envs(variables.clone());
        move || per_second(&mut command)
    };
    race(effort.rounds, vec![Lane::new("dsql-local", bench(local)), Lane::new("PostgreSQL", bench(postgres))])
}

fn pgbench(script: &Path, mode: &str, effort: Effort, threads: u32) -> Command {
    let mut command = Command::new("pgbench");
    command.args(["-n", "-j", &threads.to_string(), "-M", mode, "-c", &CLIENTS.to_string()]);
    command.args(["-T", &effort.seconds.to_string(), "-f"]).arg(script);
    command
}

fn per_second(pgbench: &mut Command) -> anyhow::Result<f64> {
    let output = pgbench.output().context("pgbench could not be run; it comes with PostgreSQL")?;
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "pgbench failed: {errors}");
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split_whitespace().next());
    rate.and_then(|rate| rate.parse().ok()).with_context(|| format!("pgbench printed no rate: {text}"))
}
