//! The manual lists every metric.

use forebay::metrics::{BUCKETS, Kind};
use forebay_fleet::metrics;

#[test]
fn it_lists_every_metric() {
    let manual =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fleet.md")).unwrap();
    let table = metrics::manual("dsql");
    assert!(manual.contains(&table), "put this into docs/fleet.md:\n{table}");
}

#[test]
fn every_histogram_has_buckets() {
    for metric in metrics::ALL.iter().filter(|metric| metric.kind == Kind::Histogram) {
        let name = metric.full_name("dsql");
        assert!(BUCKETS.iter().any(|(end, _)| name.ends_with(end)), "{name}");
    }
}
