//! The environments in `ops/` are ones that a service starts with.

use std::collections::BTreeMap;
use std::process::Command;

use forebay_dsql::variables;
use serde_json::Value;

use crate::process::repository;

type Environment = BTreeMap<String, String>;

fn file(path: &str) -> String {
    std::fs::read_to_string(repository().join("ops").join(path)).unwrap()
}

/// Puts values for what Terraform, Compose or people fill in.
fn filled(value: &str) -> String {
    let known = [
        ("${cluster}", "abcdefghijklmnopqrstuvwxyz"),
        ("${var.cluster}", "abcdefghijklmnopqrstuvwxyz"),
        ("${region}", "us-east-1"),
        ("${local.region}", "us-east-1"),
        ("${table}", "forebay"),
        ("aws_dynamodb_table.forebay.name", "forebay"),
        ("tostring(var.pool)", "50"),
        ("tostring(var.limit)", "10000"),
        ("${CLUSTER_ENDPOINT:?the host of the cluster}", "abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws"),
        ("${DESK_TOKEN:?at least 16 characters}", "0123456789abcdef"),
    ];
    known.iter().fold(value.to_owned(), |value, (from, to)| value.replace(from, to))
}

fn of_ecs() -> Environment {
    let task: Value = serde_json::from_str(&file("ecs/task-definition.json")).unwrap();
    let container = &task["containerDefinitions"][0];
    let pair = |one: &Value, value: &str| (one["name"].as_str().unwrap().to_owned(), filled(value));
    let plain = container["environment"].as_array().unwrap();
    let plain = plain.iter().map(|one| pair(one, one["value"].as_str().unwrap()));
    let secrets = container["secrets"].as_array().unwrap().iter().map(|one| pair(one, "0123456789abcdef"));
    plain.chain(secrets).collect()
}

fn of_compose() -> Environment {
    let text = file("compose/compose.yaml");
    let lines = text.lines().skip_while(|line| line.trim() != "environment:").skip(1);
    let lines = lines.take_while(|line| line.starts_with("      ")).map(str::trim);
    let pairs = lines.filter(|line| !line.starts_with('#')).map(|line| line.split_once(": ").unwrap());
    pairs.map(|(name, value)| (name.to_owned(), filled(value).trim_matches('"').to_owned())).collect()
}

fn of_terraform() -> Environment {
    let text = file("terraform/environment.tf");
    let pairs = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.trim().strip_prefix("{ name = \"")?.split_once("\", value = "));
    let pairs = pairs.map(|(name, value)| (name, value.trim_end_matches(" },")));
    pairs.map(|(name, value)| (name.to_owned(), filled(value).trim_matches('"').to_owned())).collect()
}

#[test]
fn every_variable_exists_and_a_service_accepts_its_value() {
    let known: Vec<String> = variables::all().map(|variable| variable.full_name("DSQL")).collect();
    for (place, environment) in [("ecs", of_ecs()), ("compose", of_compose()), ("terraform", of_terraform())]
    {
        assert!(environment.len() > 10, "{place}: {environment:?}");
        for name in environment.keys().filter(|name| !name.starts_with("AWS_")) {
            assert!(known.contains(name), "{place}: there is no variable {name}");
        }
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output = doctor
            .env_clear()
            .envs(&environment)
            .args(["doctor", "--only", "configuration"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{place}: {said}");
        assert!(!said.contains("${"), "{place}: {said}");
    }
}

/// These are the values of the specification.
#[test]
fn the_reservoir_is_that_of_the_specification() {
    let reservoir = [
        ("DSQL_RESERVOIR_ENABLED", "true"),
        ("DSQL_RESERVOIR_TARGET_READY", "50"),
        ("DSQL_RESERVOIR_LOW_WATERMARK", "50"),
        ("DSQL_RESERVOIR_BASE_LIFETIME", "11m"),
        ("DSQL_RESERVOIR_LIFETIME_JITTER", "2m"),
        ("DSQL_RESERVOIR_GUARD_WINDOW", "45s"),
    ];
    let leases = [("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true"), ("DSQL_DISTRIBUTED_CONN_LIMIT", "10000")];
    for environment in [of_ecs(), of_compose(), of_terraform()] {
        for (name, value) in reservoir {
            assert_eq!(environment.get(name).map(String::as_str), Some(value), "{name}");
        }
    }
    for environment in [of_ecs(), of_terraform()] {
        for (name, value) in leases {
            assert_eq!(environment.get(name).map(String::as_str), Some(value), "{name}");
        }
    }
}
