//! `forebay plan`, as its users meet it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use super::{forebay, text};

/// A folder of its own for each test.
fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("plan-{test}"));
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

fn json(arguments: &[&str]) -> Value {
    let output = forebay(arguments);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{arguments:?}: {}", text(&output.stderr)))
}

/// The command with these variables, and none of the caller's that it reads.
fn with_variables(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.env_clear().args(arguments).envs(variables.iter().copied());
    command.output().expect("the command starts")
}

/// The manual shows what the command prints.
#[test]
fn the_manual_s_example_is_true() {
    let manual = fs::read_to_string("../../docs/plan.md").expect("the manual");
    let examples: Vec<(&str, &str)> = manual
        .split("```")
        .filter_map(|block| block.strip_prefix("text\n$ forebay ")?.split_once('\n'))
        .collect();
    assert_eq!(examples.len(), 2);
    for (line, expected) in examples {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let output = forebay(&arguments);
        let printed = text(&output.stdout);
        // Of a check, the manual shows the comparison.
        let is_true =
            if line.ends_with("--check") { printed.ends_with(expected) } else { printed == expected };
        assert!(is_true, "{line}:\n{printed}\n{}", text(&output.stderr));
        assert_eq!(output.status.code(), Some(0));
        assert!(expected.lines().all(|line| line.chars().count() <= 80), "{line} is too wide");
    }
}

/// The table of deployments in the specification.
#[test]
fn the_specification_s_deployments() {
    for (shape, total, headroom) in
        [("4x2x2x25", 400, 96), ("4x5x2x50", 2_000, 80), ("4x10x2x50", 4_000, 60), ("4x20x2x50", 8_000, 20)]
    {
        let plan = json(&["plan", shape, "--json"]);
        assert_eq!(plan["fleet"]["connections"], total, "{shape}");
        assert_eq!(plan["fleet"]["headroom_percent"], headroom, "{shape}");
        let kinds: Vec<&str> = plan["warnings"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|warning| warning["kind"].as_str())
            .collect();
        assert!(!kinds.contains(&"headroom"), "{shape}: {kinds:?}");
    }
    let above = json(&["plan", "4x20x2x51", "--json"]);
    assert!(above["warnings"].to_string().contains("82 % of the cluster's connections"), "{above:#}");
}

/// Its sizing guidelines, its steady rate and its fill time.
#[test]
fn the_specification_s_sizes_and_rates() {
    for (pool, watermark, low) in [
        ("10", "auto", 10),
        ("50", "auto", 50),
        ("50", "half", 25),
        ("100", "auto", 100),
        ("500", "auto", 250),
    ] {
        let plan = json(&["plan", "--connections", pool, "--watermark", watermark, "--json"]);
        let settings = &plan["suggestion"]["settings"];
        assert_eq!(settings["DSQL_MAX_CONNS"], pool);
        assert_eq!(settings["DSQL_RESERVOIR_TARGET_READY"], pool);
        assert_eq!(settings["DSQL_RESERVOIR_LOW_WATERMARK"], low.to_string(), "{pool} {watermark}");
    }
    let pool = json(&["plan", "1x1x1x50", "--json"]);
    let rule = pool["prediction"]["steady_opens_by_lifetime"].as_f64().expect("a number");
    assert!((rule - 0.076).abs() < 0.0005, "50 connections with 11 min: {rule}");
    let steady = pool["prediction"]["steady_opens"].as_f64().expect("a number");
    assert!((0.08..0.09).contains(&steady), "the guard window takes a part of the lifetime: {steady}");
    let arguments =
        ["plan", "1x1x1x50", "--rate-mode", "local", "--local-rate", "100", "--local-burst", "1", "--json"];
    let fill = json(&arguments)["prediction"]["fill_time_of_one"].as_f64().expect("a number");
    assert!((0.4..1.2).contains(&fill), "50 at 100/s take about a second: {fill}");
}

#[test]
fn a_check_passes_and_fits_the_page() {
    let output = forebay(&["plan", "2x2x1x10", "--check", "--seed", "5"]);
    let plan = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{plan}");
    for words in
        ["Check: the suggested settings", "passed: ", "18 of 18 assertions", "fill time of the fleet"]
    {
        assert!(plan.contains(words), "{words} is missing:\n{plan}");
    }
    assert!(plan.lines().all(|line| line.chars().count() <= 80), "{plan}");
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    let again = json(&["plan", "2x2x1x10", "--check", "--seed", "5", "--json"]);
    assert_eq!((&again["check"]["passed"], &again["check"]["seed"]), (&true.into(), &5.into()));
    let rows = again["check"]["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 6);
    // Every row is judged, in both forms.
    assert!(rows.iter().all(|row| row["holds"] == true), "{rows:#?}");
    let shown = plan.lines().filter(|line| line.contains("/s") && line.ends_with("  ok")).count();
    assert_eq!(shown + 1, 6, "and the fill time:\n{plan}");
}

/// Without a shared table, all processes together ask for more than the cluster admits.
#[test]
fn the_cluster_refuses_a_crowd() {
    let arguments = ["plan", "5x100x1x10", "--leases", "off", "--rate-mode", "local"];
    let plan = json(&[&arguments[..], &["--json"]].concat());
    let fill = plan["prediction"]["fill_time"].as_f64().expect("a number");
    // 5,000 connections at 100 a second, after a burst of 1,000; the simulator takes 49 s.
    assert!((40.0..56.0).contains(&fill), "{fill}");
    assert!(plan["prediction"]["refused_opens"].as_u64() > Some(1_000), "{:#}", plan["prediction"]);
    let settings = &plan["suggestion"]["settings"];
    assert_eq!(settings["DSQL_CONNECTION_RATE_LIMIT"], "0.2", "500 processes are 100/s together");
    assert_eq!(settings["DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED"], "true");
    let output = forebay(&arguments);
    let shown = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("refused, cold start about"), "{shown}");
    let remedy = "Remedy: share the rate: --rate-mode bucket; or --local-rate 0.2 --local-burst 2.";
    assert!(shown.contains(remedy), "{shown}");
    let small = [&arguments[..], &["--local-rate", "0.2", "--local-burst", "2", "--json"]].concat();
    assert_eq!(json(&small)["prediction"]["refused_opens"], 0);
    let many = forebay(&["plan", "5x300x1x2", "--leases", "off", "--rate-mode", "local"]);
    let shown = text(&many.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("so many processes cannot stay within it on their own"), "{shown}");
}

#[test]
#[cfg(unix)]
fn an_interrupt_ends_a_check_cleanly() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::Stdio;

    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["plan", "6x30x1x50", "--check"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
    // It listens for signals before it prints the plan.
    assert!(lines.any(|line| line.is_ok_and(|line| line.starts_with("DSQL_CONNECTION_BURST_LIMIT"))));
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(kill.success());
    let status = child.wait().expect("it ends");
    let mut stderr = String::new();
    child.stderr.take().expect("it was piped").read_to_string(&mut stderr).expect("text");
    assert_eq!(status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("the check ended early"), "{stderr}");
    assert_eq!(lines.count(), 0, "no comparison");
}

#[test]
fn the_env_file_is_what_from_env_reads() {
    let file = folder("env-file").join("fleet.env");
    let path = file.to_str().expect("a plain path");
    let output = forebay(&["plan", "4x10x2x50", "--table", "leases", "--env-file", path]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout).replace(['\n', ' '], "");
    assert!(shown.contains(&format!("Theyarein{path}.").replace(' ', "")), "{shown}");
    assert!(!shown.contains("DSQL_MAX_CONNS="), "they are in the file");
    let settings = fs::read_to_string(&file).expect("the file");
    let variables: Vec<(&str, &str)> = settings.lines().filter_map(|line| line.split_once('=')).collect();
    assert!(variables.contains(&("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "leases")), "{settings}");
    let again = with_variables(
        &["plan", "--from-env", "--services", "4", "--instances", "10", "--pools", "2", "--json"],
        &variables,
    );
    let again: Value = serde_json::from_slice(&again.stdout).expect("stdout is one JSON object");
    assert_eq!(
        (&again["fleet"]["connections"], &again["fleet"]["lifetime"]),
        (&4_000.into(), &3300.0.into())
    );
    assert_eq!((&again["warnings"], &again["notes"]), (&Value::Array(Vec::new()), &Value::Array(Vec::new())));
    let first: Value = json(&["plan", "4x10x2x50", "--table", "leases", "--json"]);
    assert_eq!(again["suggestion"], first["suggestion"], "a suggestion suggests itself");
    let refused = forebay(&["plan", "--env-file", "/dev/null/fleet.env"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("cannot write /dev/null/fleet.env"), "{}", text(&refused.stderr));
}

#[test]
fn a_wrong_environment_is_a_clear_error() {
    let variables = [("DSQL_RESERVOIR_GUARD_WINDOW", "45"), ("DSQL_MAX_CONNS", "none")];
    let refused = with_variables(&["plan", "--from-env"], &variables);
    let stderr = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("DSQL_RESERVOIR_GUARD_WINDOW is") && stderr.contains("DSQL_MAX_CONNS"),
        "{stderr}"
    );
    // Programs are told, too.
    let refused = with_variables(&["plan", "--from-env", "--json"], &variables);
    let told: Value = serde_json::from_slice(&refused.stdout).expect("stdout is one JSON object");
    assert_eq!(refused.status.code(), Some(2));
    assert!(told["error"].as_str().is_some_and(|error| error.contains("DSQL_MAX_CONNS")), "{told:#}");
    let ignored = with_variables(&["plan"], &variables);
    assert!(ignored.status.success(), "the environment is not read unless asked");
}

#[test]
fn bad_input_names_the_remedy() {
    for (arguments, expected) in [
        (&["plan", "4x10"][..], "such as 4x10x2x50"),
        (&["plan", "4x10x2x50", "--pools", "3"], "cannot be used with"),
        (&["plan", "--instances", "0"], "0 is not in 1..=20000"),
        (&["plan", "--lifetime", "11"], "a time with a unit, such as 45s"),
        (&["plan", "--lifetime", "0s"], "at least 1s"),
        (&["plan", "--jitter", "1000h"], "at most 168h"),
        (&["plan", "--local-rate", "0"], "from 0.001 to 100000"),
        (&["plan", "--local-rate", "NaN"], "from 0.001 to 100000"),
        (&["plan", "99999999999999999999x1x1x1"], "such as 4x10x2x50"),
        (&["plan", "18446744073709551615x2x2x2"], "lower --instances"),
        (&["plan", "--rate", "fast"], "invalid value 'fast' for '--rate"),
        (&["plan", "--write-price", "free"], "expected dollars"),
        (&["plan", "--leases", "led"], "ledger"),
        (&["plan", "1000x1000x1x1"], "lower --instances"),
        (&["plan", "--startup-jitter", "11m"], "lower --startup-jitter"),
        (&["plan", "--seed", "1"], "--check"),
    ] {
        let refused = forebay(arguments);
        let (stdout, stderr) = (text(&refused.stdout), text(&refused.stderr));
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected) && stdout.is_empty(), "{arguments:?}: {stderr}");
    }
}

#[test]
fn absurd_environments_are_planned_or_refused_and_never_hang() {
    let slow = [
        ("DSQL_CONNECTION_RATE_LIMIT", "1e-300"),
        ("DSQL_CONNECTION_BURST_LIMIT", "1000"),
        ("DSQL_MAX_CONNS", "2000"),
    ];
    let fast = [("DSQL_CONNECTION_RATE_LIMIT", "1e300"), ("DSQL_CONNECTION_BURST_LIMIT", "4294967295")];
    let long = [("DSQL_RESERVOIR_BASE_LIFETIME", "1000000h"), ("DSQL_RESERVOIR_LIFETIME_JITTER", "1000000h")];
    let short = [
        ("DSQL_RESERVOIR_BASE_LIFETIME", "1ns"),
        ("DSQL_RESERVOIR_GUARD_WINDOW", "0s"),
        ("DSQL_RESERVOIR_LIFETIME_JITTER", "0s"),
    ];
    for (variables, status) in [(&slow[..], 0), (&fast, 0), (&long, 0), (&short, 2)] {
        let output = with_variables(&["plan", "--from-env", "--instances", "20"], variables);
        assert_eq!(output.status.code(), Some(status), "{variables:?}: {}", text(&output.stderr));
    }
}

/// Settings with which nothing works are planned, too: with warnings, and with settings that work.
#[test]
fn absurd_settings_get_warnings_and_never_a_panic() {
    for arguments in [
        &["--guard-window", "168h"][..],
        &["--lifetime", "1s", "--jitter", "168h"],
        &["--lifetime", "168h", "--jitter", "0s", "--guard-window", "0s"],
        &["--rate", "1", "--burst", "1", "--connections", "20000"],
        &["--rate", "100000", "--burst", "1000000"],
        &["--cluster-limit", "1", "--instances", "20000", "--connections", "9"],
        &["--limit", "1", "--instances", "7"],
        &["--leases", "off", "--rate-mode", "window", "--instances", "50"],
        &["--leases", "counter", "--rate-mode", "local", "--instances", "50"],
        &["--connections", "1000000"],
        &[
            "--connections",
            "1000000",
            "--cluster-limit",
            "1000000",
            "--leases",
            "off",
            "--rate-mode",
            "local",
        ],
        &[
            "--instances",
            "20000",
            "--connections",
            "50",
            "--cluster-limit",
            "1000000",
            "--leases",
            "off",
            "--rate-mode",
            "local",
        ],
        &["--rate-mode", "local", "--leases", "off", "--local-rate", "0.001", "--local-burst", "1"],
        &["--startup-jitter", "10m", "--restart-pause", "168h", "--instances", "3"],
    ] {
        let output = forebay(&[&["plan"], arguments].concat());
        let plan = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        assert!(plan.contains("DSQL_RESERVOIR_BASE_LIFETIME="), "{arguments:?}:\n{plan}");
        assert!(plan.lines().all(|line| line.chars().count() <= 80), "{arguments:?}:\n{plan}");
    }
}
