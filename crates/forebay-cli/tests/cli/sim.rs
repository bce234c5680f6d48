//! `forebay sim`, as its users meet it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::{forebay, text};

/// A folder of its own for each test.
fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

fn json(arguments: &[&str]) -> Value {
    let output = forebay(arguments);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{arguments:?}: {}", text(&output.stderr)))
}

#[test]
fn alone_it_runs_local() {
    let output = forebay(&["sim"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let summary = text(&output.stdout);
    assert!(summary.starts_with("local, seed 42: 4 instances, 200 connections"), "{summary}");
    assert!(summary.contains("14 of 14 hold") && output.stderr.is_empty(), "{summary}");
}

#[test]
fn the_shipped_scenarios_are_listed() {
    let output = forebay(&["sim", "--list"]);
    let list = text(&output.stdout);
    for name in ["local", "ecs-400wps-capped", "region-10k", "cluster-failover"] {
        assert!(list.lines().any(|line| line.starts_with(name)), "{list}");
    }
    assert!(list.lines().all(|line| line.ends_with('.')), "{list}");
}

#[test]
fn a_failed_assertion_is_status_1_and_can_be_replayed() {
    let settings = ["--set", "assertConvergeWithin=1s", "--set", "duration=1m"];
    let arguments: Vec<&str> =
        ["sim", "mass-drop", "--seed", "7", "--json"].into_iter().chain(settings).collect();
    let output = forebay(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let first: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&first["passed"], &first["seed"]), (&false.into(), &7.into()));
    let replay = first["replay"].as_str().expect("how to replay it");
    let words: Vec<&str> = replay.split(' ').skip(1).chain(["--json"]).collect();
    let again = json(&words);
    assert_eq!(first["trace_hash"], again["trace_hash"], "{replay}");
    let plain = forebay(&["sim", "--set", "assertConvergeWithin=1s"]);
    let summary = text(&plain.stdout);
    assert!(
        summary.contains("FAILED        assertConvergeWithin") && summary.contains("replay"),
        "{summary}"
    );
}

#[test]
fn a_wrong_argument_or_file_is_status_2_with_a_remedy() {
    let folder = folder("wrong");
    let file = folder.join("fleet.yaml");
    fs::write(&file, "duration: 5m\nservices:\n  - name: a\n    guardWindow: 20m\n    colour: red\n")
        .expect("a file");
    let file = file.to_str().expect("a plain name");
    let missing = folder.join("missing/rows.csv");
    let missing = missing.to_str().expect("a plain name");
    for (arguments, expected) in [
        (&["sim", file][..], "fleet.yaml:4: services[0].guardWindow: 20m0s is not below the shortest life"),
        (&["sim", file], "fleet.yaml:5: services[0].colour: unknown key"),
        (&["sim", "locl"], "there is no scenario 'locl'; did you mean local? forebay sim --list"),
        (&["sim", "--keep-going"], "--seeds"),
        (&["sim", "--out", "same", "--report", "same"], "same is given twice"),
        (&["sim", file, "--report", file], "is given twice"),
        (&["sim", "nowhere.yaml"], "cannot read nowhere.yaml"),
        (
            &["sim", "--set", "limiterPerSec=fast"],
            "--set limiterPerSec=fast: limiterPerSec: 'fast' is not a number",
        ),
        (&["sim", "--set", "limiterPerSec"], "expected path=value"),
        (&["sim", "--seeds", "9..1"], "the first seed is greater than the last"),
        (&["sim", "--seeds", "1..9", "--seed", "4"], "cannot be used with"),
        (&["sim", "--out", missing], "cannot write"),
        (&["sim", "--report", missing], "cannot write"),
    ] {
        let output = forebay(arguments);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected) && stdout.is_empty(), "{arguments:?}: {stderr}");
    }
}

#[test]
fn rows_and_the_report_are_written() {
    let folder = folder("files");
    let (rows, page) = (folder.join("rows.csv"), folder.join("page.html"));
    let output = forebay(&[
        "sim",
        "mass-drop",
        "--out",
        rows.to_str().expect("a plain name"),
        "--report",
        page.to_str().expect("a plain name"),
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = fs::read_to_string(rows).expect("the rows");
    assert_eq!(rows.lines().count(), 1 + 4 * 901, "a header, and four instances at each second");
    assert!(rows.starts_with("t_rfc3339,service,size,target,in_use,"), "{}", &rows[..100]);
    let page = fs::read_to_string(page).expect("the page");
    assert!(page.starts_with("<!doctype html>") && page.contains("forebay sim mass-drop --seed 42"));
}

#[test]
fn many_seeds_name_the_first_that_fails() {
    let passed = json(&["sim", "--seeds", "1..6", "--json"]);
    assert_eq!((&passed["passed"], &passed["run"]), (&true.into(), &6.into()));
    assert!(passed["first_failure"].is_null() && passed["replay"].is_null());
    let output = forebay(&["sim", "--seeds", "3..6", "--set", "assertConvergeWithin=1s"]);
    assert_eq!(output.status.code(), Some(1));
    let summary = text(&output.stdout);
    assert!(summary.contains("the first seed that fails is 3"), "{summary}");
    let all = json(&["sim", "--seeds", "3..6", "--keep-going", "--set", "assertConvergeWithin=1s", "--json"]);
    assert_eq!((&all["run"], &all["failed"]), (&4.into(), &4.into()));
    assert!(summary.contains("forebay sim local --seed 3 --set assertConvergeWithin=1s"), "{summary}");
}

#[test]
#[cfg(unix)]
fn an_interrupt_ends_it_cleanly() {
    use std::io::Read;
    use std::process::Stdio;

    let folder = folder("interrupt");
    let (rows, part) = (folder.join("rows.csv"), folder.join("rows.csv.part"));
    fs::write(&rows, "as it was").expect("a file");
    let _ = fs::remove_file(&part);
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["sim", "region-10k", "--out", rows.to_str().expect("a plain name")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // It listens for signals before it writes the first row, and rows come through a buffer: at the first, it
    // runs.
    while fs::metadata(&part).map_or(0, |file| file.len()) == 0 {
        std::thread::yield_now();
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(kill.success());
    let status = child.wait().expect("it ends");
    let mut stderr = String::new();
    child.stderr.take().expect("it was piped").read_to_string(&mut stderr).expect("text");
    assert_eq!(status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("nothing was written"), "{stderr}");
    assert_eq!(fs::read_to_string(&rows).expect("the old file"), "as it was");
    assert!(!part.exists(), "and nothing else is left");
}
