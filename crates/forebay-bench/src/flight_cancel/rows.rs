//! A hundred million rows, by clients in separate processes, so that their memory can be measured.

use std::cell::RefCell;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use forebay_flight::{AsyncFlightSQLPool, ConnectOptions};
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::Effort;
use crate::clock::Stopwatch;
use crate::flight::bare::Bare;
use crate::flight::full;
use crate::flight::server::Server;
use crate::process;
use crate::race::{Figures, Lane, race};
use crate::report::{Report, Table};
use crate::section::{progress, runtime};

/// The settings of a client.
#[derive(Clone, Debug, Args)]
pub(crate) struct Reading {
    /// The address and port of the server.
    #[arg(long)]
    address: String,
    /// How many rows to read.
    #[arg(long)]
    rows: u64,
    /// The client to read with.
    #[arg(long, value_enum)]
    by: Client,
}

/// A client that reads rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    /// The stream of a pool.
    Forebay,
    /// The stream of arrow-flight.
    Bare,
}

impl Client {
    fn name(self) -> &'static str {
        match self {
            Self::Forebay => "forebay-flight",
            Self::Bare => "a bare arrow-flight stream",
        }
    }
}

/// Reads rows, and prints the time, the processor time and the peak memory.
pub(crate) fn read(reading: &Reading) -> anyhow::Result<()> {
    let sql = format!("SELECT * FROM prebuilt(rows => {})", reading.rows);
    let (rows, seconds) = runtime()?.block_on(async {
        let mut read = 0;
        let watch;
        match reading.by {
            Client::Forebay => {
                let options = ConnectOptions::new(&format!("grpc://{}", reading.address))?;
                let pool = AsyncFlightSQLPool::with_options(options, full(1)).await?;
                watch = Stopwatch::start();
                let mut batches = pool.query_stream(&sql).await?;
                while let Some(batch) = batches.next_batch().await {
                    read += batch?.num_rows() as u64;
                }
            }
            Client::Bare => {
                let mut bare = Bare::connect(&reading.address).await?;
                watch = Stopwatch::start();
                let mut batches = bare.stream(&sql).await?;
                while let Some(batch) = batches.next().await {
                    read += batch?.num_rows() as u64;
                }
            }
        }
        anyhow::Ok((read, watch.elapsed().as_secs_f64()))
    })?;
    println!(
        "{}",
        json!({
            "rows": rows,
            "seconds": seconds,
            // With the start of the process and the connection, which take milliseconds.
            "processor": process::processor_time("self")?.as_secs_f64(),
            "megabytes": process::memory("self", "VmHWM")? / 1e6,
        })
    );
    Ok(())
}

pub(super) fn measure(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    progress("a hundred million rows");
    let server = Server::start()?;
    let memory = [RefCell::new(Vec::new()), RefCell::new(Vec::new())];
    let processor = [RefCell::new(Vec::new()), RefCell::new(Vec::new())];
    let contestants = [Client::Forebay, Client::Bare];
    let lanes = contestants.iter().zip(memory.iter().zip(&processor)).map(|(client, (memory, processor))| {
        Lane::new(client.name(), || {
            let result = in_process(*client, &server, effort.read)?;
            let number = |name: &str| result[name].as_f64().with_context(|| format!("no {name}"));
            memory.borrow_mut().push(number("megabytes")?);
            processor.borrow_mut().push(number("processor")?);
            Ok(effort.read as f64 / 1e6 / number("seconds")?)
        })
    });
    let rates = Table::new(
        format!("{} million rows of 16 bytes", effort.read / 1_000_000),
        "million/s",
        race(effort.rounds, lanes.collect())?,
    );
    let table = |what: &str, unit, columns: [RefCell<Vec<f64>>; 2]| {
        let figures = contestants.iter().zip(columns);
        let rows = figures.map(|(client, column)| Figures::of(client.name(), column.into_inner()));
        anyhow::Ok(Table::new(format!("{}: {what}", rates.name), unit, rows.collect::<Result<_, _>>()?))
    };
    let memory = table("memory of the client at most", "MB", memory)?;
    let processor = table("processor time of the client", "s", processor)?;
    let ratio = rates.ratio(Client::Forebay.name(), Client::Bare.name())?;
    report.at_least(format!("{}: against a bare arrow-flight stream", rates.name), ratio, 0.95, "times");
    let most = memory.rows.iter().find(|row| row.name == Client::Forebay.name()).map(|row| row.max);
    report.at_most(memory.name.clone(), most, 200.0, "MB");
    report.tables.extend([rates, memory, processor]);
    Ok(())
}

fn in_process(client: Client, server: &Server, rows: u64) -> anyhow::Result<Value> {
    let by = client.to_possible_value().context("a hidden value")?;
    let result = process::json_of(
        process::this_program("flight-read")?
            .args(["--address", &server.address.to_string(), "--rows", &rows.to_string()])
            .args(["--by", by.get_name()]),
    )?;
    ensure!(result["rows"].as_u64() == Some(rows), "not all rows: {result}");
    Ok(result)
}
