//! A Flight SQL server in a process of its own, which is told what to do line by line.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::{env, io};

use anyhow::Context;
use clap::{Args, ValueEnum};
use flight_local::{Actions, Config, FlightLocal, Support};
use serde_json::{Map, Value, json};

/// What a server is told when it is started.
#[derive(Clone, Debug, Default, Args)]
pub struct Settings {
    /// Where to listen: a free port, unless told.
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// The database, if it is to outlive the server.
    #[arg(long)]
    database: Option<PathBuf>,
    /// Whether it stops statements.
    #[arg(long, value_enum, default_value_t)]
    cancels: Cancels,
}

/// Whether a server stops statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cancels {
    /// By every means.
    #[default]
    Known,
    /// It lists the actions and refuses them, and an abandoned statement runs on.
    Refused,
    /// It has never heard of them, and an abandoned statement runs on.
    Unknown,
}

impl Cancels {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl Settings {
    fn config(&self) -> Config {
        let support = match self.cancels {
            Cancels::Known => Support::Known,
            Cancels::Refused => Support::Refused,
            Cancels::Unknown => Support::Unknown,
        };
        let defaults = Config::default();
        Config {
            listen: self.listen.unwrap_or(defaults.listen),
            database: self.database.clone(),
            // Several pools are connected at a time.
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

/// Serves until its input ends: so it never outlives whoever started it. Each line of input asks for the counters.
///
/// # Errors
/// If it cannot be started.
pub fn serve(settings: &Settings) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = runtime.block_on(FlightLocal::start(settings.config()))?;
    println!("{}", json!({ "address": server.address() }));
    for line in io::stdin().lines() {
        line?;
        let counters: Map<String, Value> = server
            .counters()
            .named()
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count.into()))
            .collect();
        println!("{}", Value::from(counters));
    }
    runtime.block_on(server.stop());
    Ok(())
}

/// A server that runs. It is stopped on drop.
#[derive(Debug)]
pub(crate) struct Server {
    settings: Settings,
    child: Child,
    talk: Mutex<(Option<ChildStdin>, BufReader<ChildStdout>)>,
    address: SocketAddr,
}

impl Server {
    pub(crate) fn start() -> anyhow::Result<Self> {
        Self::with(Settings::default())
    }

    /// One that stops no statements, or every one.
    pub(crate) fn that(cancels: Cancels) -> anyhow::Result<Self> {
        Self::with(Settings { cancels, ..Settings::default() })
    }

    /// One whose tables outlive it.
    pub(crate) fn on(database: PathBuf) -> anyhow::Result<Self> {
        Self::with(Settings { database: Some(database), ..Settings::default() })
    }

    fn with(settings: Settings) -> anyhow::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["flight-local-serve", "--cancels", &settings.cancels.name()]);
        if let Some(address) = settings.listen {
            command.args(["--listen", &address.to_string()]);
        }
        if let Some(database) = &settings.database {
            command.arg("--database").arg(database);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("no output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let said: Value = serde_json::from_str(&line).context("the server did not start")?;
        let address = said["address"].as_str().context("the server said too little")?.parse()?;
        let talk = Mutex::new((child.stdin.take(), output));
        Ok(Self { settings, child, talk, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("grpc://{}", self.address)
    }

    /// Ends it without a warning.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts it again where it was, with what it had. It listens when this is done.
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        let settings = Settings { listen: Some(self.address), ..self.settings.clone() };
        *self = Self::with(settings)?;
        Ok(())
    }

    /// One of the server's own counters.
    pub(crate) fn count(&self, name: &str) -> anyhow::Result<u64> {
        let mut talk = self.talk.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (input, output) = &mut *talk;
        input.as_mut().context("the server is being stopped")?.write_all(b"\n")?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        let counters: Value = serde_json::from_str(&line).context("the server does not answer")?;
        counters[name].as_u64().with_context(|| format!("the server does not count {name}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of its input is its signal to stop.
        drop(self.talk.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).0.take());
        drop(self.child.wait());
    }
}
