//! How often a checkout allocates, as told by a program of its own: a counting allocator would slow down everyone
//! who allocates, and so flatter those who do not.

use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::checkout::progress;
use crate::peers::Forebay;
use crate::pool::Pool;
use crate::race::Figures;
use crate::report::{Bound, Report, Table};

/// The program that counts. It prints one JSON object: allocations of a turn, by name.
const PROGRAM: &str = "forebay-bench-allocations";

/// Adds the goal, and what everyone else allocates.
pub fn measure(report: &mut Report) {
    progress("allocations");
    let rows = count();
    let name = "uncontended try_checkout + return: allocations";
    let ours = rows.as_ref().ok().and_then(|rows| {
        rows.iter()
            .find(|row| row.name == format!("{}, a call that never waits", Forebay::NAME))
            .map(|row| row.median)
    });
    report.goal(name, ours, Bound::AtMost(0.0), "allocations/turn");
    match rows {
        Ok(rows) => report.tables.push(Table {
            name: "uncontended checkout and return: allocations".to_owned(),
            unit: "allocations/turn",
            rows,
        }),
        Err(error) => report.note(format!("allocations could not be counted: {error:#}")),
    }
}

fn count() -> anyhow::Result<Vec<Figures>> {
    // `cargo run` builds only the program it runs, so this one may be missing or older than the code.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let output = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--manifest-path", manifest, "--bin", PROGRAM])
        .output()
        .context("running cargo, which builds the program that counts")?;
    ensure!(output.status.success(), "{PROGRAM} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    let counted: Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("reading {PROGRAM}"))?;
    let counted = counted.as_object().with_context(|| format!("{PROGRAM} printed no object"))?;
    let rows = counted.iter().map(|(name, count)| {
        let count = count.as_f64().with_context(|| format!("{name} has no count"))?;
        Figures::of(name, vec![count])
    });
    rows.collect()
}
