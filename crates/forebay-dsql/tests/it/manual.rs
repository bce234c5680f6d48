//! The manual says what the code does.

use forebay::metrics::{BUCKETS, Kind};
use forebay_dsql::{Options, metrics, pool_metrics};

const PAGE: &str = include_str!("../../../../docs/dsql.md");

#[test]
fn the_page_lists_every_metric() {
    let table = metrics::manual();
    assert!(PAGE.contains(&table), "docs/dsql.md lacks this table:\n{table}");
}

#[test]
fn every_histogram_has_buckets() {
    let all = metrics::ALL.iter().chain(pool_metrics::ALL);
    for metric in all.filter(|metric| metric.kind == Kind::Histogram) {
        assert!(BUCKETS.iter().any(|(end, _)| metric.name.ends_with(end)), "{}", metric.name);
    }
}

#[test]
fn the_page_lists_every_key_of_a_url_and_every_variable_of_the_options() {
    let rows: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("| ")).collect();
    for (key, value, variable) in [
        ("region", "eu-west-1", "REGION"),
        ("address", "127.0.0.1", "PGHOSTADDR"),
        ("root_file", "tests/it/root.pem", "PGSSLROOTCERT"),
        ("direct_tls", "true", "PGSSLNEGOTIATION"),
        ("application_name", "x", "PGAPPNAME"),
        ("pool", "x", ""),
    ] {
        let url = format!("dsql://abc.dsql.us-east-1.on.aws?{key}={value}");
        assert!(Options::from_url(&url).is_ok(), "{key}");
        let listed = |row: &&&str| row.contains(&format!("| `{key}` |")) && row.contains(variable);
        assert!(rows.iter().any(|row| listed(&row)), "{key} and {variable}");
    }
}
