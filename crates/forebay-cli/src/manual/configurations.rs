//! The example configurations: a service starts with each, and reads of it what the page says.

use std::time::Duration;

use forebay::Config;
use forebay_dsql::EnvReader;

use super::page::Page;

const PAGE: &str = "docs/example-configurations.md";

/// The variables in a block for a shell, a task definition in HCL or a Compose file.
fn variables(language: &str, block: &str) -> Vec<(String, String)> {
    let variable = |line: &str| {
        let (name, value) = match language {
            "sh" => line.trim_start_matches("export ").split_once('=')?,
            "hcl" => line
                .trim()
                .strip_prefix("{ name = \"")?
                .strip_suffix("\" },")?
                .split_once("\", value = \"")?,
            _ => line.trim().strip_suffix('"')?.split_once(": \"")?,
        };
        Some((name.to_owned(), value.to_owned()))
    };
    block.lines().filter(|line| line.contains("DSQL_")).map(|line| variable(line).expect(line)).collect()
}

#[test]
fn each_example_is_read_without_a_repair() {
    let page = Page::read(PAGE);
    let blocks = page.blocks();
    let mut blocks = blocks.iter().filter(|block| block.text.contains("DSQL_RESERVOIR_ENABLED"));
    // Target and watermark, guard window, and whether the cluster is shared.
    for (target, guard, is_shared) in
        [(10, 45, false), (10, 30, false), (50, 45, false), (50, 45, true), (50, 45, true), (50, 45, false)]
    {
        let block = blocks.next().expect("six examples");
        let variables = variables(block.language, block.text);
        let reader = EnvReader::new("DSQL").server_limit(Duration::from_secs(3600));
        let settings = reader.read(variables).unwrap_or_else(|error| panic!("{}\n{error}", block.text));
        assert_eq!(settings.notes, [], "{}", block.text);
        assert!(settings.reservoir_enabled, "{}", block.text);
        assert_eq!(settings.config.fill, Config::default().target_ready(target).low_watermark(target).fill);
        let lifetime = settings.config.lifetime.expect("a lifetime");
        let seconds = [lifetime.base, lifetime.jitter, lifetime.guard].map(|time| time.as_secs());
        assert_eq!(seconds, [660, 120, guard], "{}", block.text);
        let limit = settings.leases.map(|leases| leases.limit);
        assert_eq!(limit, is_shared.then_some(10_000), "{}", block.text);
    }
    assert!(blocks.next().is_none(), "six examples");
}
