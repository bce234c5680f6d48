//! The commands that were left out of this build, and how to get them.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use forebay_sim::shell_word;

/// The commands that were left out of this build.
#[derive(Debug, Subcommand)]
pub(crate) enum LeftOut {
    /// A local Aurora DSQL (not in this build: see its error message).
    #[cfg(not(feature = "dsql-local"))]
    DsqlLocal(Call),
    /// Flight SQL: a shell for its servers (not in this build: see its error message).
    #[cfg(not(feature = "flight"))]
    Flight(Call),
    /// A local Flight SQL server (not in this build: see its error message).
    #[cfg(not(feature = "flight-local"))]
    FlightLocal(Call),
    /// The connections a fleet shares (not in this build: see its error message).
    #[cfg(not(feature = "aws"))]
    Lease(Call),
    /// The connect rate a fleet shares (not in this build: see its error message).
    #[cfg(not(feature = "aws"))]
    Limiter(Call),
}

/// Whatever such a command is called with.
#[derive(Debug, Args)]
pub(crate) struct Call {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl LeftOut {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (command, feature, call): (&str, &str, Call) = match self {
            #[cfg(not(feature = "dsql-local"))]
            Self::DsqlLocal(call) => ("dsql-local", "dsql-local", call),
            #[cfg(not(feature = "flight"))]
            Self::Flight(call) => ("flight", "flight", call),
            #[cfg(not(feature = "flight-local"))]
            Self::FlightLocal(call) => ("flight-local", "flight-local", call),
            #[cfg(not(feature = "aws"))]
            Self::Lease(call) => ("lease", "aws", call),
            #[cfg(not(feature = "aws"))]
            Self::Limiter(call) => ("limiter", "aws", call),
        };
        anyhow::bail!(
            "{command} was left out of this build; run: {}",
            invocation(command, feature, &call.arguments, &built())
        );
    }
}

/// The features that this build has.
fn built() -> Vec<&'static str> {
    let features = [
        ("aws", cfg!(feature = "aws")),
        ("dsql-local", cfg!(feature = "dsql-local")),
        ("flight", cfg!(feature = "flight")),
        ("flight-local", cfg!(feature = "flight-local")),
    ];
    features.into_iter().filter_map(|(name, is_built)| is_built.then_some(name)).collect()
}

/// What to type for a build with one more feature, and none less.
fn invocation(command: &str, feature: &str, arguments: &[String], built: &[&str]) -> String {
    let features = [built, &[feature]].concat().join(",");
    let call: Vec<String> =
        std::iter::once(command).chain(arguments.iter().map(String::as_str)).map(shell_word).collect();
    format!("cargo run --release --features {features} -- {}", call.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_type_keeps_the_arguments_and_what_is_built() {
        let arguments = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            invocation("flight", "flight", &arguments(&["sql", "-c", "SELECT 'it''s'"]), &["dsql-local"]),
            r"cargo run --release --features dsql-local,flight -- flight sql -c 'SELECT '\''it'\'''\''s'\'''"
        );
        assert_eq!(
            invocation("lease", "aws", &arguments(&["status", ""]), &[]),
            "cargo run --release --features aws -- lease status ''"
        );
    }
}
