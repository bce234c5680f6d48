//! The emulator in a process of its own.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs, io};

use anyhow::{Context, ensure};
use dsql_local::{Cluster, Config, Credentials, EngineKind, Limits, TokenClock};
use serde_json::{Value, json};

use crate::clock::Stopwatch;

/// The key that tokens are signed with.
pub(crate) const KEY: &str = "AKIDBENCH";
/// Its secret.
pub(crate) const SECRET: &str = "nothing-to-protect";

/// A server, stopped on drop.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Where it can be told to misbehave.
    pub(crate) control: SocketAddr,
    pub(crate) ca_file: PathBuf,
    pub(super) token: String,
    /// How long it took from its start until it listened.
    pub(super) started_in: Duration,
}

/// Serves until its input ends: so it never outlives whoever started it.
///
/// # Errors
/// If it cannot be started.
pub fn serve(engine: EngineKind) -> anyhow::Result<()> {
    let limits =
        Limits { connections: u32::MAX, per_second: 1_000_000, burst: 1_000_000, ..Limits::default() };
    let cluster = Cluster::start(Config {
        credentials: vec![Credentials::new(KEY, SECRET)],
        limits,
        engine,
        control: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        // The machine's as well, until the emulator's is told to run faster.
        token_clock: TokenClock::Emulator,
        ..Config::default()
    })?;
    println!(
        "{}",
        json!({
            "address": cluster.address(),
            "control": cluster.control_address(),
            "ca_file": cluster.ca_file(),
            "token": cluster.token("admin").context("no key")?,
        })
    );
    io::stdin().read_to_end(&mut Vec::new())?;
    cluster.stop();
    Ok(())
}

fn name(engine: EngineKind) -> &'static str {
    match engine {
        EngineKind::Postgres => "postgres",
        _ => "builtin",
    }
}

impl Server {
    pub(crate) fn start(engine: EngineKind) -> anyhow::Result<Self> {
        let watch = Stopwatch::start();
        let mut child = Command::new(env::current_exe()?)
            .args(["dsql-local-serve", "--engine", name(engine)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().context("no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let said: Value = serde_json::from_str(&line).context("the server did not start")?;
        let text = |name: &str| said[name].as_str().map(str::to_owned).context("the server said too little");
        Ok(Self {
            address: text("address")?.parse()?,
            control: text("control")?.parse()?,
            ca_file: text("ca_file")?.into(),
            token: text("token")?,
            started_in: watch.elapsed(),
            child,
        })
    }

    /// Resident memory, in MB.
    pub(super) fn memory(&self) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kilobytes * 1_024.0 / 1e6)
    }

    /// Processor time of all its threads so far.
    pub(crate) fn processor_time(&self) -> anyhow::Result<Duration> {
        processor_time(&self.child.id().to_string())
    }

    /// What libpq must know.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("PGHOST", "localhost".to_owned()),
            ("PGHOSTADDR", self.address.ip().to_string()),
            ("PGPORT", self.address.port().to_string()),
            ("PGUSER", "admin".to_owned()),
            ("PGDATABASE", "postgres".to_owned()),
            ("PGSSLMODE", "verify-full".to_owned()),
            ("PGSSLROOTCERT", self.ca_file.display().to_string()),
            ("PGPASSWORD", self.token.clone()),
        ]
    }
}

/// Processor time so far of all threads of a process, given by its number or `self`.
pub(crate) fn processor_time(process: &str) -> anyhow::Result<Duration> {
    let mut nanos = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += text.split_whitespace().next().context("no schedstat")?.parse::<u64>()?;
    }
    ensure!(nanos > 0, "the kernel keeps no processor time here");
    Ok(Duration::from_nanos(nanos))
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of its input is its signal to stop.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}
