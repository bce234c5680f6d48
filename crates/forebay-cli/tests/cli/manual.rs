//! The figures of the manual are those that the command prints.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::text;

fn page(name: &str) -> String {
    fs::read_to_string(format!("../../docs/{name}")).expect("the page")
}

/// What the command prints, with these variables and none of the caller's, in a folder with the files of the test.
fn printed(folder: &Path, variables: &str, arguments: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(folder).args(arguments.split_whitespace()).env_clear();
    command.envs(variables.split_whitespace().filter_map(|variable| variable.split_once('=')));
    let output = command.output().expect("the command starts");
    assert!(output.status.success(), "{arguments}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("manual-{test}"));
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

/// The scenarios on the page about tuning, in the simulator.
#[test]
fn the_simulations_print_what_the_page_shows() {
    let (folder, page) = (folder("sim"), page("tuning.md"));
    let blocks: Vec<&str> = page.split("```").collect();
    for (before, block) in blocks.iter().zip(&blocks[1..]) {
        let Some(scenario) = block.strip_prefix("yaml\n") else { continue };
        let name = before.rsplit('`').nth(1).expect("Save it as `name`");
        fs::write(folder.join(name), scenario).expect("a file");
    }
    let examples = blocks.iter().filter_map(|block| block.strip_prefix("text\n$ forebay ")?.split_once('\n'));
    let mut shown = 0;
    for (arguments, expected) in examples {
        assert_eq!(printed(&folder, "", arguments), expected, "{arguments}");
        shown += 1;
    }
    assert_eq!(shown, 4);
}

/// Pages, what they show, the call, and what it prints.
const FIGURES: [(&str, &str, &str, &[&str]); 11] = [
    (
        "tuning.md",
        "| 4x2x2x25, 400 connections | 0.669 | 0.123 | 2 to 4 | 2 to 4 |",
        "4x2x2x25 --lifetime 55m",
        &["steady                 0.123/s", "worst second, steady   2 to 4 opens"],
    ),
    (
        "tuning.md",
        "| 4x10x2x50, 4,000 connections | 6.53 | 1.23 | 10 to 18 | 2 to 6 |",
        "4x10x2x50 --lifetime 55m",
        &["steady                 1.23/s", "worst second, steady   2 to 6 opens"],
    ),
    (
        "tuning.md",
        "| 4x20x2x50, 8,000 connections | 13.1 | 2.46 | 18 to 28 | 4 to 12 |",
        "4x20x2x50 --lifetime 55m",
        &["steady                 2.46/s", "worst second, steady   4 to 12 opens"],
    ),
    ("tuning.md", "| 5m | 5m58s | 11.2 |", "4x10x2x50 --guard-window 5m", &["steady                 11.2/s"]),
    ("tuning.md", "| 9m | 1m55s | 34.8 |", "4x10x2x50 --guard-window 9m", &["steady                 34.8/s"]),
    (
        "sizing.md",
        "| small | 4 x 2 x 2 x 25 | 400 | 96 % | 4.9 s |",
        "4x2x2x25",
        &["400 of 10,000, 96 %", "cold start of all      4.9s", "0.669/s"],
    ),
    (
        "sizing.md",
        "| medium | 4 x 5 x 2 x 50 | 2,000 | 80 % | 18 s |",
        "4x5x2x50",
        &["2,000 of 10,000, 80 %", "cold start of all      18s"],
    ),
    (
        "sizing.md",
        "| large | 4 x 10 x 2 x 50 | 4,000 | 60 % | 41 s |",
        "4x10x2x50",
        &[
            "4,000 of 10,000, 60 %",
            "cold start of all      41s",
            "6.53/s",
            "10 to 18 opens",
            "109 write",
            "1.82 write",
        ],
    ),
    (
        "sizing.md",
        "| very large | 4 x 20 x 2 x 50 | 8,000 | 20 % | 1m20s |",
        "4x20x2x50",
        &["8,000 of 10,000, 20 %", "cold start of all      1m20s", "13.1/s", "18 to 28 opens"],
    ),
    ("choose-mode.md", "0.031/s and 0.164/s", "1x1x1x100", &["steady                 0.164/s"]),
    (
        "choose-mode.md",
        "0.031/s and 0.164/s",
        "1x1x1x100 --lifetime 55m",
        &["steady                 0.031/s"],
    ),
];

#[test]
fn the_plans_print_what_the_pages_show() {
    for (name, shown, shape, expected) in FIGURES {
        assert!(page(name).contains(shown), "{name}: {shown}");
        let printed = printed(&folder("plan"), "", &format!("plan {shape}"));
        for figure in expected {
            assert!(printed.contains(figure), "{shape} does not print {figure}:\n{printed}");
        }
    }
}

/// The table below the example configurations.
#[test]
fn the_example_configurations_come_to_what_the_page_shows() {
    let page = page("example-configurations.md");
    let leases = "DSQL_DISTRIBUTED_CONN_LEASE_ENABLED=true DSQL_DISTRIBUTED_CONN_LEASE_TABLE=forebay";
    for (row, connections, guard, fleet, more) in [
        ("| 1 | 1 | 10 | 0.018 | 0.003 |", 10, "45s", "", ""),
        ("| 2 | 1 | 10 | 0.017 | 0.003 |", 10, "30s", "", ""),
        ("| 3 and 6 | 4 | 200 | 0.327 | 0.062 |", 50, "45s", "--instances 4", ""),
        (
            "| 4 and 5 | 4 services of 10 | 2,000 | 3.27 | 0.616 |",
            50,
            "45s",
            "--services 4 --instances 10",
            leases,
        ),
    ] {
        assert!(page.contains(row), "{row}");
        let cells: Vec<&str> = row.split(" | ").collect();
        for (lifetime, opens) in [("11m", cells[3]), ("55m", cells[4].trim_end_matches(" |"))] {
            let variables = format!(
                "DSQL_RESERVOIR_ENABLED=true DSQL_MAX_CONNS={connections} DSQL_RESERVOIR_BASE_LIFETIME={lifetime} \
                 DSQL_RESERVOIR_GUARD_WINDOW={guard} {more}"
            );
            let printed = printed(&folder("examples"), &variables, &format!("plan --from-env {fleet}"));
            assert!(
                printed.contains(&format!("steady                 {opens}/s")),
                "{row} {lifetime}:\n{printed}"
            );
        }
    }
}
