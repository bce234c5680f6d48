//! `forebay schema` as its users meet it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::{env, fs};

use serde_json::Value;

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is text")
}

/// A local Aurora DSQL, the variables of its clients, and a directory for files.
struct Cluster {
    place: PathBuf,
    server: Child,
    variables: Vec<(String, String)>,
}

impl Cluster {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let place = env::temp_dir().join(format!("forebay-cli-{name}-{}", std::process::id()));
        fs::create_dir_all(place.join("migrations")).expect("a new directory");
        let mut server = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["dsql-local", "--engine", "postgres", "--json"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut said = String::new();
        BufReader::new(server.stdout.take().expect("its output")).read_line(&mut said).expect("it is read");
        let said: Value = serde_json::from_str(&said).expect("one object");
        let variable = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        let variables = said.as_object().unwrap().iter().filter_map(variable).collect();
        Self { place, server, variables }
    }

    fn file(&self, name: &str, content: &str) {
        fs::write(self.place.join("migrations").join(name), content).expect("a new file");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.arg("schema").args(arguments).current_dir(&self.place).envs(self.variables.iter().cloned());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it runs")
    }

    /// Runs it, and returns what it prints if it ends with this status.
    fn expect(&self, status: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout).to_owned()
    }

    fn json(&self, status: i32, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.expect(status, &[arguments, &["--json"]].concat())).expect("one object")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let sent = Command::new("kill").args(["-TERM", &self.server.id().to_string()]).status();
        let ended = self.server.wait();
        drop(fs::remove_dir_all(&self.place));
        assert!(sent.is_ok_and(|sent| sent.success()) && ended.is_ok_and(|status| status.success()));
    }
}

const ORDERS: &str = "CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL);
CREATE INDEX ASYNC orders_customer ON orders (customer);
INSERT INTO orders VALUES (1, 'ada');
";

#[test]
fn a_database_is_set_up_verified_and_set_up_again() {
    let cluster = Cluster::start("schema-setup", &[]);
    cluster.file("0001_orders.sql", ORDERS);
    let planned = cluster.expect(0, &["setup", "--dry-run"]);
    assert!(
        planned.contains("-- 0001_orders.sql:2\nBEGIN;\nCREATE INDEX ASYNC orders_customer"),
        "{planned}"
    );
    assert!(planned.ends_with("-- 3 transactions would run\n"), "{planned}");
    assert_eq!(cluster.json(1, &["status"])["set_up"], false);
    assert!(text(&cluster.run(&["update"]).stderr).contains("run `setup` first"));
    let output = cluster.run(&["setup"]);
    assert_eq!(text(&output.stdout), "default: 1 file and 3 statements applied; version 0001\n");
    let told = text(&output.stderr);
    assert!(
        told.contains("0001_orders.sql:2: 2 of 3: CREATE INDEX ASYNC orders_customer ON orders (customer)\n"),
        "{told}"
    );
    assert!(
        told.contains("public.orders_customer: submitted, 0s (job ")
            && told.ends_with("0001_orders.sql: applied\n"),
        "{told}"
    );
    assert_eq!(cluster.expect(0, &["verify", "--strict"]), "the database is as the files say\n");
    let again = cluster.json(0, &["setup"]);
    assert_eq!((again["statements"].as_u64(), again["version"].as_str()), (Some(0), Some("0001")));
    assert!(cluster.expect(0, &["status"]).starts_with("0001_orders.sql  applied 20"));
    cluster.file("0002_notes.sql", "ALTER TABLE orders ADD COLUMN note text;");
    assert_eq!(cluster.json(1, &["verify"])["pending"][0], "0002_notes.sql");
    assert_eq!(cluster.json(0, &["update"])["applied"][0], "0002_notes.sql");
    // What is dumped is a file for setup.
    let dumped = cluster.expect(0, &["dump"]);
    assert!(dumped.contains("CREATE INDEX ASYNC orders_customer ON public.orders (customer);"), "{dumped}");
    let copy = Cluster::start("schema-copy", &["--rules", "spec"]);
    copy.file("1_dump.sql", &dumped);
    assert_eq!(copy.json(0, &["setup", "--rules", "spec"])["statements"], 2);
    assert_eq!(copy.expect(0, &["dump"]), dumped);
}

#[test]
fn problems_are_listed_with_their_lines_and_remedies() {
    let cluster = Cluster::start("schema-problems", &[]);
    cluster
        .file("V1__a.sql", "BEGIN;\nCREATE TABLE a (\n  id serial\n);\nCREATE INDEX ON a (id);\nCOMMIT;\n");
    let checked = cluster.json(1, &["check"]);
    let lines: Vec<u64> =
        checked["findings"].as_array().unwrap().iter().map(|one| one["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [1, 3, 5]);
    let output = cluster.run(&["setup"]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(
        told.contains("nothing was run") && told.contains("V1__a.sql:3: type \"serial\" does not exist\n"),
        "{told}"
    );
    assert!(told.contains("write CREATE INDEX ASYNC (--fix does that)"), "{told}");
    assert_eq!(cluster.json(1, &["setup"])["findings"].as_array().map(Vec::len), Some(3));
    cluster.file("V1__a.sql", "BEGIN;\nCREATE TABLE a (\n  id int\n);\nCREATE INDEX ON a (id);\nCOMMIT;\n");
    let output = cluster.run(&["setup", "--fix"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("V1__a.sql:5: fixed: write CREATE INDEX ASYNC\n"),
        "{}",
        text(&output.stderr)
    );
    cluster.file("V1__a.sql", "CREATE TABLE b (id int);");
    let output = cluster.run(&["update"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("V1__a.sql; restore the text"), "{}", text(&output.stderr));
    let output = cluster.run(&["setup", "absent"]);
    assert!(text(&output.stderr).contains("cannot read absent"), "{}", text(&output.stderr));
    let output = cluster.run(&["setup", "--schema", "other"]);
    assert!(text(&output.stderr).contains("--schema knows: temporal"), "{}", text(&output.stderr));
    let output = cluster.command(&["status"]).env_remove("CLUSTER_ENDPOINT").output().unwrap();
    assert!(text(&output.stderr).contains("CLUSTER_ENDPOINT"), "{}", text(&output.stderr));
}

#[test]
fn the_schema_of_temporal_is_part_of_the_program() {
    let cluster =
        Cluster::start("schema-temporal", &["--rules", "spec", "--fault", "stale-schema:after=ddl"]);
    let done = cluster.json(0, &["setup", "--schema", "temporal", "--rules", "spec"]);
    assert_eq!((done["name"].as_str(), done["version"].as_str()), (Some("temporal"), Some("1.1.1")));
    assert_eq!(
        cluster.expect(0, &["verify", "--schema", "temporal", "--strict"]),
        "the database is as the files say\n"
    );
    assert_eq!(cluster.json(0, &["setup", "--schema", "temporal"])["statements"], 0);
}

/// Neither the name of a file, nor what is in it or in the database, reaches the terminal as a command.
#[test]
#[cfg(unix)]
fn nothing_controls_the_terminal() {
    let cluster = Cluster::start("schema-escapes", &[]);
    let odd = "\u{1b}[31mred\u{9b}2J";
    cluster.file(
        &format!("1_{odd}.sql"),
        &format!("CREATE TABLE \"{odd}\" (id int);\nINSERT INTO \"{odd}\" VALUES ('{odd}');"),
    );
    let is_safe = |output: &Output| {
        let said = [text(&output.stdout), text(&output.stderr)].concat();
        assert!(!said.contains(|letter: char| letter.is_control() && letter != '\n'), "{said:?}");
        assert!(said.contains("␛[31mred"), "{said:?}");
    };
    is_safe(&cluster.run(&["setup"]));
    is_safe(&cluster.run(&["status"]));
    cluster.file(&format!("1_{odd}.sql"), "TRUNCATE x");
    is_safe(&cluster.run(&["check"]));
    is_safe(&cluster.run(&["update"]));
    // SQL for a file is as it is.
    assert!(cluster.expect(0, &["dump"]).contains(odd));
    assert_eq!(cluster.json(1, &["check"])["findings"][0]["file"], format!("1_{odd}.sql"));
}

/// Nothing is under way yet that would have to finish.
#[test]
fn a_signal_ends_a_command_that_cannot_connect() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("its port").port().to_string();
    let place = env::temp_dir().join(format!("forebay-cli-schema-silent-{}", std::process::id()));
    fs::create_dir_all(&place).expect("a new directory");
    fs::write(place.join("1.sql"), "SELECT 1;").expect("a new file");
    for (command, json) in [("setup", false), ("status", true)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["schema", command, "."])
            .args(json.then_some("--json"))
            .current_dir(&place)
            .env("CLUSTER_ENDPOINT", "localhost")
            .env("PGHOSTADDR", "127.0.0.1")
            .env("PGPORT", &port)
            .env("REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
            .env("AWS_SECRET_ACCESS_KEY", "not-a-secret")
            .env_remove("PGSSLROOTCERT")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        // It is connected to somebody who says nothing.
        let _silent = listener.accept().expect("it connects");
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(130), "{command}");
        let output = child.wait_with_output().unwrap();
        let told = text(&output.stderr);
        assert!(told.contains("stopped before anything was changed"), "{told}");
        let said = text(&output.stdout);
        assert_eq!(serde_json::from_str::<Value>(said).is_ok(), json, "{said}");
    }
    drop(fs::remove_dir_all(&place));
}

#[test]
fn an_error_is_told_once_and_with_its_place() {
    let cluster = Cluster::start("schema-errors", &[]);
    cluster.file("1.sql", "CREATE TABLE a (i int);\nINSERT INTO a VALUES (1/0);");
    let failed = cluster.json(2, &["setup"]);
    let error = failed["error"].as_str().unwrap();
    assert_eq!(error.matches("division by zero").count(), 1, "{error}");
    assert!(
        error.contains("1.sql:2: ") && error.contains("1 earlier statement of this file is applied"),
        "{error}"
    );
    let output = cluster.run(&["setup", "absent"]);
    assert_eq!(text(&output.stderr).matches("(os error 2)").count(), 1, "{}", text(&output.stderr));
    cluster.file("1.sql", "CREATE TABLE a (i int);\nINSERT INTO a VALUES (1);");
    // Done by hand: it is recorded, and not run.
    let planned = cluster.expect(0, &["setup", "--baseline", "1", "--dry-run"]);
    assert!(planned.starts_with("-- 1.sql would be recorded as applied, and not run\n"), "{planned}");
    assert_eq!(
        cluster.expect(0, &["setup", "--baseline", "1"]),
        "default: 1 file recorded, and not run; version 1\n"
    );
}

/// Waits for a line that a process tells.
fn wait_for(child: &mut Child, what: &str) {
    let reader = BufReader::new(child.stderr.take().expect("a pipe"));
    assert!(reader.lines().any(|line| line.unwrap().contains(what)), "never told: {what}");
}

#[test]
fn a_signal_ends_a_run_and_a_kill_does_too_and_the_next_one_continues() {
    for (signal, status) in [("-INT", Some(130)), ("-TERM", Some(143)), ("-KILL", None)] {
        // Its clock stands still, but a job begins as soon as somebody waits for it: so statements are slow instead.
        let cluster = Cluster::start(&format!("schema{signal}"), &["--fault", "delay:at=commit,for=100ms"]);
        cluster.file("0001_orders.sql", ORDERS);
        let mut child =
            cluster.command(&["setup"]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        wait_for(&mut child, "0001_orders.sql:1: 1 of 3");
        let id = child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        let ended = child.wait().unwrap();
        assert_eq!(ended.code(), status, "{signal}");
        let known = cluster.json(1, &["status"]);
        assert_eq!(known["files"][0]["state"], "partial", "{signal}: {known}");
        if signal == "-KILL" {
            assert!(
                known["lock_holder"].as_str().is_some_and(|holder| holder.contains(&format!("process {id}")))
            );
        } else {
            assert_eq!(known["lock_holder"], Value::Null, "{signal}");
            let told = cluster.run(&["setup"]);
            assert!(
                text(&told.stderr).contains("0001_orders.sql: 3 statements, 1 is applied already"),
                "{}",
                text(&told.stderr)
            );
            cluster.expect(0, &["verify"]);
        }
    }
}

#[test]
fn the_manual_page_knows_every_command_and_flag() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema.md");
    let manual = fs::read_to_string(page).expect("the page");
    for command in ["setup", "update", "verify", "status", "dump", "check"] {
        assert!(manual.contains(&format!("| `{command}` |")), "{command}");
        let help =
            Command::new(env!("CARGO_BIN_EXE_forebay")).args(["schema", command, "--help"]).output().unwrap();
        let words = text(&help.stdout).split_whitespace().filter(|word| word.starts_with("--"));
        for flag in words.map(|word| word.trim_matches(|letter: char| !letter.is_ascii_lowercase())) {
            assert!(manual.contains(&format!("--{flag}")) || flag == "help", "{command} --{flag}");
        }
    }
}

/// The commands at the top of the manual page.
#[test]
fn the_first_commands_of_the_manual_page_work() {
    let cluster = Cluster::start("schema-manual", &[]);
    cluster.file("0001_orders.sql", ORDERS);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema.md");
    let manual = fs::read_to_string(page).expect("the page");
    let commands: Vec<&str> = manual.lines().filter(|line| line.starts_with("forebay schema ")).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        let words =
            command.split('#').next().unwrap_or_default().split_whitespace().skip(2).collect::<Vec<_>>();
        cluster.expect(0, &words);
    }
}
