//! What the rules cost: the engine `postgres`, beside a PostgreSQL without them, asked for the same.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use dsql_local::EngineKind;

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
    latency(report, effort, &server.variables(), &postgres.variables())?;
    throughput(report, effort, &server.variables(), &postgres.variables())?;
    report.note(format!(
        "all were asked by pgbench over TLS on the same two cores, in turn; {}, durable only in memory \
         (fsync off) underneath both",
        postgres.version()
    ));
    Ok(())
}

/// How much later one client has the answer to `SELECT 1`.
fn latency(report: &mut Report, effort: Effort, local: &Variables, direct: &Variables) -> anyhow::Result<()> {
    progress("SELECT 1 over one connection, beside a PostgreSQL");
    let script = script("SELECT 1;\n")?;
    for mode in ["simple", "prepared"] {
        let lanes = vec![
            Lane::new("dsql-local", || middle(script.path(), mode, effort, local)),
            Lane::new("PostgreSQL", || middle(script.path(), mode, effort, direct)),
        ];
        let rows: Vec<Figures> = race(effort.rounds, lanes)?;
        let table =
            Table { name: format!("SELECT 1 over one TLS connection, {mode}, p50"), unit: "us", rows };
        let added = table.median("dsql-local")? - table.median("PostgreSQL")?;
        report.goal(&format!("added to the p50 of SELECT 1, {mode}"), added, Bound::AtMost(60.0), "us");
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
        report.goal(&format!("of the throughput of that mix, {mode}"), kept, Bound::AtLeast(0.5), "times");
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

/// The middle of all latencies of one client, in microseconds.
fn middle(script: &Path, mode: &str, effort: Effort, variables: &Variables) -> anyhow::Result<f64> {
    let log = tempfile::tempdir()?;
    let mut command = pgbench(script, mode, effort, 1);
    command.arg("-l").arg("--log-prefix").arg(log.path().join("log")).envs(variables.clone());
    let output = command.output().context("pgbench could not be run; it comes with PostgreSQL")?;
    ensure!(output.status.success(), "pgbench failed: {}", String::from_utf8_lossy(&output.stderr));
    let mut latencies = Vec::new();
    for file in fs::read_dir(log.path())? {
        let text = fs::read_to_string(file?.path())?;
        latencies.extend(text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<f64>().ok()));
    }
    latencies.sort_by(f64::total_cmp);
    latencies.get(latencies.len() / 2).copied().context("pgbench logged nothing")
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
