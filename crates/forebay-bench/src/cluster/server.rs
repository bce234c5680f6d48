//! The local Aurora DSQL in a separate process.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use anyhow::Context;
use dsql_local::{Cluster, Config, Credentials, EngineKind, Limits, TokenClock};
use serde_json::json;

use crate::clock::Stopwatch;
use crate::process;

/// The key that signs tokens, and its secret.
pub(crate) const KEY: &str = "AKIDBENCH";
pub(crate) const SECRET: &str = "nothing-to-protect";

/// Environment variables of libpq.
pub(crate) type Variables = Vec<(&'static str, String)>;

/// The server. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Where faults and limits are set.
    pub(crate) control: SocketAddr,
    pub(crate) ca_file: PathBuf,
    pub(crate) token: String,
    /// From its start until it listens.
    pub(crate) started_in: Duration,
}

/// A server with our key and without limits.
pub(crate) fn unlimited(config: Config) -> Config {
    let limits =
        Limits { connections: u32::MAX, per_second: 1_000_000, burst: 1_000_000, ..Limits::default() };
    Config { credentials: vec![Credentials::new(KEY, SECRET)], limits, ..config }
}

/// Serves until its input ends, so that it never outlives the process that started it.
pub(crate) fn serve(engine: EngineKind) -> anyhow::Result<()> {
    let cluster = Cluster::start(unlimited(Config {
        engine,
        control: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        // It equals the machine's clock until a request on the control port sets its speed.
        token_clock: TokenClock::Emulator,
        ..Config::default()
    }))?;
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

impl Server {
    pub(crate) fn start(engine: EngineKind) -> anyhow::Result<Self> {
        let watch = Stopwatch::start();
        let engine = if engine == EngineKind::Postgres { "postgres" } else { "builtin" };
        let mut command = process::this_program("dsql-local-serve")?;
        let (child, _, ready) = process::start_server(command.args(["--engine", engine]))?;
        let text = |name: &str| ready[name].as_str().with_context(|| format!("the server sent no {name}"));
        Ok(Self {
            address: text("address")?.parse()?,
            control: text("control")?.parse()?,
            ca_file: text("ca_file")?.into(),
            token: text("token")?.to_owned(),
            started_in: watch.elapsed(),
            child,
        })
    }

    /// Resident memory, in MB.
    pub(crate) fn memory(&self) -> anyhow::Result<f64> {
        Ok(process::memory(&self.child.id().to_string(), "VmRSS")? / 1e6)
    }

    /// Processor time of all its threads so far.
    pub(crate) fn processor_time(&self) -> anyhow::Result<Duration> {
        process::processor_time(&self.child.id().to_string())
    }

    /// Environment variables for psql and pgbench.
    pub(crate) fn variables(&self) -> Variables {
        let mut variables = libpq_variables(self.address, &self.ca_file);
        variables.push(("PGPASSWORD", self.token.clone()));
        variables
    }
}

/// Environment variables for psql and pgbench, without a password.
pub(crate) fn libpq_variables(address: SocketAddr, ca_file: &Path) -> Variables {
    vec![
        ("PGHOST", "localhost".to_owned()),
        ("PGHOSTADDR", address.ip().to_string()),
        ("PGPORT", address.port().to_string()),
        ("PGUSER", "admin".to_owned()),
        ("PGDATABASE", "postgres".to_owned()),
        ("PGSSLMODE", "verify-full".to_owned()),
        ("PGSSLROOTCERT", ca_file.display().to_string()),
    ]
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server stops when its input ends.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}
