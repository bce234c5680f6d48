//! A server for one test, and the command against it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use flight_local::{Config, Counters, FlightLocal};
use tokio::runtime::Runtime;

/// A server, its runtime, and a directory for what the command writes.
pub(crate) struct Server {
    pub(crate) local: FlightLocal,
    pub(crate) runtime: Runtime,
    directory: PathBuf,
}

impl Server {
    pub(crate) fn start(name: &str, config: Config) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let local = runtime.block_on(FlightLocal::start(config)).expect("it starts");
        let directory = env::temp_dir().join(format!("forebay-flight-{name}-{}", std::process::id()));
        fs::create_dir(&directory).expect("a new directory");
        Self { local, runtime, directory }
    }

    pub(crate) fn plain(name: &str) -> Self {
        Self::start(name, Config::default())
    }

    pub(crate) fn counters(&self) -> Counters {
        self.local.counters()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A file with this text.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The shell on this server, without anything of the user's.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        command(&self.local.url(), &self.directory, arguments)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().expect("the command starts")
    }

    pub(crate) fn run_with_stdin(&self, arguments: &[&str], text: &str) -> Output {
        let mut child = self.spawn(arguments);
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.wait_with_output().expect("it ends")
    }

    pub(crate) fn spawn(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the command starts")
    }

    /// What it prints when all goes well.
    pub(crate) fn prints(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
        text(&output.stdout).to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.directory));
    }
}

pub(crate) fn command(url: &str, home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["flight", "sql", url]).args(arguments).env("HOME", home).env("TERM", "xterm-256color");
    for variable in ["XDG_STATE_HOME", "FLIGHT_SQL_USER", "FLIGHT_SQL_PASSWORD", "FLIGHT_SQL_TOKEN"] {
        command.env_remove(variable);
    }
    command
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is text")
}

/// Polls a server until the condition holds.
#[allow(clippy::disallowed_methods, reason = "another process does not notify this one")]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}
