//! A scan for the connections that are due, among ten thousand idle ones.

use forebay::bench::{Scan, expiry_scan};
use tokio::runtime::Runtime;

use super::Effort;
use crate::clock::{self, Stopwatch};
use crate::peers::{Deadpool, Forebay, Pool};
use crate::race::{Figures, Lane, race};
use crate::report::{Report, Table};
use crate::section::progress;

const CONNECTIONS: usize = 10_000;
/// One in a hundred.
const DUE: usize = CONNECTIONS / 100;

const MICROSECONDS: &str = "us";

/// Scans a new pool once. Only the core can do this: elsewhere its expiry task scans.
fn scan_ours() -> anyhow::Result<Scan> {
    let scan = expiry_scan(CONNECTIONS, DUE, &clock::nanos);
    anyhow::ensure!(scan.found == DUE, "forebay found {} due instead of {DUE}", scan.found);
    Ok(scan)
}

/// deadpool looks at every idle connection. The test is cheaper than the one in its documentation, which
/// reads the clock for each connection. Those that are due are spread evenly, as they are where lifetimes
/// differ.
fn scan_deadpool(runtime: &Runtime) -> anyhow::Result<f64> {
    let pool = runtime.block_on(Deadpool::filled(CONNECTIONS))?;
    let watch = Stopwatch::start();
    let result = pool.0.retain(|number, _| number % (CONNECTIONS / DUE) as u64 != 0);
    let took = watch.elapsed();
    let removed = result.removed.len();
    anyhow::ensure!(removed == DUE, "deadpool removed {removed} instead of {DUE}");
    Ok(took.as_secs_f64() * 1e6)
}

/// Measures both.
pub(super) fn measure(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    progress(&format!("an expiry scan over {CONNECTIONS} idle connections"));
    let mut holds = Vec::new();
    let lanes = vec![
        Lane::new(Forebay::NAME, || {
            let scan = scan_ours()?;
            holds.push(microseconds(scan.longest_hold_ns));
            Ok(microseconds(scan.total_ns))
        }),
        Lane::new(Deadpool::NAME, || scan_deadpool(runtime)),
    ];
    let rows = race(effort.rounds, lanes)?;
    let what = format!("expiry scan over {CONNECTIONS} idle connections, {DUE} due");
    let scan = Table::new(&what, MICROSECONDS, rows);
    // The first was the warm-up. deadpool has no row: it holds its lock for the whole scan.
    holds.remove(0);
    let hold = Table::new(
        format!("{what}: longest hold of the lock in a scan"),
        MICROSECONDS,
        vec![Figures::of(Forebay::NAME, holds)?],
    );
    report.at_most(what, scan.median(Forebay::NAME)?, 10.0, MICROSECONDS);
    let goal = format!("{}: faster than deadpool's retain", scan.name);
    report.at_least(goal, scan.ratio(Deadpool::NAME, Forebay::NAME)?, 20.0, "times");
    report.at_most(hold.name.clone(), hold.median(Forebay::NAME)?, 5.0, MICROSECONDS);
    report.tables.extend([scan, hold]);
    Ok(())
}

fn microseconds(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}
