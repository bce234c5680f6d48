//! `forebay dsql-local` as its users meet it.

mod serving;

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use serving::{Place, Server, stop, text};

const DSQL_LOCAL: Server = Server("dsql-local");

/// With a control port, which is the last thing it tells.
fn start(place: &Place, arguments: &[&str]) -> (Child, String) {
    let arguments = [arguments, &["--control-port", "0"]].concat();
    DSQL_LOCAL.start(place, "DSQL_LOCAL_CONTROL", &arguments)
}

#[test]
fn it_starts_prints_its_variables_and_leaves_no_files() {
    for signal in ["-INT", "-TERM"] {
        let place = Place::new(signal);
        let file = place.write(
            "credentials",
            "[default]\naws_access_key_id = AKIDTEST\naws_secret_access_key = it's secret\n",
        );
        let (mut child, said) = start(&place, &["--port", "0", "--credentials-file", &file, "--print-env"]);
        // What a shell makes of it.
        let script = format!(
            "{said}\nprintf '%s\\n' \"$AWS_ACCESS_KEY_ID\" \"$AWS_SECRET_ACCESS_KEY\" \"$PGPORT\" \"$PGSSLROOTCERT\""
        );
        let shell = Command::new("sh").args(["-c", &script]).output().expect("a shell");
        let shell: Vec<&str> = text(&shell.stdout).lines().collect();
        assert_eq!(shell[..2], ["AKIDTEST", "it's secret"]);
        assert!(
            Path::new(shell[3]).exists() && shell[3].starts_with(place.0.to_str().unwrap()),
            "{}",
            shell[3]
        );
        TcpStream::connect(("127.0.0.1", shell[2].parse().unwrap())).expect("it listens");
        stop(&mut child, signal);
        assert_eq!(place.entries(), ["credentials"]);
    }
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "whoever outlives a kill has nobody to tell: its files must be looked at"
)]
fn a_postgresql_of_its_own_is_gone_with_it_even_if_it_is_killed() {
    for signal in ["-TERM", "-KILL"] {
        let place = Place::new(&format!("postgres{signal}"));
        // PostgreSQL runs as another user if this is root.
        fs::set_permissions(&place.0, fs::Permissions::from_mode(0o777)).unwrap();
        let (mut child, said) = start(&place, &["--engine", "postgres", "--json"]);
        let said: Value = serde_json::from_str(&said).expect("one object");
        let socket = said["DSQL_LOCAL_SOCKET"].as_str().expect("where its socket is");
        assert!(Path::new(socket).join(".s.PGSQL.5432").exists(), "{socket}");
        let running = || place.entries().into_iter().any(|name| name.starts_with("dsql-local-pg-"));
        assert!(running());
        if signal == "-TERM" {
            stop(&mut child, signal);
        } else {
            child.kill().expect("it is killed");
            child.wait().expect("it ends");
            // Nobody is left to wait for but its keeper.
            let patience = std::time::Instant::now();
            while running() && patience.elapsed().as_secs() < 30 {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
        assert!(!running(), "{signal}: {:?}", place.entries());
    }
}

#[test]
fn json_has_the_address_and_the_authority_is_at_the_given_path() {
    let place = Place::new("json");
    let ca = place.0.join("my-ca.pem");
    let (mut child, said) = start(&place, &["--json", "--ca-file", "my-ca.pem"]);
    let said: Value = serde_json::from_str(&said).expect("one object");
    assert_eq!(said["PGSSLROOTCERT"], ca.to_str().unwrap(), "for clients anywhere");
    assert_eq!((&said["CLUSTER_ENDPOINT"], &said["REGION"]), (&"localhost".into(), &"us-east-1".into()));
    assert!(fs::read_to_string(&ca).unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
    stop(&mut child, "-TERM");
    assert!(place.entries().is_empty());
}

/// A client of the control port and of libpq may not be at hand, but a wrong password is easily sent.
#[test]
fn why_a_login_was_denied_is_said_on_stderr_and_counted() {
    let place = Place::new("denied");
    let (mut child, said) = start(&place, &["--print-env"]);
    let script =
        format!("{said}\nPGPASSWORD=hunter2 psql -c 'SELECT 1'; curl -sS $DSQL_LOCAL_CONTROL/counters");
    let client = Command::new("bash").args(["-c", &script]).output().expect("a shell");
    let counters: Value = serde_json::from_str(text(&client.stdout)).expect("the counters");
    assert_eq!(counters["denied"], serde_json::json!({ "malformed": 1 }), "{}", text(&client.stderr));
    stop(&mut child, "-TERM");
    let mut problems = String::new();
    child.stderr.take().expect("its problems").read_to_string(&mut problems).expect("they are text");
    let denied = "forebay: denied \"admin\": not a token: no query (malformed: 1 so far)\n";
    assert!(problems.ends_with(denied), "{problems}");
}

#[test]
fn a_token_is_one_line() {
    let token = DSQL_LOCAL.run(&["token", "--role", "app", "--endpoint", "abc.dsql-fnh4.eu-west-1.on.aws"]);
    let token = text(&token.stdout);
    assert!(
        token.starts_with("abc.dsql-fnh4.eu-west-1.on.aws/?Action=DbConnect&") && token.lines().count() == 1,
        "{token}"
    );
    assert!(token.contains("%2Feu-west-1%2Fdsql%2Faws4_request&"), "{token}");
}

#[test]
fn bad_usage_is_a_clear_error() {
    for (arguments, expected) in [
        (&["--fault", "explode"][..], "there is no fault 'explode'; there are: refuse"),
        (&["--speed", "-1"], "no speed"),
        (&["--session-life", "60"], "'60' is no duration"),
        (
            &["--endpoint", "host:5432"],
            "'host:5432' is no endpoint: give a host name alone, without scheme, port",
        ),
        (&["--region", ""], "the region must not be empty"),
        (&["token", "--region", ""], "--region must not be empty"),
        (&["--connections", "0"], "--connections 0 nobody can use"),
        (&["--burst", "0"], "--fault refuse:how=53400"),
        (&["--session-life", "0s"], "--session-life 0 nobody can use"),
        (&["--login-limit", "0"], "--login-limit 0 nobody can use"),
        (&["--credentials-file", "/nowhere/at/all"], "/nowhere/at/all: No such file"),
        (&["--print-env", "--json"], "cannot be used with"),
        (&["token", "--expires-in", "200h"], "at most a week"),
        (&["--listen", "192.0.2.1"], "cannot listen on 192.0.2.1:0"),
    ] {
        let refused = DSQL_LOCAL.run(arguments);
        let problem = text(&refused.stderr);
        assert!(!refused.status.success() && problem.contains(expected), "{arguments:?}: {problem}");
        assert!(refused.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn the_manual_page_knows_every_counter_and_its_faults_are_faults() {
    let manual = DSQL_LOCAL.manual();
    for name in dsql_local::Counters::default().json().as_object().unwrap().keys() {
        assert!(manual.contains(&format!("`{name}`")), "{name}");
    }
    let faults = manual.split("## Faults").nth(1).unwrap().split("\n## ").next().unwrap();
    let faults: Vec<&str> =
        faults.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(faults.len(), 10);
    for fault in faults {
        assert_eq!(fault.parse::<dsql_local::Fault>().err(), None, "{fault}");
    }
}

#[test]
fn the_manual_page_knows_every_flag() {
    DSQL_LOCAL.assert_manual_knows_flags(&[&["--help"], &["token", "--help"]]);
}

/// The commands of the manual page, as a reader would type them, against a server started as it says.
#[test]
fn the_manual_pages_commands_work() {
    let place = Place::new("manual");
    let (mut child, said) = start(&place, &["--print-env"]);
    let tested = DSQL_LOCAL.commands_with("$DSQL_LOCAL_CONTROL");
    assert!(tested.len() >= 2, "the manual page shows how to use the control port");
    for block in tested {
        let script = format!("set -e\n{said}\n{block}");
        let mut shell = Command::new("bash")
            .args(["-c", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut problems = String::new();
        shell.stderr.take().unwrap().read_to_string(&mut problems).unwrap();
        assert!(shell.wait().unwrap().success(), "{block}\n{problems}");
    }
    stop(&mut child, "-TERM");
}
