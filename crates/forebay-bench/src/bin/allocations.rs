//! Counts allocations of a checkout and return. For `forebay-bench`, which runs it.

use allocation_counter::measure;
use forebay_bench::checkout::uncontended::{CONNECTIONS, try_turns, turns};
use forebay_bench::peers::{Bb8, Deadpool, DeadpoolUnmanaged, Forebay, Mobc, Queue, R2d2};
use forebay_bench::pool::{Lend, TryLend};
use serde_json::{Map, Value};
use tokio::runtime::Runtime;

/// Enough for a count that happens once in a while to show.
const TURNS: u32 = 10_000;

fn main() -> anyhow::Result<()> {
    // Only this thread's allocations are counted, so everything runs on it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut counted = Map::new();
    at_once::<Forebay>(&runtime, &mut counted)?;
    at_once::<DeadpoolUnmanaged>(&runtime, &mut counted)?;
    at_once::<R2d2>(&runtime, &mut counted)?;
    at_once::<Queue>(&runtime, &mut counted)?;
    awaited::<Forebay>(&runtime, &mut counted)?;
    awaited::<Deadpool>(&runtime, &mut counted)?;
    awaited::<DeadpoolUnmanaged>(&runtime, &mut counted)?;
    awaited::<Bb8>(&runtime, &mut counted)?;
    awaited::<Mobc>(&runtime, &mut counted)?;
    println!("{}", Value::Object(counted));
    Ok(())
}

fn at_once<P: TryLend>(runtime: &Runtime, counted: &mut Map<String, Value>) -> anyhow::Result<()> {
    let pool = runtime.block_on(P::filled(CONNECTIONS))?;
    let per_turn = per_turn(|turns| try_turns(&pool, turns).map(drop))?;
    counted.insert(format!("{}, a call that never waits", P::NAME), per_turn.into());
    Ok(())
}

fn awaited<P: Lend>(runtime: &Runtime, counted: &mut Map<String, Value>) -> anyhow::Result<()> {
    let pool = runtime.block_on(P::filled(CONNECTIONS))?;
    let per_turn = per_turn(|count| runtime.block_on(turns(pool.clone(), count)).map(drop))?;
    counted.insert(format!("{}, a call that may wait", P::NAME), per_turn.into());
    Ok(())
}

/// The difference between many turns and twice as many, so that what happens once cancels out.
fn per_turn(mut run: impl FnMut(u32) -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut count = |turns| {
        let mut outcome = Ok(());
        let info = measure(|| outcome = run(turns));
        outcome.map(|()| info.count_total)
    };
    let (once, twice) = (count(TURNS)?, count(2 * TURNS)?);
    #[allow(clippy::cast_precision_loss, reason = "some thousands")]
    let more = twice.saturating_sub(once) as f64;
    Ok(more / f64::from(TURNS))
}
