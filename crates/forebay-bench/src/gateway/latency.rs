//! What a proxy adds to the latency of one client.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::client::Connection;
use super::contestant::{Contestant, DIRECT};
use super::forebay::GATEWAY;
use super::pgbouncer::{Mode, SESSION, TRANSACTION};
use super::{Arena, Settings, wire};
use crate::clock::{Stopwatch, whole_nanos};
use crate::race::{Figures, histogram};
use crate::report::Report;
use crate::section::progress;

/// The quantiles that are compared, and the goals: the gateway's share over that of PgBouncer.
const QUANTILES: [(&str, f64, f64); 2] = [("p50", 0.5, 1.0), ("p99", 0.99, 1.2)];
/// A round is short, so that other load on the machine meets all contestants alike.
const ROUNDS: usize = 12;

pub(super) fn measure(arena: &Arena, report: &mut Report) -> anyhow::Result<()> {
    progress("the latency that proxies add");
    let postgres = arena.postgres()?;
    let trust = Settings::default();
    let direct = Contestant::direct(postgres)?;
    let session = arena.pgbouncer(Mode::Session, trust, postgres)?;
    let transaction = arena.pgbouncer(Mode::Transaction, trust, postgres)?;
    let gateway = arena.gateway(trust, postgres)?;
    let contestants = [&gateway, &session, &transaction, &direct];
    let mut connections = Vec::new();
    for contestant in &contestants {
        connections.push(Connection::open(&contestant.door)?);
    }
    let rounds = ROUNDS * arena.effort.rounds;
    let turn = Duration::from_secs(arena.effort.seconds.into()) / 6;
    let mut times: Vec<Vec<Histogram<u64>>> = vec![Vec::new(); contestants.len()];
    for round in 0..=rounds {
        for step in 0..contestants.len() {
            let at = (round + step) % contestants.len();
            let found = ask_for(&mut connections[at], turn)?;
            // The first round is the warm-up.
            if round > 0 {
                times[at].push(found);
            }
        }
    }
    let of = |name: &str| contestants.iter().position(|one| one.name == name).map(|at| &times[at]);
    for (quantile, share, goal) in QUANTILES {
        let micros = |times: &Histogram<u64>| times.value_at_quantile(share) as f64 / 1e3;
        let all = contestants.iter().zip(&times);
        let rows = all.map(|(one, times)| Figures::of(one.name, times.iter().map(micros).collect()));
        let rows = rows.collect::<anyhow::Result<_>>()?;
        report.table(format!("SELECT 1, one client, {quantile}"), "us", rows);
        let added = |name: &str| -> Option<Figures> {
            let pairs = of(name)?.iter().zip(of(DIRECT)?);
            Figures::of(name, pairs.map(|(proxy, direct)| micros(proxy) - micros(direct)).collect()).ok()
        };
        let [ours, session, transaction] = [GATEWAY, SESSION, TRANSACTION].map(added);
        let peers = session.iter().chain(&transaction).map(|figures| figures.median);
        let least = peers.min_by(f64::total_cmp);
        let ratio = ours.as_ref().zip(least).map(|(ours, least)| ours.median / least);
        let name =
            format!("latency added to a direct connection, {quantile}: over the lower of PgBouncer's modes");
        report.at_most(name, ratio, goal, "times");
        let rows = ours.into_iter().chain(session).chain(transaction).collect();
        report.table(format!("SELECT 1, one client, added to {quantile} of a direct connection"), "us", rows);
    }
    Ok(())
}

/// Repeats `SELECT 1` for this time.
fn ask_for(connection: &mut Connection, time: Duration) -> anyhow::Result<Histogram<u64>> {
    let (mut times, watch) = (histogram()?, Stopwatch::start());
    while watch.elapsed() < time {
        let one = Stopwatch::start();
        connection.ask(wire::SELECT_1)?;
        times.saturating_record(whole_nanos(one.elapsed()));
    }
    Ok(times)
}
