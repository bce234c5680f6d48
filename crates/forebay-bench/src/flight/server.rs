//! A Flight SQL server in a separate process, which answers each line of its input with its counters.

use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout};

use anyhow::Context;
use clap::{Args, ValueEnum};
use flight_local::{Actions, Config, FlightLocal, Support};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::process;

/// The settings of a server.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Settings {
    /// The address to listen on; by default a free port.
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// The database file, if the tables must outlive the server.
    #[arg(long)]
    database: Option<PathBuf>,
    /// Whether the server cancels statements.
    #[arg(long, value_enum, default_value_t)]
    cancels: Cancels,
}

/// Whether a server cancels statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cancels {
    /// It supports every cancel action.
    #[default]
    Known,
    /// It lists the actions and refuses them, and an abandoned statement continues.
    Refused,
    /// It does not list the actions, and an abandoned statement continues.
    Unknown,
}

impl Cancels {
    fn support(self) -> Support {
        match self {
            Self::Known => Support::Known,
            Self::Refused => Support::Refused,
            Self::Unknown => Support::Unknown,
        }
    }
}

impl Settings {
    fn config(&self) -> Config {
        let support = self.cancels.support();
        let defaults = Config::default();
        Config {
            listen: self.listen.unwrap_or(defaults.listen),
            database: self.database.clone(),
            // Several pools are connected at once.
            session_limit: 1_000,
            actions: Actions {
                cancel_flight_info: support,
                cancel_query: support,
                close_session: if support == Support::Unknown { support } else { Support::Known },
                ..Actions::default()
            },
            interrupt_on_drop: self.cancels == Cancels::Known,
            ..defaults
        }
    }
}

/// Serves until its input ends, so that it never outlives the process that started it. It answers each line
/// of its input with its counters.
pub(crate) fn serve(settings: &Settings) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = runtime.block_on(FlightLocal::start(settings.config()))?;
    println!("{}", json!({ "address": server.address() }));
    for line in io::stdin().lines() {
        line?;
        let counters = server.counters().named().into_iter();
        let counters: Map<_, _> = counters.map(|(name, count)| (name.to_owned(), count.into())).collect();
        println!("{}", Value::from(counters));
    }
    runtime.block_on(server.stop());
    Ok(())
}

/// The server. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Server {
    settings: Settings,
    child: Child,
    pipes: Mutex<(Option<ChildStdin>, BufReader<ChildStdout>)>,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start() -> anyhow::Result<Self> {
        Self::with(Settings::default())
    }

    pub(crate) fn with_cancels(cancels: Cancels) -> anyhow::Result<Self> {
        Self::with(Settings { cancels, ..Settings::default() })
    }

    /// A server whose tables outlive it.
    pub(crate) fn with_database(database: PathBuf) -> anyhow::Result<Self> {
        Self::with(Settings { database: Some(database), ..Settings::default() })
    }

    fn with(settings: Settings) -> anyhow::Result<Self> {
        let mut command = process::this_program("flight-local-serve")?;
        let cancels = settings.cancels.to_possible_value().context("a hidden value")?;
        command.args(["--cancels", cancels.get_name()]);
        if let Some(address) = settings.listen {
            command.args(["--listen", &address.to_string()]);
        }
        if let Some(database) = &settings.database {
            command.arg("--database").arg(database);
        }
        let (mut child, output, ready) = process::start_server(&mut command)?;
        let address = ready["address"].as_str().context("the server sent no address")?.parse()?;
        let pipes = Mutex::new((child.stdin.take(), output));
        Ok(Self { settings, child, pipes, address })
    }

    pub(crate) fn url(&self) -> String {
        format!("grpc://{}", self.address)
    }

    /// Kills the server, as `kill -9` does.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts it again, with the same address and database. It listens when this returns.
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        let settings = Settings { listen: Some(self.address), ..self.settings.clone() };
        *self = Self::with(settings)?;
        Ok(())
    }

    /// One of the server's own counters.
    pub(crate) fn count(&self, name: &str) -> anyhow::Result<u64> {
        let (input, output) = &mut *self.pipes.lock();
        input.as_mut().context("the server is being stopped")?.write_all(b"\n")?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        let counters: Value = serde_json::from_str(&line).context("the server does not answer")?;
        counters[name].as_u64().with_context(|| format!("the server does not count {name}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server stops when its input ends.
        drop(self.pipes.get_mut().0.take());
        drop(self.child.wait());
    }
}
