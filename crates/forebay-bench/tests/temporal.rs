//! The subcommand `temporal` runs, and its counts do not depend on the speed of the machine.

use std::process::Command;

use serde_json::Value;

#[test]
fn workflows_are_stored_as_acknowledged_and_none_fails() {
    let load = ["--only", "sustained", "--wps", "3", "--shards", "4", "--workers", "4"];
    let output = Command::new(env!("CARGO_BIN_EXE_forebay-bench"))
        .args(["temporal", "--quick", "--json"])
        .args(load)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let goals = report["goals"].as_array().unwrap();
    let counts: Vec<&Value> =
        goals.iter().filter(|goal| ["failures", "rows"].contains(&goal["unit"].as_str().unwrap())).collect();
    // Failures in both modes, and the rows of all contestants.
    assert_eq!(counts.len(), 3, "{report:#}");
    assert!(counts.iter().all(|goal| goal["ok"] == true), "{report:#}");
    let of_workflows = |table: &&Value| table["name"].as_str().unwrap().ends_with("workflows completed");
    let completed = report["tables"].as_array().unwrap().iter().find(of_workflows).unwrap();
    assert!(completed["contestants"][0]["median"].as_f64().unwrap() > 0.0, "{report:#}");
}
