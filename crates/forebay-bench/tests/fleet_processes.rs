//! Real processes that are killed at random, and histories on two tables: the short version of
//! `forebay-bench fleet-processes --long`.

use std::process::Command;

use serde_json::Value;

#[test]
fn a_budget_on_dynamodb_keeps_its_promises() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_forebay-bench")).args(["fleet-processes", "--json"]).output();
    let output = output.unwrap();
    let (json, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}{errors}"));
    let goals = report["goals"].as_array().unwrap();
    assert_eq!(goals.len(), 6, "{report:#}");
    let missed: Vec<&Value> = goals.iter().filter(|goal| goal["ok"] != true).collect();
    assert!(missed.is_empty(), "{missed:#?}\n{errors}");
    let most = goals[0]["value"].as_f64().unwrap();
    assert!(most >= 100.0, "too few connections to prove anything: {most}");
}
