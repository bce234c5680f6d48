//! A million rows into a table.

use std::sync::Arc;

use anyhow::ensure;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_flight::error::FlightError;
use arrow_flight::sql::{
    CommandStatementIngest, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use forebay_flight::{AsyncFlightSQLPool, Ingest};
use futures_util::stream;
use tokio::runtime::Runtime;

use super::Effort;
use crate::clock::Stopwatch;
use crate::flight::bare::Bare;
use crate::flight::full;
use crate::flight::server::Server;
use crate::race::{Lane, race};
use crate::report::{Report, Table};
use crate::section::progress;

const OURS: &str = "forebay-flight";
const BARE: &str = "a bare do_put";
const BATCH: usize = 10_000;

pub(super) fn measure(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    progress("a million rows into a table");
    let server = Server::start()?;
    let pool = runtime.block_on(AsyncFlightSQLPool::new(&server.url(), full(1)))?;
    let bare = runtime.block_on(Bare::connect(&server.address.to_string()))?;
    let batches = vec![batch()?; effort.loaded / BATCH];
    let rate = |watch: Stopwatch, stored: Option<u64>| {
        ensure!(stored == u64::try_from(effort.loaded).ok(), "{stored:?} rows were stored");
        Ok(effort.loaded as f64 / watch.elapsed().as_secs_f64())
    };
    let ours = || {
        let input = stream::iter(batches.clone().into_iter().map(Ok::<_, FlightError>));
        let watch = Stopwatch::start();
        let ingest = Ingest::into_table("ours").create_or_replace();
        let stored = runtime.block_on(pool.ingest(ingest, input))?;
        rate(watch, stored.rows_affected())
    };
    let theirs = || {
        let input = stream::iter(batches.clone().into_iter().map(Ok::<_, FlightError>));
        let mut bare = bare.clone();
        let watch = Stopwatch::start();
        let stored = runtime.block_on(bare.0.execute_ingest(command(), input))?;
        rate(watch, u64::try_from(stored).ok())
    };
    let lanes = vec![Lane::new(OURS, ours), Lane::new(BARE, theirs)];
    let name = format!("{} rows into a table", effort.loaded);
    let table = Table::new(name.clone(), "rows/s", race(effort.rounds, lanes)?);
    let ratio = table.ratio(OURS, BARE)?;
    report.at_least(format!("{name}: against a bare do_put"), ratio, 0.9, "times");
    report.tables.push(table);
    report.note(format!(
        "{name}: in batches of {BATCH}; the server stores each row with SQLite, and that is most of the time"
    ));
    Ok(())
}

fn command() -> CommandStatementIngest {
    CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions {
            if_not_exist: TableNotExistOption::Create as i32,
            if_exists: TableExistsOption::Replace as i32,
        }),
        table: "theirs".to_owned(),
        ..CommandStatementIngest::default()
    }
}

fn batch() -> anyhow::Result<RecordBatch> {
    let rows = i64::try_from(BATCH)?;
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    let values: ArrayRef = Arc::new(Float64Array::from_iter_values((0..rows).map(|id| id as f64 / 2.0)));
    Ok(RecordBatch::try_from_iter([("id", ids), ("value", values)])?)
}
