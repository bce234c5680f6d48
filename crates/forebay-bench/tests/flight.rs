//! The subcommands for Flight SQL run, and their counts do not depend on the speed of the machine.

use std::process::Command;

use serde_json::Value;

/// The report of one section.
fn report(subcommand: &str, section: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay-bench"))
        .args([subcommand, "--quick", "--json", "--only", section])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The goals of one section.
fn goals(subcommand: &str, section: &str) -> Vec<Value> {
    let report = report(subcommand, section);
    let goals = report["goals"].as_array().unwrap().clone();
    assert!(!goals.is_empty(), "{report:#}");
    goals
}

/// The goals that count something instead of timing it.
fn counts(goals: Vec<Value>) -> Vec<Value> {
    let is_timed = |goal: &Value| ["s", "ms", "times"].contains(&goal["unit"].as_str().unwrap());
    let counts: Vec<Value> = goals.into_iter().filter(|goal| !is_timed(goal)).collect();
    assert!(!counts.is_empty());
    counts
}

fn assert_reached(goals: &[Value]) {
    for goal in goals {
        assert_eq!(goal["ok"], true, "{goal:#}");
    }
}

#[test]
fn select_has_numbers_of_every_client_for_each_number_of_callers() {
    let report = report("flight", "select");
    let measured = |peer: &str| {
        let goals = report["goals"].as_array().unwrap().iter();
        goals
            .filter(|goal| goal["name"].as_str().unwrap().ends_with(&format!("against {peer}")))
            .filter(|goal| goal["value"].as_f64().is_some_and(|times| times > 0.0))
            .count()
    };
    assert_eq!(measured("a bare client"), 4, "{report:#}");
    assert_eq!(measured("bare clients in a deadpool"), 1, "{report:#}");
    // Without the driver, a note says how to get it.
    let has_driver = !report["notes"].to_string().contains("crates/forebay-bench/adbc gets it");
    assert_eq!(measured("a pool over ADBC"), usize::from(has_driver), "{report:#}");
}

#[test]
fn parallel_has_a_number() {
    assert!(goals("flight", "parallel")[0]["value"].as_f64().is_some_and(|times| times > 1.0));
}

#[test]
fn a_server_that_is_killed_runs_nothing_twice() {
    assert_reached(&counts(goals("flight", "restart")));
}

#[test]
fn dropped_calls_leave_nothing_behind() {
    assert_reached(&counts(goals("flight", "drops")));
}

#[test]
fn a_cancelled_statement_stops_on_the_server() {
    // The program itself asserts that the statement stops; the test does not assert how soon.
    assert!(goals("flight-cancel", "stop").iter().all(|goal| goal["value"].is_number()));
}

#[test]
fn servers_without_cancellation_cost_no_capacity_and_no_sessions_beyond_the_budget() {
    assert_reached(&counts(goals("flight-cancel", "stubborn")));
}

#[test]
fn many_rows_need_little_memory() {
    let goals = goals("flight-cancel", "rows");
    assert_reached(&goals.into_iter().filter(|goal| goal["unit"] == "MB").collect::<Vec<_>>());
}

#[test]
fn a_slow_consumer_holds_the_server_back() {
    assert_reached(&counts(goals("flight-cancel", "consumer")));
}

#[test]
fn loading_has_a_number() {
    assert!(goals("flight-cancel", "ingest")[0]["value"].as_f64().is_some_and(|times| times > 0.0));
}
