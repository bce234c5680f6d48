//! What the rules cost: the engine `postgres`, beside a PostgreSQL without them, asked for the same.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use dsql_local::EngineKind;

use super::client::Client;
use super::postgres::Postgres;
use super::{Effort, LINES, Server, per_second};
use crate::checkout::progress;
use crate::race::{Figures, Lane, race};
use crate::report::{Bound, Report, Table};

/// How many accounts each client has to itself.
const ACCOUNTS: u32 = 1_000;

/// A bank whose customers stay at their own counters, so that nobody is in anybody's way.
const MIX: &str = "\\set own 1 + :client_id
\\set account :client_id * 1000 + random(1, 1000)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE accounts SET balance = balance + :delta WHERE id = :account;
SELECT balance FROM accounts WHERE id = :account;
UPDATE tellers SET balance = balance + :delta WHERE id = :own;
UPDATE branches SET balance = balance + :delta WHERE id = :own;
INSERT INTO history (id, account, delta) VALUES (gen_random_uuid(), :account, :delta);
COMMIT;
";

type Variables = Vec<(&'static str, String)>;

pub(super) fn run(report: &mut Report, effort: Effort) -> anyhow::Result<()> {
    let server = Server::start(EngineKind::Postgres)?;
    let postgres = Postgres::start().context("no PostgreSQL to measure beside")?;
    let started = server.started_in.as_secs_f64();
    report.goal("from the start of the server until it listens", started, Bound::AtMost(1.0), "s");
    latency(report, effort, &server, &postgres)?;
    throughput(report, effort, &server.variables(), &postgres.variables())?;
    report.note(format!(
        "all were asked over TLS on the same two cores, in turn: SELECT 1 by one client in this process, the mix by \
         pgbench; {}, durable only in memory (fsync off) underneath both",
        postgres.version()
    ));
    Ok(())
}

/// How much later one client has the answer to `SELECT 1`.
fn latency(report: &mut Report, effort: Effort, server: &Server, postgres: &Postgres) -> anyhow::Result<()> {
    progress("SELECT 1 over one connection, beside a PostgreSQL");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (local, direct) = (Client::new(server)?, Client::to_postgres(postgres)?);
    let time = Duration::from_secs(effort.seconds.into()) / 2;
    for (mode, prepared) in [("simple", false), ("prepared", true)] {
        let lanes = vec![
            Lane::new("dsql-local", || runtime.block_on(local.middle(prepared, time))),
            Lane::new("PostgreSQL", || runtime.block_on(direct.middle(prepared, time))),
        ];
        let rows: Vec<Figures> = race(effort.rounds, lanes)?;
        let table =
            Table { name: format!("SELECT 1 over one TLS connection, {mode}, p50"), unit: "us", rows };
        let added = table.median("dsql-local")? - table.median("PostgreSQL")?;
        report.goal(format!("added to the p50 of SELECT 1, {mode}"), added, Bound::AtMost(60.0), "us");
        report.tables.push(table);
    }
    Ok(())
}

/// How much is done in a mix of reads and writes without conflicts.
fn throughput(
    report: &mut Report,
    effort: Effort,
    local: &Variables,
    direct: &Variables,
) -> anyhow::Result<()> {
    progress("a mix of reads and writes, beside a PostgreSQL");
    for variables in [local, direct] {
        fill(variables)?;
    }
    let script = script(MIX)?;
    for mode in ["simple", "prepared"] {
        let bench = |variables: &Variables| {
            let mut command = pgbench(script.path(), mode, effort, LINES);
            command.envs(variables.clone());
            move || per_second(&mut command)
        };
        let lanes = vec![Lane::new("dsql-local", bench(local)), Lane::new("PostgreSQL", bench(direct))];
        let rows: Vec<Figures> = race(effort.rounds, lanes)?;
        let table = Table {
            name: format!("transactions of 5 statements, {LINES} clients, {mode}"),
            unit: "1/s",
            rows,
        };
        let kept = table.median("dsql-local")? / table.median("PostgreSQL")?;
        report.goal(format!("of the throughput of that mix, {mode}"), kept, Bound::AtLeast(0.5), "times");
        report.tables.push(table);
    }
    Ok(())
}

fn script(text: &str) -> anyhow::Result<tempfile::NamedTempFile> {
    let script = tempfile::NamedTempFile::new()?;
    fs::write(script.path(), text)?;
    Ok(script)
}

fn pgbench(script: &Path, mode: &str, effort: Effort, clients: u32) -> Command {
    let mut command = Command::new("pgbench");
    command.args(["-n", "-j", "1", "-M", mode, "-c", &clients.to_string()]);
    command.args(["-T", &effort.seconds.to_string(), "-f"]).arg(script);
    command
}

/// Makes the bank, in statements that the service takes.
fn fill(variables: &Variables) -> anyhow::Result<()> {
    let mut statements = vec![
        "CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL)".to_owned(),
        "CREATE TABLE tellers (id int PRIMARY KEY, balance int NOT NULL)".to_owned(),
        "CREATE TABLE branches (id int PRIMARY KEY, balance int NOT NULL)".to_owned(),
        "CREATE TABLE history (id uuid PRIMARY KEY, account int, delta int, at timestamptz DEFAULT now())"
            .to_owned(),
        format!("INSERT INTO tellers SELECT i, 0 FROM generate_series(1, {LINES}) i"),
        format!("INSERT INTO branches SELECT i, 0 FROM generate_series(1, {LINES}) i"),
    ];
    for client in 0..LINES {
        let (first, last) = (client * ACCOUNTS + 1, (client + 1) * ACCOUNTS);
        statements.push(format!("INSERT INTO accounts SELECT i, 0 FROM generate_series({first}, {last}) i"));
    }
    let mut command = Command::new("psql");
    command.args(["-q", "-X", "-v", "ON_ERROR_STOP=1"]).envs(variables.clone());
    for statement in &statements {
        command.args(["-c", statement]);
    }
    let output = command.output().context("psql could not be run; it comes with PostgreSQL")?;
    ensure!(output.status.success(), "psql failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
