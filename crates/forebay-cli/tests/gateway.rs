//! `forebay gateway` as its users meet it.

#![allow(clippy::disallowed_methods, reason = "these tests wait for processes of their own")]

#[allow(dead_code, reason = "other servers need more of it")]
mod serving;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use serving::{Place, Server, greeting, stop, text};

const GATEWAY: Server = Server("gateway");

/// A build without AWS's SDK needs them.
const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"), ("AWS_SECRET_ACCESS_KEY", "secret")];

/// Without anything of the user's.
fn command(place: &Place, arguments: &[&str]) -> Command {
    let mut command = GATEWAY.command(arguments);
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy().into_owned();
        if ["FOREBAY_", "DSQL_", "PG", "CLUSTER_", "AWS_", "REGION"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            command.env_remove(variable);
        }
    }
    command.current_dir(&place.0);
    command
}

fn add_user(place: &Place, arguments: &[&str], stdin: &str) -> Output {
    let mut child = command(place, &[&["add-user"], arguments].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // It may have ended without reading.
    drop(child.stdin.take().expect("its input").write_all(stdin.as_bytes()));
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_user_is_added_and_the_password_is_nowhere() {
    let place = Place::new("gateway-add-user");
    let added = add_user(&place, &["app", "--role", "writer"], "hunter2\n");
    assert!(added.status.success(), "{}", text(&added.stderr));
    let more = ["bi", "--role", "reader", "--mode", "elastic", "--allow", "10.0.0.0/8", "--allow", "unix"];
    let added = add_user(&place, &more, "hunter2\r\n");
    assert!(added.status.success(), "{}", text(&added.stderr));
    let path = place.0.join("users.toml");
    let file = fs::read_to_string(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(file.matches("SCRAM-SHA-256$4096:").count(), 2, "{file}");
    assert!(file.contains("allow = [\"10.0.0.0/8\", \"unix\"]"), "{file}");
    for said in [&file, text(&added.stdout), text(&added.stderr)] {
        assert!(!said.contains("hunter2"), "{said}");
    }
    let again = add_user(&place, &["app", "--role", "other"], "x\n");
    for words in ["has the user \"app\" already", "--print", "SIGHUP"] {
        assert!(!again.status.success() && text(&again.stderr).contains(words), "{}", text(&again.stderr));
    }
    for (arguments, stdin, words) in [
        (vec!["c", "--role", "r"], "\n", "the password is empty"),
        (vec!["c", "--role", "r"], "", "the password is empty"),
        (vec!["c", "--role", "r", "--allow", "10.1.1.1/8"], "x\n", "not a network"),
        (vec!["c"], "x\n", "--role"),
        (vec!["c", "--role", "r", "hunter2"], "x\n", "unexpected argument"),
    ] {
        let refused = add_user(&place, &arguments, stdin);
        assert!(
            !refused.status.success() && text(&refused.stderr).contains(words),
            "{}",
            text(&refused.stderr)
        );
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), file);
    let printed =
        add_user(&place, &["c", "--role", "r", "--no-password", "--certificate", "c", "--print"], "");
    assert_eq!(text(&printed.stdout), "[[user]]\nname = \"c\"\ncertificate = \"c\"\nrole = \"r\"\n");
    assert_eq!(place.entries(), ["users.toml"]);
}

/// None of them is told of success while its user is lost.
#[test]
fn users_that_are_added_at_the_same_time_are_all_there() {
    let place = Place::new("gateway-add-many");
    let names: Vec<String> = (0..20).map(|number| format!("user{number}")).collect();
    let mut children: Vec<_> = names
        .iter()
        .map(|name| {
            let arguments = ["add-user", name, "--role", "r", "--no-password", "--certificate", "c"];
            command(&place, &arguments).stderr(Stdio::null()).spawn().expect("it starts")
        })
        .collect();
    for child in &mut children {
        assert!(child.wait().expect("it ends").success());
    }
    let file = fs::read_to_string(place.0.join("users.toml")).unwrap();
    for name in names {
        assert_eq!(file.matches(&format!("name = \"{name}\"")).count(), 1, "{name}: {file}");
    }
    assert_eq!(place.entries(), ["users.toml"]);
}

/// Types each line when the text before it is on the screen. Returns all of the screen, and the exit status.
fn typed(mut command: Command, lines: &[(&str, &str)]) -> (String, Option<i32>) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("its other side");
    let name = ptsname(&ours, Vec::new()).expect("its name");
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name, flags, Mode::empty()).expect("it opens");
    let copy = || Stdio::from(theirs.try_clone().expect("a copy"));
    command.stdin(copy()).stdout(copy()).stderr(copy());
    let mut child = command.spawn().expect("it starts");
    // The command keeps its own copies; the terminal ends with the last of them.
    drop((theirs, command));
    let mut terminal = File::from(ours);
    let (mut screen, mut from, mut bytes) = (String::new(), 0, [0; 256]);
    let mut lines = lines.iter();
    let mut next = lines.next();
    // At the end, a terminal gives an error.
    while let Ok(count @ 1..) = terminal.read(&mut bytes) {
        screen += &String::from_utf8_lossy(&bytes[..count]);
        if let Some((prompt, line)) = next
            && let Some(at) = screen[from..].find(prompt)
        {
            from += at + prompt.len();
            terminal.write_all(line.as_bytes()).expect("it reads");
            next = lines.next();
        }
    }
    (screen, child.wait().expect("it ends").code())
}

#[test]
fn a_password_is_typed_twice_and_not_shown() {
    let place = Place::new("gateway-type");
    let add = || command(&place, &["add-user", "app", "--role", "writer"]);
    let (screen, status) = typed(add(), &[("Password for app: ", "hunter2\r"), ("Again: ", "hunter3\r")]);
    assert!(status == Some(1) && screen.contains("the two passwords differ"), "{screen}");
    let (screen, status) = typed(add(), &[("Password for app: ", "hunter2\u{3}")]);
    assert!(status == Some(1) && screen.contains("no password was typed"), "{screen}");
    assert!(place.entries().is_empty());
    let (screen, status) = typed(add(), &[("Password for app: ", "hunter2\r"), ("Again: ", "hunter2\r")]);
    assert_eq!(status, Some(0), "{screen}");
    assert!(!screen.contains("hunter"), "{screen}");
    assert!(fs::read_to_string(place.0.join("users.toml")).unwrap().contains("name = \"app\""));
}

#[test]
fn check_shows_who_gets_which_role_or_every_problem() {
    let place = Place::new("gateway-check");
    let check = |arguments: &[&str], endpoint: &str| {
        let mut command = command(&place, &[&["check"], arguments].concat());
        command.envs(KEYS).env("CLUSTER_ENDPOINT", endpoint).output().expect("it starts")
    };
    let host = "abc.dsql.us-east-1.on.aws";
    place.write("gateway.toml", "mode = 'elastic'\nmax_client = 5\nlisten = 'here'\n");
    let refused = check(&["--config", "gateway.toml", "--idle-timeout", "soon"], "");
    let said = text(&refused.stderr);
    for problem in [
        "did you mean max_clients?",
        "listen is \"here\"",
        "--idle-timeout is \"soon\"",
        "CLUSTER_ENDPOINT is not set",
        "users.toml is not readable",
    ] {
        assert!(said.contains(problem), "{problem}: {said}");
    }
    assert!(!said.contains("REGION"), "the endpoint will tell it: {said}");
    assert_eq!(refused.status.code(), Some(1));
    let missing = check(&[], host);
    let words = "`forebay gateway add-user NAME --role ROLE --users-file users.toml` makes one";
    assert!(text(&missing.stderr).contains(words), "{}", text(&missing.stderr));
    assert!(add_user(&place, &["app", "--role", "writer"], "hunter2\n").status.success());
    assert!(add_user(&place, &["bi", "--role", "reader", "--allow", "unix"], "hunter2\n").status.success());
    let peers =
        "peer_id = 1\npeer_listen = '127.0.0.1:6433'\npeers = ['2=b.internal:6433', '1=a.internal:6433']\n";
    place.write("gateway.toml", &format!("mode = 'elastic'\nmax_clients = 5\nso_reuseport = true\n{peers}"));
    let good = check(&["--config", "gateway.toml"], host);
    let said = text(&good.stdout);
    assert!(good.status.success(), "{}", text(&good.stderr));
    assert!(said.contains("cluster  abc.dsql.us-east-1.on.aws, region us-east-1"), "{said}");
    assert!(said.contains("pools    2, each with up to 100 connections: 200 in all"), "{said}");
    assert!(said.contains("/tmp/.s.PGSQL.6432, also if another process does, without TLS"), "{said}");
    assert!(said.contains("peers    1 is this one, on 127.0.0.1:6433; 2 is b.internal:6433"), "{said}");
    let line = |name: &str| said.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    let words = |name: &str| {
        line(name)
            .split("  ")
            .map(|cell| cell.trim().to_owned())
            .filter(|cell| !cell.is_empty())
            .collect::<Vec<_>>()
    };
    assert_eq!(words("app"), ["app", "writer", "postgres", "password", "elastic, 10s", "anywhere"]);
    assert_eq!(words("bi"), ["bi", "reader", "postgres", "password", "elastic, 10s", "unix"]);
    assert!(!said.contains("SCRAM"), "{said}");
    assert_eq!(text(&good.stderr), "", "there is nothing to warn of");
    let users = fs::read_to_string(place.0.join("users.toml")).unwrap();
    let without_key: Vec<&str> = users.lines().filter(|line| !line.starts_with("decoy_key")).collect();
    place.write("users.toml", &without_key.join("\n"));
    let warned = check(&["--config", "gateway.toml"], host);
    assert!(text(&warned.stderr).contains("has no decoy_key"), "{}", text(&warned.stderr));
    fs::set_permissions(place.0.join("users.toml"), fs::Permissions::from_mode(0o644)).unwrap();
    let warned = check(&["--config", "gateway.toml"], host);
    assert!(
        text(&warned.stderr).contains("other users of this machine can read"),
        "{}",
        text(&warned.stderr)
    );
}

/// What it says before it ends.
fn refused(mut command: Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    text(&output.stderr).to_owned()
}

/// A start that needs several rounds is found out in several nights.
#[test]
fn a_start_and_a_check_find_the_same_problems_at_once() {
    let place = Place::new("gateway-problems");
    place.write("users.toml", "[[user]]\nname = 'a'\n");
    place.write("file", "");
    let cert = place.0.join("none.pem");
    let arguments = [
        "--max-clients",
        "0",
        "--metrics-listen",
        "0.0.0.0:7409",
        "--unix-socket-dir",
        "missing",
        "--tls-cert-file",
        cert.to_str().unwrap(),
        "--tls-key-file",
        cert.to_str().unwrap(),
    ];
    let problems = |first: &[&str]| {
        let mut command = command(&place, &[first, &arguments].concat());
        command.env("DSQL_MAX_CONNS", "many").env("CLUSTER_ENDPOINT", "http://foo");
        let said = refused(command);
        said.split_once('\n').expect("a list").1.to_owned()
    };
    let (checked, started) = (problems(&["check"]), problems(&[]));
    assert_eq!(checked, started);
    let mut expected = vec![
        "--max-clients is \"0\", but must be a whole number from 1 to",
        "--unix-socket-dir (missing) is not usable (No such file",
        "the role of user \"a\" is missing",
        "the password of user \"a\" is missing",
        "tls_cert_file is ",
        "CLUSTER_ENDPOINT is a URL",
        "DSQL_MAX_CONNS is \"many\"",
        "--metrics-listen is \"0.0.0.0:7409\", but must be a loopback address such as 127.0.0.1:9464, unless DSQL_DESK_TOKEN is set",
    ];
    if !cfg!(feature = "aws") {
        expected.extend(["AWS_ACCESS_KEY_ID is not set", "AWS_SECRET_ACCESS_KEY is not set"]);
    }
    for words in expected {
        assert!(checked.contains(words), "{words}: {checked}");
    }
}

#[test]
fn a_place_that_cannot_be_is_found_by_the_check() {
    let place = Place::new("gateway-places");
    assert!(add_user(&place, &["app", "--role", "writer"], "hunter2\n").status.success());
    place.write("file", "");
    place.write(".s.PGSQL.7201", "");
    fs::create_dir(place.0.join("closed")).unwrap();
    fs::set_permissions(place.0.join("closed"), fs::Permissions::from_mode(0o500)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    for (arguments, page, words) in [
        (&["--unix-socket-dir", "file"][..], None, "--unix-socket-dir (file) is not a directory"),
        (&["--unix-socket-dir", "closed"], None, "--unix-socket-dir (closed) is not writable"),
        (
            &["--unix-socket-dir", ".", "--listen", "127.0.0.1:7201"],
            None,
            "another file called .s.PGSQL.7201",
        ),
        (&["--listen", "127.0.0.1:1,127.0.0.1:1"], None, "--listen is 127.0.0.1:1, but must be there once"),
        (&["--listen", "127.0.0.1:7201"], Some("127.0.0.1:7201"), "DSQL_DESK_LISTEN is 127.0.0.1:7201"),
        (
            &["--tls-cert-file", ".", "--tls-key-file", "file"],
            None,
            "--tls-cert-file is . (a directory), but must be a regular file",
        ),
    ] {
        let mut check = command(&place, &[&["check"], arguments].concat());
        check.envs(KEYS).env("CLUSTER_ENDPOINT", "abc.dsql.us-east-1.on.aws");
        if let Some(page) = page {
            check.env("DSQL_DESK_LISTEN", page);
        }
        // Root may write anywhere.
        if !(is_root && arguments.contains(&"closed")) {
            let said = refused(check);
            assert!(said.contains(words) && said.contains("1 problem in"), "{words}: {said}");
        }
    }
    let mut check = command(&place, &["check"]);
    check.envs(KEYS).env("CLUSTER_ENDPOINT", "abc.dsql.us-east-1.on.aws").env("DSQL_MAX_CONN", "5");
    let warned = check.output().expect("it starts");
    assert!(warned.status.success(), "{}", text(&warned.stderr));
    let words = "DSQL_MAX_CONN: no such variable; did you mean DSQL_MAX_CONNS?";
    assert!(text(&warned.stderr).contains(words), "{}", text(&warned.stderr));
    let said = refused(command(&place, &["check", "--local"]));
    assert!(said.contains("--local has nothing to check"), "{said}");
}

/// Others' variables may be anything, and may be secrets.
#[test]
fn variables_that_are_no_text_end_no_start() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let place = Place::new("gateway-bytes");
    let value = OsStr::from_bytes(b"hunter2\xff");
    let mut start = command(&place, &[]);
    start.env("SOMETHING", value).env("DSQL_DESK_TOKEN", value).env("FOREBAY_GATEWAY_USERS_FILE", value);
    let said = refused(start);
    for name in ["DSQL_DESK_TOKEN", "FOREBAY_GATEWAY_USERS_FILE"] {
        assert!(said.contains(&format!("{name} is not UTF-8")), "{said}");
    }
    assert!(!said.contains("hunter2") && !said.contains("SOMETHING"), "{said}");
    let mut add = command(&place, &["add-user", "a", "--role", "r", "--no-password", "--certificate", "c"]);
    add.env("FOREBAY_GATEWAY_USERS_FILE", value);
    assert!(refused(add).contains("FOREBAY_GATEWAY_USERS_FILE is not UTF-8"));
    assert!(place.entries().is_empty());
}

/// `forebay gateway add-user`, and a gateway in the same place.
#[test]
fn a_user_is_added_to_the_file_that_the_gateway_reads() {
    let place = Place::new("gateway-add-where");
    fs::create_dir(place.0.join("etc")).unwrap();
    place.write("etc/gateway.toml", "users_file = 'of-config.toml'\nmax_clients = 0\n");
    place.write("etc/trust.toml", "auth = 'trust'\nusers_file = 'of-trust.toml'\n");
    place.write("etc/broken.toml", "users_file = \n");
    let add = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command =
            command(&place, &[&["add-user", "a", "--role", "r", "--no-password"], arguments].concat());
        command.envs(variables.iter().copied());
        command
    };
    let of_config = ("FOREBAY_GATEWAY_CONFIG", "etc/gateway.toml");
    let of_variable = ("FOREBAY_GATEWAY_USERS_FILE", "of-variable.toml");
    let with = ["--certificate", "c"];
    for (arguments, variables, file) in [
        (&[][..], &[][..], "users.toml"),
        (&[], &[of_config], "etc/of-config.toml"),
        (&["--config", "etc/gateway.toml"], &[], "etc/of-config.toml"),
        (&[], &[of_config, of_variable], "of-variable.toml"),
        (&["--users-file", "of-flag.toml"], &[of_config, of_variable], "of-flag.toml"),
    ] {
        let added = add(&[&with, arguments].concat(), variables).output().expect("it starts");
        assert!(added.status.success(), "{}", text(&added.stderr));
        fs::remove_file(place.0.join(file)).expect(file);
    }
    let said = refused(add(&[&with[..], &["--config", "etc/broken.toml"]].concat(), &[]));
    assert!(said.contains("etc/broken.toml:1: the syntax is wrong"), "{said}");
    // Without a proof, a gateway that asks for one would not start again.
    let said = refused(add(&[], &[]));
    assert!(said.contains("only where auth is trust") && said.contains("--auth trust"), "{said}");
    for arguments in [["--auth", "trust"], ["--config", "etc/trust.toml"]] {
        assert!(add(&arguments, &[]).status().expect("it starts").success());
    }
    assert!(fs::read_to_string(place.0.join("etc/of-trust.toml")).unwrap().contains("name = \"a\""));
    let wrong = add_user(&place, &["", "--role", ""], "");
    let said = text(&wrong.stderr);
    assert!(said.contains("the name of the user is \"\"") && said.contains("the role is \"\""), "{said}");
    let folder = add_user(&place, &["b", "--role", "r", "--users-file", "etc"], "hunter2\n");
    assert_eq!(text(&folder.stderr).matches("etc is a directory").count(), 1, "{}", text(&folder.stderr));
}

/// A start that reads a pipe would wait for its writer, deaf to signals.
#[test]
fn files_that_have_no_end_are_refused() {
    let place = Place::new("gateway-pipes");
    assert!(Command::new("mkfifo").arg(place.0.join("p")).status().expect("mkfifo").success());
    for arguments in [
        &["--local", "--users-file", "p"][..],
        &["--local", "--config", "p"],
        &["--local", "--tls-cert-file", "p", "--tls-key-file", "p"],
        &["add-user", "a", "--role", "r", "--no-password", "--certificate", "c", "--users-file", "p"],
    ] {
        let said = refused(command(&place, arguments));
        assert!(said.contains("a pipe, a device or a socket") && said.contains("a regular file"), "{said}");
    }
}

#[test]
fn local_says_what_it_lacks() {
    let place = Place::new("gateway-local-lacks");
    let said = refused(command(&place, &["--local", "--auth", "scram"]));
    assert!(
        said.contains("users.toml is missing, but must be there, as --local with --auth scram"),
        "{said}"
    );
    assert!(
        said.contains("add-user NAME --role admin --users-file users.toml") && !said.contains(".tmp"),
        "{said}"
    );
    let said = refused(command(&place, &["--local", "--metrics-listen", "0.0.0.0:0"]));
    assert!(said.contains("--metrics-listen is \"0.0.0.0:0\"") && said.contains("DSQL_DESK_TOKEN"), "{said}");
    let said = refused(command(&place, &["--local", "--worker-threads", "100000"]));
    assert!(
        said.contains("--worker-threads is \"100000\", but must be a whole number from 1 to 1024"),
        "{said}"
    );
}

/// As a container's network needs it.
#[test]
fn the_page_of_a_local_gateway_has_the_token_of_the_variable() {
    let place = Place::new("gateway-local-page");
    let mut child = command(&place, &["--local", "--listen", "127.0.0.1:0", "--metrics-listen", "0.0.0.0:0"])
        .env("DSQL_DESK_TOKEN", "0123456789abcdef")
        .env("TMPDIR", &place.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut said = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    while !said.contains("psql") {
        assert!(output.read_line(&mut said).expect("it is read") > 0, "it ended: {said}");
    }
    let port = said.split("http://0.0.0.0:").nth(1).and_then(|rest| rest.split('/').next()).expect("a page");
    assert_eq!(get(&format!("127.0.0.1:{port}"), "/metrics").0, 401);
    stop(&mut child, "-TERM");
}

/// The status and the body of an answer.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).expect("it listens");
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

/// Its pools take a while to open, such as for want of an answer.
#[test]
fn a_gateway_that_is_told_to_end_while_it_starts_ends_at_once() {
    let place = Place::new("gateway-start");
    assert!(add_user(&place, &["app", "--role", "writer"], "hunter2\n").status.success());
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut child = command(&place, &["--listen", "127.0.0.1:0", "--unix-socket-dir", ""])
        .envs([
            ("CLUSTER_ENDPOINT", "localhost"),
            ("PGHOSTADDR", "127.0.0.1"),
            ("REGION", "us-east-1"),
            ("DSQL_STAGGERED_STARTUP", "false"),
        ])
        .envs(KEYS)
        .env("PGPORT", silent.local_addr().unwrap().port().to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let _held = silent.accept().expect("it opens a connection");
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
    // With 0, it would have started first.
    assert_eq!(child.wait().expect("it ends").code(), Some(143));
}

/// What a load balancer asks.
#[test]
fn a_gateway_is_ready_until_it_drains_and_alive_until_it_ends() {
    let place = Place::new("gateway-ready");
    let arguments = ["--local", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"];
    let (mut child, said) = GATEWAY.start(&place, "psql", &arguments);
    let page =
        said.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("a page").to_owned();
    assert_eq!(get(&page, "/healthz").0, 200);
    assert_eq!(get(&page, "/readyz"), (200, "ready\n".to_owned()));
    let port = said.split("port=").nth(1).and_then(|rest| rest.split(' ').next()).expect("a port");
    // The client has no application_name, so the server is told none.
    let mut client = Command::new("psql")
        .args(["-X", "-q", "-A", "-t"])
        .arg(format!("host=127.0.0.1 port={port} user=admin dbname=postgres application_name=''"))
        .env_remove("PGAPPNAME")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("psql");
    let mut statements = client.stdin.take().expect("its input");
    let mut rows = BufReader::new(client.stdout.take().expect("its output")).lines();
    statements.write_all(b"SHOW application_name;\nBEGIN;\nSELECT 42;\n").unwrap();
    assert_eq!(rows.next().expect("a row").unwrap(), "");
    assert_eq!(rows.next().expect("a row").unwrap(), "42");
    let (_, metrics) = get(&page, "/metrics");
    for line in ["forebay_gateway_clients 1", "forebay_gateway_logins_total{outcome=\"accepted\"} 1"] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
    while get(&page, "/readyz").0 == 200 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(get(&page, "/readyz"), (503, "the gateway is draining\n".to_owned()));
    assert_eq!(get(&page, "/healthz").0, 200);
    statements.write_all(b"COMMIT;\n").unwrap();
    drop(statements);
    assert!(client.wait().expect("it ends").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

/// Says hello as somebody whom the gateway does not know.
fn knock(port: &str) {
    let mut socket = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
    let packet = [&[0, 0, 0, 23, 0, 3, 0, 0][..], b"user\0stranger\0\0"].concat();
    socket.write_all(&packet).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("a refusal");
    assert_eq!(answer.first(), Some(&b'E'));
}

/// The command works that it has printed.
fn answers(said: &str) {
    let psql = said.lines().find(|line| line.contains("psql")).expect("a command").trim();
    let answer = Command::new("sh")
        .args(["-c", &format!("{psql} -X -A -t -c 'SELECT 40 + 2'")])
        .output()
        .expect("a shell");
    assert_eq!(text(&answer.stdout).trim(), "42", "{}", text(&answer.stderr));
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    for reader_is_gone in [true, false] {
        let place = Place::new(&format!("gateway-log-{reader_is_gone}"));
        let (mut child, said) = GATEWAY.start(&place, "psql", &["--local", "--listen", "127.0.0.1:0"]);
        if reader_is_gone {
            drop(child.stderr.take());
        }
        let port = said.split("port=").nth(1).and_then(|rest| rest.split(' ').next()).expect("a port");
        // More lines than a pipe holds.
        (0..600).for_each(|_| knock(port));
        for signal in ["-HUP", "-USR1", "-USR2"] {
            let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
            assert!(sent.success());
        }
        answers(&said);
        stop(&mut child, "-TERM");
    }
}

#[test]
fn too_few_descriptors_are_told() {
    let place = Place::new("gateway-descriptors");
    let forebay = env!("CARGO_BIN_EXE_forebay");
    let limited = format!("ulimit -n 4096; exec {forebay} gateway --local --listen 127.0.0.1:0");
    let mut child = Command::new("sh")
        .args(["-c", &limited])
        .current_dir(&place.0)
        .env("TMPDIR", &place.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("its log")).lines();
    let found = said.find(|line| line.as_ref().unwrap().contains("4096 file descriptors are too few"));
    assert!(found.is_some_and(|line| line.unwrap().contains("allow 16000")));
    greeting(&mut child, "psql");
    stop(&mut child, "-TERM");
}

#[test]
fn a_level_of_the_log_that_is_none_is_told() {
    let place = Place::new("gateway-rust-log");
    let refused = command(&place, &["--local"]).env("RUST_LOG", "forebay=loud").output().expect("it starts");
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("RUST_LOG is \"forebay=loud\", but must be a level"), "{said}");
}

#[test]
fn a_gateway_on_a_laptop_prints_a_command_that_works() {
    let place = Place::new("gateway-local");
    let (mut child, said) = GATEWAY.start(&place, "psql", &["--local", "--listen", "127.0.0.1:0"]);
    answers(&said);
    stop(&mut child, "-TERM");
    assert!(place.entries().is_empty(), "{:?}", place.entries());
}
