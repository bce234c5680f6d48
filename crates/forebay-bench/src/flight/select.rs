//! `SELECT 1`, by more and more callers: this project, a pool over ADBC, and a bare client.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use deadpool::unmanaged;
use forebay_flight::{AsyncFlightSQLPool, FlightSQLPool};
use tokio::runtime::Runtime;

use super::adbc::Adbc;
use super::bare::Bare;
use super::callers::{Latencies, Query, tasks, threads};
use super::server::Server;
use super::{Effort, full};
use crate::process::processor_time;
use crate::race::{Figures, Lane, race};
use crate::report::{Report, Table};
use crate::section::progress;

/// Numbers of callers and of connections: one connection each, and at the end more callers than connections.
const CROWDS: [(usize, usize); 5] = [(1, 1), (4, 4), (16, 16), (64, 64), (64, 16)];
/// The number of callers for the goal against the pool over ADBC.
const GOAL_CALLERS: usize = 16;

const SQL: &str = "SELECT 1";
const POOL: &str = "forebay-flight";
const BLOCKING: &str = "forebay-flight, blocking";
const ADBC: &str = "a pool over ADBC, blocking";
const BARE: &str = "a bare client";
/// One call at a time on each of its connections, as a session requires.
const LENT: &str = "bare clients in a deadpool";

pub(super) fn measure(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let server = Server::start()?;
    for (callers, connections) in CROWDS {
        progress(&format!("SELECT 1 by {callers} callers on {connections} connections"));
        one(runtime, effort, &server, callers, connections, report)?;
    }
    report.note(
        "SELECT 1: the bare client is arrow-flight's on tonic's channel; with more callers than connections \
         it has several calls at once on each, which saves work and which sessions do not allow: there the \
         goal is for a deadpool of bare clients. ADBC is its Rust driver manager with the Go driver, in an \
         r2d2 pool without checks",
    );
    Ok(())
}

fn one(
    runtime: &Runtime,
    effort: Effort,
    server: &Server,
    callers: usize,
    connections: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let pool = runtime.block_on(AsyncFlightSQLPool::new(&server.url(), full(connections)))?;
    let blocking = FlightSQLPool::new(&server.url(), full(connections))?;
    let bare = runtime.block_on(Bare::several(server, connections))?;
    let adbc = Adbc::connect(server, connections);
    let lent = unmanaged::Pool::from(runtime.block_on(Bare::several(server, connections))?);
    let turn = effort.turn;
    let shared = Shared { turn, found: RefCell::default() };
    let mut lanes = vec![
        shared.lane(POOL, || tasks(runtime, vec![pool.clone(); callers], SQL, turn)),
        shared.lane(BLOCKING, || threads(vec![blocking.clone(); callers], SQL, turn)),
        shared.lane(BARE, || tasks(runtime, bare.iter().cloned().cycle().take(callers).collect(), SQL, turn)),
    ];
    let peer = if callers > connections { LENT } else { BARE };
    if peer == LENT {
        lanes.push(shared.lane(LENT, || tasks(runtime, vec![lent.clone(); callers], SQL, turn)));
    }
    match &adbc {
        Ok(adbc) => lanes.push(shared.lane(ADBC, move || threads(vec![adbc.clone(); callers], SQL, turn))),
        Err(error) => {
            let note = format!("THE POOL OVER ADBC WAS LEFT OUT: {error:#}");
            eprintln!("{note}");
            if !report.notes.contains(&note) {
                report.note(note);
            }
        }
    }
    let name = format!("SELECT 1, {callers} callers on {connections} connections");
    let rates = Table::new(name.clone(), "1/s", race(effort.rounds, lanes)?);
    let found = shared.found.into_inner();
    let table = |what: &str, unit, figure: fn(&Sample) -> f64| {
        let row = |(name, found): (&&str, &Vec<Sample>)| {
            // The first round warms up.
            Figures::of(name, found.iter().skip(1).map(figure).collect())
        };
        let rows = found.iter().map(row).collect::<Result<_, _>>()?;
        anyhow::Ok(Table::new(format!("{name}: {what}"), unit, rows))
    };
    let tails = table("p99 of an answer", "ms", |found| found.p99)?;
    let costs = table("processor time of the callers' process for each", "us", |found| found.cost)?;

    report.at_least(format!("{name}: against {peer}"), rates.ratio(POOL, peer)?, 0.9, "times");
    if callers == GOAL_CALLERS {
        let (rate, tail) = match adbc {
            Ok(_) => (Some(rates.ratio(POOL, ADBC)?), Some(tails.ratio(POOL, ADBC)?)),
            Err(_) => (None, None),
        };
        report.at_least(format!("{name}: against a pool over ADBC"), rate, 3.0, "times");
        report.at_most(format!("{name}: p99 over that of a pool over ADBC"), tail, 1.0, "times");
    }
    report.tables.extend([rates, tails, costs]);
    Ok(())
}

impl Query for unmanaged::Pool<Bare> {
    async fn query(&mut self, sql: &'static str) -> anyhow::Result<usize> {
        self.get().await?.query(sql).await
    }
}

/// The other results of one contestant in one round.
struct Sample {
    /// In milliseconds.
    p99: f64,
    /// In microseconds.
    cost: f64,
}

struct Shared {
    turn: Duration,
    found: RefCell<BTreeMap<&'static str, Vec<Sample>>>,
}

impl Shared {
    fn lane<'a>(
        &'a self,
        name: &'static str,
        mut run: impl FnMut() -> anyhow::Result<Latencies> + 'a,
    ) -> Lane<'a> {
        Lane::new(name, move || {
            let before = processor_time("self")?;
            let latencies = run()?;
            let used = processor_time("self")?.saturating_sub(before);
            let count = latencies.len() as f64;
            self.found.borrow_mut().entry(name).or_default().push(Sample {
                p99: Duration::from_nanos(latencies.value_at_quantile(0.99)).as_secs_f64() * 1e3,
                cost: used.as_secs_f64() * 1e6 / count,
            });
            Ok(count / self.turn.as_secs_f64())
        })
    }
}
