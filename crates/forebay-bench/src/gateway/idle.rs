//! Ten thousand clients that are connected and idle, on two hundred connections to the server.

use std::time::Duration;

use super::client::Connection;
use super::contestant::Contestant;
use super::door::Access;
use super::pgbouncer::{self, TRANSACTION};
use super::{Arena, Settings, forebay, herd};
use crate::clock;
use crate::race::{Figures, Lane, race};
use crate::report::{Report, Table};
use crate::section::progress;

/// Connections to the server.
const BACKENDS: u32 = 200;
/// Clients that ask, among the idle ones.
const ACTIVE: usize = 16;
/// How long each of them pauses after an answer, so that the machine is not full.
const PAUSE: Duration = Duration::from_millis(2);
/// How often each of the others asks, in the last part.
const PERIOD: Duration = Duration::from_secs(10);
/// How long after the last answer memory is measured.
const SETTLING: Duration = Duration::from_secs(2);
const MEMORY: f64 = 200.0;

/// The names of the two gateways.
const AMONG: &str = "among the idle ones";
const ALONE: &str = "alone";

pub(super) fn measure(arena: &Arena, report: &mut Report) -> anyhow::Result<()> {
    let postgres = arena.postgres()?;
    for (kind, tls) in [("without TLS", false), ("with TLS", true)] {
        let count = arena.effort.idle;
        let name = format!("{count} idle clients {kind}");
        progress(&name);
        let settings = Settings {
            access: Access { scram: false, tls },
            mode: forebay::Mode::Elastic,
            backends: BACKENDS,
            ..Settings::default()
        };
        // The first has the idle clients, the second none, so that both can be measured in turn.
        let (crowded, empty) = (arena.gateway(settings, postgres)?, arena.gateway(settings, postgres)?);
        let mut clients = hold(&crowded, count, &name, report)?;
        report.at_most(format!("{name}: memory"), crowded.memory()?, MEMORY, "MB");
        among(arena, &crowded, &empty, &name, report)?;
        ask_rarely(arena, &mut clients, &name, report)?;
        drop((clients, crowded, empty));

        let peer = arena.pgbouncer(pgbouncer::Mode::Transaction, settings, postgres)?;
        let clients = hold(&peer, count, &format!("{name}, {TRANSACTION}"), report)?;
        drop(clients);
    }
    Ok(())
}

/// Connects idle clients, and reports the memory that they cost.
fn hold(
    proxy: &Contestant,
    count: usize,
    name: &str,
    report: &mut Report,
) -> anyhow::Result<Vec<Connection>> {
    let before = proxy.memory()?;
    let clients = herd::open(&proxy.door, count)?;
    clock::nap(SETTLING);
    let after = proxy.memory()?;
    report.note(format!(
        "{name}: {after:.1} MB resident, {before:.1} MB without clients, {:.1} KB for each",
        (after - before) * 1_000.0 / clients.len() as f64
    ));
    Ok(clients)
}

/// Active clients, with the idle ones and without.
fn among(
    arena: &Arena,
    crowded: &Contestant,
    empty: &Contestant,
    name: &str,
    report: &mut Report,
) -> anyhow::Result<()> {
    let time = Duration::from_secs(arena.effort.seconds.into());
    let mut failures = 0;
    let mut ask = |proxy: &Contestant| {
        let tally = herd::active(&proxy.door, ACTIVE, PAUSE, time)?;
        failures += tally.failed();
        anyhow::Ok(tally.millis(0.99))
    };
    let asking = std::cell::RefCell::new(&mut ask);
    let lanes = vec![
        Lane::new(AMONG, || (asking.borrow_mut())(crowded)),
        Lane::new(ALONE, || (asking.borrow_mut())(empty)),
    ];
    let rows = race(arena.effort.rounds, lanes)?;
    let table = Table::new(format!("{name}: p99 of {ACTIVE} active clients"), "ms", rows);
    let goal = format!("{name}: p99 of {ACTIVE} active clients, over the same alone");
    report.at_most(goal, table.ratio(AMONG, ALONE)?, 1.5, "times");
    report.tables.push(table);
    report.at_most(format!("{name}: failures of the active clients"), failures, 0.0, "failures");
    Ok(())
}

/// Each of the idle clients asks once in ten seconds.
fn ask_rarely(
    arena: &Arena,
    clients: &mut [Connection],
    name: &str,
    report: &mut Report,
) -> anyhow::Result<()> {
    let tally = herd::trickle(clients, PERIOD, arena.effort.trickle)?;
    let seconds = PERIOD.as_secs();
    let goal = format!("{name}, one statement every {seconds} s each");
    report.at_most(format!("{goal}: failures"), tally.failed(), 0.0, "failures");
    report.at_most(format!("{goal}: p99.9"), tally.millis(0.999), 100.0, "ms");
    let quantiles = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("longest", 1.0)];
    let rows = quantiles.map(|(quantile, share)| Figures::of(quantile, vec![tally.millis(share)]));
    let rows = rows.into_iter().collect::<anyhow::Result<_>>()?;
    report.table(format!("{goal}: {} answers", tally.times.len()), "ms", rows);
    if tally.failed() > 0 {
        report.note(format!("{goal}: {}", tally.describe()));
    }
    Ok(())
}
