//! Statements that take their time: sixteen at once must take as long as one.

use std::time::Duration;

use forebay_flight::AsyncFlightSQLPool;
use tokio::runtime::Runtime;

use super::callers::tasks;
use super::server::Server;
use super::{Effort, full};
use crate::checkout::progress;
use crate::clock::Stopwatch;
use crate::race::{Lane, race};
use crate::report::{Bound, Report, Table};

const CALLERS: usize = 16;
const SQL: &str = "SELECT sleep_ms(50)";
/// Whole statements are counted: in short turns the last of each would count too much.
const LONGER: u32 = 2;

pub(super) fn measure(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    progress("statements of 50 ms");
    let server = Server::start()?;
    let turn = effort.turn * LONGER;
    let pool = |connections| runtime.block_on(AsyncFlightSQLPool::new(&server.url(), full(connections)));
    let (many, one) = (pool(CALLERS)?, pool(1)?);
    let rate = |pool: &AsyncFlightSQLPool, callers| per_second(runtime, pool, callers, turn);
    let lanes = vec![
        Lane::new("16 callers on 16 connections", || rate(&many, CALLERS)),
        Lane::new("one caller on one", || rate(&one, 1)),
    ];
    let name = "statements of 50 ms".to_owned();
    let table = Table { name, unit: "1/s", rows: race(effort.rounds, lanes)? };
    report.goal(
        "statements of 50 ms: 16 callers on 16 connections against one on one",
        table.median("16 callers on 16 connections")? / table.median("one caller on one")?,
        Bound::AtLeast(15.0),
        "times",
    );
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
    #[allow(clippy::cast_precision_loss, reason = "some hundreds")]
    let count = answers.len() as f64;
    // Statements that were under way at the end of the turn are counted, and so is their time.
    Ok(count / watch.elapsed().as_secs_f64())
}
