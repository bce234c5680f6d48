//! What a server in the foreground needs: to tell where it is, and to hear that it shall end.

use std::future::Future;
use std::io;
use std::process::ExitCode;
use std::task::Poll;

use clap::Args;
use forebay_sim::shell_word;
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output;

/// How a server tells where it is.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Form {
    /// Print what a client must export, for a shell to evaluate.
    #[arg(long)]
    print_env: bool,
    /// Print one line of JSON about where it is, for programs.
    #[arg(long, conflicts_with = "print_env")]
    json: bool,
}

/// Where a server is, for each kind of reader.
pub(crate) trait Whereabouts {
    /// The variables that only some servers have. Those of another may be left over in a shell.
    const SOMETIMES: &[&str];

    /// What its clients must export.
    fn variables(&self) -> Vec<(&'static str, String)>;

    /// What only programs are told.
    fn further(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// What people are told.
    fn prose(&self) -> String;
}

impl Form {
    /// Tells where a server is.
    pub(crate) fn tell(self, place: &impl Whereabouts) -> anyhow::Result<()> {
        output::print(&match self {
            Self { print_env: true, .. } => shell(place),
            Self { json: true, .. } => json(place),
            _ => place.prose(),
        })
    }
}

/// For a shell to evaluate.
fn shell<T: Whereabouts>(place: &T) -> String {
    let variables = place.variables();
    let is_absent = |name: &&&str| variables.iter().all(|(given, _)| given != *name);
    let unset = T::SOMETIMES.iter().filter(is_absent).map(|name| format!("unset {name}\n"));
    let exports = variables.iter().map(|(name, value)| format!("export {name}={}\n", shell_word(value)));
    unset.chain(exports).collect()
}

/// For programs: one line.
fn json(place: &impl Whereabouts) -> String {
    let variables = place.variables().into_iter().map(|(name, value)| (name, value.into()));
    let object: serde_json::Map<String, Value> =
        variables.chain(place.further()).map(|(name, value)| (name.to_owned(), value)).collect();
    format!("{}\n", Value::Object(object))
}

/// Runs a server on this thread. `serve` is given the signals that shall end it.
pub(crate) fn run<F>(serve: impl FnOnce(Signals) -> F) -> anyhow::Result<ExitCode>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before anything is made that a signal would leave behind.
        let signals = Signals::listen()?;
        serve(signals).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// The signals that end a server.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for one of them.
    ///
    /// # Cancel safety
    /// Dropping it ends the waiting; a signal that came meanwhile is heard by the next call.
    pub(crate) async fn either(&mut self) {
        let Self { interrupt, terminate } = self;
        std::future::poll_fn(|context| match (interrupt.poll_recv(context), terminate.poll_recv(context)) {
            (Poll::Pending, Poll::Pending) => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Server;

    impl Whereabouts for Server {
        const SOMETIMES: &[&str] = &["THERE", "ABSENT"];

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
    fn what_is_left_over_is_unset_and_values_are_quoted() {
        assert_eq!(shell(&Server), "unset ABSENT\nexport URL='it'\\''s here'\nexport THERE=x\n");
        assert_eq!(json(&Server), "{\"THERE\":\"x\",\"URL\":\"it's here\",\"more\":2}\n");
    }
}
