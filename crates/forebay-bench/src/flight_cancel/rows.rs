//! A hundred million rows, by clients in processes of their own, so that their memory is their own.

use std::cell::RefCell;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use forebay_flight::{AsyncFlightSQLPool, ConnectOptions};
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::Effort;
use crate::checkout::{self, progress};
use crate::clock::Stopwatch;
use crate::flight::bare::Bare;
use crate::flight::full;
use crate::flight::server::Server;
use crate::race::{Figures, Lane, race};
use crate::report::{Bound, Report, Table};

/// What a client is told when it is started.
#[derive(Clone, Debug, Args)]
pub struct Reading {
    /// Where the server is: address and port.
    #[arg(long)]
    address: String,
    /// How many rows to read.
    #[arg(long)]
    rows: u64,
    /// With what.
    #[arg(long, value_enum)]
    by: Client,
}

/// What rows are read with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    /// A pool's stream.
    Forebay,
    /// arrow-flight's own.
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

/// Reads rows, and prints how long that took and how much memory.
///
/// # Errors
/// If the server cannot be reached, or breaks off.
pub fn read(reading: &Reading) -> anyhow::Result<()> {
    let sql = format!("SELECT * FROM prebuilt(rows => {})", reading.rows);
    let (rows, seconds) = checkout::runtime()?.block_on(async {
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
    println!("{}", json!({ "rows": rows, "seconds": seconds, "megabytes": peak_memory()? }));
    Ok(())
}

/// The most memory that this process ever had, in MB.
fn peak_memory() -> anyhow::Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1_024.0 / 1e6)
}

pub(super) fn measure(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    progress("a hundred million rows");
    let server = Server::start()?;
    let memory = [RefCell::new(Vec::new()), RefCell::new(Vec::new())];
    let contestants = [Client::Forebay, Client::Bare];
    let lanes = contestants.iter().zip(&memory).map(|(client, memory)| {
        Lane::new(client.name(), || {
            let said = in_process(*client, &server, effort.read)?;
            let number = |name: &str| said[name].as_f64().with_context(|| format!("no {name}"));
            memory.borrow_mut().push(number("megabytes")?);
            #[allow(clippy::cast_precision_loss, reason = "some millions")]
            let rows = effort.read as f64;
            Ok(rows / 1e6 / number("seconds")?)
        })
    });
    let rates = Table {
        name: format!("{} million rows of 16 bytes", effort.read / 1_000_000),
        unit: "million/s",
        rows: race(effort.rounds, lanes.collect())?,
    };
    let rows = contestants
        .iter()
        .zip(memory)
        .map(|(client, memory)| Figures::of(client.name(), memory.into_inner()));
    let memory = Table {
        name: format!("{}: memory of the client at most", rates.name),
        unit: "MB",
        rows: rows.collect::<Result<_, _>>()?,
    };
    let ratio = rates.median(Client::Forebay.name())? / rates.median(Client::Bare.name())?;
    report.goal(
        format!("{}: against a bare arrow-flight stream", rates.name),
        ratio,
        Bound::AtLeast(0.9),
        "times",
    );
    let most = memory.rows.iter().find(|row| row.name == Client::Forebay.name()).map(|row| row.max);
    report.goal(memory.name.clone(), most, Bound::AtMost(200.0), "MB");
    report.tables.extend([rates, memory]);
    Ok(())
}

fn in_process(client: Client, server: &Server, rows: u64) -> anyhow::Result<Value> {
    let by = client.to_possible_value().context("a client without a name")?;
    let output = Command::new(env::current_exe()?)
        .args(["flight-read", "--address", &server.address().to_string()])
        .args(["--rows", &rows.to_string(), "--by", by.get_name()])
        .output()?;
    ensure!(output.status.success(), "the client failed: {}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(said["rows"].as_u64() == Some(rows), "not all rows: {said}");
    Ok(said)
}
