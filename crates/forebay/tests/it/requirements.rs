//! The tests that the manual names for each requirement exist.

use std::path::Path;

const MANUAL: &str = include_str!("../../../../docs/requirements.md");

fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text.push_str(&sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
    text
}

#[test]
fn every_test_it_names_exists() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // The limit across a fleet is in other crates.
    let folders = ["forebay", "forebay-dsql", "forebay-fleet", "forebay-aws", "forebay-bench", "forebay-sim"]
        .map(|name| crates.join(name));
    let sources: String = folders
        .iter()
        .flat_map(|folder| [folder.join("src"), folder.join("tests")])
        .map(|folder| sources(&folder))
        .collect();
    let rows: Vec<&str> =
        MANUAL.lines().filter(|line| line.starts_with("| ") && line.contains('`')).collect();
    assert!(rows.len() > 30, "{} rows", rows.len());
    for row in rows {
        let tests: Vec<&str> = row.rsplit('|').nth(1).unwrap().split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "no test in: {row}");
        for test in tests {
            assert!(sources.contains(&format!("fn {test}(")), "no test is called {test}");
        }
    }
}

#[test]
fn every_criterion_is_there() {
    let criteria = [(1, 6), (2, 7), (3, 6), (4, 5), (5, 5), (6, 6), (7, 4), (8, 6), (9, 2), (10, 4)];
    for (requirement, count) in criteria {
        for criterion in 1..=count {
            let number = format!("| {requirement}.{criterion} ");
            let listed = MANUAL.contains(&number)
                || (requirement == 8 && criterion < 6 && MANUAL.contains("| 8.1 to 8.5 "));
            assert!(listed, "criterion {requirement}.{criterion} is missing");
        }
    }
    for (quality, count) in [("performance", 4), ("reliability", 3), ("scalability", 3)] {
        for number in 1..=count {
            assert!(MANUAL.contains(&format!("| {quality} {number} |")), "{quality} {number} is missing");
        }
    }
}
