//! `forebay flight-local` as its users meet it.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::{env, fs};

use serde_json::Value;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.arg("flight-local").args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is text")
}

/// A directory of its own, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("forebay-cli-flight-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a new directory");
        Self(path)
    }

    fn write(&self, name: &str, content: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a new file");
        path.to_str().expect("a name").to_owned()
    }

    fn entries(&self) -> usize {
        fs::read_dir(&self.0).expect("it is there").count()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A server that makes its files in `place`, and the first `lines` that it says.
fn start(place: &Place, lines: usize, arguments: &[&str]) -> (Child, String) {
    let mut child = command(arguments)
        .env("TMPDIR", &place.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    let mut said = String::new();
    for _ in 0..lines {
        assert!(output.read_line(&mut said).expect("it is read") > 0, "it ended: {said}");
    }
    (child, said)
}

fn stop(child: &mut Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{signal}");
}

#[test]
fn it_says_where_it_is_and_leaves_nothing_behind() {
    for (signal, form) in [("-INT", "--json"), ("-TERM", "--print-env")] {
        let place = Place::new(signal);
        let lines = if form == "--json" { 1 } else { 2 };
        let (mut child, said) = start(&place, lines, &["--port", "0", "--tls", form]);
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
        assert_eq!(place.entries(), 0);
    }
}

#[test]
fn a_person_is_told_in_words() {
    let place = Place::new("words");
    let (mut child, said) = start(&place, 3, &["--further-listeners", "1", "--like", "swanlake"]);
    assert!(said.starts_with("listening on grpc://127.0.0.1:"), "{said}");
    assert!(said.contains("\nand on       grpc://127.0.0.1:") && said.contains("Ctrl-C"), "{said}");
    stop(&mut child, "-INT");
}

#[test]
fn a_port_that_is_taken_is_told_with_the_remedy() {
    let place = Place::new("port");
    let (mut child, said) = start(&place, 1, &["--json"]);
    let said: Value = serde_json::from_str(&said).expect("one object");
    let port = said["FLIGHT_SQL_URL"].as_str().and_then(|url| url.rsplit(':').next()).expect("a port");
    let refused = run(&["--port", port]);
    assert_eq!(refused.status.code(), Some(1));
    let problem = text(&refused.stderr);
    assert!(problem.contains(port) && problem.contains("choose another port"), "{problem}");
    stop(&mut child, "-TERM");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    let place = Place::new("refused");
    let empty = place.write("empty", "");
    for (arguments, word) in [
        (vec!["--session-limit", "0"], "allow some"),
        (vec!["--session-linger", "soon"], "such as 250ms"),
        (vec!["--user", "ann"], "--password-file"),
        (vec!["--user", "ann", "--password-file", &empty], "no password"),
        (vec!["--cert", &empty, "--key", &empty], "PEM"),
        (vec!["--cert", "/nowhere", "--key", "/nowhere"], "/nowhere"),
        (vec!["--refuse", "dance"], "possible values"),
    ] {
        let refused = run(&arguments);
        assert!(!refused.status.success());
        let problem = text(&refused.stderr);
        assert!(problem.contains(word), "{arguments:?}: {problem}");
        assert!(!problem.contains("panicked"), "{problem}");
    }
}

fn manual() -> String {
    fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/flight-local.md")).expect("the page")
}

#[test]
fn the_manual_page_knows_every_counter_and_flag() {
    let manual = manual();
    for (name, _) in flight_local::Counters::default().named() {
        assert!(manual.contains(&format!("`{name}`")), "{name}");
    }
    for arguments in [&["--help"][..], &["tell", "--help"]] {
        let help = run(arguments);
        let flags = text(&help.stdout).split_whitespace().filter(|word| word.starts_with("--"));
        for flag in flags.map(|flag| flag.trim_matches(|letter: char| !letter.is_ascii_lowercase())) {
            assert!(manual.contains(&format!("`--{flag}")) || matches!(flag, "help"), "--{flag}");
        }
    }
}

/// The commands of the manual page, as a reader would type them, against a server started as it says.
#[test]
fn the_manual_pages_commands_work() {
    let manual = manual();
    let place = Place::new("manual");
    let (mut child, said) = start(&place, 2, &["--print-env", "--control"]);
    let blocks = manual.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let tested: Vec<&str> = blocks.filter(|block| block.contains("flight-local tell")).collect();
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
fn whoever_tells_nobody_or_the_wrong_thing_is_told_so() {
    let place = Place::new("tell");
    let (mut child, said) = start(&place, 1, &["--json"]);
    let said: Value = serde_json::from_str(&said).expect("one object");
    let url = said["FLIGHT_SQL_URL"].as_str().expect("a url");
    let tell = |arguments: &[&str]| {
        let mut command = command(&["tell"]);
        let output = command.env_remove("FLIGHT_SQL_URL").args(arguments).output().expect("it starts");
        assert!(!output.status.success(), "{arguments:?}");
        text(&output.stderr).to_owned()
    };
    assert!(tell(&["counters"]).contains("FLIGHT_SQL_URL"));
    assert!(tell(&["--url", url, "counters"]).contains("does not know flight-local.tell"));
    assert!(tell(&["--url", "nowhere", "counters"]).contains("grpc://"));
    assert!(tell(&["--url", "grpc://127.0.0.1:1", "counters"]).contains("cannot reach"));
    stop(&mut child, "-TERM");
}
