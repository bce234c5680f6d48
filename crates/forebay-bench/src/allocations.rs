//! How often a checkout allocates. A separate program counts: a counting allocator slows down every pool that
//! allocates, and so would flatter those that do not.

use std::process::Command;

use anyhow::Context;
use serde_json::{Map, Value};
use tokio::runtime::Runtime;

use crate::checkout::uncontended::{CONNECTIONS, try_turns, turns};
use crate::peers::{Bb8, Deadpool, DeadpoolUnmanaged, Forebay, Lend, Mobc, Pool, Queue, R2d2, TryLend};
use crate::process;
use crate::race::Figures;
use crate::report::Report;
use crate::section::progress;

/// The program that counts. It prints one JSON object: allocations per turn, by name.
const PROGRAM: &str = "forebay-bench-allocations";

/// Enough turns to show an allocation that happens only now and then.
const TURNS: u32 = 10_000;

/// Adds the goal, and what every other pool allocates.
pub(crate) fn measure(report: &mut Report) {
    progress("allocations");
    let rows = rows();
    let ours = format!("{}, a call that never waits", Forebay::NAME);
    let ours = rows.iter().flatten().find(|row| row.name == ours).map(|row| row.median);
    let unit = "allocations/turn";
    report.at_most("uncontended try_checkout + return: allocations", ours, 0.0, unit);
    match rows {
        Ok(rows) => report.table("uncontended checkout and return: allocations", unit, rows),
        Err(error) => report.note(format!("allocations could not be counted: {error:#}")),
    }
}

fn rows() -> anyhow::Result<Vec<Figures>> {
    // `cargo run` builds only the program it runs, so this one may be missing or older than the code.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--release", "--manifest-path", manifest, "--bin", PROGRAM]);
    let counts = process::json_of(&mut command)?;
    let counts = counts.as_object().with_context(|| format!("{PROGRAM} printed no object"))?;
    let rows = counts.iter().map(|(name, count)| {
        let count = count.as_f64().with_context(|| format!("{name} has no count"))?;
        Figures::of(name, vec![count])
    });
    rows.collect()
}

/// Allocations per turn of each pool, by name. `allocations` runs a function and counts its allocations.
///
/// # Errors
/// If a pool does not lend.
pub fn count_allocations(allocations: impl Fn(&mut dyn FnMut()) -> u64) -> anyhow::Result<Value> {
    // Only this thread's allocations are counted, so everything runs on it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut counter = Counter { runtime, allocations, counts: Map::new() };
    counter.never_waiting::<Forebay>()?;
    counter.never_waiting::<DeadpoolUnmanaged>()?;
    counter.never_waiting::<R2d2>()?;
    counter.never_waiting::<Queue>()?;
    counter.awaited::<Forebay>()?;
    counter.awaited::<Deadpool>()?;
    counter.awaited::<DeadpoolUnmanaged>()?;
    counter.awaited::<Bb8>()?;
    counter.awaited::<Mobc>()?;
    Ok(Value::Object(counter.counts))
}

struct Counter<A> {
    runtime: Runtime,
    allocations: A,
    counts: Map<String, Value>,
}

impl<A: Fn(&mut dyn FnMut()) -> u64> Counter<A> {
    fn never_waiting<P: TryLend>(&mut self) -> anyhow::Result<()> {
        let pool = self.runtime.block_on(P::filled(CONNECTIONS))?;
        let count = self.per_turn(|turns| try_turns(&pool, turns).map(drop))?;
        self.counts.insert(format!("{}, a call that never waits", P::NAME), count.into());
        Ok(())
    }

    fn awaited<P: Lend>(&mut self) -> anyhow::Result<()> {
        let pool = self.runtime.block_on(P::filled(CONNECTIONS))?;
        let count = self.per_turn(|count| self.runtime.block_on(turns(pool.clone(), count)).map(drop))?;
        self.counts.insert(format!("{}, a call that may wait", P::NAME), count.into());
        Ok(())
    }

    /// The difference between many turns and twice as many, so that what happens once cancels out.
    fn per_turn(&self, mut run: impl FnMut(u32) -> anyhow::Result<()>) -> anyhow::Result<f64> {
        let mut count = |turns| {
            let mut outcome = Ok(());
            let count = (self.allocations)(&mut || outcome = run(turns));
            outcome.map(|()| count)
        };
        let (once, twice) = (count(TURNS)?, count(2 * TURNS)?);
        Ok(twice.saturating_sub(once) as f64 / f64::from(TURNS))
    }
}
