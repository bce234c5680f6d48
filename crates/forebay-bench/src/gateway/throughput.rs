//! Clients that stay connected and repeat `SELECT 1`.

use super::comparison::compare;
use super::contestant::Contestant;
use super::forebay::GATEWAY;
use super::pgbench::Pgbench;
use super::pgbouncer::{Mode, SESSION, TRANSACTION, TWO};
use super::{Arena, Settings};
use crate::report::{Report, Table};
use crate::section::progress;

/// Clients, the goal over PgBouncer, and the goal over two of them.
const LOADS: [(u32, f64, f64); 3] = [(1, 0.95, 1.0), (16, 1.8, 1.0), (64, 1.8, 1.0)];

pub(super) fn measure(arena: &Arena, report: &mut Report) -> anyhow::Result<()> {
    let postgres = arena.postgres()?;
    let trust = Settings::default();
    let session = arena.pgbouncer(Mode::Session, trust, postgres)?;
    let transaction = arena.pgbouncer(Mode::Transaction, trust, postgres)?;
    let two = arena.pgbouncer(Mode::TwoProcesses, trust, postgres)?;
    let direct = Contestant::direct(postgres)?;
    let gateway = arena.gateway(trust, postgres)?;
    for (clients, over_one, over_two) in LOADS {
        progress(&format!("SELECT 1 by {clients} clients that stay"));
        // Direct connections show what clients and server can do on these cores at most.
        let others = [&gateway, &session, &transaction, &two, &direct];
        let table = compare(
            report,
            &format!("SELECT 1, {clients} clients that stay, {} behind", postgres.label),
            arena.effort.rounds,
            load(arena, clients, "simple"),
            &others,
        )?;
        let name = format!("SELECT 1, {clients} clients that stay");
        report.at_least(format!("{name}: over PgBouncer"), over_the_faster(&table), over_one, "times");
        report.at_least(format!("{name}: over {TWO}"), table.ratio(GATEWAY, TWO).ok(), over_two, "times");
    }
    progress("a prepared statement by 16 clients that stay");
    // In transaction mode, this version of PgBouncer has no prepared statements.
    let title = format!("SELECT 1, prepared, 16 clients that stay, {} behind", postgres.label);
    let lanes = [&gateway, &session, &direct];
    compare(report, &title, arena.effort.rounds, load(arena, 16, "prepared"), &lanes)?;
    drop((session, transaction, two, gateway));

    progress("SELECT 1 by 16 clients that stay, dsql-local behind");
    let dsql = arena.dsql()?;
    let session = arena.pgbouncer(Mode::Session, trust, dsql)?;
    let transaction = arena.pgbouncer(Mode::Transaction, trust, dsql)?;
    let direct = Contestant::direct(dsql)?;
    let gateway = arena.gateway(trust, dsql)?;
    let title = format!("SELECT 1, 16 clients that stay, {} behind", dsql.label);
    let lanes = [&gateway, &session, &transaction, &direct];
    compare(report, &title, arena.effort.rounds, load(arena, 16, "simple"), &lanes)?;
    Ok(())
}

/// The gateway's rate over that of the faster PgBouncer.
fn over_the_faster(table: &Table) -> Option<f64> {
    let ratios = [SESSION, TRANSACTION].map(|peer| table.ratio(GATEWAY, peer).ok());
    ratios.into_iter().flatten().min_by(f64::total_cmp)
}

fn load(arena: &Arena, clients: u32, protocol: &'static str) -> Pgbench {
    let seconds = arena.effort.seconds;
    Pgbench { clients, threads: clients.min(2), seconds, reconnect: false, protocol }
}
