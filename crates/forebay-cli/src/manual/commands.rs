//! Commands: each that the manual shows is one of this program, and so is each of its options.
//!
//! A build knows only the commands of its features. `./test` runs this with all of them, in two builds.

use clap::Command;

use super::page::Page;

/// What follows `forebay` in each call of a line of shell.
fn calls(line: &str) -> Vec<Vec<&str>> {
    let (line, _) = line.split_once(" #").unwrap_or((line, ""));
    let simple =
        line.split(['|', ';', '&', '(', ')']).map(|part| part.split(['>', '<']).next().unwrap_or_default());
    simple.filter_map(call).collect()
}

fn call(simple: &str) -> Option<Vec<&str>> {
    let words = simple.split_whitespace();
    let mut words = words
        .skip_while(|word| word.contains('=') && word.starts_with(|first: char| first.is_ascii_uppercase()));
    match words.next()? {
        "forebay" => Some(words.collect()),
        "cargo" if words.next() == Some("run") => {
            let rest: Vec<&str> = words.collect();
            let at = rest.iter().position(|word| *word == "--")?;
            // Another package has other commands.
            (!rest[..at].iter().any(|word| ["-p", "--example", "--bin"].contains(word)))
                .then(|| rest[at + 1..].to_vec())
        }
        _ => None,
    }
}

/// # Errors
/// What does not exist.
fn check(program: &Command, words: &[&str]) -> Result<(), String> {
    let mut command = program;
    let mut rest = words;
    while let Some(found) = rest.first().and_then(|word| command.find_subcommand(word)) {
        (command, rest) = (found, &rest[1..]);
        // A command that this build lacks has no help.
        if command.is_disable_help_flag_set() {
            return Ok(());
        }
    }
    let takes_words = command.get_positionals().next().is_some();
    if let Some(word) = rest.first().filter(|word| !word.starts_with('-') && !takes_words) {
        return Err(format!("'{}' has no command '{word}'", command.get_name()));
    }
    for word in rest.iter().take_while(|word| **word != "--") {
        let Some(option) = word.strip_prefix("--") else { continue };
        let option = option.split('=').next().unwrap_or_default();
        let is_known = command.get_arguments().any(|argument| {
            let aliases = argument.get_all_aliases().unwrap_or_default();
            argument.get_long() == Some(option) || aliases.contains(&option)
        });
        if !is_known {
            return Err(format!("'{}' has no option '--{option}'", command.get_name()));
        }
    }
    Ok(())
}

fn program() -> Command {
    let mut program = crate::command();
    program.build();
    program
}

#[test]
fn every_command_and_option_exists() {
    let program = program();
    let mut checked = 0;
    for page in Page::all() {
        let mut lines: Vec<String> = Vec::new();
        for block in page.blocks() {
            match block.language {
                "sh" => lines.extend(block.text.replace("\\\n", " ").lines().map(str::to_owned)),
                "text" => lines
                    .extend(block.text.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned)),
                _ => {}
            }
        }
        // In the text, `forebay` alone is the program or the crate.
        lines.extend(page.code().into_iter().filter(|code| !code.contains(" = ")));
        for (line, words) in
            lines.iter().flat_map(|line| calls(line).into_iter().map(move |words| (line, words)))
        {
            if let Err(problem) = check(&program, &words) {
                panic!("{}: {line}: {problem}", page.name());
            }
            checked += 1;
        }
    }
    assert!(checked > 80, "only {checked}");
}

#[test]
fn what_does_not_exist_is_found() {
    let program = program();
    let verdict = |line: &str| {
        let calls = calls(line);
        assert_eq!(calls.len(), 1, "{line}");
        check(&program, &calls[0])
    };
    for line in [
        "forebay plan 4x10x2x50 --check # twice",
        "A=b forebay sim --list | less",
        "cargo run --release -- sim local --set limiterPerSec=50",
        "PGPASSWORD=$(forebay dsql-local token --role app) psql",
    ] {
        assert_eq!(verdict(line), Ok(()), "{line}");
    }
    for line in
        ["forebay plans", "forebay plan --chekc", "forebay dsql-local tokens", "true && forebay sim --lists"]
    {
        assert!(verdict(line).is_err(), "{line}");
    }
    assert!(calls("cargo run -p forebay-bench -- coordination; cd forebay; git clone forebay").is_empty());
}
