//! The programs of the manual's quick starts, run as their readers run them: beside a local server, with the variables that
//! the server prints. `src/manual/programs.rs` compares the programs with the pages.
#![cfg(any(feature = "flight-local", feature = "fleet-tests"))]

#[allow(dead_code, reason = "each build has some of the servers")]
mod serving;

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use serving::{Place, Server, stop};

/// A running example of another crate. `cargo test` of that crate builds it.
struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(name: &str, variables: &BTreeMap<String, String>) -> Self {
        let here = env::current_exe().expect("this program has a path");
        let path = here.ancestors().nth(2).expect("the folder of the build").join("examples").join(name);
        assert!(path.exists(), "build it first: cargo build --examples of the crate with {name}");
        let mut command = Command::new(path);
        command.env_clear().envs(variables).arg("127.0.0.1:0").stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).expect("it is read") > 0, "it has ended");
        line
    }

    /// One that serves, and where.
    fn serving(name: &str, variables: &BTreeMap<String, String>) -> (Self, String) {
        let mut program = Self::start(name, variables);
        let line = program.line();
        let address = line.trim().strip_prefix("listening on http://").expect("where it listens").to_owned();
        (program, address)
    }

    /// What it says after Ctrl-C, when it has ended well.
    fn end(mut self) -> String {
        let mut rest = String::new();
        stop(&mut self.child, "-INT");
        self.output.read_to_string(&mut rest).expect("it is read");
        rest
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The body of the answer to `GET /`.
fn curl(address: &str) -> String {
    let mut socket = TcpStream::connect(address).expect("it listens");
    socket.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("it is sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer.split_once("\r\n\r\n").expect("a body").1.to_owned()
}

/// A local server, and the variables that it prints.
fn start(server: Server, place: &Place, last: &str, arguments: &[&str]) -> (Child, BTreeMap<String, String>) {
    let (child, said) = server.start(place, last, &[arguments, &["--json"]].concat());
    let said: BTreeMap<String, serde_json::Value> = serde_json::from_str(&said).expect("one object");
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    (child, said.iter().map(|(name, value)| (name.clone(), text(value))).collect())
}

#[cfg(feature = "fleet-tests")]
fn dsql_local(place: &Place, settings: &[(&str, &str)]) -> (Child, BTreeMap<String, String>) {
    let arguments = ["--control-port", "0"];
    let (child, mut variables) = start(Server("dsql-local"), place, "DSQL_LOCAL_CONTROL", &arguments);
    variables.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    variables.insert("DSQL_STAGGERED_STARTUP".to_owned(), "false".to_owned());
    (child, variables)
}

#[cfg(feature = "fleet-tests")]
#[test]
fn tokio_postgres_and_sqlx_serve_visitors_in_both_modes_after_their_connections_are_cut() {
    let place = Place::new("quick-services");
    for (mode, program) in [("true", "visits_tokio_postgres"), ("false", "visits_sqlx")] {
        let settings = [("DSQL_MAX_CONNS", "5"), ("DSQL_RESERVOIR_ENABLED", mode)];
        let (mut server, variables) = dsql_local(&place, &settings);
        let (program, address) = Program::serving(program, &variables);
        assert_eq!(curl(&address), "You are visitor 1.\n");
        assert_eq!(curl(&address), "You are visitor 2.\n");
        let control = &variables["DSQL_LOCAL_CONTROL"];
        let cut = Command::new("curl")
            .args(["-sS", "--fail", "-d", "sever", &format!("{control}/faults")])
            .output();
        assert!(cut.expect("curl").status.success());
        assert_eq!(curl(&address), "You are visitor 3.\n");
        assert_eq!(program.end(), "all connections are closed: true\n");
        stop(&mut server, "-TERM");
    }
}

#[cfg(feature = "fleet-tests")]
#[test]
fn pools_of_deadpool_and_bb8_take_their_connections_from_a_reservoir() {
    let place = Place::new("quick-adapters");
    let (mut server, variables) = dsql_local(&place, &[("DSQL_MAX_CONNS", "5")]);
    for program in ["visits_deadpool", "visits_bb8"] {
        let mut program = Program::start(program, &variables);
        for visitor in 1..=3 {
            assert_eq!(program.line(), format!("visitor {visitor} has {} shoes\n", 2 * visitor));
        }
        assert_eq!(program.line(), "all connections are closed: true\n");
        assert!(program.child.wait().expect("it ends").success());
    }
    stop(&mut server, "-TERM");
}

#[cfg(feature = "fleet-tests")]
#[test]
fn two_processes_of_a_fleet_share_ten_connections() {
    let place = Place::new("quick-fleet");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let dynamodb = format!("http://{}", listener.local_addr().unwrap());
    runtime.spawn(dynoxide::server::serve_on(listener, dynoxide::Database::memory().unwrap()));
    let settings = [
        ("AWS_ENDPOINT_URL_DYNAMODB", dynamodb.as_str()),
        ("DSQL_MAX_CONNS", "7"),
        ("DSQL_RESERVOIR_ENABLED", "true"),
        ("DSQL_RESERVOIR_LOW_WATERMARK", "1"),
        ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true"),
        ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "forebay"),
        ("DSQL_DISTRIBUTED_CONN_LEASE_BLOCK", "1"),
        ("DSQL_DISTRIBUTED_CONN_LIMIT", "10"),
    ];
    let (mut server, variables) = dsql_local(&place, &settings);
    let forebay = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output = command.args(arguments).env_clear().envs(&variables).output().expect("it starts");
        assert!(output.status.success(), "{}", serving::text(&output.stderr));
        serving::text(&output.stdout).to_owned()
    };
    forebay(&["lease", "setup", "--table", "forebay"]);

    let (first, first_address) = Program::serving("visits_fleet", &variables);
    let (second, second_address) = Program::serving("visits_fleet", &variables);
    assert!(curl(&first_address).ends_with(" of 7 connections are open here\n"));
    assert!(curl(&second_address).ends_with(" of 7 connections are open here\n"));
    let status = forebay(&["lease", "status"]);
    assert!(status.contains(" of 10 slots held by 2 instances"), "{status}");
    assert_eq!(first.end(), "the slots are free: true\n");
    assert_eq!(second.end(), "the slots are free: true\n");
    let status = forebay(&["lease", "status"]);
    assert!(status.contains("ledger: 0 of 10 slots held"), "{status}");

    let control = format!("{}/counters", variables["DSQL_LOCAL_CONTROL"]);
    let counters = Command::new("curl").args(["-sS", "--fail", &control]).output().expect("curl");
    let counters: serde_json::Value = serde_json::from_slice(&counters.stdout).expect("the counters");
    assert!(counters["live_high_water"].as_u64().is_some_and(|most| most <= 10), "{counters}");
    stop(&mut server, "-TERM");
}

#[cfg(feature = "flight-local")]
#[test]
fn flight_sql_serves_visitors() {
    let place = Place::new("quick-flight");
    let (mut server, variables) = start(Server("flight-local"), &place, "FLIGHT_SQL_URL", &["--port", "0"]);
    let (program, address) = Program::serving("visits_flight", &variables);
    assert_eq!(curl(&address), "You are visitor 1.\n");
    assert_eq!(curl(&address), "You are visitor 2.\n");
    assert_eq!(program.end(), "all sessions are closed: true\n");
    stop(&mut server, "-TERM");
}
