//! Counts the allocations of a checkout and return, and prints them as JSON. `forebay-bench checkout` runs
//! it.

use allocation_counter::measure;

fn main() -> anyhow::Result<()> {
    println!("{}", forebay_bench::count_allocations(|run| measure(run).count_total)?);
    Ok(())
}
