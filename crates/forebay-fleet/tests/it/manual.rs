//! The manual lists every metric.

use forebay_fleet::metrics;

const MANUAL: &str = include_str!("../../../../docs/fleet.md");

#[test]
fn it_lists_every_metric() {
    let table = metrics::manual("dsql");
    assert!(MANUAL.contains(&table), "put this into docs/fleet.md:\n{table}");
}
