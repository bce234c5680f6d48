//! Which DynamoDB a command goes to.

use std::process::Command;

use crate::server::{DynamoDb, ENDPOINT, command_at, text};

const VARIABLES: [&str; 2] = ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"];

#[test]
fn the_one_that_was_named_whatever_the_environment_says() {
    let (named, other) = (DynamoDb::with_table(), DynamoDb::with_table());
    for variable in VARIABLES {
        named.crashed(1, "ledger");
        other.crashed(1, "ledger");
        let there = other.keys();
        let place = ["--table", "forebay", "--endpoint", ENDPOINT, "--yes"];
        let reset =
            named.command(&[&["lease", "reset"][..], &place].concat()).env(variable, other.url()).output();
        let reset = reset.unwrap();
        assert!(reset.status.success(), "{}", text(&reset.stderr));
        assert!(named.keys().is_empty(), "{variable}: {:?}", named.keys());
        assert_eq!(other.keys(), there, "{variable}");
    }
}

#[test]
fn the_one_of_the_environment_if_none_was_named() {
    let server = DynamoDb::with_table();
    for variable in VARIABLES {
        let shown = unnamed().env(variable, server.url()).output().unwrap();
        assert!(text(&shown.stdout).contains("nobody has joined yet"), "{variable}: {}", text(&shown.stderr));
        let refused = unnamed().env(variable, "127.0.0.1:8000").output().unwrap();
        let why = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{variable}: {why}");
        assert!(why.contains("\"127.0.0.1:8000\" is not an address"), "{variable}: {why}");
    }
}

/// A look at a cluster that does not say which DynamoDB.
fn unnamed() -> Command {
    let named = command_at("", &["lease", "status", "--table", "forebay", "--endpoint", ENDPOINT]);
    let mut command = Command::new(named.get_program());
    command.env_clear().env("AWS_EC2_METADATA_DISABLED", "true");
    command.env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE").env("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI");
    command
        .args(named.get_args().filter(|argument| !argument.is_empty() && *argument != "--dynamodb-endpoint"));
    command
}
