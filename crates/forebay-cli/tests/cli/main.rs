//! The command, as its users run it.

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
        "Flight SQL:",
        "  flight ",
        "Operate a fleet:",
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
    for flag in ["--seconds", "--seed", "--json", "--plain", "130"] {
        assert!(text(&help.stdout).contains(flag), "{flag} is missing:\n{}", text(&help.stdout));
    }
    for (command, width) in [("demo", 80), ("sim", 80), ("completions", 80), ("demo", 60)] {
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
        (&["demo", "--seconds", "0"], "0 is not in 1..=3600"),
        (&["demo", "--seconds", "abc"], "invalid value 'abc' for '--seconds"),
        (&["demo", "--seconds", "-3"], "-3 is not in 1..=3600"),
        (&["demo", "--seed", "1.5"], "invalid value '1.5' for '--seed"),
        (&["demo", "--json", "--plain"], "cannot be used with"),
    ] {
        let refused = forebay(arguments);
        let (stdout, stderr) = (text(&refused.stdout), text(&refused.stderr));
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected) && stdout.is_empty(), "{arguments:?}: {stderr}");
    }
}

#[test]
fn json_is_one_object_with_both_sides() {
    let output = forebay(&["demo", "--seconds", "2", "--json", "--seed", "7"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    assert_eq!((&record["seed"], &record["seconds"]), (&7.into(), &2.into()));
    assert_eq!(record["ending"], "complete");
    let reservoir = &record["reservoir"];
    assert_eq!(reservoir["failed_acquires"], 0, "{record:#}");
    assert_eq!(reservoir["failed_queries"], 0, "{record:#}");
    for side in ["deadpool", "reservoir"] {
        assert!(record[side]["acquires"].as_u64() > Some(1_000), "{record:#}");
        assert!(record[side]["settings"]["life"].is_string(), "{record:#}");
        for figure in
            ["p50_ms", "p99_ms", "max_ms", "slow_acquires", "peak_opens_per_second", "refused_opens"]
        {
            assert!(record[side][figure].is_number(), "{side} lacks {figure}: {record:#}");
        }
    }
    assert!(text(&output.stderr).contains("of 2 s | deadpool"), "{}", text(&output.stderr));
}

#[test]
fn piped_output_is_plain_and_compares() {
    let output = forebay(&["demo", "--seconds", "1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    for words in ["deadpool 0.13", "forebay", "failed acquires", "acquire p99", "refused opens", "README.md"]
    {
        assert!(stdout.contains(words), "{words} is missing:\n{stdout}");
    }
    assert!(!stdout.contains('\u{1b}'), "no escape codes in a pipe:\n{stdout}");
    let stderr = text(&output.stderr);
    assert!(stderr.contains("sessions end after 8 s") && stderr.contains("filling:"), "{stderr}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_it_early_with_the_figures_so_far() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let mut demo = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["demo", "--seconds", "600", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let progress = BufReader::new(demo.stderr.take().expect("stderr is piped"));
    let mut lines = progress.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("of 600 s |")), "it ended by itself");
    let sent = Command::new("kill").args(["-INT", &demo.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
    lines.for_each(drop);
    let output = demo.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    let record: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    assert_eq!(record["ending"], "interrupted");
    assert!(record["measured_seconds"].as_f64().is_some_and(|seconds| seconds < 600.0), "{record:#}");
    assert_eq!(record["reservoir"]["failed_acquires"], 0, "{record:#}");
}

#[cfg(any(feature = "dsql-local", feature = "flight", feature = "flight-local"))]
#[test]
fn help_of_each_optional_command_has_examples() {
    let commands: &[&[&str]] = &[
        #[cfg(feature = "flight")]
        &["flight", "sql"],
        #[cfg(feature = "flight-local")]
        &["flight-local"],
        #[cfg(feature = "flight-local")]
        &["flight-local", "tell"],
        #[cfg(feature = "dsql-local")]
        &["dsql-local"],
        #[cfg(feature = "dsql-local")]
        &["dsql-local", "token"],
    ];
    for command in commands {
        let help = forebay(&[*command, &["--help"]].concat());
        let shown = text(&help.stdout).split_once("Example").map_or("", |(_, examples)| examples);
        let call = format!("forebay {}", command.join(" "));
        assert!(shown.contains(&call), "{}", text(&help.stdout));
    }
}

#[cfg(not(all(feature = "aws", feature = "dsql-local", feature = "flight", feature = "flight-local")))]
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

    #[cfg(not(feature = "dsql-local"))]
    #[test]
    fn dsql_local_says_how_to_build_it() {
        let typed = remedy(&["dsql-local", "--port", "5433"]);
        assert!(typed.ends_with("dsql-local -- dsql-local --port 5433"), "{typed}");
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

    #[cfg(not(feature = "aws"))]
    #[test]
    fn the_commands_for_a_fleet_say_how_to_build_them_and_keep_the_other_features() {
        let features = [
            ("dsql-local", cfg!(feature = "dsql-local")),
            ("flight", cfg!(feature = "flight")),
            ("flight-local", cfg!(feature = "flight-local")),
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
