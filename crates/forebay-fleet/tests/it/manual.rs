//! The manual lists every metric.

use forebay_fleet::metrics;

#[test]
fn it_lists_every_metric() {
    let manual =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fleet.md")).unwrap();
    let table = metrics::manual("dsql");
    assert!(manual.contains(&table), "put this into docs/fleet.md:\n{table}");
}
