//! A server in the foreground: it prints where it is, and runs until a signal.

use std::future::Future;
use std::process::ExitCode;

use clap::Args;
use forebay_sim::shell_word;
use serde_json::Value;

use crate::output;
use crate::signals::Signals;

/// How a server prints where it is.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct InfoFormat {
    /// Print the variables that a client needs, for a shell to evaluate.
    #[arg(long)]
    print_env: bool,
    /// Print one line of JSON with the variables, for programs.
    #[arg(long, conflicts_with = "print_env")]
    json: bool,
}

/// Where a server is.
pub(crate) trait ServerInfo {
    /// The variables that not every server has. A shell may still have them from another server.
    const OPTIONAL: &[&str];

    /// The variables that a client needs.
    fn variables(&self) -> Vec<(&'static str, String)>;

    /// Further entries of the JSON.
    fn further(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// The same for people.
    fn prose(&self) -> String;
}

impl InfoFormat {
    pub(crate) fn print(self, server: &impl ServerInfo) -> anyhow::Result<()> {
        output::print(&match self {
            Self { print_env: true, .. } => shell(server),
            Self { json: true, .. } => json(server),
            _ => server.prose(),
        })
    }
}

fn shell<T: ServerInfo>(server: &T) -> String {
    let variables = server.variables();
    let is_absent = |name: &&&str| variables.iter().all(|(given, _)| given != *name);
    let unset = T::OPTIONAL.iter().filter(is_absent).map(|name| format!("unset {name}\n"));
    let exports = variables.iter().map(|(name, value)| format!("export {name}={}\n", shell_word(value)));
    unset.chain(exports).collect()
}

fn json(server: &impl ServerInfo) -> String {
    let variables = server.variables().into_iter().map(|(name, value)| (name, value.into()));
    let object: serde_json::Map<String, Value> =
        variables.chain(server.further()).map(|(name, value)| (name.to_owned(), value)).collect();
    format!("{}\n", Value::Object(object))
}

/// Runs a server on this thread. `serve` gets the signals that end it.
pub(crate) fn run<F>(serve: impl FnOnce(Signals) -> F) -> anyhow::Result<ExitCode>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before the server creates files that a signal would leave behind.
        let signals = Signals::listen()?;
        serve(signals).await?;
        Ok(ExitCode::SUCCESS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Server;

    impl ServerInfo for Server {
        const OPTIONAL: &[&str] = &["THERE", "ABSENT"];

        fn variables(&self) -> Vec<(&'static str, String)> {
            vec![("URL", "it's here".to_owned()), ("THERE", "x".to_owned())]
        }

        fn further(&self) -> Vec<(&'static str, Value)> {
            vec![("more", 2.into())]
        }

        fn prose(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn absent_variables_are_unset_and_values_are_quoted() {
        assert_eq!(shell(&Server), "unset ABSENT\nexport URL='it'\\''s here'\nexport THERE=x\n");
        assert_eq!(json(&Server), "{\"THERE\":\"x\",\"URL\":\"it's here\",\"more\":2}\n");
    }
}
