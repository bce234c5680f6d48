//! Finding what is due among ten thousand idle connections.

use forebay::bench::{Scan, expiry_scan};
use tokio::runtime::Runtime;

use super::{Effort, progress, times_less};
use crate::clock::{self, Stopwatch};
use crate::peers::{Deadpool, Forebay};
use crate::pool::Pool;
use crate::race::{Figures, Lane, race};
use crate::report::{Bound, Report, Table};

const CONNECTIONS: usize = 10_000;
/// One in a hundred.
const DUE: usize = CONNECTIONS / 100;

const MICROSECONDS: &str = "us";

/// Scans a new machine once. Only the core can do this: an expiry task of its own does it otherwise, unasked.
fn scan_ours() -> anyhow::Result<Scan> {
    let scan = expiry_scan(CONNECTIONS, DUE, &clock::nanos);
    anyhow::ensure!(scan.found == DUE, "forebay found {} due instead of {DUE}", scan.found);
    Ok(scan)
}

/// deadpool's way: look at every idle connection. The test is cheaper than the one its documentation suggests, which
/// reads the clock for each; those that go are spread evenly, as they are where lives differ.
fn scan_deadpool(runtime: &Runtime) -> anyhow::Result<f64> {
    let pool = runtime.block_on(Deadpool::filled(CONNECTIONS))?;
    let watch = Stopwatch::start();
    let result = pool.inner().retain(|number, _| number % (CONNECTIONS / DUE) as u64 != 0);
    let took = watch.elapsed();
    let removed = result.removed.len();
    anyhow::ensure!(removed == DUE, "deadpool removed {removed} instead of {DUE}");
    Ok(took.as_secs_f64() * 1e6)
}

/// Measures both.
///
/// # Errors
/// If a scan finds something else than what is due.
pub fn measure(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
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
    let scan = Table { name: what.clone(), unit: MICROSECONDS, rows };
    // The first was the warm-up. deadpool's is not shown: it holds its lock from the beginning of a scan to its end.
    holds.remove(0);
    let hold = Table {
        name: format!("{what}: longest hold of the lock in a scan"),
        unit: MICROSECONDS,
        rows: vec![Figures::of(Forebay::NAME, holds)?],
    };
    report.goal(what, scan.median(Forebay::NAME)?, Bound::AtMost(10.0), MICROSECONDS);
    report.goal(
        format!("{}: faster than deadpool's retain", scan.name),
        times_less(&scan, Forebay::NAME, &[Deadpool::NAME])?,
        Bound::AtLeast(20.0),
        "times",
    );
    report.goal(hold.name.clone(), hold.median(Forebay::NAME)?, Bound::AtMost(5.0), MICROSECONDS);
    report.tables.extend([scan, hold]);
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "a scan of less than 100 days")]
fn microseconds(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}
