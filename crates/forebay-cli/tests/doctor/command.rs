//! Arguments, time and signals.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

use crate::place::Place;
use crate::server::text;

#[test]
fn help_has_examples_and_explains_the_exit_status() {
    let help = Command::new(env!("CARGO_BIN_EXE_forebay")).args(["doctor", "--help"]).output().unwrap();
    assert!(help.status.success());
    for words in
        ["--only", "--json", "--timeout", "--total-timeout", "--status", "--quota", "Exit status", "Examples"]
    {
        assert!(text(&help.stdout).contains(words), "{words}:\n{}", text(&help.stdout));
    }
}

#[test]
fn only_the_checks_that_are_named_run() {
    let place = Place::new();
    let found = place.examine(&["--only", "dns,token"]);
    assert_eq!(found.status, 0, "{}", found.text);
    assert!(found.findings().all(|finding| finding["check"] == "dns" || finding["check"] == "token"));
    assert_eq!(place.cluster.counters().sockets, 0);
    let refused = place.run(&["--only", "everything"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("configuration"), "{}", text(&refused.stderr));
    let refused = place.run(&["--timeout", "soon"]);
    assert!(text(&refused.stderr).contains("such as 10s"), "{}", text(&refused.stderr));
}

#[test]
fn slow_checks_say_so_and_the_rest_is_skipped_when_the_time_is_up() {
    let mut place = Place::new();
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    place.set("PGPORT", silent.local_addr().unwrap().port().to_string());
    let output = place.run(&["--only", "tls,tables", "--timeout", "5s", "--total-timeout", "5s"]);
    let (seen, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{seen}");
    assert!(said.contains("tls takes a while; it ends within"), "{said}");
    assert!(seen.contains("skipped  tables: the time is up (--total-timeout 5s)"), "{seen}");
}

#[test]
fn an_interrupt_ends_it_with_what_was_found() {
    for (signal, status) in [("-INT", 130), ("-TERM", 143)] {
        let mut place = Place::new();
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        place.set("PGPORT", silent.local_addr().unwrap().port().to_string());
        let mut command = place.command(&["--timeout", "10m", "--total-timeout", "10m"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The next check waits for ever.
        assert!(lines.any(|line| line.unwrap().starts_with("ok       tcp: ")));
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(child.wait().unwrap().code(), Some(status));
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.contains("safe to run it again"), "{said}");
    }
}

/// Programs get one object, whatever happens.
#[test]
fn an_interrupt_leaves_json_of_what_was_found() {
    let mut place = Place::new();
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    place.set("PGPORT", silent.local_addr().unwrap().port().to_string());
    let mut command = place.command(&["--json", "--timeout", "10m", "--total-timeout", "10m"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("tls takes a while")));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let record: serde_json::Value = serde_json::from_str(&printed).expect("one JSON object");
    assert!(record["exit_status"].is_null(), "{record:#}");
    let unchecked = ["tls", "credentials", "token", "connect", "tables", "clock", "service"];
    assert_eq!(record["unchecked"], serde_json::json!(unchecked));
    assert!(record["findings"].to_string().contains("accepts connections"), "{record:#}");
}

#[test]
fn a_reader_that_goes_away_changes_nothing() {
    let place = Place::new();
    let mut command = place.command(&["--only", "configuration,dns"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

/// What was asked for and could not be checked is not called fine.
#[test]
fn nothing_checked_is_not_nothing_wrong() {
    let mut place = Place::new();
    let found = place.examine(&["--only", "service"]);
    assert_eq!((found.status, &found.record["status"]), (1, &"skipped".into()), "{}", found.text);
    assert!(found.text.ends_with("1 skipped; nothing was checked\n"), "{}", found.text);
    let found = place.examine(&["--only", "dns,service"]);
    assert_eq!((found.status, &found.record["unchecked"]), (1, &serde_json::json!(["service"])));
    assert!(found.text.contains("what was checked is fine; not checked: service"), "{}", found.text);
    let found = place.examine(&["--total-timeout", "1ns"]);
    assert_eq!((found.status, found.record["skipped"].as_u64()), (1, Some(10)), "{}", found.text);
    place.unset("CLUSTER_ENDPOINT");
    for check in ["dns", "connect", "tables"] {
        let found = place.examine(&["--only", check]);
        assert_eq!(found.status, 1, "{}", found.text);
        assert!(found.text.contains("configuration failed: CLUSTER_ENDPOINT is not set"), "{}", found.text);
        assert!(found.text.contains("remedy: set CLUSTER_ENDPOINT"), "{}", found.text);
    }
    let found = place.examine(&["--only", "clock"]);
    assert!(found.status == 1 && found.text.contains("nobody has told the time"), "{}", found.text);
}

#[test]
fn secrets_in_the_wrong_place_are_not_shown_either() {
    let with_password = "postgres://admin:hunter2@abc.dsql.us-east-1.on.aws/postgres";
    for (name, value) in [
        ("CLUSTER_ENDPOINT", with_password),
        ("CLUSTER_ENDPOINT", "abc.dsql.us-east-1.on.aws:hunter2"),
        ("PGPASSWORD", "hunter2"),
        ("DSQL_RESERVOIR_PASSWORD", "hunter2"),
        ("AWS_ENDPOINT_URL_DYNAMODB", "http://admin:hunter2@127.0.0.1:1"),
        ("AWS_ENDPOINT_URL_DYNAMODB", "ftp://admin:hunter2@127.0.0.1:1"),
        ("AWS_ENDPOINT_URL_STS", "http://admin:hunter2@127.0.0.1:1"),
        ("PGHOSTADDR", "admin:hunter2@127.0.0.1"),
        ("DSQL_DESK_TOKEN", "hunter2"),
        ("DSQL_DESK_TOKEN", "hunter2-hunter2-hunter2"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/?token=hunter2"),
    ] {
        let mut place = Place::new();
        place.set(name, value);
        // It fails if one is shown.
        place.examine(&[]);
    }
}
