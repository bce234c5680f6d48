//! `forebay flight-local` as its users meet it.

mod serving;

use std::fs;
use std::net::TcpStream;
use std::process::Command;

use serde_json::Value;

use serving::{Place, Server, stop, text};

const FLIGHT_LOCAL: Server = Server("flight-local");

#[test]
fn it_says_where_it_is_and_leaves_nothing_behind() {
    for (signal, form) in [("-INT", "--json"), ("-TERM", "--print-env")] {
        let place = Place::new(&format!("flight{signal}"));
        let (mut child, said) =
            FLIGHT_LOCAL.start(&place, "FLIGHT_SQL_CA_FILE", &["--port", "0", "--tls", form]);
        let url = match form {
            "--json" => {
                let said: Value = serde_json::from_str(&said).expect("one object");
                assert!(fs::exists(said["FLIGHT_SQL_CA_FILE"].as_str().expect("a file")).unwrap());
                said["FLIGHT_SQL_URL"].as_str().expect("a url").to_owned()
            }
            _ => {
                let script =
                    format!("{said}\nprintf '%s' \"$FLIGHT_SQL_URL\"; test -s \"$FLIGHT_SQL_CA_FILE\"");
                let shell = Command::new("sh").args(["-c", &script]).output().expect("a shell");
                assert!(shell.status.success());
                text(&shell.stdout).to_owned()
            }
        };
        let address = url.strip_prefix("grpc+tls://").expect("a url");
        TcpStream::connect(address).expect("it listens");
        stop(&mut child, signal);
        assert!(TcpStream::connect(address).is_err());
        assert!(place.entries().is_empty());
    }
}

#[test]
fn the_authority_is_found_from_any_directory() {
    for form in ["--print-env", "--json"] {
        let place = Place::new(&format!("flight-relative{form}"));
        let (mut child, said) =
            FLIGHT_LOCAL.start(&place, "FLIGHT_SQL_CA_FILE", &["--tls", "--ca-file", "ca.pem", form]);
        let path = place.0.join("ca.pem");
        assert!(fs::exists(&path).unwrap() && said.contains(path.to_str().unwrap()), "{said}");
        stop(&mut child, "-TERM");
        assert!(place.entries().is_empty());
    }
}

#[test]
fn without_a_format_it_prints_prose() {
    let place = Place::new("flight-words");
    let (mut child, said) =
        FLIGHT_LOCAL.start(&place, "Ctrl-C", &["--further-listeners", "1", "--like", "swanlake"]);
    assert!(said.starts_with("listening on grpc://127.0.0.1:"), "{said}");
    assert!(said.contains("\nand on       grpc://127.0.0.1:") && said.contains("Ctrl-C"), "{said}");
    assert_eq!(said.contains("forebay flight sql grpc://127.0.0.1:"), cfg!(feature = "flight"), "{said}");
    stop(&mut child, "-INT");
}

#[test]
fn a_port_in_use_is_an_error_with_a_remedy() {
    let place = Place::new("flight-port");
    let (mut child, said) = FLIGHT_LOCAL.start(&place, "FLIGHT_SQL_URL", &["--json"]);
    let said: Value = serde_json::from_str(&said).expect("one object");
    let port = said["FLIGHT_SQL_URL"].as_str().and_then(|url| url.rsplit(':').next()).expect("a port");
    let refused = FLIGHT_LOCAL.run(&["--port", port]);
    assert_eq!(refused.status.code(), Some(1));
    let problem = text(&refused.stderr);
    assert!(problem.contains(port) && problem.contains("choose another port"), "{problem}");
    assert_eq!(problem.matches("in use").count(), 1, "once is enough: {problem}");
    stop(&mut child, "-TERM");
}

#[test]
fn wrong_options_are_refused_before_a_file_is_created() {
    let place = Place::new("flight-refused");
    let empty = place.write("empty", "");
    for (arguments, word) in [
        (vec!["--session-limit", "0"], "allow some"),
        (vec!["--session-linger", "soon"], "such as 250ms"),
        (vec!["--user", "ann"], "--password-file"),
        (vec!["--user", "ann", "--password-file", &empty], "no password"),
        (vec!["--cert", &empty, "--key", &empty], "PEM"),
        (vec!["--cert", "/nowhere", "--key", "/nowhere"], "/nowhere"),
        (vec!["--refuse", "dance"], "possible values"),
        (vec!["--listen", "192.0.2.1"], "an address of this machine"),
        (vec!["--database", "Cargo.toml"], "a SQLite database"),
    ] {
        let refused = FLIGHT_LOCAL.run(&arguments);
        assert!(!refused.status.success());
        let problem = text(&refused.stderr);
        assert!(problem.contains(word), "{arguments:?}: {problem}");
        assert!(!problem.contains("panicked"), "{problem}");
    }
}

#[test]
fn the_manual_page_knows_every_counter_and_flag() {
    let manual = FLIGHT_LOCAL.manual();
    for (name, _) in flight_local::Counters::default().named() {
        assert!(manual.contains(&format!("`{name}`")), "{name}");
    }
    FLIGHT_LOCAL.assert_manual_knows_flags(&[&["--help"], &["tell", "--help"]]);
}

/// The commands of the manual page, as a reader would type them, against a server started as it says.
#[test]
fn the_manual_pages_commands_work() {
    let place = Place::new("flight-manual");
    let (mut child, said) = FLIGHT_LOCAL.start(&place, "FLIGHT_SQL_URL", &["--print-env", "--control"]);
    let tested = FLIGHT_LOCAL.commands_with("flight-local tell");
    assert_eq!(tested.len(), 1, "the manual page shows how to tell it something");
    for block in tested {
        let forebay = format!("forebay() {{ '{}' \"$@\"; }}", env!("CARGO_BIN_EXE_forebay"));
        let script = format!("set -e\n{said}\n{forebay}\n{block}");
        let shell = Command::new("bash").args(["-c", &script]).output().expect("a shell");
        assert!(shell.status.success(), "{block}\n{}", text(&shell.stderr));
        let counters: Value = serde_json::from_slice(&shell.stdout).expect("counters");
        assert_eq!(counters["statements_running"], 0);
    }
    stop(&mut child, "-TERM");
}

#[test]
fn tell_reports_a_missing_server_and_a_wrong_command() {
    let place = Place::new("flight-tell");
    let (mut child, said) = FLIGHT_LOCAL.start(&place, "FLIGHT_SQL_URL", &["--json"]);
    let said: Value = serde_json::from_str(&said).expect("one object");
    let url = said["FLIGHT_SQL_URL"].as_str().expect("a url");
    let tell = |arguments: &[&str]| {
        let mut command = FLIGHT_LOCAL.command(&["tell"]);
        let output = command.env_remove("FLIGHT_SQL_URL").args(arguments).output().expect("it starts");
        assert!(!output.status.success(), "{arguments:?}");
        text(&output.stderr).to_owned()
    };
    assert!(tell(&["counters"]).contains("FLIGHT_SQL_URL"));
    assert!(tell(&["--url", url, "counters"]).contains("start the server with --control"));
    assert!(tell(&["--url", "nowhere", "counters"]).contains("grpc://"));
    assert!(tell(&["--url", "grpc://127.0.0.1:1", "counters"]).contains("cannot reach"));
    stop(&mut child, "-TERM");
}

#[test]
fn tell_logs_in_as_the_shell_does() {
    let place = Place::new("flight-login");
    let (password, token) = (place.write("password", "hush\n"), place.write("token", "hidden\n"));
    let guess = place.write("guess", "guess");
    let flags = [
        "--json",
        "--control",
        "--tls",
        "--user",
        "ann",
        "--password-file",
        &password,
        "--token-file",
        &token,
    ];
    let (mut child, said) = FLIGHT_LOCAL.start(&place, "FLIGHT_SQL_URL", &flags);
    let said: Value = serde_json::from_str(&said).expect("one object");
    let variable = |name: &str| (name.to_owned(), said[name].as_str().expect("a variable").to_owned());
    let server = [variable("FLIGHT_SQL_URL"), variable("FLIGHT_SQL_CA_FILE")];
    let tell = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = FLIGHT_LOCAL.command(&["tell", "counters"]);
        command.args(arguments).envs(server.iter().cloned()).envs(variables.iter().copied());
        let output = command.output().expect("it starts");
        let problem = text(&output.stderr).to_owned();
        for secret in ["hush", "hidden", "guess"] {
            assert!(!problem.contains(secret), "{problem}");
        }
        output.status.success().then_some(()).ok_or((output.status.code(), problem))
    };
    assert_eq!(tell(&["--user", "ann", "--password-file", &password], &[]), Ok(()));
    assert_eq!(tell(&["--token-file", &token], &[]), Ok(()));
    assert_eq!(tell(&[], &[("FLIGHT_SQL_USER", "ann"), ("FLIGHT_SQL_PASSWORD", "hush")]), Ok(()));
    assert_eq!(tell(&[], &[("FLIGHT_SQL_TOKEN", "hidden")]), Ok(()));
    let (plain, roots) = (server[0].1.replacen("grpc+tls", "grpc", 1), &server[1].1);
    let token = [("FLIGHT_SQL_TOKEN", "hidden"), ("FLIGHT_SQL_CA_FILE", "")];
    assert_eq!(tell(&["--tls-roots", roots], &token), Ok(()));
    for (arguments, variables, status, said) in [
        (&[][..], &[][..], 1, "log in with --user and --password-file, or with --token-file"),
        (&["--user", "ann", "--password-file", &guess], &[], 1, "log in"),
        (&["--user", "ann"], &[], 2, "no password"),
        (&[], &token, 1, "--tls-roots"),
        (&["--url", &plain], &token[..1], 1, "grpc+tls:// is for servers with TLS"),
    ] {
        let (code, problem) = tell(arguments, variables).unwrap_err();
        assert!(code == Some(status) && problem.contains(said), "{arguments:?}: {code:?} {problem}");
    }
    stop(&mut child, "-TERM");
}
