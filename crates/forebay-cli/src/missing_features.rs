//! Commands that need a feature which this build lacks.

use clap::{Arg, ArgMatches, Command};
use forebay_sim::shell_word;

/// A command that needs a feature.
struct Optional {
    name: &'static str,
    feature: &'static str,
    is_built: bool,
    about: &'static str,
}

const OPTIONAL: [Optional; 7] = [
    optional("flight", "flight", cfg!(feature = "flight"), "Query a Flight SQL server"),
    optional("flight-local", "flight-local", cfg!(feature = "flight-local"), "Run a local Flight SQL server"),
    optional("gateway", "gateway", cfg!(feature = "gateway"), "Run a PostgreSQL gateway to Aurora DSQL"),
    optional("schema", "schema", cfg!(feature = "schema"), "Apply and check schema migrations"),
    optional("doctor", "aws", cfg!(feature = "aws"), "Find out why a service cannot connect"),
    optional("lease", "aws", cfg!(feature = "aws"), "Show and repair a fleet's shared connections"),
    optional("limiter", "aws", cfg!(feature = "aws"), "Show a fleet's shared connect rate"),
];

const fn optional(
    name: &'static str,
    feature: &'static str,
    is_built: bool,
    about: &'static str,
) -> Optional {
    Optional { name, feature, is_built, about }
}

/// Adds the missing commands to the help. Each accepts any arguments.
pub(crate) fn add(command: Command) -> Command {
    let missing = OPTIONAL.iter().filter(|optional| !optional.is_built);
    command.subcommands(missing.map(|Optional { name, feature, about, .. }| {
        let arguments = Arg::new("arguments").num_args(0..).trailing_var_arg(true).allow_hyphen_values(true);
        Command::new(*name)
            .about(format!("{about} (feature {feature})"))
            .disable_help_flag(true)
            .arg(arguments.hide(true))
    }))
}

/// # Errors
/// If the command is missing. The error says how to build it.
pub(crate) fn check(matches: &ArgMatches) -> anyhow::Result<()> {
    let Some((name, matches)) = matches.subcommand() else { return Ok(()) };
    let Some(Optional { feature, .. }) =
        OPTIONAL.iter().find(|optional| optional.name == name && !optional.is_built)
    else {
        return Ok(());
    };
    let arguments: Vec<&str> =
        matches.get_many::<String>("arguments").into_iter().flatten().map(String::as_str).collect();
    let mut built: Vec<&str> = OPTIONAL.iter().filter(|one| one.is_built).map(|one| one.feature).collect();
    built.dedup();
    anyhow::bail!(
        "this build lacks {name}; run: {}\n--features full builds every command",
        invocation(name, feature, &arguments, &built)
    );
}

/// The command line for a build with one more feature.
fn invocation(name: &str, feature: &str, arguments: &[&str], built: &[&str]) -> String {
    let features = [built, &[feature]].concat().join(",");
    let call: Vec<String> = [&[name], arguments].concat().into_iter().map(shell_word).collect();
    format!("cargo run --release --features {features} -- {}", call.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_keeps_the_arguments_and_the_features() {
        assert_eq!(
            invocation("flight", "flight", &["sql", "-c", "SELECT 'it''s'"], &["flight-local"]),
            r"cargo run --release --features flight-local,flight -- flight sql -c 'SELECT '\''it'\'''\''s'\'''"
        );
        assert_eq!(
            invocation("lease", "aws", &["status", ""], &[]),
            "cargo run --release --features aws -- lease status ''"
        );
    }
}
