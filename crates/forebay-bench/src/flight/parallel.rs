//! Slow statements: sixteen at once must take as long as one.

use std::time::Duration;

use forebay_flight::AsyncFlightSQLPool;
use tokio::runtime::Runtime;

use super::callers::tasks;
use super::server::Server;
use super::{Effort, full};
use crate::clock::Stopwatch;
use crate::race::{Lane, race};
use crate::report::{Report, Table};
use crate::section::progress;

const CALLERS: usize = 16;
const SQL: &str = "SELECT sleep_ms(50)";
/// Only whole statements count: in short turns, the last of each would count too much.
const TURNS: u32 = 2;

pub(super) fn measure(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    progress("statements of 50 ms");
    let server = Server::start()?;
    let turn = effort.turn * TURNS;
    let pool = |connections| runtime.block_on(AsyncFlightSQLPool::new(&server.url(), full(connections)));
    let (many, one) = (pool(CALLERS)?, pool(1)?);
    let rate = |pool: &AsyncFlightSQLPool, callers| per_second(runtime, pool, callers, turn);
    let lanes = vec![
        Lane::new("16 callers on 16 connections", || rate(&many, CALLERS)),
        Lane::new("one caller on one", || rate(&one, 1)),
    ];
    let name = "statements of 50 ms".to_owned();
    let table = Table::new(name, "1/s", race(effort.rounds, lanes)?);
    let goal = "statements of 50 ms: 16 callers on 16 connections against one on one";
    report.at_least(goal, table.ratio("16 callers on 16 connections", "one caller on one")?, 15.0, "times");
    report.tables.push(table);
    Ok(())
}

fn per_second(
    runtime: &Runtime,
    pool: &AsyncFlightSQLPool,
    callers: usize,
    time: Duration,
) -> anyhow::Result<f64> {
    let watch = Stopwatch::start();
    let answers = tasks(runtime, vec![pool.clone(); callers], SQL, time)?;
    // Statements that were under way at the end of the turn count, and so does their time.
    Ok(answers.len() as f64 / watch.elapsed().as_secs_f64())
}
