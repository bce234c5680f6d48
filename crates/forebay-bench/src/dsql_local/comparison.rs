//! What the rules cost: the engine `postgres` beside a PostgreSQL without rules, with the same statements.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use dsql_local::EngineKind;

use super::client::Client;
use super::{CLIENTS, Effort, POSTGRES, race_pgbench};
use crate::cluster::{Server, Variables};
use crate::postgres::Postgres;
use crate::race::{Lane, race};
use crate::report::{Report, Table};
use crate::section::progress;

/// How many accounts belong to each client.
const ACCOUNTS: u32 = 1_000;

/// Transactions of a bank. Each client has its own rows, so that no transactions conflict.
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

pub(super) fn run(report: &mut Report, effort: Effort) -> anyhow::Result<()> {
    let server = Server::start(EngineKind::Postgres)?;
    let postgres = Postgres::start(POSTGRES).context("there is no PostgreSQL to compare with")?;
    let started = server.started_in.as_secs_f64();
    report.at_most("from the start of the server until it listens", started, 1.0, "s");
    latency(report, effort, &server, &postgres)?;
    throughput(report, effort, &server.variables(), &postgres.variables())?;
    report.note(format!(
        "all over TLS on the same two cores, in turn: SELECT 1 by one client in this process, the mix by \
         pgbench; {}, with fsync off, below both",
        postgres.version
    ));
    Ok(())
}

/// The latency that the rules add to `SELECT 1` of one client.
fn latency(report: &mut Report, effort: Effort, server: &Server, postgres: &Postgres) -> anyhow::Result<()> {
    progress("SELECT 1 over one connection, beside a PostgreSQL");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (local, direct) = (Client::new(server)?, Client::to_postgres(postgres)?);
    let time = Duration::from_secs(effort.seconds.into()) / 2;
    for (mode, prepared) in [("simple", false), ("prepared", true)] {
        let lanes = vec![
            Lane::new("dsql-local", || runtime.block_on(local.median_latency(prepared, time))),
            Lane::new("PostgreSQL", || runtime.block_on(direct.median_latency(prepared, time))),
        ];
        let rows = race(effort.rounds, lanes)?;
        let table = Table::new(format!("SELECT 1 over one TLS connection, {mode}, p50"), "us", rows);
        let added = table.median("dsql-local")? - table.median("PostgreSQL")?;
        report.at_most(format!("added to the p50 of SELECT 1, {mode}"), added, 60.0, "us");
        report.tables.push(table);
    }
    Ok(())
}

/// The throughput of a mix of reads and writes without conflicts.
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
    for mode in ["simple", "prepared"] {
        let rows = race_pgbench(effort, MIX, mode, 1, local, direct)?;
        let table =
            Table::new(format!("transactions of 5 statements, {CLIENTS} clients, {mode}"), "1/s", rows);
        let kept = table.ratio("dsql-local", "PostgreSQL")?;
        report.at_least(format!("of the throughput of that mix, {mode}"), kept, 0.5, "times");
        report.tables.push(table);
    }
    Ok(())
}

/// Creates the tables of the bank, with statements that Aurora DSQL supports.
fn fill(variables: &Variables) -> anyhow::Result<()> {
    let mut statements = vec![
        "CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL)".to_owned(),
        "CREATE TABLE tellers (id int PRIMARY KEY, balance int NOT NULL)".to_owned(),
        "CREATE TABLE branches (id int PRIMARY KEY, balance int NOT NULL)".to_owned(),
        "CREATE TABLE history (id uuid PRIMARY KEY, account int, delta int, at timestamptz DEFAULT now())"
            .to_owned(),
        format!("INSERT INTO tellers SELECT i, 0 FROM generate_series(1, {CLIENTS}) i"),
        format!("INSERT INTO branches SELECT i, 0 FROM generate_series(1, {CLIENTS}) i"),
    ];
    for client in 0..CLIENTS {
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
