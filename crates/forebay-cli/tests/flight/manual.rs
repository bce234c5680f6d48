//! The manual page: its commands give the output that it shows.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::{env, fs};

use crate::server::{Server, text};

const MANUAL: &str = include_str!("../../../../docs/flight-shell.md");

/// The page's blocks of code, each with its language.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let fenced = MANUAL.split("```").skip(1).step_by(2);
    fenced.filter_map(|block| block.split_once('\n')).collect()
}

#[test]
fn the_manuals_examples_give_the_output_that_it_shows() {
    let server = Server::plain("manual");
    fs::create_dir(server.path("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_forebay"), server.path("bin/forebay")).unwrap();
    let path = format!("{}:{}", server.path("bin").display(), env::var("PATH").unwrap());
    let mut tried = 0;
    for pair in blocks().windows(2) {
        let [("sh", script), ("text", expected)] = pair else { continue };
        if script.starts_with("cargo") {
            continue;
        }
        let script = script.replace("grpc://localhost:4214", &server.local.url());
        let output = Command::new("sh").args(["-c", &script]).env("PATH", &path).output().expect("a shell");
        assert_eq!(text(&output.stderr), "", "{script}");
        assert_eq!(text(&output.stdout), *expected, "{script}");
        tried += 1;
    }
    assert_eq!(tried, 4, "each of them");
}

#[test]
fn the_manual_lists_every_option_and_command() {
    let server = Server::plain("listed");
    let help = server.run(&["--help"]);
    let help = text(&help.stdout);
    let options = help
        .split_whitespace()
        .map(|word| word.trim_end_matches([',', '.', ')']))
        .filter(|word| word.starts_with("--"));
    let known = ["--help", "--command", "--timing"];
    for option in options.filter(|option| !known.contains(option)) {
        assert!(MANUAL.contains(option), "the manual lacks {option}");
    }
    let commands = server.prints(&["-c", "\\?"]);
    let commands: Vec<&str> = commands
        .lines()
        .filter_map(|line| line.trim().split(' ').next())
        .filter(|name| name.starts_with('\\'))
        .collect();
    assert!(commands.len() > 8, "{commands:?}");
    for command in commands {
        assert!(MANUAL.contains(&format!("`{command}")), "the manual lacks {command}");
    }
}
