//! Errors, and their messages.

use std::fs;
use std::io::Write;
use std::net::TcpListener;

use flight_local::{Auth, Config, Tls};

use crate::server::{Server, command, text, until};

/// Runs it, and gives its exit status and what it says.
fn said(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let output = server.run(arguments);
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
    (output.status.code(), text(&output.stderr).to_owned())
}

#[test]
fn a_wrong_option_is_an_error_before_a_connection_is_made() {
    let server = Server::plain("usage");
    let no_such = server.path("none");
    let no_such = no_such.to_str().unwrap();
    for (arguments, expected) in [
        (&["--format", "xml"][..], "possible values: table, csv, json, arrow"),
        (&["--json", "--format", "csv"], "cannot be used with"),
        (&["-c", "SELECT 1", "--file", "x"], "cannot be used with"),
        (&["--timeout", "soon"], "250ms, 30s or 5m"),
        (&["--user", "me"], "--password-file"),
        (&["--token-file", no_such], "cannot read"),
        (&["--header", "x"], "NAME=VALUE"),
        (&["--tls-roots", no_such], "write grpc+tls://"),
        (&["--output", "/no/such/directory/x"], "cannot write to /no/such/directory/x"),
    ] {
        let (status, problem) = said(&server, arguments);
        assert_eq!(status, Some(2), "{arguments:?}: {problem}");
        assert!(problem.contains(expected), "{arguments:?}: {problem}");
    }
    let home = server.path("");
    for (url, flags, expected) in [
        ("localhost", &[][..], "grpc://host:port"),
        ("grpc://me:hush@localhost:1", &[], "--user"),
        ("grpc+tls://localhost:1", &["--tls-roots", no_such], "cannot read"),
    ] {
        let output = command(url, &home, &["-c", "SELECT 1"]).args(flags).output().unwrap();
        let problem = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{problem}");
        assert!(problem.contains(expected) && !problem.contains("hush"), "{problem}");
    }
    assert_eq!(server.counters().connections_ever, 0);
}

#[test]
fn a_statement_that_fails_is_the_last() {
    let server = Server::plain("fails");
    let file = server.file(
        "script.sql",
        "SELECT 1 AS n;\n\n-- why\nSELECT * FROM missing;\nCREATE TABLE t (n INTEGER);\n",
    );
    let output = server.run(&["--file", &file, "--format", "csv"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), "n\n1\n"));
    let problem = text(&output.stderr);
    assert!(
        problem.contains("script.sql, line 4: ") && problem.contains("no such table: missing"),
        "{problem}"
    );
    assert_eq!(server.prints(&["-c", "\\dt", "--format", "csv"]), "catalog,schema,table,type\n");
    let output = server.run_with_stdin(&[], "\n\nSELECT * FROM missing;\n");
    assert!(text(&output.stderr).starts_with("error: stdin, line 3: "), "{}", text(&output.stderr));
    let (_, problem) = said(&server, &["-c", "-- why\nSELECT * FROM missing"]);
    assert!(problem.starts_with("error: line 2: "), "{problem}");
    for (arguments, expected) in [
        (
            &["-c", "SELECT 1", "-c", "SELECT 'open"][..],
            "-c number 2: the string that begins in line 1 has no end",
        ),
        (&["-c", "\\d missing"], "there is no table missing; \\dt lists"),
        (&["-c", "\\zzz"], "there is no command \\zzz"),
        (&["-c", "\\i /no/such/file"], "cannot read /no/such/file"),
        (&["--file", "/no/such/file"], "cannot read /no/such/file"),
        (&["-c", "SELECT 1", "-c", "SELECT 2", "--format", "arrow"], "an Arrow stream holds one result"),
    ] {
        let output = server.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {}", text(&output.stderr));
    }
    let path = server.path("itself.sql");
    let itself = server.file("itself.sql", &format!("\\i {}\n", path.display()));
    assert!(said(&server, &["--file", &itself]).1.contains("does one run itself?"));
}

#[test]
fn a_refused_login_has_a_hint() {
    let auth = Some(Auth::basic("ann", "hush"));
    let server = Server::start("auth", Config { auth, ..Config::default() });
    let (status, problem) = said(&server, &["-c", "SELECT 1"]);
    assert_eq!(status, Some(1));
    assert!(problem.contains("hint: log in with --user"), "{problem}");
    assert!(
        problem.contains("give --user and --password-file") && !problem.contains("ConnectOptions"),
        "{problem}"
    );
    let wrong = server.file("wrong", "guess");
    let (status, problem) = said(&server, &["-c", "SELECT 1", "--user", "ann", "--password-file", &wrong]);
    assert_eq!(status, Some(1));
    assert!(problem.contains("UNAUTHENTICATED") && !problem.contains("guess"), "{problem}");
    assert!(!problem.contains("ConnectOptions"), "{problem}");
    let right = server.file("right", "hush\n");
    let select = ["-c", "SELECT 1 AS n", "--format", "csv"];
    let arguments = [&select[..], &["--user", "ann", "--password-file", &right]].concat();
    assert_eq!(server.prints(&arguments), "n\n1\n");
    let mut by_variable = server.command(&select);
    let output =
        by_variable.env("FLIGHT_SQL_USER", "ann").env("FLIGHT_SQL_PASSWORD", "hush").output().unwrap();
    assert_eq!(text(&output.stdout), "n\n1\n", "{}", text(&output.stderr));
}

#[test]
fn a_token_and_tls_with_certificates_of_both_sides() {
    let signed = Tls::self_signed().unwrap();
    let auth = Some(Auth::bearer("hush"));
    let server = Server::start("tls", Config { tls: Some(signed.mutual()), auth, ..Config::default() });
    let roots = server.file("roots.pem", &signed.root_pem);
    let (certificate, key) = (
        server.file("client.pem", &signed.client_certificate_pem),
        server.file("client.key", &signed.client_key_pem),
    );
    let token = server.file("token", "hush\n");
    let select = ["-c", "SELECT 1 AS n", "--format", "csv", "--token-file", &token];
    let trusting = [&select[..], &["--tls-roots", &roots]].concat();
    let known = [&trusting[..], &["--tls-certificate", &certificate, "--tls-key", &key]].concat();
    assert_eq!(server.prints(&known), "n\n1\n");
    for (arguments, what, remedy) in [
        (&select[..], "an authority nobody knows", "hint: --tls-roots FILE"),
        (&trusting[..], "no certificate", ""),
    ] {
        let (status, problem) = said(&server, arguments);
        assert_eq!(status, Some(1), "{what}: {problem}");
        assert!(problem.contains(remedy), "{what}: {problem}");
        assert!(!problem.contains("hush") && !problem.contains("ConnectOptions"), "{problem}");
    }
}

#[test]
fn a_timeout_stops_the_statement_on_the_server() {
    let server = Server::plain("timeout");
    // Also on a busy machine, the statement is running by then.
    let (status, problem) = said(&server, &["-c", "SELECT sleep_ms(60000)", "--timeout", "2s"]);
    assert_eq!(status, Some(1));
    assert!(problem.contains("no result within 2s") && problem.contains("hint: --timeout"), "{problem}");
    until("it has stopped", || server.counters().statements_running == 0);
    assert_eq!(server.counters().statements_interrupted, 1);
}

#[test]
fn a_server_that_cannot_stop_a_statement_does_not_hold_the_shell() {
    let server = Server::start("no-stop", Config::like_swanlake());
    // It ends while the statement goes on.
    let (status, problem) = said(&server, &["-c", "SELECT sleep_ms(600000)", "--timeout", "2s"]);
    assert_eq!((status, server.counters().statements_running), (Some(1), 1));
    assert!(problem.contains("no result within 2s"), "{problem}");
    assert!(problem.contains("warning: the server has not said that it stopped the statement"), "{problem}");
}

#[test]
fn a_server_out_of_sessions_has_a_hint() {
    let server = Server::start("sessions", Config { session_limit: 2, ..Config::like_swanlake() });
    for _ in 0..2 {
        server.prints(&["-c", "SELECT 1"]);
    }
    let (status, problem) = said(&server, &["-c", "SELECT 1"]);
    assert_eq!(status, Some(1));
    assert!(problem.contains("RESOURCE_EXHAUSTED") && problem.contains("keeps it for a while"), "{problem}");
    assert!(problem.contains("several -c, --file, stdin"), "{problem}");
}

#[test]
fn a_script_that_fails_in_a_transaction_rolls_it_back() {
    let server = Server::start("rolled-back", Config { log_statements: true, ..Config::like_swanlake() });
    server.prints(&["-c", "CREATE TABLE t (n INTEGER)"]);
    let (status, problem) = said(
        &server,
        &["--format", "csv", "-c", "BEGIN; INSERT INTO t VALUES (1); INSERT INTO missing VALUES (1)"],
    );
    assert_eq!(status, Some(1));
    assert!(problem.contains("warning: a statement of the transaction failed"), "{problem}");
    assert_eq!(server.local.statements().last().map(String::as_str), Some("ROLLBACK"));
}

#[test]
fn an_unreachable_server_is_an_error_with_a_hint() {
    let server = Server::plain("gone");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output =
        command(&format!("grpc://{nobody}"), &server.path(""), &["-c", "SELECT 1"]).output().unwrap();
    let problem = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{problem}");
    assert!(problem.contains("cannot connect") && problem.contains("check the URL"), "{problem}");
    assert!(fs::read_dir(server.path("")).unwrap().next().is_none(), "nothing is left behind");
}

#[test]
fn a_session_that_the_server_has_replaced_is_lost_aloud() {
    let server = Server::start("replaced", Config { log_statements: true, ..Config::like_swanlake() });
    server.prints(&["-c", "CREATE TABLE t (n INTEGER)"]);
    let mut child = server.spawn(&["--session-idle-limit", "1ms"]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"BEGIN;\n").unwrap();
    until("it is in a transaction", || server.local.statements().iter().any(|sql| sql == "BEGIN"));
    until("it has had its answer", || server.counters().statements_running == 0);
    // Ten milliseconds between two looks.
    let mut looks = 0;
    until("it was idle", || {
        looks += 1;
        looks > 2
    });
    assert!(server.local.replace_sessions() > 0);
    stdin.write_all(b"INSERT INTO t VALUES (1);\nCOMMIT;\n").unwrap();
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let problem = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{problem}");
    assert!(problem.contains("the session is lost") && problem.contains("--session-idle-limit"), "{problem}");
    assert!(server.prints(&["--json", "-c", "SELECT count(*) AS n FROM t"]).contains("{\"n\":0}"));
}
