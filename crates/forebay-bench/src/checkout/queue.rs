//! How long the lock is held while fifty thousand callers wait.

use forebay::bench::{QueueHolds, queue_holds};

use super::Effort;
use crate::clock;
use crate::race::Figures;
use crate::report::{Report, Table};
use crate::section::progress;

const CALLERS: usize = 50_000;
const MICROSECONDS: &str = "us";

/// Measures what concerns one caller, and the parts of what concerns all of them.
pub(super) fn measure(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    progress(&format!("holds of the lock while {CALLERS} callers wait"));
    // The first is the warm-up.
    let rounds: Vec<_> = (0..=effort.rounds).map(|_| queue_holds(CALLERS, &clock::nanos)).skip(1).collect();
    let figures = |name, hold: fn(&QueueHolds) -> u64| {
        Figures::of(name, rounds.iter().map(|holds| hold(holds) as f64 / 1e3).collect())
    };
    let rows = vec![
        figures("a caller joins", |holds| holds.join)?,
        figures("a caller gives up", |holds| holds.cancel)?,
        figures("a shortage begins", |holds| holds.shortage)?,
        figures("access is denied", |holds| holds.denial)?,
        figures("the reservoir closes", |holds| holds.close)?,
    ];
    let table =
        Table::new(format!("longest hold of the lock while {CALLERS} callers wait"), MICROSECONDS, rows);
    for row in &table.rows {
        report.at_most(format!("{}: {}", table.name, row.name), row.median, 50.0, MICROSECONDS);
    }
    report.tables.push(table);
    Ok(())
}
