//! The programs of the quick starts are the examples that `tests/quick_starts.rs` runs, and the lines for Cargo.toml name what
//! exists.

use std::fs;

use super::page::{Page, root};

const PROGRAMS: [(&str, &str); 6] = [
    ("docs/start/tokio-postgres.md", "crates/forebay-aws/examples/visits_tokio_postgres.rs"),
    ("docs/start/sqlx.md", "crates/forebay-aws/examples/visits_sqlx.rs"),
    ("docs/start/adapters.md", "crates/forebay-aws/examples/visits_deadpool.rs"),
    ("docs/start/adapters.md", "crates/forebay-aws/examples/visits_bb8.rs"),
    ("docs/start/fleet.md", "crates/forebay-aws/examples/visits_fleet.rs"),
    ("docs/start/flight.md", "crates/forebay-flight/examples/visits_flight.rs"),
];

#[test]
fn the_pages_show_the_programs_that_are_tested() {
    for (page, path) in PROGRAMS {
        let program = fs::read_to_string(root().join(path)).expect("the example");
        let page = Page::read(page);
        assert!(
            page.blocks_in("rust").contains(&program.as_str()),
            "put this into {}:\n{program}",
            page.name()
        );
    }
}

/// The value of a key of a dependency, such as `version` in `{ version = "1" }`.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_once(&format!("{key} = \""))?.1.split('"').next()
}

/// What Cargo takes for the same version: the first number, and after a zero the second.
fn compatible(version: &str) -> &str {
    let parts = if version.starts_with("0.") { 2 } else { 1 };
    let end = version.match_indices('.').nth(parts - 1).map_or(version.len(), |(at, _)| at);
    &version[..end]
}

#[test]
fn the_lines_for_cargo_toml_name_crates_features_and_versions_that_exist() {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    let mut checked = 0;
    for page in Page::all() {
        for line in page.blocks_in("toml").into_iter().flat_map(str::lines) {
            let Some((name, rest)) = line.split_once(" = ").filter(|(name, _)| !name.starts_with('#')) else {
                continue;
            };
            let report = |problem: &str| format!("{}: {line}: {problem}", page.name());
            if let Some(path) = value(rest, "path") {
                let (_, folder) =
                    path.split_once("crates/").unwrap_or_else(|| panic!("{}", report("no crate")));
                assert_eq!(folder, name, "{}", report("another name"));
                let manifest = fs::read_to_string(root().join("crates").join(folder).join("Cargo.toml"));
                let manifest = manifest.unwrap_or_else(|_| panic!("{}", report("no such crate")));
                let (_, known) = manifest.split_once("[features]").unwrap_or(("", ""));
                let features = rest.split_once("features = [").and_then(|(_, list)| list.split(']').next());
                for feature in
                    features.unwrap_or_default().split([',', ' ', '"']).filter(|feature| !feature.is_empty())
                {
                    let is_known = known.contains(&format!("\n{feature} = ["));
                    assert!(is_known, "{}", report(&format!("no feature {feature}")));
                }
                checked += 1;
                continue;
            }
            let theirs = value(rest, "version").or_else(|| rest.strip_prefix('"')?.split('"').next());
            let ours = workspace.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
            let ours = ours.and_then(|rest| {
                value(rest, "version").or_else(|| rest.strip_prefix('"')?.split('"').next())
            });
            if let (Some(theirs), Some(ours)) = (theirs, ours) {
                assert_eq!(compatible(theirs), compatible(ours), "{}", report("another version than ours"));
                checked += 1;
            }
        }
    }
    assert!(checked > 30, "only {checked}");
}
