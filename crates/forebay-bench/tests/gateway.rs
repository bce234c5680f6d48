//! The subcommand `gateway` runs, and its counts do not depend on the speed of the machine.

use std::process::Command;

use serde_json::Value;

/// The goals of one section.
fn goals(section: &str) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay-bench"))
        .args(["gateway", "--quick", "--json", "--only", section])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["goals"].as_array().unwrap().clone()
}

#[test]
fn clients_do_not_notice_that_all_idle_backends_are_cut() {
    let goals = goals("cut");
    // Two modes, two servers behind.
    assert_eq!(goals.len(), 4);
    for goal in goals {
        assert_eq!(goal["ok"], true, "{goal:#}");
    }
}

#[test]
fn the_gateway_is_compared_with_pgbouncer() {
    let goals = goals("latency");
    assert_eq!(goals.len(), 2);
    for goal in goals {
        assert!(goal["value"].is_number(), "{goal:#}");
    }
}
