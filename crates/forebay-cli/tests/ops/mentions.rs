//! What the operators' material mentions exists: variables, metrics, commands, and faults of the doctor.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_dsql::{metrics as dsql, pool_metrics, variables};

use crate::process::repository;

/// Every file of `ops/` and of the runbooks, with its text.
fn files() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![repository().join("ops"), repository().join("docs/runbooks")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                files.push((path, text));
            }
        }
    }
    assert!(files.len() > 30);
    files
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// The words that begin with `beginning`.
fn words<'a>(text: &'a str, beginning: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(|one: char| !one.is_ascii_alphanumeric() && one != '_')
        .filter(move |word| word.starts_with(beginning) && word.len() > beginning.len())
}

/// Code in backquotes, outside of blocks.
fn inline_code(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2).flat_map(|part| part.split('`').skip(1).step_by(2))
}

#[test]
fn every_variable_exists() {
    let known: BTreeSet<String> = variables::all().map(|variable| variable.full_name("DSQL")).collect();
    for (path, text) in files() {
        for word in words(&text, "DSQL_") {
            assert!(known.contains(word), "{}: there is no {word}", path.display());
        }
    }
}

#[test]
fn every_metric_exists() {
    let mut known: BTreeSet<String> = BTreeSet::new();
    let prefixed = forebay::metrics::ALL.iter().chain(forebay_fleet::metrics::ALL);
    known.extend(prefixed.map(|metric| metric.full_name("dsql")));
    known.extend(dsql::ALL.iter().chain(pool_metrics::ALL).map(|metric| metric.name.to_owned()));
    for (path, text) in files() {
        // The names of recording rules contain colons; promtool checks those.
        let text: String = text.split_whitespace().filter(|word| !word.contains(":dsql_")).fold(
            String::new(),
            |mut text, word| {
                text.push_str(word);
                text.push(' ');
                text
            },
        );
        for word in words(&text, "dsql_") {
            let of_histogram = ["_bucket", "_sum", "_count"];
            let word = of_histogram.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
            // A command may look for several: `dsql_reservoir_(size|target)`, `dsql_tx_latency_(sum|count)`.
            let exists = known.contains(word)
                || word.strip_suffix('_').is_some_and(|start| {
                    known.contains(start) || known.iter().any(|metric| metric.starts_with(word))
                });
            assert!(exists, "{}: there is no {word}", path.display());
        }
    }
}

#[test]
fn every_command_exists() {
    let mut commands: BTreeSet<Vec<String>> = BTreeSet::new();
    for (_, text) in files().iter().filter(|(path, _)| is_page(path)) {
        for code in inline_code(text).filter_map(|code| code.strip_prefix("forebay ")) {
            let words =
                code.split_whitespace().take_while(|word| word.chars().all(|one| one.is_ascii_lowercase()));
            commands.insert(words.map(str::to_owned).collect());
        }
    }
    assert!(commands.len() > 5, "{commands:?}");
    for command in commands {
        let mut forebay = Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output = forebay.args(&command).arg("--help").output().unwrap();
        assert!(output.status.success(), "forebay {}: {:?}", command.join(" "), output);
    }
}

#[test]
fn every_fault_of_the_doctor_exists() {
    let manual = std::fs::read_to_string(repository().join("docs/doctor.md")).unwrap();
    let is_fault =
        |code: &&str| code.contains('-') && code.chars().all(|one| one.is_ascii_lowercase() || one == '-');
    let mut count = 0;
    for (path, text) in files().iter().filter(|(path, _)| is_page(path)) {
        for fault in inline_code(text).filter(is_fault) {
            assert!(manual.contains(&format!("| `{fault}` |")), "{}: there is no {fault}", path.display());
            count += 1;
        }
    }
    assert!(count > 10);
}
