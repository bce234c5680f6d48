//! Connect, `SELECT 1`, close: what functions and PHP do for every request.

use super::behind::Behind;
use super::canned::Canned;
use super::comparison::compare;
use super::contestant::{Contestant, DIRECT};
use super::door::Access;
use super::forebay::GATEWAY;
use super::pgbench::Pgbench;
use super::pgbouncer::{Mode, SESSION, TRANSACTION};
use super::{Arena, Settings};
use crate::report::Report;
use crate::section::progress;

const CLIENTS: u32 = 8;

pub(super) fn measure(arena: &Arena, report: &mut Report) -> anyhow::Result<()> {
    let postgres = arena.postgres()?;
    let verifier = postgres.verifier()?;
    let trust = Settings::default();
    progress("connects without a password");
    let direct = Contestant::direct(postgres)?;
    let (session, transaction) = (
        arena.pgbouncer(Mode::Session, trust, postgres)?,
        arena.pgbouncer(Mode::Transaction, trust, postgres)?,
    );
    let gateway = arena.gateway(trust, postgres)?;
    let ceiling = Canned::start()?;
    let others = [&gateway, &session, &transaction, &direct, &ceiling.contestant];
    let table = compare(report, &title("trust", postgres), arena.effort.rounds, load(arena), &others)?;
    for (peer, goal) in [(SESSION, 2.5), (TRANSACTION, 1.3), (DIRECT, 40.0)] {
        let name = format!("connect, SELECT 1, close, trust: over {peer}");
        report.at_least(name, table.ratio(GATEWAY, peer).ok(), goal, "times");
    }
    drop((session, transaction, ceiling, gateway));

    let kinds = [
        ("SCRAM", Access { scram: true, tls: false }, true),
        ("TLS, trust", Access { scram: false, tls: true }, true),
        // What a gateway for a network has. The table of goals has the two parts of it.
        ("TLS and SCRAM", Access { scram: true, tls: true }, false),
    ];
    for (kind, access, is_goal) in kinds {
        progress(&format!("connects with {kind}"));
        let settings = Settings { access, verifier: Some(&verifier), ..trust };
        let transaction = arena.pgbouncer(Mode::Transaction, settings, postgres)?;
        let gateway = arena.gateway(settings, postgres)?;
        let table = compare(
            report,
            &title(kind, postgres),
            arena.effort.rounds,
            load(arena),
            &[&gateway, &transaction],
        )?;
        if is_goal {
            let name = format!("connect, SELECT 1, close, {kind}: over {TRANSACTION}");
            report.at_least(name, table.ratio(GATEWAY, TRANSACTION).ok(), 1.0, "times");
        }
    }

    let dsql = arena.dsql()?;
    progress("connects with dsql-local behind");
    let direct = Contestant::direct(dsql)?;
    let (session, transaction) =
        (arena.pgbouncer(Mode::Session, trust, dsql)?, arena.pgbouncer(Mode::Transaction, trust, dsql)?);
    let gateway = arena.gateway(trust, dsql)?;
    let others = [&gateway, &session, &transaction, &direct];
    let table = compare(report, &title("trust", dsql), arena.effort.rounds, load(arena), &others)?;
    for (peer, goal) in [(SESSION, 2.5), (TRANSACTION, 1.3)] {
        let name = format!("the same, trust, dsql-local behind: over {peer}");
        report.at_least(name, table.ratio(GATEWAY, peer).ok(), goal, "times");
    }
    Ok(())
}

/// pgbench blocks its thread while it connects, so each client has one.
fn load(arena: &Arena) -> Pgbench {
    let seconds = arena.effort.seconds;
    Pgbench { clients: CLIENTS, threads: CLIENTS, seconds, reconnect: true, protocol: "simple" }
}

fn title(kind: &str, behind: &Behind) -> String {
    format!("connect, SELECT 1, close, {CLIENTS} clients, {kind}, {} behind", behind.label)
}
