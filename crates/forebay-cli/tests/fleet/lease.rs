//! `lease setup` and `lease status`.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::server::{DynamoDb, ENDPOINT, command_at, text};

#[test]
fn help_has_examples_and_explains_the_exit_status() {
    for (arguments, words) in [
        (
            &["lease", "--help"][..],
            &["setup", "status", "reconcile", "reset", "evict", "Exit status", "Examples"][..],
        ),
        (&["lease", "status", "--help"], &["--endpoint", "CLUSTER_ENDPOINT", "--table", "--json", "Example"]),
        (&["lease", "evict", "--help"], &["<INSTANCE>", "--yes", "Example"]),
        (&["limiter", "--help"], &["setup", "status", "Exit status"]),
    ] {
        let help = Command::new(env!("CARGO_BIN_EXE_forebay")).args(arguments).output().unwrap();
        assert!(help.status.success());
        for word in words {
            assert!(text(&help.stdout).contains(word), "{word}:\n{}", text(&help.stdout));
        }
    }
}

#[test]
fn setup_makes_the_table_once_and_explains_another_shape() {
    let server = DynamoDb::start();
    let record = |status: i32| {
        let made = server.forebay(&["lease", "setup", "--table", "forebay", "--json"]);
        assert_eq!(made.status.code(), Some(status), "{}", text(&made.stderr));
        serde_json::from_slice::<serde_json::Value>(&made.stdout).unwrap()
    };
    assert_eq!(record(0)["created"], true);
    assert_eq!(
        record(0),
        json!({ "table": "forebay", "created": false, "expiry_enabled": false, "provisioned": false })
    );
    let again = server.forebay(&["limiter", "setup", "--table", "forebay"]);
    assert!(text(&again.stdout).contains("forebay: exists, and is correct"), "{}", text(&again.stdout));
    let request = json!({
        "TableName": "other",
        "KeySchema": [{ "AttributeName": "id", "KeyType": "HASH" }],
        "AttributeDefinitions": [{ "AttributeName": "id", "AttributeType": "S" }],
        "BillingMode": "PAY_PER_REQUEST",
    });
    server.database.create_table(serde_json::from_value(request).unwrap()).unwrap();
    let refused = server.forebay(&["lease", "setup", "--table", "other"]);
    assert_eq!(refused.status.code(), Some(2));
    let why = "its partition key is id (string), and must be pk (string)";
    assert!(text(&refused.stderr).contains(why), "{}", text(&refused.stderr));
}

#[test]
fn status_shows_who_holds_what() {
    let server = DynamoDb::with_table();
    let empty = server.on_cluster(&["lease", "status"]);
    assert!(text(&empty.stdout).contains("nobody has joined yet"), "{}", text(&empty.stdout));
    let names = server.crashed(7, "ledger");
    let shown = server.on_cluster(&["lease", "status"]);
    let seen = text(&shown.stdout);
    assert_eq!(shown.status.code(), Some(0), "{seen}");
    for words in [ENDPOINT, "slots held by 2 instances", "drift: none", " ago", "rate: "] {
        assert!(seen.contains(words), "{words}:\n{seen}");
    }
    assert!(names.iter().all(|name| seen.contains(name.as_str())), "{seen}");

    let record = server.record(&["lease", "status"], 0);
    assert_eq!((&record["endpoint"], &record["exact"]), (&ENDPOINT.into(), &true.into()));
    let entries = record["instances"].as_array().unwrap();
    let slots: u64 = entries.iter().map(|entry| entry["slots"].as_u64().unwrap()).sum();
    assert_eq!(record["held"], slots);
    assert!(slots >= 14, "{record:#}");
    assert!(entries.iter().all(|entry| entry["beat_age_seconds"].as_u64() < Some(60)), "{record:#}");
    assert!(entries.iter().all(|entry| entry["overdue"] == false && entry["lease_seconds"] == 120));
    assert!(record["rate_reserved_seconds"].is_number() && record["counter"].is_null(), "{record:#}");
}

#[test]
fn drift_is_shown_and_sets_the_exit_status() {
    let server = DynamoDb::with_table();
    server.crashed(3, "ledger");
    let key = server.keys().into_iter().find(|key| key.starts_with("forebay_ledger#")).unwrap();
    let request = json!({
        "TableName": "forebay",
        "Key": { "pk": { "S": key } },
        "UpdateExpression": "ADD #free :more",
        "ExpressionAttributeNames": { "#free": "free" },
        "ExpressionAttributeValues": { ":more": { "N": "2" } },
    });
    server.database.update_item(serde_json::from_value(request).unwrap()).unwrap();
    let shown = server.on_cluster(&["lease", "status"]);
    assert_eq!(shown.status.code(), Some(1));
    let seen = text(&shown.stdout);
    assert!(seen.contains("drift: 2") && seen.contains("drift +2") && seen.contains("lease reset"), "{seen}");
    assert_eq!(server.record(&["lease", "status"], 1)["exact"], false);
}

#[test]
fn a_missing_table_endpoint_or_key_is_an_error_with_a_remedy() {
    let server = DynamoDb::start();
    let no_table = server.on_cluster(&["lease", "status"]);
    assert_eq!(no_table.status.code(), Some(2));
    let why = text(&no_table.stderr);
    assert!(why.contains("no such table: forebay") && why.contains("forebay lease setup"), "{why}");

    let no_endpoint = server.forebay(&["lease", "status", "--table", "forebay"]);
    assert_eq!(no_endpoint.status.code(), Some(2));
    assert!(text(&no_endpoint.stderr).contains("--endpoint"), "{}", text(&no_endpoint.stderr));

    let arguments = ["lease", "status", "--table", "forebay", "--endpoint", ENDPOINT];
    let no_keys = command_at("http://127.0.0.1:1", &arguments).output().unwrap();
    assert_eq!(no_keys.status.code(), Some(2));
    let why = text(&no_keys.stderr);
    assert!(why.contains("no valid credentials") && why.contains("AWS_PROFILE"), "{why}");
    assert!(!why.contains("grant"), "{why}");
}

#[test]
fn a_malformed_address_is_an_error() {
    for url in ["", "nonsense", "http://127.0.0.1:99999", "http://[::1"] {
        let mut command = command_at(url, &["lease", "setup", "--table", "forebay"]);
        command.env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE").env("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI");
        let refused = command.output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{url}: {}", text(&refused.stderr));
        let why = text(&refused.stderr);
        assert!(why.starts_with("forebay: ") && !why.contains("wJalrXUtnFEMI"), "{why}");
    }
}

#[test]
fn an_endpoint_that_is_not_a_host_is_an_error() {
    let server = DynamoDb::with_table();
    for endpoint in ["not a host", "", "host#1", "-host", "https://", "a..b"] {
        for command in ["lease", "limiter"] {
            let arguments = [command, "status", "--table", "forebay", &format!("--endpoint={endpoint}")];
            let refused = server.forebay(&arguments);
            let why = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{endpoint}: {why}");
            assert!(why.contains("abc.dsql.us-east-1.on.aws"), "{endpoint}: {why}");
        }
    }
    for endpoint in ["127.0.0.1:5432", "[::1]:5432", "localhost", "https://ABC.dsql.us-east-1.on.aws/"] {
        let shown = server.forebay(&["lease", "status", "--table", "forebay", "--endpoint", endpoint]);
        assert!(shown.status.success(), "{endpoint}: {}", text(&shown.stderr));
    }
}

#[test]
fn the_environment_names_table_and_cluster() {
    let server = DynamoDb::with_table();
    let names = server.crashed(1, "ledger");
    let shown = server
        .command(&["lease", "status", "--json"])
        .env("CLUSTER_ENDPOINT", format!("{}:5432", ENDPOINT.to_uppercase()))
        .env("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "forebay")
        .output()
        .unwrap();
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    assert!(text(&shown.stdout).contains(&names[0]), "{}", text(&shown.stdout));
}

#[test]
fn an_interrupt_ends_it() {
    for (signal, status) in [("-INT", 130), ("-TERM", 143)] {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let arguments = ["lease", "status", "--table", "forebay", "--endpoint", ENDPOINT];
        let mut command = command_at(&url, &arguments);
        command.env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE").env("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI");
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // It waits for an answer from here on.
        let connection = silent.accept().unwrap();
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(status));
        assert!(text(&ended.stderr).contains("safe to run it again"), "{}", text(&ended.stderr));
        assert!(ended.stdout.is_empty());
        drop(connection);
    }
}
