//! The manual says what the code does.

use std::path::Path;

use forebay_gateway::config::{self, ConfigBuilder};
use forebay_gateway::metrics;

const PAGE: &str = include_str!("../../../../docs/gateway.md");

#[test]
fn the_page_lists_every_setting() {
    let table = config::manual();
    assert!(PAGE.contains(&table), "docs/gateway.md lacks this table:\n{table}");
}

#[test]
fn the_page_lists_every_metric() {
    let table = metrics::manual();
    assert!(PAGE.contains(&table), "docs/gateway.md lacks this table:\n{table}");
}

#[test]
fn the_examples_of_configurations_are_valid() {
    let blocks = PAGE.split("```toml\n").skip(1).filter_map(|block| block.split("```").next());
    let examples = blocks.filter(|block| block.contains("listen = ")).collect::<Vec<_>>();
    assert_eq!(examples.len(), 2);
    for example in examples {
        let config = ConfigBuilder::default().toml(Path::new("gateway.toml"), example).build();
        assert!(config.is_ok(), "{config:?}");
    }
}
