//! The command, as its users run it.

mod manual;
mod plan;
mod sim;

use std::process::{Command, Output};
use std::{env, fs};

use serde_json::Value;

fn forebay(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(arguments).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is text")
}

#[test]
fn help_lists_the_commands_by_task() {
    let help = forebay(&["--help"]);
    assert!(help.status.success());
    let help = text(&help.stdout);
    let places: Vec<usize> = [
        "Try it:",
        "  demo ",
        "  sim ",
        "Local servers:",
        "  dsql-local ",
        "  flight-local ",
        "Aurora DSQL:",
        "  gateway ",
        "  schema ",
        "Flight SQL:",
        "  flight ",
        "Operate a fleet:",
        "  plan ",
        "  doctor ",
        "  lease ",
        "  limiter ",
        "This program:",
        "  completions ",
        "  man ",
        "  help ",
        "Options:",
        "  -V, --version",
    ]
    .into_iter()
    .map(|words| help.find(words).unwrap_or_else(|| panic!("{words} is missing:\n{help}")))
    .collect();
    assert!(places.is_sorted(), "{help}");
    assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
}

#[test]
fn help_of_a_command_lists_its_options_and_fits_the_terminal() {
    let help = forebay(&["demo", "--help"]);
    assert!(help.status.success());
    for flag in ["--seconds", "--seed", "--json", "--plain", "--listen", "--no-browser", "130"] {
        assert!(text(&help.stdout).contains(flag), "{flag} is missing:\n{}", text(&help.stdout));
    }
    for (command, width) in [("demo", 80), ("sim", 80), ("plan", 80), ("completions", 80), ("demo", 60)] {
        let help = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args([command, "--help"])
            .env("COLUMNS", width.to_string())
            .output()
            .expect("the command starts");
        let help = text(&help.stdout);
        assert!(help.lines().all(|line| line.chars().count() <= width), "{width}:\n{help}");
    }
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = forebay(&["completions", shell]);
        assert!(script.status.success(), "{shell}: {}", text(&script.stderr));
        for word in ["demo", "flight-local", "--", "plain", "keep-going"] {
            assert!(text(&script.stdout).contains(word), "{shell} lacks {word}");
        }
    }
    assert_eq!(forebay(&["completions", "cmd"]).status.code(), Some(2));
}

#[test]
fn bash_reads_its_completions() {
    let script = "source <(\"$0\" completions bash) && COMP_WORDS=(forebay demo --se) COMP_CWORD=2 \
                  && _forebay forebay --se demo && echo \"${COMPREPLY[*]}\"";
    let bash = Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_forebay")]).output();
    let bash = bash.expect("bash starts");
    assert_eq!(text(&bash.stdout), "--seconds --seed\n", "{}", text(&bash.stderr));
}

#[test]
fn each_command_gets_a_man_page() {
    let directory = env::temp_dir().join(format!("forebay-man-{}", std::process::id()));
    let written = forebay(&["man", directory.join("man1").to_str().expect("a plain path")]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    for (page, words) in [
        ("forebay.1", "forebay\\-demo(1)"),
        ("forebay-demo.1", "seconds"),
        ("forebay-sim.1", "keep\\-going"),
        ("forebay-completions.1", "bash"),
    ] {
        let page = fs::read_to_string(directory.join("man1").join(page)).expect(page);
        assert!(page.contains(".TH forebay") && page.contains(words), "{page}");
    }
    fs::remove_dir_all(directory).expect("it is removed");
    let refused = forebay(&["man", "/dev/null/man1"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("cannot write to /dev/null/man1"), "{}", text(&refused.stderr));
}

#[test]
fn without_a_command_the_help_is_shown() {
    let shown = forebay(&[]);
    assert_eq!(shown.status.code(), Some(2));
    assert!(text(&shown.stderr).contains("Usage: forebay"), "{}", text(&shown.stderr));
}

#[test]
fn bad_usage_is_a_clear_error() {
    for (arguments, expected) in [
        (&["demo", "--jsn"][..], "--json"),
        (&["dmo"], "demo"),
        (&["demo", "--seconds", "19"], "19 is not in 20..=3600"),
        (&["demo", "--seconds", "abc"], "invalid value 'abc' for '--seconds"),
        (&["demo", "--seconds", "-3"], "-3 is not in 20..=3600"),
        (&["demo", "--listen", "0.0.0.0:80"], "for this machine only"),
        (&["demo", "--seed", "1.5"], "invalid value '1.5' for '--seed"),
        (&["demo", "--json", "--plain"], "cannot be used with"),
    ] {
        let refused = forebay(arguments);
        let (stdout, stderr) = (text(&refused.stdout), text(&refused.stderr));
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected) && stdout.is_empty(), "{arguments:?}: {stderr}");
    }
}

/// The real stack in real time, in a run as short as it can be. Only what a slow machine cannot change: which waits are long, and
/// whether one ends in time, is tested in virtual time (`demo/virtual_time.rs`).
#[test]
fn the_demo_runs_the_real_stack_through_every_incident() {
    let output = forebay(&["demo", "--seconds", "20", "--json", "--seed", "7", "--listen", "127.0.0.1:0"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    assert_eq!((&record["seed"], &record["seconds"]), (&7.into(), &20.into()));
    assert_eq!(record["ending"], "complete");
    let incidents = record["incidents"].as_array().expect("a list");
    let names: Vec<_> = incidents.iter().map(|incident| &incident["incident"]).collect();
    assert_eq!(names, ["quiet", "expiry", "cut", "kill", "outage"]);
    let sides: &[&str] =
        if cfg!(feature = "sqlx") { &["deadpool", "sqlx", "reservoir"] } else { &["deadpool", "reservoir"] };
    for side in sides {
        let callers = |figures: &Value| {
            figures["acquires"].as_u64().unwrap() + figures["lost_callers"].as_u64().unwrap()
        };
        for incident in incidents {
            assert!(callers(&incident[side]) > 50, "{side}: {record:#}");
        }
        assert!(callers(&record[side]) > 2_000, "{side}: {record:#}");
        // All sessions have ended, twice.
        assert!(record[side]["opens"].as_u64() > Some(0), "{side}: {record:#}");
        assert!(record[side]["settings"]["life"].is_string(), "{side}: {record:#}");
        for figure in [
            "p50_ms",
            "p99_ms",
            "max_ms",
            "failed_acquires",
            "slow_acquires",
            "failed_queries",
            "late_starts",
            "latest_start_ms",
            "peak_opens_per_second",
            "refused_opens",
        ] {
            assert!(record[side][figure].is_number(), "{side} lacks {figure}: {record:#}");
        }
    }
    assert!(record["machine_too_busy"].is_boolean(), "{record:#}");
    let stderr = text(&output.stderr);
    for words in
        ["live page: http://127.0.0.1:", "filling:", "of 20 s | deadpool", "incident 4: the fleet's table"]
    {
        assert!(stderr.contains(words), "{words} is missing:\n{stderr}");
    }
}

/// Starts the demo, asks for its page once callers come, interrupts it, and returns its output.
#[cfg(unix)]
fn interrupted(arguments: &[&str]) -> (Output, String) {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::process::Stdio;

    let mut demo = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["demo", "--seconds", "600", "--listen", "127.0.0.1:0"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let progress = BufReader::new(demo.stderr.take().expect("stderr is piped"));
    let mut lines = progress.lines().map_while(Result::ok);
    let url = lines.find_map(|line| line.strip_prefix("live page: http://").map(str::to_owned));
    let address = url.expect("it says where the page is").trim_end_matches('/').to_owned();
    assert!(lines.any(|line| line.contains("of 600 s |")), "it ended by itself");
    let mut page = TcpStream::connect(&address).expect("the page is served");
    let request = format!("GET /status.json HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    page.write_all(request.as_bytes()).expect("it reads");
    let mut status = String::new();
    page.read_to_string(&mut status).expect("it answers");
    let sent = Command::new("kill").args(["-INT", &demo.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
    lines.for_each(drop);
    (demo.wait_with_output().expect("it ends"), status)
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_it_early_with_the_figures_so_far() {
    let (output, status) = interrupted(&["--json"]);
    assert_eq!(output.status.code(), Some(130));
    let record: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    assert_eq!(record["ending"], "interrupted");
    assert!(record["measured_seconds"].as_f64().is_some_and(|seconds| seconds < 600.0), "{record:#}");
    for name in ["instance 1", "instance 2", "instance 3"] {
        assert!(status.contains(name), "{status}");
    }
    for secret in ["X-Amz-Signature", "X-Amz-Credential"] {
        assert!(!status.contains(secret) && !text(&output.stdout).contains(secret), "{status}");
    }
}

#[cfg(unix)]
#[test]
fn piped_output_is_plain_and_compares() {
    let (output, _) = interrupted(&[]);
    assert_eq!(output.status.code(), Some(130));
    let stdout = text(&output.stdout);
    for words in ["deadpool", "forebay", "failed", "p99 wait", "longest wait", "quiet", "README.md"] {
        assert!(stdout.contains(words), "{words} is missing:\n{stdout}");
    }
    assert!(!stdout.contains('\u{1b}'), "no escape codes in a pipe:\n{stdout}");
}

#[test]
fn help_of_each_server_and_shell_has_examples() {
    let commands: &[&[&str]] = &[
        #[cfg(feature = "flight")]
        &["flight", "sql"],
        #[cfg(feature = "flight-local")]
        &["flight-local"],
        #[cfg(feature = "flight-local")]
        &["flight-local", "tell"],
        &["dsql-local"],
        &["dsql-local", "token"],
    ];
    for command in commands {
        let help = forebay(&[*command, &["--help"]].concat());
        let shown = text(&help.stdout).split_once("Example").map_or("", |(_, examples)| examples);
        let call = format!("forebay {}", command.join(" "));
        assert!(shown.contains(&call), "{}", text(&help.stdout));
    }
}

#[cfg(not(all(feature = "aws", feature = "flight", feature = "flight-local", feature = "schema")))]
mod missing {
    use super::{forebay, text};

    /// The command line that builds what is missing.
    fn remedy(arguments: &[&str]) -> String {
        let refused = forebay(arguments);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
        let problem = text(&refused.stderr);
        assert!(problem.contains("--features full builds every command"), "{problem}");
        let expected = format!("forebay: this build lacks {}; run: cargo run --release ", arguments[0]);
        let typed = problem.strip_prefix(&expected).expect(problem);
        typed.lines().next().unwrap_or_default().to_owned()
    }

    #[cfg(not(feature = "flight"))]
    #[test]
    fn flight_says_how_to_build_it() {
        let typed = remedy(&["flight", "sql", "grpc://localhost:4214", "-c", "SELECT a FROM b"]);
        assert!(
            typed.ends_with("flight -- flight sql grpc://localhost:4214 -c 'SELECT a FROM b'"),
            "{typed}"
        );
        let typed = remedy(&["flight", "--help"]);
        assert!(typed.ends_with("flight -- flight --help"), "{typed}");
    }

    #[cfg(not(feature = "flight-local"))]
    #[test]
    fn flight_local_says_how_to_build_it() {
        let typed = remedy(&["flight-local", "--port", "4214"]);
        assert!(typed.ends_with("flight-local -- flight-local --port 4214"), "{typed}");
    }

    #[cfg(not(feature = "gateway"))]
    #[test]
    fn gateway_says_how_to_build_it() {
        let typed = remedy(&["gateway", "add-user", "app", "--role", "writer"]);
        assert!(typed.ends_with("gateway -- gateway add-user app --role writer"), "{typed}");
    }

    #[cfg(not(feature = "schema"))]
    #[test]
    fn schema_says_how_to_build_it() {
        let typed = remedy(&["schema", "setup", "migrations", "--dry-run"]);
        assert!(typed.ends_with("schema -- schema setup migrations --dry-run"), "{typed}");
    }

    #[cfg(not(feature = "aws"))]
    #[test]
    fn the_commands_for_a_fleet_say_how_to_build_them_and_keep_the_other_features() {
        let features = [
            ("flight", cfg!(feature = "flight")),
            ("flight-local", cfg!(feature = "flight-local")),
            ("gateway", cfg!(feature = "gateway")),
            ("schema", cfg!(feature = "schema")),
            ("aws", true),
        ];
        let features: Vec<&str> =
            features.into_iter().filter_map(|(name, is_wanted)| is_wanted.then_some(name)).collect();
        for arguments in [
            ["doctor", "--only", "tables", "--json"],
            ["lease", "status", "--table", "forebay"],
            ["limiter", "setup", "--table", "forebay"],
        ] {
            let expected = format!("--features {} -- {}", features.join(","), arguments.join(" "));
            assert_eq!(remedy(&arguments), expected);
        }
    }
}
